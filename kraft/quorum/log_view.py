"""The core's view of its log: offsets, epochs and snapshots, without the records (Kafka: `RaftLog`).

An offset changes here when the core emits the effect that changes the log. So later decisions of the same step already
see the new offset.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from metadata_log.log.epochs import EpochHistory
from metadata_log.types import NO_OFFSET, OffsetAndEpoch


class Position(StrEnum):
    """How a replica's (offset, last epoch) relates to this log (`ValidOffsetAndEpoch`)."""

    VALID = "valid"
    DIVERGING = "diverging"
    SNAPSHOT = "snapshot"


class PositionCheck(Struct, frozen=True):
    """The result of a position check. `at` is the truncation point, or the snapshot to fetch."""

    position: Position
    at: OffsetAndEpoch


class LogView:
    """Start, end, flushed end and high watermark of the log, its epochs, and the snapshots on disk."""

    def __init__(
        self,
        *,
        start_offset: int,
        end_offset: int,
        epochs: EpochHistory,
        snapshots: tuple[OffsetAndEpoch, ...] = (),
    ) -> None:
        self.start_offset = start_offset
        self.end_offset = end_offset
        """The offset after the last record."""
        self.flushed_offset = end_offset
        """The offset after the last record that is known to be on disk."""
        self.high_watermark = NO_OFFSET
        """All records below this offset are committed; -1 while unknown after the start."""
        self.snapshots = snapshots
        self._set_epochs(epochs)

    def _set_epochs(self, epochs: EpochHistory) -> None:
        latest = epochs.last_epoch
        if latest is None:
            latest = self.snapshots[-1].epoch if self.snapshots else 0
        self.epochs = epochs
        self.last_epoch = latest
        """The epoch of the last record; without records that of the snapshot at which the log begins, or 0."""

    @property
    def end(self) -> OffsetAndEpoch:
        """The end offset and the last epoch, which a vote compares."""
        return OffsetAndEpoch(epoch=self.last_epoch, offset=self.end_offset)

    @property
    def flushed_end(self) -> OffsetAndEpoch:
        """The end of the log that a candidate reports. After a crash the candidate campaigns again in the same epoch,
        and its voters grant the vote again. So the log must then hold at least what the candidate has reported.
        """
        offset = self.flushed_offset
        if offset == self.end_offset:
            return self.end
        epoch = self.epochs.epoch_at(offset - 1)
        if epoch is None:
            epoch = next((one.epoch for one in self.snapshots if one.offset == offset), 0)
        return OffsetAndEpoch(epoch=epoch, offset=offset)

    @property
    def is_flushed(self) -> bool:
        """Whether every record is on disk."""
        return self.flushed_offset == self.end_offset

    @property
    def never_below(self) -> int:
        """The lower bound of truncations: the end of the committed records and of the newest snapshot."""
        return max(self.high_watermark, self.snapshots[-1].offset if self.snapshots else 0, self.start_offset)

    def assign_epoch(self, epoch: int) -> None:
        """Begin `epoch` at the end of the log, as a new leader does."""
        self._set_epochs(self.epochs.assign(epoch, self.end_offset))

    def appended(self, next_offset: int, epoch: int) -> None:
        """Record the append of a batch of `epoch` that ends before `next_offset`."""
        assert next_offset > self.end_offset, (next_offset, self.end_offset)
        assert epoch >= self.last_epoch, (epoch, self.last_epoch)
        if epoch != self.last_epoch or not self.epochs.entries:
            self._set_epochs(self.epochs.assign(epoch, self.end_offset))
        self.end_offset = next_offset

    def truncated(self, offset: int) -> None:
        """Record a truncation to `offset`."""
        assert self.never_below <= offset < self.end_offset, (self.never_below, offset, self.end_offset)
        self._set_epochs(self.epochs.truncate_end(offset))
        self.end_offset = offset
        self.flushed_offset = min(self.flushed_offset, offset)

    def cut_for(self, snapshot: OffsetAndEpoch) -> int | None:
        """The offset to which this log must be truncated before a leader's snapshot replaces the log; the end offset if
        no truncation is needed.

        None for a snapshot that this log already covers, or that contradicts records known to be committed.

        Comparing (epoch, offset) is right for votes only: a tail of a later epoch was never committed if a snapshot
        covers its offsets with an earlier epoch. Such a tail is truncated first. Then the snapshot is ahead of the log
        by (epoch, offset) too, which a start after a crash compares (`KafkaRaftLog.truncateToLatestSnapshot`).
        """
        entries = self.epochs.entries
        kept = sum(entry.epoch <= snapshot.epoch for entry in entries)
        if kept == len(entries):
            end = self.end
        elif kept:
            end = OffsetAndEpoch(epoch=entries[kept - 1].epoch, offset=entries[kept].offset)
        else:
            end = OffsetAndEpoch(epoch=self.snapshots[-1].epoch if self.snapshots else 0, offset=entries[0].offset)
        committed = self.never_below
        return end.offset if end.offset >= committed < snapshot.offset and snapshot > end else None

    def reset_to(self, snapshot: OffsetAndEpoch) -> None:
        """Replace the log and older snapshots by a snapshot of committed records. The caller has truncated the log to
        `cut_for(snapshot)`.
        """
        assert self.cut_for(snapshot) == self.end_offset, (snapshot, self.end, self.never_below)
        self.snapshots = (snapshot,)
        self.start_offset = self.end_offset = self.flushed_offset = snapshot.offset
        self._set_epochs(EpochHistory())

    def snapshot_taken(self, snapshot: OffsetAndEpoch) -> None:
        """Add a snapshot of committed records."""
        assert self.start_offset <= snapshot.offset <= self.high_watermark, (snapshot, self.high_watermark)
        self.snapshots = tuple(sorted({*self.snapshots, snapshot}))

    def raise_start(self, offset: int) -> None:
        """Raise the log start to `offset`, the end of a snapshot."""
        assert any(one.offset == offset for one in self.snapshots), (offset, self.snapshots)
        self.start_offset = offset
        self.snapshots = tuple(one for one in self.snapshots if one.offset >= offset)
        self._set_epochs(self.epochs.truncate_start(offset))

    def flushed(self, offset: int, epoch: int) -> bool:
        """Record that everything below `offset` is on disk; returns False for a flush of records truncated since."""
        if offset <= self.flushed_offset or offset > self.end_offset or self.epoch_before(offset) != epoch:
            return False
        self.flushed_offset = offset
        return True

    def epoch_before(self, offset: int) -> int:
        """The epoch of the record just before `offset`."""
        entries = self.epochs.entries
        if entries and offset > entries[-1].offset:
            return entries[-1].epoch
        epoch = self.epochs.epoch_at(offset - 1)
        return self.last_epoch if epoch is None else epoch

    def commit(self, offset: int) -> None:
        """Raise the high watermark to `offset`."""
        assert self.high_watermark < offset <= self.end_offset, (self.high_watermark, offset, self.end_offset)
        self.high_watermark = offset

    def end_offset_for(self, epoch: int) -> OffsetAndEpoch:
        """The end of the records of `epoch` in this log, or of those of the last epoch before."""
        if self.epochs.last_epoch is None:
            return OffsetAndEpoch(epoch=self.last_epoch, offset=self.end_offset)
        return self.epochs.end_offset_for(epoch, self.end_offset)

    def holds(self, offset: int, last_epoch: int) -> bool:
        """A quick form of `check` for positions in the last epoch: True only if `check` returns VALID."""
        return self.start_offset < offset <= self.end_offset and last_epoch == self.last_epoch

    def check(self, offset: int, last_epoch: int) -> PositionCheck:
        """Check the position of a replica that has fetched up to `offset`, with a last record of `last_epoch`
        (`validateOffsetAndEpoch`).
        """
        latest = self.snapshots[-1] if self.snapshots else None
        if offset == 0 and latest is not None and latest.offset > 0:
            return PositionCheck(Position.SNAPSHOT, latest)
        valid = PositionCheck(Position.VALID, OffsetAndEpoch(epoch=last_epoch, offset=offset))
        if offset == 0 and self.start_offset == 0:
            return valid
        if latest is not None and self._needs_snapshot(offset, last_epoch):
            return PositionCheck(Position.SNAPSHOT, latest)
        end = self.end_offset_for(last_epoch)
        if end.epoch != last_epoch or end.offset < offset:
            return PositionCheck(Position.DIVERGING, end)
        return valid

    def _needs_snapshot(self, offset: int, last_epoch: int) -> bool:
        earliest = self.snapshots[0]
        before_start = offset < self.start_offset
        other_start = offset == self.start_offset and last_epoch != earliest.epoch
        return before_start or other_start or last_epoch < earliest.epoch

    def truncation_point(self, diverging: OffsetAndEpoch) -> int:
        """The truncation offset of this log, given the leader's end of an epoch (`RaftLog.truncateToEndOffset`)."""
        if diverging.epoch == 0:
            return min(diverging.offset, self.end_offset)
        mine = self.end_offset_for(diverging.epoch)
        return min(mine.offset, diverging.offset) if mine.epoch == diverging.epoch else mine.offset
