"""FetchSnapshot between wire and flat form (Kafka: `FetchSnapshotRequest`, `FetchSnapshotResponse`; KIP-630)."""

from __future__ import annotations

from collections.abc import Sequence

from kraft.quorum.messages import FetchSnapshot, FetchSnapshotReply
from kraft.quorum.values import ReplicaKey
from kraft.replica.rpc.rpc_parts import NO_LEADER_EPOCH, leader_address, leader_endpoints
from kraft.wire import WireRequest
from metadata_log.errors import DecodeError
from metadata_log.serde import Message
from metadata_log.types import METADATA_PARTITION, METADATA_TOPIC, OffsetAndEpoch
from transport.protocol.errors import Error
from transport.protocol.messages import fetch_snapshot as snapshot_wire


def request_from_wire(message: snapshot_wire.FetchSnapshotRequest) -> FetchSnapshot | Message:
    """The flat form, or the answer to a request for something else."""
    if len(message.topics) != 1 or len(message.topics[0].partitions) != 1:
        return snapshot_wire.FetchSnapshotResponse(error_code=Error.INVALID_REQUEST)
    topic, part = message.topics[0], message.topics[0].partitions[0]
    if topic.name != METADATA_TOPIC or part.partition != METADATA_PARTITION:
        unknown = snapshot_wire.FetchSnapshotResponsePartitionSnapshot(
            index=part.partition, error_code=Error.UNKNOWN_TOPIC_OR_PARTITION
        )
        return _about_snapshot(unknown, name=topic.name)
    return FetchSnapshot(
        epoch=part.current_leader_epoch,
        replica=ReplicaKey(message.replica_id, part.replica_directory_id),
        snapshot=OffsetAndEpoch(epoch=part.snapshot_id.epoch, offset=part.snapshot_id.end_offset),
        position=part.position,
        max_bytes=message.max_bytes,
    )


def reply_to_wire(request: WireRequest, reply: FetchSnapshotReply) -> Message:
    """The answer, with the requested bytes of the snapshot."""
    if reply.top_error != Error.NONE:
        return snapshot_wire.FetchSnapshotResponse(error_code=reply.top_error)
    snapshot = reply.snapshot or OffsetAndEpoch(epoch=0, offset=0)
    # In an answer with an error Kafka leaves the records null. It cannot encode that, and so sends no answer.
    part = snapshot_wire.FetchSnapshotResponsePartitionSnapshot(
        index=METADATA_PARTITION,
        error_code=reply.error,
        snapshot_id=snapshot_wire.FetchSnapshotResponseSnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch),
        current_leader=snapshot_wire.LeaderIdAndEpoch(leader_id=reply.leader_id, leader_epoch=reply.epoch),
        size=reply.size,
        position=reply.position,
        unaligned_records=reply.data,
    )
    at = leader_address(request, reply.endpoints)
    nodes = [] if at is None else [snapshot_wire.NodeEndpoint(node_id=reply.leader_id, host=at.host, port=at.port)]
    return _about_snapshot(part, nodes=nodes)


def request_to_wire(message: FetchSnapshot, cluster_id: str) -> snapshot_wire.FetchSnapshotRequest:
    """A request for bytes of a snapshot from a position on."""
    snapshot = message.snapshot
    part = snapshot_wire.FetchSnapshotRequestPartitionSnapshot(
        partition=METADATA_PARTITION,
        current_leader_epoch=message.epoch,
        snapshot_id=snapshot_wire.FetchSnapshotRequestSnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch),
        position=message.position,
        replica_directory_id=message.replica.directory_id,
    )
    return snapshot_wire.FetchSnapshotRequest(
        cluster_id=cluster_id,
        replica_id=message.replica.id,
        max_bytes=message.max_bytes,
        topics=[snapshot_wire.FetchSnapshotRequestTopicSnapshot(name=METADATA_TOPIC, partitions=[part])],
    )


def reply_from_wire(message: snapshot_wire.FetchSnapshotResponse, listener: str) -> FetchSnapshotReply:
    """The flat form; raises `DecodeError` for a reply about something else."""
    if message.error_code != Error.NONE:
        return FetchSnapshotReply(epoch=NO_LEADER_EPOCH, top_error=Error.of(message.error_code))
    topics = message.topics
    if len(topics) != 1 or topics[0].name != METADATA_TOPIC or len(topics[0].partitions) != 1:
        raise DecodeError("a FetchSnapshot answer is not about the metadata partition", field="topics")
    part = topics[0].partitions[0]
    leader = part.current_leader
    return FetchSnapshotReply(
        epoch=leader.leader_epoch,
        leader_id=leader.leader_id,
        endpoints=leader_endpoints(message, leader.leader_id, listener),
        error=Error.of(part.error_code),
        snapshot=OffsetAndEpoch(epoch=part.snapshot_id.epoch, offset=part.snapshot_id.end_offset),
        size=part.size,
        position=part.position,
        data=part.unaligned_records or b"",
    )


def _about_snapshot(
    part: snapshot_wire.FetchSnapshotResponsePartitionSnapshot,
    *,
    name: str = METADATA_TOPIC,
    nodes: Sequence[snapshot_wire.NodeEndpoint] = (),
) -> Message:
    topic = snapshot_wire.FetchSnapshotResponseTopicSnapshot(name=name, partitions=[part])
    return snapshot_wire.FetchSnapshotResponse(topics=[topic], node_endpoints=list(nodes))
