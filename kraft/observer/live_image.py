"""Reads the cluster's metadata from its active controller: fetches the metadata log and replays it, as a starting
broker does (Kafka: `BrokerMetadataPublisher`; KIP-595, KIP-630).

A controller serves no requests about topics or brokers; its listener serves the log, which determines both.
"""

from __future__ import annotations

from collections.abc import Callable

from kraft.admin.client import AdminClient
from kraft.admin.errors import AdminError
from kraft.observer.leaders_log import WHERE, LeadersLog
from metadata_log.errors import IncompleteBatch
from metadata_log.image import MetadataDelta, MetadataImage
from metadata_log.reading.replay_log import replay_batch
from metadata_log.records.batch import scan
from metadata_log.types import OffsetAndEpoch

Progress = Callable[[int, int], None]
"""Called after each response with the offset reached, and the offset to reach."""


async def read_image(admin: AdminClient, on_progress: Progress = lambda offset, end: None) -> MetadataImage:
    """The committed metadata at the time of the call, replayed from the leader's latest snapshot if there is one.

    The client's `timeout_ms` bounds each step, not the whole. Raises `NoController`, and `RequestRefused` if this
    connection may not read the log or a snapshot is gone. Raises `AdminError` if the log is truncated meanwhile or ends
    too early, and `MetadataLogError` for damage and for unknown records.
    """
    log = LeadersLog(admin)
    until = await log.high_watermark()
    reading = _Reading(until)
    while reading.end.offset < until:
        reached = reading.end.offset
        part = await log.fetch(reading.end)
        if part.snapshot_id.end_offset >= 0:
            snapshot = OffsetAndEpoch(epoch=part.snapshot_id.epoch, offset=part.snapshot_id.end_offset)
            reading.begin_with_snapshot(
                await log.snapshot(snapshot, lambda offset: on_progress(offset, until)),
                snapshot,
            )
        elif part.diverging_epoch.end_offset >= 0:
            raise AdminError("the metadata log was truncated while it was read", hint="Try again.")
        else:
            reading.take(part.records or b"")
        if reading.end.offset <= reached:
            raise AdminError(
                f"the active controller sends no whole batch from offset {reached} on, and {until} are committed",
                hint="Try again.",
            )
        on_progress(reading.end.offset, until)
    return reading.image()


class _Reading:
    """An image in progress."""

    def __init__(self, until: int) -> None:
        self.until = until
        self.end = OffsetAndEpoch(epoch=0, offset=0)
        self._delta = MetadataDelta(MetadataImage())

    def begin_with_snapshot(self, data: bytes, end: OffsetAndEpoch) -> None:
        delta = MetadataDelta(MetadataImage(), is_snapshot=True)
        for batch in scan(data, where=f"snapshot {end}"):
            replay_batch(delta, batch, where=WHERE)
        self._delta = MetadataDelta(delta.apply(end))
        self.end = end

    def take(self, data: bytes) -> None:
        """Replay the records below the high watermark; as in each Fetch, the last batch may be incomplete."""
        try:
            for batch in scan(data, where=WHERE):
                if batch.next_offset > self.until:
                    break
                replay_batch(self._delta, batch, where=WHERE)
                self.end = OffsetAndEpoch(epoch=batch.epoch, offset=batch.next_offset)
        except IncompleteBatch:
            pass

    def image(self) -> MetadataImage:
        return self._delta.apply(self.end).stable
