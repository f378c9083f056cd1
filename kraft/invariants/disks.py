"""The invariants of consensus over what nodes leave on their disks (Kafka: those of `RaftEventSimulationTest`).

The caller reports quorum states, logs and high watermarks to a `Ledger`, in any order. The ledger remembers each
leader, vote and committed batch, and raises if a later report contradicts them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kraft.invariants.majorities import is_majority
from kraft.invariants.violation import InvariantViolated
from metadata_log.records.batch import RecordBatch
from metadata_log.records.record import records
from metadata_log.types import NO_NODE


class Ledger:
    """The leaders, votes and committed batches of one quorum.

    Every method raises `InvariantViolated` if a report contradicts an earlier one.
    """

    def __init__(self, voter_ids: Sequence[int]) -> None:
        """`voter_ids` are the ids of the voters, which never change."""
        self._voter_ids = tuple(voter_ids)
        self._leaders: dict[int, int] = {}
        self._votes: dict[tuple[int, int], int] = {}
        self._epochs: dict[int, int] = {}
        self._written: dict[tuple[int, int], bytes] = {}
        self._committed: list[RecordBatch] = []
        self._acknowledged: dict[int, bytes] = {}

    @property
    def committed_end(self) -> int:
        """At least one node has committed everything below this offset."""
        return self._committed[-1].next_offset if self._committed else 0

    def note_leader(self, node_id: int, epoch: int, leader_id: int) -> None:
        """Report the leader of an epoch, as a node names it; -1 for none (Kafka: `SingleLeader`)."""
        if leader_id == NO_NODE:
            return
        known = self._leaders.setdefault(epoch, leader_id)
        if known != leader_id:
            raise InvariantViolated(f"epoch {epoch} has two leaders: {known}, and for node {node_id} {leader_id}")

    def note_vote(self, node_id: int, epoch: int, voted_id: int) -> None:
        """Report the quorum-state of a node: its epoch, and the candidate with its vote, -1 for none (Kafka:
        `MonotonicEpoch`).
        """
        if epoch < self._epochs.get(node_id, 0):
            raise InvariantViolated(f"the epoch of node {node_id} fell from {self._epochs[node_id]} to {epoch}")
        self._epochs[node_id] = epoch
        if voted_id != NO_NODE:
            known = self._votes.setdefault((node_id, epoch), voted_id)
            if known != voted_id:
                raise InvariantViolated(f"node {node_id} voted twice in epoch {epoch}: for {known} and for {voted_id}")

    def note_log(self, node_id: int, batches: Sequence[RecordBatch], high_watermark: int) -> None:
        """Report the log of a node, and its high watermark if known (Raft: Log Matching; Kafka:
        `ConsistentCommittedData`).

        The leader of an epoch writes an offset once, so batches with the same epoch and offset are identical in every
        log. A committed batch is the same in every log in which its offset is below the high watermark.
        """
        end, epoch = 0, 0
        for batch in batches:
            if batch.base_offset != end or batch.epoch < epoch:
                raise InvariantViolated(
                    f"the log of node {node_id} goes from offset {end} of epoch {epoch} to offset {batch.base_offset}"
                    f" of epoch {batch.epoch}"
                )
            end, epoch = batch.next_offset, batch.epoch
            if self._written.setdefault((batch.epoch, batch.base_offset), batch.data) != batch.data:
                raise InvariantViolated(
                    f"node {node_id} has another batch at offset {batch.base_offset} of epoch {batch.epoch}"
                )
        if end < high_watermark:
            raise InvariantViolated(
                f"node {node_id} has the high watermark {high_watermark}, and its log ends at {end}"
            )
        self._note_committed(node_id, [batch for batch in batches if batch.next_offset <= high_watermark])

    def _note_committed(self, node_id: int, batches: Sequence[RecordBatch]) -> None:
        for known, batch in zip(self._committed, batches, strict=False):
            if known.data != batch.data:
                raise InvariantViolated(
                    f"node {node_id} has other records committed at offset {batch.base_offset}: it says epoch"
                    f" {batch.epoch}, where epoch {known.epoch} was committed"
                )
        self._committed.extend(batches[len(self._committed) :])

    def note_acknowledged(self, offset: int, values: Sequence[bytes]) -> None:
        """Report values that a node has acknowledged as committed, from this offset on."""
        for at, value in enumerate(values, offset):
            if self._acknowledged.setdefault(at, value) != value:
                raise InvariantViolated(f"offset {at} was acknowledged for two records")

    def check_durable(self, logs: Mapping[int, Sequence[RecordBatch]]) -> None:
        """Check that committed batches and acknowledged values are durable on a majority (Kafka:
        `MajorityReachedHighWatermark`). `logs` has the log of each voter as it would be after a power failure now.
        """
        voters = [(node_id, logs[node_id]) for node_id in self._voter_ids]
        for place, batch in enumerate(self._committed):
            holders = [node_id for node_id, log in voters if len(log) > place and log[place].data == batch.data]
            if not is_majority(len(holders), len(voters)):
                raise InvariantViolated(
                    f"what was committed at offset {batch.base_offset} of epoch {batch.epoch} is only on the disks of"
                    f" {holders}"
                )
        values = [(node_id, _values(log)) for node_id, log in voters] if self._acknowledged else []
        for offset, value in self._acknowledged.items():
            holders = [node_id for node_id, held in values if held.get(offset) == value]
            if not is_majority(len(holders), len(voters)):
                raise InvariantViolated(
                    f"{value!r}, acknowledged at offset {offset}, is only on the disks of {holders}"
                )


def _values(log: Sequence[RecordBatch]) -> dict[int, bytes | None]:
    return {record.offset: record.value for batch in log if not batch.is_control for record in records(batch)}
