"""Hands committed batches to the application, a turn's worth at a time (Kafka:
`KafkaRaftClient.updateListenersProgress`).
"""

from __future__ import annotations

from kraft.limits import COMMITTED_RECORDS_PER_TURN
from kraft.quorum.core import RaftCore
from kraft.replica.activation import Activation
from kraft.replica.applier import Applier
from kraft.replica.confirmations import Confirmations
from kraft.replica.interface.application import Application
from kraft.replica.outbox import Outbox
from kraft.replica.snapshot_schedule import SnapshotSchedule
from kraft.replica.storage.storage import Storage
from metadata_log.types import NEVER_MS, OffsetAndEpoch


class Commits:
    """How far the application has applied the log, and the reads that wait for it."""

    def __init__(
        self,
        core: RaftCore,
        application: Application,
        storage: Storage,
        snapshots: SnapshotSchedule,
        activation: Activation,
        outbox: Outbox,
    ) -> None:
        self._core = core
        self._application = application
        self._storage = storage
        self._snapshots = snapshots
        self._activation = activation
        self._outbox = outbox
        self.applier = Applier(storage.log, storage.log.start_offset)
        self.confirmations = Confirmations()
        self.applied_offset = storage.log.start_offset
        """The application has applied everything below this offset."""
        self.deadline_ms = NEVER_MS
        """When the application gets the next committed batches."""

    def load_snapshot(self, snapshot: OffsetAndEpoch) -> None:
        """Give the application the contents of a snapshot in place of its state."""
        self._application.on_snapshot(self._storage.snapshots.values(snapshot), snapshot)
        self.applier.begin_at(snapshot.offset)

    def apply(self, now_ms: int) -> None:
        """Hand committed batches to the application, as far as one turn has room."""
        high_watermark = self._core.log.high_watermark
        applier, application = self.applier, self._application
        if application.reads_batches:
            if application.is_applying:
                self._outbox.outputs.extend(application.apply_more())
            self._apply_batches(high_watermark)
            if application.is_applying:
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
            application.on_caught_up()
        if self.confirmations.confirmed:
            self.report_confirmed()
        if self._activation.claim_offset is not None:
            self._activation.finish(applier.next_offset, now_ms)

    def _apply_batches(self, high_watermark: int) -> None:
        """Hand over at least one batch, and more while the turn has room."""
        application = self._application
        if application.is_applying:
            return
        left = COMMITTED_RECORDS_PER_TURN
        for batch in self.applier.advance(high_watermark):
            # The application has applied all batches before this one, and may need several turns for this one.
            self.applied_offset = batch.base_offset
            if batch.values:
                self._outbox.outputs.extend(application.on_committed(batch))
                self._snapshots.maker.note(batch)
                left -= len(batch.values)
            if left <= 0 or application.is_applying:
                break

    def report_confirmed(self) -> None:
        """Report to the application the reads that are confirmed, once it has applied what they need."""
        for token in self.confirmations.take(self.applied_offset):
            self._application.on_confirmed(token, is_leader=True)

    def abandon(self) -> None:
        """The leadership is over: report to the application that no waiting read will be confirmed."""
        for token in self.confirmations.abandon():
            self._application.on_confirmed(token, is_leader=False)
