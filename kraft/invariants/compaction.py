"""The invariant of compacted partitions: a cleaner never removes the last value of a key (Kafka: the guarantee of
`cleanup.policy=compact`).

The caller says what is in the files of each replica, and the ledger reads the records itself. Records of transactions
do not count: an aborted one may go.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from kraft.invariants.cluster_model import PartitionKey
from kraft.invariants.records import Replica
from kraft.invariants.violation import InvariantViolated
from metadata_log.records.batch import scan
from metadata_log.records.record import records

Value = tuple[int, bytes | None]
"""The offset and the value of a record."""


class _Kept(Struct, frozen=True):
    """The content of one replica at a look."""

    values: dict[bytes, Value]
    """The last record of each key."""
    count: int
    high_watermark: int


class CompactionLedger:
    """The last value of each key on each replica. Every method raises `InvariantViolated`."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, PartitionKey], _Kept] = {}
        self._cut: dict[PartitionKey, None] = {}
        """The partitions of which a replica has lost committed records. A cleaner had removed what those replaced."""
        self.cleaned = 0
        """How many records cleaners have removed."""

    def looked(self, replica: Replica, data: bytes, *, may_lose: bool = False) -> None:
        """The files of a replica have this content now.

        Args:
            replica: The replica.
            data: The batches of all segments.
            may_lose: Whether the power has failed since the last look.
        """
        where = replica.broker_id, replica.key
        before, now = self._kept.get(where), _read(data, replica.high_watermark)
        self._kept[where] = now
        if before is not None and replica.end_offset < before.high_watermark:
            self._cut[replica.key] = None
        if before is None or may_lose:
            return
        self.cleaned += max(before.count - now.count, 0)
        for key, (offset, value) in before.values.items():
            if value is None or not replica.start_offset <= offset < min(before.high_watermark, replica.end_offset):
                continue
            found = now.values.get(key)
            if found is None or found[0] < offset or (found[0] == offset and found[1] != value):
                raise InvariantViolated(
                    f"broker {replica.broker_id} has removed the last value of {key.decode()!r} in {replica.name},"
                    f" which was at offset {offset} below the high watermark {before.high_watermark}; the log has"
                    f" {'no other value' if found is None else f'a value at offset {found[0]}'}"
                )

    def removed(self, broker_id: int, key: PartitionKey) -> None:
        """A broker has no replica of a partition any more."""
        self._kept.pop((broker_id, key), None)

    def concluded(self, key: PartitionKey, name: str, broker_ids: Sequence[int]) -> None:
        """All faults are over, and the replicas have caught up: each key has the same last value on all of them.

        That need not hold once a replica has lost committed records, as after power failures of all brokers in the ISR.
        """
        if key in self._cut:
            return
        first: dict[bytes, Value] | None = None
        for broker_id in broker_ids:
            kept = self._kept[broker_id, key]
            values = {each: one for each, one in kept.values.items() if one[1] is not None}
            first = values if first is None else first
            if values != first:
                differing = sorted(each.decode() for each in (values | first) if values.get(each) != first.get(each))
                raise InvariantViolated(
                    f"the last values of {differing} in {name} differ on the brokers {broker_ids[0]} and {broker_id}"
                )


def _read(data: bytes, high_watermark: int) -> _Kept:
    values, count = dict[bytes, Value](), 0
    for batch in scan(data, verify=False):
        if batch.is_control or batch.is_transactional:
            continue
        for record in records(batch):
            count += 1
            if record.key is not None:
                values[record.key] = record.offset, record.value
    return _Kept(values, count, high_watermark)
