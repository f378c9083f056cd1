"""Unexpected exceptions in the handling of one request, each of which is a bug of this software.

Kafka answers such a request with UNKNOWN_SERVER_ERROR and goes on (`KafkaApis.handleError`). So does `kraft serve`,
where the handling changes nothing, or changes only what a repetition would change in the same way. Everywhere else the
exception ends the node, because its state may be half changed; and in the simulator and in tests it always does, so
that no bug hides. See `docs/decisions/0079-a-bug-in-one-request-is-an-answer.md`.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from kraft.access.errors import ApiError
from kraft.limits import FAILURES_NOTED
from metadata_log.serde import Message
from transport.protocol.errors import Error

_LONGEST: Final = 300


class RequestFailure(Struct, frozen=True):
    """One failure, for the log of the node: the request, the exception, and the line of code that raised it."""

    request: str
    what: str
    where: str


class RequestFailures:
    """The failures of one node since they were last taken.

    Args:
        is_survived: Whether a request may fail alone. If not, `note` raises the exception again.
    """

    def __init__(self, *, is_survived: bool = False) -> None:
        self._is_survived = is_survived
        self.noted: list[RequestFailure] = []
        """The failures that the next `take` returns."""

    def note(self, request: Message, failure: Exception) -> ApiError:
        """Note an exception in the handling of a request; returns the error of the answer."""
        if not self._is_survived:
            raise failure
        if len(self.noted) < FAILURES_NOTED:
            what = f"{type(failure).__name__}: {failure}"[:_LONGEST]
            self.noted.append(RequestFailure(type(request).__name__, what, _origin(failure)))
        return ApiError(Error.UNKNOWN_SERVER_ERROR)

    def take(self) -> tuple[RequestFailure, ...]:
        """The failures since the last call."""
        taken, self.noted[:] = tuple(self.noted), []
        return taken


def _origin(failure: Exception) -> str:
    """The file and the line that raised an exception."""
    at = failure.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    if at is None:
        return "unknown"
    path = at.tb_frame.f_code.co_filename.replace("\\", "/").rsplit("/", 2)
    return f"{'/'.join(path[-2:])}:{at.tb_lineno}"
