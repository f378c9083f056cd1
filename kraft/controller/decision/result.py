"""The results of decisions: records to append, and a response to send after their commit (Kafka: `ControllerResult`,
`ApiMessageAndVersion`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from typing import Final, TypeVar

from msgspec import Struct, structs

from kraft.replica.interface.actions import QuorumLevel
from kraft.steps import Answering
from metadata_log.records.frame import VersionedRecord
from metadata_log.serde import Message

T = TypeVar("T")

TOO_MANY_RECORDS: Final = "Unable to perform excessively large batch operation."
"""The message for such a request (`EventHandlerExceptionInfo`)."""


class ControllerResult(Struct, frozen=True, gc=False):
    """Records in append order, and the response if a caller waits for one.

    An atomic result is one batch. Another result may be divided at the limit of records in a batch.
    """

    records: tuple[VersionedRecord, ...] = ()
    response: Message | None = None
    is_atomic: bool = True
    quorum_level: QuorumLevel | None = None


Records = Iterator[VersionedRecord | None]
"""Records one by one. None is a step without a record: a decision may pause after each element."""
Steps = Generator[VersionedRecord | None, None, ControllerResult]
"""A decision in steps of some ten microseconds each, so that a long decision spans several turns.

The yielded records precede those of the result. They are written as they come, in batches of at most 10,000
(`MAX_RECORDS_PER_BATCH`). A decision that yields records raises `ApiError` only before the first record, and its result
is not atomic. A decision changes broker sessions only after its last step.
"""


def answered_with(answering: Answering) -> Steps:
    """A decision that only answers: a read, or a refusal."""
    return ControllerResult(response=(yield from answering))


def found(records: Iterable[VersionedRecord | None]) -> list[VersionedRecord]:
    """The records alone."""
    return [record for record in records if record is not None]


def gather(records: Iterable[VersionedRecord | None]) -> Generator[None, None, list[VersionedRecord]]:
    """Collect the records of the steps, all to be written with the result."""
    gathered = []
    for record in records:
        if record is not None:
            gathered.append(record)
        yield None
    return gathered


def counted(records: Iterable[VersionedRecord | None]) -> Generator[VersionedRecord | None, None, int]:
    """Pass the steps on; returns the number of records among them."""
    count = 0
    for record in records:
        yield record
        count += record is not None
    return count


def at_once(decision: ControllerResult | Steps) -> ControllerResult:
    """The whole result of a decision, for callers without a time limit."""
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
