"""Fetch between wire and flat form (Kafka: `FetchRequest`, `FetchResponse`, `RaftUtil`; KIP-595, KIP-853, KIP-1166)."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from kraft.quorum.messages import Fetch, FetchReply
from kraft.quorum.values import ReplicaKey
from kraft.replica.rpc.rpc_parts import NO_LEADER_EPOCH, leader_endpoints
from kraft.replica.storage.fetched import Judged, facts_of
from kraft.wire import WireRequest
from metadata_log.errors import DecodeError
from metadata_log.serde import Message
from metadata_log.types import METADATA_PARTITION, NO_NODE, OffsetAndEpoch, Uuid
from transport.protocol.errors import Error
from transport.protocol.messages import fetch as fetch_wire

_ENDPOINTS_SINCE: Final = 17
"""The first Fetch version with the leader's endpoint in the response, as Kafka fills it in."""
_NO_DIVERGENCE: Final = fetch_wire.EpochEndOffset()
_NO_SNAPSHOT: Final = fetch_wire.SnapshotId()
_NOTHING: Final[Judged] = ((), None, False)


def request_from_wire(message: fetch_wire.FetchRequest) -> Fetch | Message:
    """The flat form, or the answer to a request for something else than the metadata."""
    topics = message.topics
    topic = topics[0] if len(topics) == 1 else None
    if topic is None or topic.topic_id != Uuid.METADATA_TOPIC or len(topic.partitions) != 1:
        return fetch_wire.FetchResponse(error_code=Error.INVALID_REQUEST)
    part = topic.partitions[0]
    if part.partition != METADATA_PARTITION:
        return fetch_wire.FetchResponse(error_code=Error.INVALID_REQUEST)
    replica_id = message.replica_state.replica_id if message.replica_id == NO_NODE else message.replica_id
    return Fetch(
        epoch=part.current_leader_epoch,
        replica=ReplicaKey(replica_id, part.replica_directory_id),
        offset=part.fetch_offset,
        last_epoch=part.last_fetched_epoch,
        max_wait_ms=message.max_wait_ms,
        max_bytes=message.max_bytes,
        high_watermark=part.high_watermark,
    )


class _Sent(Struct, frozen=True, eq=False):
    """An answer with records, kept for the next follower that gets the same answer."""

    to: tuple[str, bool]
    reply: FetchReply
    records: bytes
    message: fetch_wire.FetchResponse


class FetchReplies:
    """Makes the answers to followers."""

    def __init__(self) -> None:
        self._sent: _Sent | None = None

    def to_wire(self, request: WireRequest, reply: FetchReply, records: bytes) -> Message:
        """The answer. Followers that fetch the same records get the same message."""
        if reply.top_error != Error.NONE:
            return fetch_wire.FetchResponse(error_code=reply.top_error)
        if not records:
            return _make_reply(request, reply, records)
        # The transport encodes the same message only once.
        to = (request.listener, request.version >= _ENDPOINTS_SINCE)
        sent = self._sent
        if sent is None or sent.records is not records or sent.reply != reply or sent.to != to:
            sent = self._sent = _Sent(to, reply, records, _make_reply(request, reply, records))
        return sent.message


def _make_reply(request: WireRequest, reply: FetchReply, records: bytes) -> fetch_wire.FetchResponse:
    diverging, snapshot = reply.diverging, reply.snapshot
    part = fetch_wire.PartitionData(
        partition_index=METADATA_PARTITION,
        error_code=reply.error,
        high_watermark=reply.high_watermark,
        log_start_offset=reply.log_start_offset,
        diverging_epoch=_NO_DIVERGENCE
        if diverging is None
        else fetch_wire.EpochEndOffset(epoch=diverging.epoch, end_offset=diverging.offset),
        current_leader=fetch_wire.LeaderIdAndEpoch(leader_id=reply.leader_id, leader_epoch=reply.epoch),
        snapshot_id=_NO_SNAPSHOT
        if snapshot is None
        else fetch_wire.SnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch),
        aborted_transactions=None,
        records=records,
    )
    topic = fetch_wire.FetchableTopicResponse(topic_id=Uuid.METADATA_TOPIC, partitions=[part])
    address = reply.endpoints.find(request.listener) if request.version >= _ENDPOINTS_SINCE else None
    if address is None:
        return fetch_wire.FetchResponse(responses=[topic])
    node = fetch_wire.NodeEndpoint(node_id=reply.leader_id, host=address.host, port=address.port)
    return fetch_wire.FetchResponse(responses=[topic], node_endpoints=[node])


def request_to_wire(message: Fetch, cluster_id: str) -> fetch_wire.FetchRequest:
    """A request for the records after an offset."""
    part = fetch_wire.FetchPartition(
        partition=METADATA_PARTITION,
        current_leader_epoch=message.epoch,
        fetch_offset=message.offset,
        last_fetched_epoch=message.last_epoch,
        replica_directory_id=message.replica.directory_id,
        high_watermark=message.high_watermark,
    )
    return fetch_wire.FetchRequest(
        cluster_id=cluster_id,
        replica_state=fetch_wire.ReplicaState(replica_id=message.replica.id),
        max_wait_ms=message.max_wait_ms,
        max_bytes=message.max_bytes,
        topics=[fetch_wire.FetchTopic(topic_id=Uuid.METADATA_TOPIC, partitions=[part])],
    )


def reply_from_wire(message: fetch_wire.FetchResponse, listener: str, judged: Judged | None) -> FetchReply:
    """The flat form, with the result for its records; raises `DecodeError` for a reply about something else."""
    if message.error_code != Error.NONE:
        return FetchReply(epoch=NO_LEADER_EPOCH, top_error=Error.of(message.error_code))
    topics = message.responses
    topic = topics[0] if len(topics) == 1 else None
    if topic is None or topic.topic_id != Uuid.METADATA_TOPIC or len(topic.partitions) != 1:
        raise DecodeError("a Fetch answer is not about the metadata partition", field="responses")
    part = topic.partitions[0]
    if part.partition_index != METADATA_PARTITION:
        raise DecodeError(f"a Fetch answer is about partition {part.partition_index}", field="partition_index")
    data = part.records or b""
    batches, damage, is_later = judged if judged is not None else facts_of(data) if data else _NOTHING
    leader, diverging, snapshot = part.current_leader, part.diverging_epoch, part.snapshot_id
    return FetchReply(
        epoch=leader.leader_epoch,
        leader_id=leader.leader_id,
        endpoints=leader_endpoints(message, leader.leader_id, listener),
        error=Error.of(part.error_code) if part.error_code else Error.NONE,
        high_watermark=part.high_watermark,
        log_start_offset=part.log_start_offset,
        diverging=OffsetAndEpoch(epoch=diverging.epoch, offset=diverging.end_offset) if diverging.epoch >= 0 else None,
        snapshot=OffsetAndEpoch(epoch=snapshot.epoch, offset=snapshot.end_offset)
        if snapshot.epoch >= 0 or snapshot.end_offset >= 0
        else None,
        batches=batches,
        data=data,
        damage=damage,
        is_later=is_later,
    )
