"""The invariants of what is committed: which batches, in which order, and what a caller may be told of them (Kafka:
`MonotonicHighWatermark` and `ConsistentCommittedData` of `RaftEventSimulationTest`; TLA+: LeaderHasAllAckedValues,
AckedValueNotLost; Raft §5.4.2).

A batch counts as committed once the high watermark of any node is beyond the batch.
"""

from __future__ import annotations

import operator
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from operator import attrgetter

from kraft.invariants.observation import Applied, LogBatch, View
from kraft.invariants.observed_node import ObservedNode
from metadata_log.types import NO_OFFSET

IsRecordOf = Callable[[bytes, bytes], bool]
"""Whether a committed record is that of a submission."""
_base_offset = attrgetter("base_offset")
_next_offset = attrgetter("next_offset")
_epoch = attrgetter("epoch")


class CommitLedger:
    """The committed batches of one run. A check returns a description of the violation, or None."""

    def __init__(self) -> None:
        self.batches: list[LogBatch] = []
        """The committed batches, as in the log."""
        self.values: list[tuple[bytes, ...]] = []
        """The submitted values in each of the batches; none in a control batch."""
        self.values_end = 0
        """The offset after the last committed values."""
        self._epochs: list[int] = []
        """The epoch of the first node that committed each batch."""
        self._leader_progress = (0, NO_OFFSET)
        """The epoch of the latest leader that committed something, and its high watermark."""

    @property
    def end_offset(self) -> int:
        """At least one node has committed everything below this offset."""
        return self.batches[-1].next_offset if self.batches else 0

    def count_below(self, offset: int) -> int:
        """The number of committed batches that end at or before an offset."""
        return bisect_right(self.batches, offset, key=_next_offset)

    def add(self, batch: LogBatch, values: tuple[bytes, ...], epoch: int) -> None:
        """Add a batch that a node in `epoch` has committed, the first one of all nodes."""
        self.batches.append(batch)
        self.values.append(values)
        self._epochs.append(epoch)
        if values:
            self.values_end = batch.next_offset

    # Logs beside the committed batches

    def ends_between(self, node_id: int, log_start_offset: int) -> str | None:
        """Check where a log begins: a snapshot replaces committed batches only, and whole ones."""
        place = self.count_below(log_start_offset)
        if log_start_offset > 0 and (place == 0 or self.batches[place - 1].next_offset != log_start_offset):
            return (
                f"the log of node {node_id} begins at {log_start_offset}, where nothing committed ends; "
                f"{self.end_offset} is committed"
            )
        return None

    def is_committed_at(self, place: int, batch: LogBatch, epoch: int) -> bool:
        """Whether this batch is the committed one at a place of the log, and was committed up to this epoch."""
        return place < len(self.batches) and self._epochs[place] <= epoch and batch == self.batches[place]

    def missing(self, node_id: int, observed: ObservedNode, epoch: int) -> str | None:
        """Check a new leader of this epoch: every batch committed in an earlier epoch is in its log."""
        place = len(self.batches) - 1
        while place >= 0 and self._epochs[place] >= epoch:
            place -= 1
        if place >= 0 and (place >= len(observed.log) or observed.log[place] != self.batches[place]):
            return (
                f"node {node_id} leads epoch {epoch} without the committed {self.batches[place]}; "
                f"its log ends at {observed.end_offset}"
            )
        return None

    # The high watermark of a leader

    def own_epoch_missing(self, observed: ObservedNode, view: View) -> str | None:
        """Check that a leader commits batches of former epochs only with one of its own (Raft §5.4.2)."""
        first = bisect_left(observed.log, view.epoch, key=_epoch)
        if first == len(observed.log) or view.high_watermark <= observed.log[first].base_offset:
            return f"node {observed.key.id} commits batches of former epochs without one of its own: {view}"
        return None

    def falls_behind(self, node_id: int, view: View) -> str | None:
        """Check that the high watermark of a leader is not below that of a former leader."""
        epoch, offset = self._leader_progress
        if view.epoch >= epoch:
            if view.high_watermark < offset:
                return (
                    f"node {node_id} leads epoch {view.epoch} with the high watermark {view.high_watermark}, below the"
                    f" {offset} of a leader before"
                )
            self._leader_progress = (view.epoch, view.high_watermark)
        return None

    # What applications and callers are told

    def applied(self, node_id: int, applied: Applied, applied_offset: int) -> str | None:
        """Check a batch for an application at `applied_offset`: it is committed, and follows what was applied."""
        place = bisect_right(self.batches, applied.base_offset, key=_base_offset) - 1
        if place < 0 or self.batches[place].base_offset != applied.base_offset or self.values[place] != applied.values:
            return f"node {node_id} applies {applied}, which is not a committed batch"
        first = bisect_left(self.batches, applied_offset, key=_base_offset)
        if applied.base_offset < applied_offset or any(self.values[first:place]):
            return f"node {node_id} applies {applied} after {applied_offset}"
        return None

    def acknowledged(
        self, node_id: int, value: bytes, offset: int | None, is_record_of: IsRecordOf = operator.eq
    ) -> str | None:
        """Check that a submission that a node acknowledges is committed, at the offset if that is known. Otherwise
        `is_record_of` recognises the record of the submission: another record may contain the same bytes.
        """
        if offset is None:
            if any(is_record_of(record, value) for values in reversed(self.values) for record in values):
                return None
            return f"node {node_id} acknowledges {value!r}, which is not committed"
        place = bisect_right(self.batches, offset, key=_base_offset) - 1
        if place < 0 or offset >= self.end_offset:
            return f"node {node_id} acknowledges offset {offset}, which is not committed"
        first = offset - self.batches[place].base_offset
        if self.values[place][first : first + 1] != (value,):
            return f"{value!r} was acknowledged at offset {offset}, in a batch with {list(self.values[place])}"
        return None

    def refused(self, values: Iterable[bytes]) -> str | None:
        """Check that none of these values, which were definitely refused, is committed."""
        committed = {one for values in self.values for one in values}.intersection(values)
        return f"these values were refused, but are committed: {sorted(committed)}" if committed else None
