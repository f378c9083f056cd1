"""What a decision of the controller is: records to append, and what to answer once they are committed (Kafka:
`ControllerResult`, `ApiMessageAndVersion`, `ApiError`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from typing import Final, TypeVar

from msgspec import Struct, structs

from metadata_log.serde import Message
from transport.protocol.errors import Error

T = TypeVar("T")

RECORDS_PER_OPERATION: Final = 10_000
"""More records than this are refused for the whole request (`MAX_RECORDS_PER_USER_OP`)."""
TOO_MANY_RECORDS: Final = "Unable to perform excessively large batch operation."
"""What such a request is told (`EventHandlerExceptionInfo`)."""
CHEAP_PER_STEP: Final = 16
"""How many partitions a decision only looks at in one step. A step that changes a partition takes about as long."""


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


Records = Iterator[VersionedRecord | None]
"""Records one by one. None stands for a step that found no record: a decision may pause after each of both."""
Steps = Generator[VersionedRecord | None, None, ControllerResult]
"""A decision in steps, each of which takes some ten microseconds, so that a long one can be cut into turns.

The records that it yields come before those of its result. They are written as they come, in batches of at most 10,000
(`MAX_RECORDS_PER_BATCH`). A decision that yields records raises `ApiError` only before the first, and its result is not
atomic. It changes the sessions of brokers only after its last step.
"""


def found(records: Iterable[VersionedRecord | None]) -> list[VersionedRecord]:
    """The records alone."""
    return [record for record in records if record is not None]


def gather(records: Iterable[VersionedRecord | None]) -> Generator[None, None, list[VersionedRecord]]:
    """The records of steps, none of which is written before the result."""
    gathered = []
    for record in records:
        if record is not None:
            gathered.append(record)
        yield None
    return gathered


def counted(records: Iterable[VersionedRecord | None]) -> Generator[VersionedRecord | None, None, int]:
    """Pass the steps on; returns how many records were among them."""
    count = 0
    for record in records:
        yield record
        count += record is not None
    return count


def now_and_then(things: Iterable[T]) -> Iterator[T | None]:
    """Things that are only looked at, with None in between, where work may pause."""
    for number, thing in enumerate(things):
        yield thing
        if number % CHEAP_PER_STEP == 0:
            yield None


def at_once(decision: ControllerResult | Steps) -> ControllerResult:
    """The whole result of a decision, for callers that have time."""
    if isinstance(decision, ControllerResult):
        return decision
    records: list[VersionedRecord] = []
    while True:
        try:
            record = next(decision)
        except StopIteration as end:
            result: ControllerResult = end.value
            return structs.replace(result, records=(*records, *result.records)) if records else result
        if record is not None:
            records.append(record)
