"""The cluster's metadata as its active controller has it at this moment: the metadata log is fetched and replayed, as a
broker does when it starts (Kafka: `BrokerMetadataPublisher`; KIP-595, KIP-630).

A controller answers no question about topics or brokers; its listener serves the log that says everything about them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import trio

from kraft.admin.client import RETRY_MS, AdminClient, AdminError, Refusal
from metadata_log.batch import RecordBatch, records, scan
from metadata_log.errors import IncompleteBatch, UnsupportedVersion
from metadata_log.image import MetadataDelta, MetadataImage
from metadata_log.records.frame import decode_record
from metadata_log.types import METADATA_PARTITION, METADATA_TOPIC, OffsetAndEpoch, Uuid
from transport.protocol.errors import Error
from transport.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from transport.protocol.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotRequestPartitionSnapshot,
    FetchSnapshotRequestSnapshotId,
    FetchSnapshotRequestTopicSnapshot,
    FetchSnapshotResponse,
)

FETCH_BYTES: Final = 1 << 20
WHERE: Final = "the metadata log, fetched"
_OTHER_EPOCH: Final = (Error.FENCED_LEADER_EPOCH, Error.UNKNOWN_LEADER_EPOCH)

Progress = Callable[[int, int], None]
"""Told after every answer: the offset reached, and the offset to reach."""


async def read_image(admin: AdminClient, on_progress: Progress = lambda offset, end: None) -> MetadataImage:
    """Everything that is committed when this is called, from a snapshot on if the leader has one.

    The client's `timeout_ms` bounds every step, not the whole. Raises `NoController`; `RequestRefused` if this
    connection may not read the log or a snapshot is gone; `AdminError` if the log is truncated meanwhile or ends too
    early, and `MetadataLogError` for damage and for records that this version does not know.
    """
    log = _LeadersLog(admin)
    until = await log.high_watermark()
    reading = _Reading(until)
    while reading.end.offset < until:
        reached = reading.end.offset
        part = await log.fetch(reading.end)
        if part.snapshot_id.end_offset >= 0:
            found = OffsetAndEpoch(epoch=part.snapshot_id.epoch, offset=part.snapshot_id.end_offset)
            reading.begin_with_snapshot(
                await log.snapshot(found, lambda offset: on_progress(offset, until)),
                found,
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
    """An image in the making."""

    def __init__(self, until: int) -> None:
        self.until = until
        self.end = OffsetAndEpoch(epoch=0, offset=0)
        self._delta = MetadataDelta(MetadataImage())

    def begin_with_snapshot(self, data: bytes, end: OffsetAndEpoch) -> None:
        delta = MetadataDelta(MetadataImage(), is_snapshot=True)
        _replay(delta, scan(data, where=f"snapshot {end}"))
        self._delta = MetadataDelta(delta.apply(end))
        self.end = end

    def take(self, data: bytes) -> None:
        """Replay what lies below the high watermark; the last batch may be cut off, as with every Fetch."""
        try:
            for batch in scan(data, where=WHERE):
                if batch.next_offset > self.until:
                    break
                _replay(self._delta, (batch,))
                self.end = OffsetAndEpoch(epoch=batch.epoch, offset=batch.next_offset)
        except IncompleteBatch:
            pass

    def image(self) -> MetadataImage:
        return self._delta.apply(self.end).stable


def _replay(delta: MetadataDelta, batches: Iterable[RecordBatch]) -> None:
    for batch in batches:
        if batch.is_control:
            continue
        for one in records(batch, where=WHERE):
            framed = decode_record(one.value or b"", where=WHERE)
            if framed.record is None:
                raise UnsupportedVersion(
                    f"{framed.name} version {framed.version} at offset {one.offset} is not known, nor what it changes",
                    where=WHERE,
                    hint="The cluster runs a newer release than this command knows.",
                )
            delta.replay(framed.record, one.offset)


class _LeadersLog:
    """The log of whoever leads, in whatever epoch."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin
        self._epoch = 0

    async def high_watermark(self) -> int:
        """The end of what is committed; waits for a new leader's first commit, before which it does not know."""
        while True:
            quorum = await self._admin.describe_quorum()
            self._epoch = quorum.leader_epoch
            if quorum.high_watermark >= 0:
                return quorum.high_watermark
            await trio.sleep(RETRY_MS / 1000)

    async def fetch(self, end: OffsetAndEpoch) -> PartitionData:
        """What there is from this offset on."""
        while True:
            part = FetchPartition(
                partition=METADATA_PARTITION,
                current_leader_epoch=self._epoch,
                fetch_offset=end.offset,
                last_fetched_epoch=end.epoch,
                partition_max_bytes=FETCH_BYTES,
            )
            topic = FetchTopic(topic_id=Uuid.METADATA_TOPIC, partitions=[part])
            request = FetchRequest(max_bytes=FETCH_BYTES, topics=[topic])
            answer = await self._admin.ask_active(request, FetchResponse, _fetch_refusal)
            found = answer.responses[0].partitions[0]
            if not await self._has_moved_on(found.error_code):
                return found

    async def snapshot(self, snapshot: OffsetAndEpoch, on_progress: Callable[[int], None]) -> bytes:
        """A whole snapshot, piece by piece. It counts as if its records were spread evenly over its bytes."""
        data = bytearray()
        while True:
            part = FetchSnapshotRequestPartitionSnapshot(
                partition=METADATA_PARTITION,
                current_leader_epoch=self._epoch,
                snapshot_id=FetchSnapshotRequestSnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch),
                position=len(data),
            )
            topic = FetchSnapshotRequestTopicSnapshot(name=METADATA_TOPIC, partitions=[part])
            request = FetchSnapshotRequest(max_bytes=FETCH_BYTES, topics=[topic])
            answer = await self._admin.ask_active(request, FetchSnapshotResponse, _snapshot_refusal)
            piece = answer.topics[0].partitions[0]
            if await self._has_moved_on(piece.error_code):
                continue
            data += piece.unaligned_records
            if len(data) >= piece.size:
                return bytes(data)
            if not piece.unaligned_records:
                raise AdminError(f"snapshot {snapshot} ends after {len(data)} of {piece.size} bytes", hint="Try again.")
            on_progress(snapshot.offset * len(data) // piece.size)

    async def _has_moved_on(self, error_code: int) -> bool:
        """Whether the leader has another epoch than we thought, which is known now."""
        if error_code not in _OTHER_EPOCH:
            return False
        self._epoch = (await self._admin.describe_quorum()).leader_epoch
        return True


def _fetch_refusal(answer: FetchResponse) -> Refusal:
    return _refusal(answer.error_code or answer.responses[0].partitions[0].error_code)


def _snapshot_refusal(answer: FetchSnapshotResponse) -> Refusal:
    return _refusal(answer.error_code or answer.topics[0].partitions[0].error_code)


def _refusal(code: int) -> Refusal:
    """Another epoch is no refusal: the request is made anew."""
    return Error.NONE if code in _OTHER_EPOCH else Error.of(code), None
