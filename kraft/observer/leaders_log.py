"""Reads the leader's metadata log over the network as an anonymous reader (Kafka: KIP-595, KIP-630).

The replica id is -1. A leader serves such a Fetch without tracking the reader, and includes uncommitted records.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from kraft.admin.client import REQUEST_RETRY_MS, AdminClient, Refusal
from kraft.admin.errors import AdminError
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
NO_NEWS_WANTED: Final = (1 << 63) - 1
"""The high watermark to send with a Fetch that should not wait for a higher one (KIP-1166)."""
_OTHER_EPOCH: Final = (Error.FENCED_LEADER_EPOCH, Error.UNKNOWN_LEADER_EPOCH)


class LeadersLog:
    """The log of the current leader, in any epoch. With a `cluster_id`, controllers of another cluster refuse.

    Each request raises `NoController` if no controller answers within the client's timeout, and `RequestRefused`.
    """

    def __init__(self, admin: AdminClient, cluster_id: str | None = None) -> None:
        self._admin = admin
        self._cluster_id = cluster_id
        self.leader_id = -1
        self.epoch = 0
        """The latest known epoch; responses of an earlier leader are ignored."""

    async def high_watermark(self) -> int:
        """The end of the committed log; waits for the first commit of a new leader, which does not know it before."""
        while True:
            quorum = await self._admin.describe_quorum()
            if quorum.leader_epoch >= self.epoch:
                self.leader_id, self.epoch = quorum.leader_id, quorum.leader_epoch
                if quorum.high_watermark >= 0:
                    return quorum.high_watermark
            await trio.sleep(REQUEST_RETRY_MS / 1000)

    async def fetch(
        self,
        end: OffsetAndEpoch,
        *,
        max_wait_ms: int = 0,
        high_watermark: int = NO_NEWS_WANTED,
        max_bytes: int = FETCH_BYTES,
    ) -> PartitionData:
        """The records from offset `end` on; the record before it has the epoch `end.epoch`.

        At the end of the log, the leader waits `max_wait_ms` for records or for a high watermark above the given one.
        """
        while True:
            part = FetchPartition(
                partition=METADATA_PARTITION,
                current_leader_epoch=self.epoch,
                fetch_offset=end.offset,
                last_fetched_epoch=end.epoch,
                partition_max_bytes=max_bytes,
                high_watermark=high_watermark,
            )
            topic = FetchTopic(topic_id=Uuid.METADATA_TOPIC, partitions=[part])
            request = FetchRequest(
                cluster_id=self._cluster_id, max_wait_ms=max_wait_ms, max_bytes=max_bytes, topics=[topic]
            )
            answer = await self._admin.ask_active(request, FetchResponse, _fetch_refusal)
            partition = answer.responses[0].partitions[0]
            if not await self._has_moved_on(partition.error_code):
                return partition

    async def snapshot(
        self, snapshot: OffsetAndEpoch, on_progress: Callable[[int], None] = lambda offset: None
    ) -> bytes:
        """A whole snapshot, fetched in pieces. The progress assumes that its records are evenly distributed over its
        bytes."""
        data = bytearray()
        while True:
            part = FetchSnapshotRequestPartitionSnapshot(
                partition=METADATA_PARTITION,
                current_leader_epoch=self.epoch,
                snapshot_id=FetchSnapshotRequestSnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch),
                position=len(data),
            )
            topic = FetchSnapshotRequestTopicSnapshot(name=METADATA_TOPIC, partitions=[part])
            request = FetchSnapshotRequest(cluster_id=self._cluster_id, max_bytes=FETCH_BYTES, topics=[topic])
            answer = await self._admin.ask_active(request, FetchSnapshotResponse, _snapshot_refusal)
            piece = answer.topics[0].partitions[0]
            if await self._has_moved_on(piece.error_code):
                data.clear()  # another node's snapshot with this name has the same records, but different bytes
                continue
            data += piece.unaligned_records
            if len(data) >= piece.size:
                return bytes(data)
            if not piece.unaligned_records:
                raise AdminError(f"snapshot {snapshot} ends after {len(data)} of {piece.size} bytes", hint="Try again.")
            on_progress(snapshot.offset * len(data) // piece.size)

    async def _has_moved_on(self, error_code: int) -> bool:
        """Whether the leader reported another epoch, which is stored then."""
        if error_code not in _OTHER_EPOCH:
            return False
        quorum = await self._admin.describe_quorum()
        if quorum.leader_epoch >= self.epoch:
            self.leader_id, self.epoch = quorum.leader_id, quorum.leader_epoch
        else:
            await trio.sleep(REQUEST_RETRY_MS / 1000)
        return True


def _fetch_refusal(answer: FetchResponse) -> Refusal:
    return _refusal(answer.error_code or answer.responses[0].partitions[0].error_code)


def _snapshot_refusal(answer: FetchSnapshotResponse) -> Refusal:
    return _refusal(answer.error_code or answer.topics[0].partitions[0].error_code)


def _refusal(code: int) -> Refusal:
    """The refusal in an error code. A changed epoch is none: the request is sent again."""
    return Error.NONE if code in _OTHER_EPOCH else Error.of(code), None
