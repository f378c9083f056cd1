"""Hands committed batches to the parts, a turn's worth at a time (Kafka:
`KafkaRaftClient.updateListenersProgress`).
"""

from __future__ import annotations

from itertools import tee

from kraft.committed import LogReader
from kraft.limits import COMMITTED_RECORDS_PER_TURN
from kraft.quorum.core import RaftCore
from kraft.replica.activation import Activation
from kraft.replica.applier import Applier
from kraft.replica.confirmations import Confirmations
from kraft.replica.interface.leading import Leading
from kraft.replica.outbox import Outbox
from kraft.replica.snapshot_schedule import SnapshotSchedule
from kraft.replica.storage.storage import Storage
from metadata_log.types import NEVER_MS, OffsetAndEpoch


class Commits:
    """How far the parts have applied the log, and the reads that wait for it."""

    def __init__(
        self,
        core: RaftCore,
        readers: tuple[LogReader, ...],
        leading: Leading | None,
        storage: Storage,
        snapshots: SnapshotSchedule,
        activation: Activation,
        outbox: Outbox,
    ) -> None:
        self._core = core
        self._readers = readers
        self._leading = leading
        self._reads_batches = readers[0].reads_batches
        self._storage = storage
        self._snapshots = snapshots
        self._activation = activation
        self._outbox = outbox
        self.applier = Applier(storage.log, storage.log.start_offset)
        self.confirmations = Confirmations()
        self.applied_offset = storage.log.start_offset
        """The application has applied everything below this offset."""
        self.is_applying = False
        """Whether a part needs more turns for the last snapshot or batch."""
        self.deadline_ms = NEVER_MS
        """When the parts get the next committed batches."""

    def load_snapshot(self, snapshot: OffsetAndEpoch) -> None:
        """Give each part the contents of a snapshot in place of its state."""
        values = self._storage.snapshots.values(snapshot)
        for reader, own in zip(self._readers, tee(values, len(self._readers)), strict=True):
            reader.on_snapshot(own, snapshot)
        self.is_applying = any(reader.is_applying for reader in self._readers)
        self.applier.begin_at(snapshot.offset)

    def apply(self, now_ms: int) -> None:
        """Hand committed batches to the parts, as far as one turn has room."""
        high_watermark = self._core.log.high_watermark
        applier = self.applier
        if self._reads_batches:
            if self.is_applying:
                self.apply_more()
            if not self.is_applying:
                self._apply_batches(high_watermark)
            if self.is_applying:
                self.deadline_ms = now_ms + 1
                self.report_confirmed()
                return
            if self._snapshots.maker.is_due(now_ms):
                self._snapshots.begin(now_ms)
        else:
            applier.skip(high_watermark)
        self.applied_offset = applier.next_offset
        if applier.next_offset < high_watermark:
            self.deadline_ms = now_ms + 1
        else:
            self.deadline_ms = NEVER_MS
            if self._leading is not None:
                self._leading.on_caught_up()
        if self.confirmations.confirmed:
            self.report_confirmed()
        if self._activation.claim_offset is not None:
            self._activation.finish(applier.next_offset, now_ms)

    def apply_more(self) -> None:
        """Let each part that needs more turns for the last snapshot or batch have one."""
        self.is_applying = False
        for reader in self._readers:
            if reader.is_applying:
                self._outbox.outputs.extend(reader.apply_more())
                self.is_applying = self.is_applying or reader.is_applying

    def _apply_batches(self, high_watermark: int) -> None:
        """Hand over at least one batch, and more while the turn has room."""
        left = COMMITTED_RECORDS_PER_TURN
        for batch in self.applier.advance(high_watermark):
            # All batches before this one are applied, and this one may take several turns.
            self.applied_offset = batch.base_offset
            if batch.values:
                for reader in self._readers:
                    self._outbox.outputs.extend(reader.on_committed(batch))
                    self.is_applying = self.is_applying or reader.is_applying
                self._snapshots.maker.note(batch)
                left -= len(batch.values)
            if left <= 0 or self.is_applying:
                break

    def report_confirmed(self) -> None:
        """Report the reads that are confirmed, once what they need is applied."""
        for token in self.confirmations.take(self.applied_offset):
            self.tell_confirmed(token, is_leader=True)

    def abandon(self) -> None:
        """The leadership is over: report that no waiting read will be confirmed."""
        for token in self.confirmations.abandon():
            self.tell_confirmed(token, is_leader=False)

    def tell_confirmed(self, token: int, *, is_leader: bool) -> None:
        """Tell the part that asked whether a read is confirmed."""
        assert self._leading is not None, "no part has asked for a confirmation"
        self._leading.on_confirmed(token, is_leader=is_leader)
