"""The answer to a follower's Fetch from the logs of a broker (Kafka: `ReplicaManager.readFromLog`)."""

from __future__ import annotations

from typing import Protocol

from kraft.broker.log.outcomes import Refused
from kraft.broker.partitions.hosted_partition import HostedPartition
from kraft.broker.replicas import PartitionKey
from metadata_log.types import OffsetAndEpoch
from transport.protocol.errors import Error
from transport.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
    ReplicaState,
)

_UNKNOWN = -1


class Readable(Protocol):
    """What this module needs of a `ReplicaManager`."""

    def partition(self, key: PartitionKey) -> HostedPartition | None:
        """The replica of a partition."""

    def refusal(self, key: PartitionKey, current_leader_epoch: int, *, needs_leader: bool) -> Refused | None:
        """Why a read is refused."""

    def diverging(
        self, key: PartitionKey, last_fetched_epoch: int, fetch_offset: int
    ) -> OffsetAndEpoch | Refused | None:
        """Where the history of the fetcher parts from that of the log."""

    def read(
        self, key: PartitionKey, offset: int, max_bytes: int, *, end_offset: int | None, at_least_one: bool = True
    ) -> bytes | Refused:
        """Read batches."""

    def on_follower_fetch(
        self, key: PartitionKey, follower: ReplicaState, fetch_offset: int, log_start: int, now_ms: int
    ) -> Refused | None:
        """Note the progress of the follower."""


def answer_fetch(manager: Readable, request: FetchRequest, now_ms: int) -> FetchResponse:
    """Answer the fetch of a follower with all partitions of the request, in its order.

    The first partition with records gets a whole batch even above `max_bytes`; the others share the rest.

    Args:
        manager: The replicas of the leader.
        request: The request of a follower.
        now_ms: The time in ms since 1970.
    """
    left = request.max_bytes
    is_first = True
    topics = []
    for topic in request.topics:
        parts = []
        for wanted in topic.partitions:
            most = min(left, wanted.partition_max_bytes)
            key = (topic.topic_id, wanted.partition)
            data = _answer_one(manager, key, wanted, request.replica_state, most, is_first=is_first, now_ms=now_ms)
            size = len(data.records or b"")
            left, is_first = max(0, left - size), is_first and size == 0
            parts.append(data)
        topics.append(FetchableTopicResponse(topic_id=topic.topic_id, partitions=parts))
    return FetchResponse(responses=topics)


def _answer_one(
    manager: Readable,
    key: PartitionKey,
    wanted: FetchPartition,
    follower: ReplicaState,
    max_bytes: int,
    *,
    is_first: bool,
    now_ms: int,
) -> PartitionData:
    refused = manager.refusal(key, wanted.current_leader_epoch, needs_leader=True)
    if refused is not None:
        return _refused(manager, key, refused)
    part = manager.partition(key)
    assert part is not None, key
    # The follower gets the watermark of the moment before its own fetch has moved it.
    watermark, stable, start = part.high_watermark, part.last_stable_offset, part.start_offset
    end = manager.diverging(key, wanted.last_fetched_epoch, wanted.fetch_offset)
    if isinstance(end, Refused):
        return _refused(manager, key, end)
    records = b""
    if end is None:
        found = manager.read(key, wanted.fetch_offset, max_bytes, end_offset=None, at_least_one=is_first)
        if isinstance(found, Refused):
            return _refused(manager, key, found)
        records = found
        stale = manager.on_follower_fetch(key, follower, wanted.fetch_offset, wanted.log_start_offset, now_ms)
        if stale is not None:
            return _refused(manager, key, stale)
    return PartitionData(
        partition_index=key[1],
        high_watermark=watermark,
        last_stable_offset=stable,
        log_start_offset=start,
        diverging_epoch=EpochEndOffset() if end is None else EpochEndOffset(epoch=end.epoch, end_offset=end.offset),
        aborted_transactions=None,
        records=records,
    )


def _refused(manager: Readable, key: PartitionKey, refused: Refused) -> PartitionData:
    part = manager.partition(key)
    leader = LeaderIdAndEpoch()
    if part is not None and refused.error in {Error.NOT_LEADER_OR_FOLLOWER, Error.FENCED_LEADER_EPOCH}:
        leader = LeaderIdAndEpoch(leader_id=part.leader_id, leader_epoch=part.leader_epoch)
    return PartitionData(
        partition_index=key[1], error_code=refused.error, high_watermark=_UNKNOWN, current_leader=leader, records=b""
    )
