"""The committed batches of partitions of which a run must lose none, as their leaders have them."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from kraft.invariants.cluster_model import PartitionKey
from kraft.invariants.stored_batches import StoredBatch, batches_between
from kraft.partitions.replicas import HostedPartition


class Advance(Struct, frozen=True):
    """The changes of a replica since the last look."""

    committed: Sequence[StoredBatch]
    """The batches that no look at any replica has seen as committed before."""
    appended: Sequence[StoredBatch]
    """The batches that are new in this one."""


class CommittedLogs:
    """The committed batches of some partitions."""

    def __init__(self) -> None:
        self.shown: dict[PartitionKey, list[StoredBatch]] = {}
        """The batches that a look has seen as committed."""
        self.is_void = False
        """Whether records are lost as Kafka allows: then nobody can judge what becomes of them."""
        self._ends: dict[tuple[int, PartitionKey], tuple[int, int]] = {}
        """The end and the watermark of each replica at the last look."""
        self._begun: dict[PartitionKey, int] = {}
        """The last leader epoch of which the leader has everything that was shown."""

    def is_new(self, broker_id: int, key: PartitionKey, part: HostedPartition) -> bool:
        """Whether a replica has changed since the last look."""
        return self._begins(key, part) or self._ends.get((broker_id, key), (0, 0)) != _end_of(part)

    def _begins(self, key: PartitionKey, part: HostedPartition) -> bool:
        return part.is_leader and part.leader_epoch > self._begun.get(key, -1)

    def look(
        self, broker_id: int, key: PartitionKey, part: HostedPartition, held: Sequence[StoredBatch], *, is_cleaned: bool
    ) -> Advance:
        """Look at a replica that has changed. The log of one that `is_cleaned` has only a part of its batches left.

        Args:
            broker_id: The broker.
            key: The partition.
            part: The replica.
            held: The batches in its log.
            is_cleaned: Whether the log is compacted.
        """
        log = part.log
        before, self._ends[broker_id, key] = self._ends.get((broker_id, key), (0, 0)), _end_of(part)
        shown = self.shown.setdefault(key, [])
        end = shown[-1].next_offset if shown else 0
        if self._begins(key, part):
            self._begun[key] = part.leader_epoch
            self.is_void = log.end_offset < end or not (is_cleaned or _agree(shown, held, log.start_offset))
            if self.is_void:
                return Advance((), ())
        added = batches_between(held, end, log.high_watermark) if log.high_watermark > end else []
        shown += added
        return Advance(added, batches_between(held, min(before[0], log.end_offset), log.end_offset))


def _end_of(part: HostedPartition) -> tuple[int, int]:
    return part.log.end_offset, part.log.high_watermark


def _agree(shown: Sequence[StoredBatch], held: Sequence[StoredBatch], start: int) -> bool:
    """Whether a log has what was shown, but for what is deleted at its begin."""
    left = [one.content for one in shown if one.next_offset > start] if start else [one.content for one in shown]
    first = next((at for at, one in enumerate(held) if one.next_offset > start), 0)
    return [one.content for one in held[first : first + len(left)]] == left
