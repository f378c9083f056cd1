"""The answer to a follower's Fetch from the logs of a broker, without a session and at once."""

from __future__ import annotations

from kraft.broker.request.reading import Isolation, Readable, look, read
from kraft.broker.request.sessions import Wanted
from kraft.partitions.log.outcomes import RefusedAppend
from kraft.partitions.replicas import ReplicaManager
from kraft.partitions.replicas.key import PartitionKey
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


def answer_fetch(manager: ReplicaManager, request: FetchRequest, now_ms: int) -> FetchResponse:
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
    manager: ReplicaManager,
    key: PartitionKey,
    asked: FetchPartition,
    follower: ReplicaState,
    max_bytes: int,
    *,
    is_first: bool,
    now_ms: int,
) -> PartitionData:
    part = manager.hosting.served(key, asked.current_leader_epoch, needs_leader=True)
    if isinstance(part, RefusedAppend):
        return _refused(manager, key, part)
    wanted = Wanted(
        asked.current_leader_epoch,
        asked.fetch_offset,
        asked.last_fetched_epoch,
        asked.log_start_offset,
        asked.partition_max_bytes,
    )
    data = look(part, wanted, Isolation.LOG_END)
    if isinstance(data, Readable):
        data = read(manager, data, wanted, Isolation.LOG_END, max_bytes, at_least_one=is_first)
    if data.error_code == Error.NONE and data.diverging_epoch == EpochEndOffset():
        stale = manager.leaders.on_follower_fetch(
            part, follower.replica_id, follower.replica_epoch, asked.fetch_offset, asked.log_start_offset, now_ms
        )
        if stale is not None:
            return _refused(manager, key, stale)
    return data


def _refused(manager: ReplicaManager, key: PartitionKey, refused: RefusedAppend) -> PartitionData:
    leader, part = LeaderIdAndEpoch(), manager.partitions.get(key)
    if part is not None and refused.error in {Error.NOT_LEADER_OR_FOLLOWER, Error.FENCED_LEADER_EPOCH}:
        leader = LeaderIdAndEpoch(leader_id=part.leader_id, leader_epoch=part.leader_epoch)
    return PartitionData(
        partition_index=key[1], error_code=refused.error, high_watermark=_UNKNOWN, current_leader=leader, records=b""
    )
