"""The invariants of compacted partitions: a cleaner never removes the last value of a key (Kafka: the guarantee of
`cleanup.policy=compact`), and no replica loses committed records but by a power failure or an unclean election.

The caller says what is in the files of each replica, and the ledger reads the records itself. Records of transactions
do not count: an aborted one may go. A cleaner changes batches, so that only offsets tell which records are committed.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from kraft.invariants.cluster_model import PartitionKey
from kraft.invariants.records import NEVER, Metadata, Replica
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
    watermark_epoch: int
    """The leader epoch in which the watermark last moved in this life of the broker."""


class _Committed(Struct, frozen=True):
    """The largest high watermark of any replica, and the leader epoch in which that was seen."""

    end_offset: int
    epoch: int


class CompactionLedger:
    """The last value of each key on each replica. Every method raises `InvariantViolated`."""

    def __init__(self, metadata: Metadata) -> None:
        """Begin with empty partitions. `metadata` is the committed one."""
        self._metadata = metadata
        self._kept: dict[tuple[int, PartitionKey], _Kept] = {}
        self._committed: dict[PartitionKey, _Committed] = {}
        self._lost: dict[tuple[int, PartitionKey], None] = {}
        """The replicas that lack committed records since a power failure."""
        self._led: dict[tuple[int, PartitionKey], int] = {}
        """The last leader epoch in which a replica began to lead."""
        self._unclean: dict[PartitionKey, int] = {}
        """The last leader epoch that began with a replica that may lack committed records, as Kafka allows."""
        self.cleaned = 0
        """How many records cleaners have removed."""

    def elected_uncleanly(self, key: PartitionKey, epoch: int) -> None:
        """A leader was elected that may lack committed records: what was committed before may be gone."""
        if epoch > self._unclean.get(key, NEVER):
            self._unclean[key] = epoch

    def looked(self, replica: Replica, data: bytes, *, is_start: bool = False, may_lose: bool = False) -> None:
        """The files of a replica have this content now: the batches of all segments. `is_start` if the broker has just
        opened the log, `may_lose` if the power has failed since the last look.
        """
        where = replica.broker_id, replica.key
        before = self._kept.get(where)
        moved = before is None or is_start or before.high_watermark != replica.high_watermark
        epoch = NEVER if before is None or is_start else replica.leader_epoch if moved else before.watermark_epoch
        now = self._kept[where] = _read(data, replica.high_watermark, epoch)
        if before is not None and replica.end_offset < before.high_watermark:
            self._note_loss(replica, before, may_lose=may_lose)
        if before is not None and not is_start and moved:
            self._note_watermark(replica)
        if replica.is_leader and replica.leader_epoch > self._led.get(where, NEVER):
            self._led[where] = replica.leader_epoch
            self._check_leader(replica)
        if replica.end_offset >= self._committed_end(replica):
            self._lost.pop(where, None)
        if before is None or may_lose:
            return
        self.cleaned += max(before.count - now.count, 0)
        for key, (offset, value) in before.values.items():
            if value is None or not replica.start_offset <= offset < min(before.high_watermark, replica.end_offset):
                continue
            kept = now.values.get(key)
            if kept is None or kept[0] < offset or (kept[0] == offset and kept[1] != value):
                raise InvariantViolated(
                    f"broker {replica.broker_id} has removed the last value of {key.decode()!r} in {replica.name},"
                    f" which was at offset {offset} below the high watermark {before.high_watermark}; the log has"
                    f" {'no other value' if kept is None else f'a value at offset {kept[0]}'}"
                )

    def _note_loss(self, replica: Replica, before: _Kept, *, may_lose: bool) -> None:
        """A replica ends below what it knew to be committed."""
        if may_lose:
            self._lost[replica.broker_id, replica.key] = None
        elif self._unclean.get(replica.key, NEVER) <= before.watermark_epoch:
            raise InvariantViolated(
                f"broker {replica.broker_id} has cut {replica.name} to offset {replica.end_offset}, below the high"
                f" watermark {before.high_watermark}; neither a power failure nor an unclean election allows that"
            )

    def _note_watermark(self, replica: Replica) -> None:
        """Take the records below the watermark as committed, unless the replica has missed an unclean election."""
        is_outdated = replica.leader_epoch < self._unclean.get(replica.key, NEVER)
        if not is_outdated and replica.high_watermark > self._committed_end(replica):
            self._committed[replica.key] = _Committed(replica.high_watermark, replica.leader_epoch)

    def _committed_end(self, replica: Replica, before_epoch: int | None = None) -> int:
        """The end of what is committed, or of what was before an epoch; an unclean election makes that void."""
        known = self._committed.get(replica.key)
        if known is None or known.epoch < self._unclean.get(replica.key, NEVER):
            return 0
        return known.end_offset if before_epoch is None or known.epoch < before_epoch else 0

    def _check_leader(self, replica: Replica) -> None:
        """A new leader has everything that was committed, unless a power failure took it from the whole ISR and ELR."""
        key, end = replica.key, self._committed_end(replica, replica.leader_epoch)
        if replica.end_offset >= end:
            return
        partition = self._metadata.partition_of(key)
        eligible = set() if partition is None else {*partition.isr, *partition.elr}
        if not all((one, key) in self._lost for one in eligible):
            raise InvariantViolated(
                f"broker {replica.broker_id} leads {replica.name} in epoch {replica.leader_epoch} from offset"
                f" {replica.end_offset} on, and all below {end} was committed; power failures took that from"
                f" {[one for one in sorted(eligible) if (one, key) in self._lost]} of {sorted(eligible)} only"
            )
        self.elected_uncleanly(key, replica.leader_epoch)

    def removed(self, broker_id: int, key: PartitionKey) -> None:
        """A broker has no replica of a partition any more."""
        self._kept.pop((broker_id, key), None)
        self._lost.pop((broker_id, key), None)

    def concluded(self, key: PartitionKey, name: str, broker_ids: Sequence[int]) -> None:
        """All faults are over, and the replicas have caught up: each key has the same last value on all of them.

        That need not hold once a leader has lacked committed records, as Kafka allows: after an unclean election, or
        after power failures of all brokers in the ISR. Kafka's cleaner works up to the high watermark. So a follower
        that has cleaned keeps the last value alone, cuts that one to follow the new leader, and has no older value.
        """
        if key in self._unclean:
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


def _read(data: bytes, high_watermark: int, watermark_epoch: int) -> _Kept:
    values, count = dict[bytes, Value](), 0
    for batch in scan(data, verify=False):
        if batch.is_control or batch.is_transactional:
            continue
        for record in records(batch):
            count += 1
            if record.key is not None:
                values[record.key] = record.offset, record.value
    return _Kept(values, count, high_watermark, watermark_epoch)
