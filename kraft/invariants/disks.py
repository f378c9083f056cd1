"""The invariants of consensus over what nodes leave on their disks (Kafka: those of `RaftEventSimulationTest`).

The caller shows a `Ledger` quorum states, logs and high watermarks, as often as needed and in any order. The ledger
remembers each leader, vote and committed batch; nothing shown later may contradict them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kraft.invariants.violation import InvariantViolated
from kraft.quorum.voters import majority
from metadata_log.records.batch import RecordBatch
from metadata_log.records.record import records
from metadata_log.types import NO_NODE


class Ledger:
    """What the quorum of `voter_ids` has promised so far. Every method raises `InvariantViolated`."""

    def __init__(self, voter_ids: Sequence[int]) -> None:
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
        """A node names the leader of an epoch; -1 is no leader."""
        if leader_id == NO_NODE:
            return
        known = self._leaders.setdefault(epoch, leader_id)
        if known != leader_id:
            raise InvariantViolated(f"epoch {epoch} has two leaders: {known}, and for node {node_id} {leader_id}")

    def note_vote(self, node_id: int, epoch: int, voted_id: int) -> None:
        """A node has this epoch, and this vote (-1 for none), in its quorum-state."""
        if epoch < self._epochs.get(node_id, 0):
            raise InvariantViolated(f"the epoch of node {node_id} fell from {self._epochs[node_id]} to {epoch}")
        self._epochs[node_id] = epoch
        if voted_id != NO_NODE:
            known = self._votes.setdefault((node_id, epoch), voted_id)
            if known != voted_id:
                raise InvariantViolated(f"node {node_id} voted twice in epoch {epoch}: for {known} and for {voted_id}")

    def note_log(self, node_id: int, batches: Sequence[RecordBatch], high_watermark: int) -> None:
        """A node has these batches in its log, and knows those below the high watermark (-1 for none) as committed.

        The leader of an epoch writes an offset once, so batches with the same epoch and offset are identical in every
        log. A committed batch is the same in every log in which its offset is below the high watermark.
        """
        end, epoch = 0, 0
        for batch in batches:
            if batch.base_offset != end or batch.epoch < epoch:
                raise InvariantViolated(
                    f"the log of node {node_id} goes from {end}@{epoch} to {batch.base_offset}@{batch.epoch}"
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
        """A node acknowledged these values as committed, the first one at `offset`."""
        for at, value in enumerate(values, offset):
            if self._acknowledged.setdefault(at, value) != value:
                raise InvariantViolated(f"offset {at} was acknowledged for two records")

    def check_durable(self, logs: Mapping[int, Sequence[RecordBatch]]) -> None:
        """Committed batches and acknowledged values are in the logs of a majority. `logs` are what a power failure at
        this moment would leave on the disks of all voters.
        """
        voters = [(node_id, logs[node_id]) for node_id in self._voter_ids]
        for place, batch in enumerate(self._committed):
            holders = [node_id for node_id, log in voters if len(log) > place and log[place].data == batch.data]
            if len(holders) < majority(len(voters)):
                raise InvariantViolated(
                    f"what was committed at offset {batch.base_offset} of epoch {batch.epoch} is only on the disks of"
                    f" {holders}"
                )
        values = [(node_id, _values(log)) for node_id, log in voters] if self._acknowledged else []
        for offset, value in self._acknowledged.items():
            holders = [node_id for node_id, found in values if found.get(offset) == value]
            if len(holders) < majority(len(voters)):
                raise InvariantViolated(
                    f"{value!r}, acknowledged at offset {offset}, is only on the disks of {holders}"
                )


def _values(log: Sequence[RecordBatch]) -> dict[int, bytes | None]:
    return {record.offset: record.value for batch in log if not batch.is_control for record in records(batch)}
