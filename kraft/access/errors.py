"""The error of a request, or of one item of a request (Kafka: `ApiError`)."""

from __future__ import annotations

from typing import Final

from metadata_log.types import NO_NODE
from transport.protocol.errors import Error

LONGEST_TEXT_BYTES: Final = 32_767
"""The longest string of the protocol. A message that quotes a long value of a client is cut."""


def bounded(text: str) -> str:
    """The text, cut where it is longer than an answer can carry: clients choose names of 32 KB."""
    if len(data := text.encode()) > LONGEST_TEXT_BYTES:
        return f"{data[: LONGEST_TEXT_BYTES - 3].decode(errors='ignore')}..."
    return text


class ApiError(Exception):
    """An error of the protocol; the code that responds to the item or the request catches the exception."""

    def __init__(self, error: Error, text: str | None = None) -> None:
        text = None if text is None else bounded(text)
        super().__init__(text or error.message)
        self.error = error
        self.text = text


def not_controller_error(leader_id: int) -> ApiError:
    """The error of a controller that is not active; `leader_id` is the quorum's leader as far as known, or -1."""
    text = "No controller appears to be active."
    if leader_id != NO_NODE:
        text = f"The active controller appears to be node {leader_id}."
    return ApiError(Error.NOT_CONTROLLER, text)
