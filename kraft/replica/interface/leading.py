"""The part of a process that leads where its replica leads the quorum, as the replica knows it."""

from __future__ import annotations

from abc import abstractmethod
from typing import Protocol

from kraft.access.errors import ApiError
from kraft.committed import LogReader
from kraft.quorum.values import LeaderAndEpoch
from kraft.replica.interface.actions import Action, ForRequest, Unit
from kraft.wire import Answer, WireRequest
from transport.protocol.errors import Error


class Quorum(Protocol):
    """The quorum, as the part that leads sees it."""

    @property
    def leader(self) -> LeaderAndEpoch:
        """The leader as far as this replica knows."""

    @property
    def is_full(self) -> bool:
        """Whether so much waits for a commit that the part may decide nothing more: it refuses what would append."""


class Leading(LogReader):
    """The part that leads where this node leads the quorum: it may append to the log.

    A method that a part leaves out has nothing to do there.
    """

    guards_quorum = False
    """Whether `denial` has an opinion."""
    quorum: Quorum
    """The replica says what it is when it is made."""

    @abstractmethod
    def on_leader(self, epoch: int, next_offset: int, now_ms: int) -> tuple[Action, ...]:
        """Begin to lead in `epoch`: everything below `next_offset` is committed and applied."""

    @abstractmethod
    def on_lost_leadership(self) -> None:
        """End the leadership that began with `on_leader`. Uncommitted proposals may vanish."""

    def on_appended(self, unit: Unit, base_offset: int) -> None:
        """Take the base offset of a proposed unit, which is in the log but not committed yet."""

    def on_caught_up(self) -> None:
        """The part has applied all known commits. Called after each commit."""

    def denial(self, request: WireRequest) -> ApiError | None:
        """Why the sender may not send this request of the quorum; None if it may. Called before the request runs."""
        return None

    def refuse(self, asked: ForRequest, error: Error, now_ms: int, text: str | None = None) -> Answer | None:
        """Answer a request with refused or lost records.

        The records were refused (`RECORD_LIST_TOO_LARGE`, `REQUEST_TIMED_OUT`), or may be lost. `text` explains the
        error. Returns None if the answer takes several turns: the part then returns it from `on_tick`.
        """
        raise AssertionError(f"no client of this part waits for the commit of records: {asked}")

    def on_confirmed(self, token: int, *, is_leader: bool) -> None:
        """The result of the `Confirm` with this token: this node still led after it and has applied everything that
        was committed when it was issued; or this node does not lead any more.
        """
        raise AssertionError("this part has not asked for a confirmation")
