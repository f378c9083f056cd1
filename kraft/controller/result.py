"""What a decision of the controller is: records to append, and what to answer once they are committed (Kafka:
`ControllerResult`, `ApiMessageAndVersion`, `ApiError`).
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from metadata_log.serde import Message
from transport.protocol.errors import Error

RECORDS_PER_OPERATION: Final = 10_000
"""More records than this are refused for the whole request (`MAX_RECORDS_PER_USER_OP`)."""


LONGEST_TEXT_BYTES: Final = 32_767
"""A text that quotes a client's value may be longer than a response has room for; it is cut."""


class ApiError(Exception):
    """The protocol says no: caught where the item or the request is answered."""

    def __init__(self, error: Error, text: str | None = None) -> None:
        if text is not None and len(data := text.encode()) > LONGEST_TEXT_BYTES:
            text = f"{data[: LONGEST_TEXT_BYTES - 3].decode(errors='ignore')}..."
        super().__init__(text or error.message)
        self.error = error
        self.text = text


class VersionedRecord(Struct, frozen=True, gc=False):
    """A metadata record and the version to write it in."""

    record: Message
    version: int = 0


class QuorumLevel(Struct, frozen=True, gc=False):
    """A level of kraft.version, which is the quorum's to take, as it stands in no metadata record."""

    level: int
    validate_only: bool


class ControllerResult(Struct, frozen=True, gc=False):
    """Records in the order in which they are to be appended, and the response, if somebody waits for one.

    An atomic result stands in one batch; another may be cut at the limit of records in a batch.
    """

    records: tuple[VersionedRecord, ...] = ()
    response: Message | None = None
    is_atomic: bool = True
    quorum_level: QuorumLevel | None = None
