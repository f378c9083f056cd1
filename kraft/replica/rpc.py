"""Wire messages to flat ones and back, after checks of cluster id, topic and partition (Kafka: `RaftUtil`, and the
first lines of every handler in `KafkaRaftClient`).

Nothing below this module indexes `topics[0].partitions[0]`, and nothing above it sees a flat message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct

from kraft.quorum.messages import (
    AddVoter,
    AddVoterReply,
    BatchFacts,
    BeginQuorumEpoch,
    BeginQuorumEpochReply,
    DescribeQuorum,
    DescribeQuorumReply,
    EndQuorumEpoch,
    EndQuorumEpochReply,
    Fetch,
    FetchReply,
    FetchSnapshot,
    FetchSnapshotReply,
    ProbeVersions,
    ProbeVersionsReply,
    RemoveVoter,
    RemoveVoterReply,
    ReplicaProgress,
    Reply,
    Request,
    UpdateVoter,
    UpdateVoterReply,
    Vote,
    VoteReply,
)
from kraft.quorum.values import Endpoints, ListenerAddress, ReplicaKey
from kraft.replica import voter_rpc
from kraft.replica.events import WireRequest
from kraft.replica.quorum_records import changes_in
from metadata_log.batch import scan
from metadata_log.errors import DecodeError, IncompleteBatch, MetadataLogError
from metadata_log.serde import Message
from metadata_log.types import METADATA_PARTITION, METADATA_TOPIC, NO_NODE, OffsetAndEpoch, Uuid
from transport.protocol.errors import Error
from transport.protocol.messages import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    ApiVersionsResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
)
from transport.protocol.messages import begin_quorum_epoch as begin_wire
from transport.protocol.messages import describe_quorum as describe_wire
from transport.protocol.messages import end_quorum_epoch as end_wire
from transport.protocol.messages import fetch as fetch_wire
from transport.protocol.messages import fetch_snapshot as snapshot_wire
from transport.protocol.messages import vote as vote_wire

_NO_LEADER_EPOCH: Final = -1
_ENDPOINTS_SINCE: Final = 17
"""The first Fetch version whose answer names the leader's endpoint, as Kafka fills it in."""
_NO_DIVERGENCE: Final = fetch_wire.EpochEndOffset()
_NO_SNAPSHOT: Final = fetch_wire.SnapshotId()


class _Sent(Struct, frozen=True, eq=False):
    """An answer with records, to be sent to the next follower, too, if it gets the same."""

    to: tuple[str, bool]
    reply: FetchReply
    records: bytes
    message: fetch_wire.FetchResponse


class Rpc:
    """The translator of one replica: knows the cluster id, and the listener name that peers' endpoints go by."""

    def __init__(self, *, cluster_id: str, listener: str, timeout_ms: int = 2000) -> None:
        self.cluster_id = cluster_id
        self.listener = listener
        self._timeout_ms = timeout_ms
        self._sent: _Sent | None = None

    # Requests that come in

    def request_from_wire(self, request: WireRequest) -> Request | Message:
        """The flat form of a quorum request, or at once the answer that refuses it."""
        match request.message:
            case fetch_wire.FetchRequest() as message:
                return self._fetch_from_wire(message)
            case vote_wire.VoteRequest() as message:
                return self._vote_from_wire(message)
            case begin_wire.BeginQuorumEpochRequest() as message:
                return self._begin_from_wire(message)
            case end_wire.EndQuorumEpochRequest() as message:
                return self._end_from_wire(message)
            case snapshot_wire.FetchSnapshotRequest() as message:
                return self._fetch_snapshot_from_wire(message)
            case describe_wire.DescribeQuorumRequest() as message:
                return _describe_from_wire(message)
            case AddRaftVoterRequest() | RemoveRaftVoterRequest() | UpdateRaftVoterRequest() as message:
                if self._is_foreign(message.cluster_id):
                    return voter_rpc.refused(message, Error.INCONSISTENT_CLUSTER_ID)
                return voter_rpc.request_from_wire(message)
            case other:
                raise AssertionError(f"{type(other).__name__} is no request of the quorum")

    def _is_foreign(self, cluster_id: str | None) -> bool:
        return cluster_id is not None and cluster_id != self.cluster_id

    def _fetch_from_wire(self, message: fetch_wire.FetchRequest) -> Fetch | Message:
        if self._is_foreign(message.cluster_id):
            return fetch_wire.FetchResponse(error_code=Error.INCONSISTENT_CLUSTER_ID)
        topics = message.topics
        if len(topics) != 1 or topics[0].topic_id != Uuid.METADATA_TOPIC or len(topics[0].partitions) != 1:
            return fetch_wire.FetchResponse(error_code=Error.INVALID_REQUEST)
        part = topics[0].partitions[0]
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

    def _fetch_snapshot_from_wire(self, message: snapshot_wire.FetchSnapshotRequest) -> FetchSnapshot | Message:
        if self._is_foreign(message.cluster_id):
            return snapshot_wire.FetchSnapshotResponse(error_code=Error.INCONSISTENT_CLUSTER_ID)
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

    def _vote_from_wire(self, message: vote_wire.VoteRequest) -> Vote | Message:
        if self._is_foreign(message.cluster_id):
            return vote_wire.VoteResponse(error_code=Error.INCONSISTENT_CLUSTER_ID)
        part = _only_partition(message.topics)
        if part is None:
            return vote_wire.VoteResponse(error_code=Error.INVALID_REQUEST)
        return Vote(
            epoch=part.replica_epoch,
            candidate=ReplicaKey(part.replica_id, part.replica_directory_id),
            voter=ReplicaKey(message.voter_id, part.voter_directory_id),
            last=OffsetAndEpoch(epoch=part.last_offset_epoch, offset=part.last_offset),
            pre_vote=part.pre_vote,
        )

    def _begin_from_wire(self, message: begin_wire.BeginQuorumEpochRequest) -> BeginQuorumEpoch | Message:
        if self._is_foreign(message.cluster_id):
            return begin_wire.BeginQuorumEpochResponse(error_code=Error.INCONSISTENT_CLUSTER_ID)
        part = _only_partition(message.topics)
        if part is None:
            return begin_wire.BeginQuorumEpochResponse(error_code=Error.INVALID_REQUEST)
        return BeginQuorumEpoch(
            epoch=part.leader_epoch,
            leader_id=part.leader_id,
            voter=ReplicaKey(message.voter_id, part.voter_directory_id),
            endpoints=_endpoints_of(message.leader_endpoints),
        )

    def _end_from_wire(self, message: end_wire.EndQuorumEpochRequest) -> EndQuorumEpoch | Message:
        if self._is_foreign(message.cluster_id):
            return end_wire.EndQuorumEpochResponse(error_code=Error.INCONSISTENT_CLUSTER_ID)
        part = _only_partition(message.topics)
        if part is None:
            return end_wire.EndQuorumEpochResponse(error_code=Error.INVALID_REQUEST)
        named = tuple(ReplicaKey(one.candidate_id, one.candidate_directory_id) for one in part.preferred_candidates)
        return EndQuorumEpoch(
            epoch=part.leader_epoch,
            leader_id=part.leader_id,
            successors=named or tuple(ReplicaKey(node_id) for node_id in part.preferred_successors),
            endpoints=_endpoints_of(message.leader_endpoints),
        )

    # Replies that go out

    def reply_to_wire(self, request: WireRequest, reply: Reply, records: bytes = b"") -> Message:
        """The answer to `request`, in a form that its version can carry."""
        match reply:
            case FetchReply():
                return self._fetch_reply_to_wire(request, reply, records)
            case FetchSnapshotReply():
                return _fetch_snapshot_reply_to_wire(request, reply)
            case VoteReply():
                return _vote_reply_to_wire(request, reply)
            case BeginQuorumEpochReply():
                return _begin_reply_to_wire(request, reply)
            case EndQuorumEpochReply():
                return _end_reply_to_wire(request, reply)
            case DescribeQuorumReply():
                return _describe_reply_to_wire(request, reply)
            case AddVoterReply() | RemoveVoterReply() | UpdateVoterReply():
                return voter_rpc.reply_to_wire(request, reply)
            case ProbeVersionsReply():
                raise AssertionError("a core does not say what its node supports")

    def _fetch_reply_to_wire(self, request: WireRequest, reply: FetchReply, records: bytes) -> Message:
        if reply.top_error != Error.NONE:
            return fetch_wire.FetchResponse(error_code=reply.top_error)
        if not records:
            return self._make_fetch_reply(request, reply, records)
        # What one follower fetches the others fetch as well; the transport encodes the same message only once.
        to = (request.listener, request.version >= _ENDPOINTS_SINCE)
        sent = self._sent
        if sent is None or sent.records is not records or sent.reply != reply or sent.to != to:
            sent = self._sent = _Sent(to, reply, records, self._make_fetch_reply(request, reply, records))
        return sent.message

    def _make_fetch_reply(self, request: WireRequest, reply: FetchReply, records: bytes) -> fetch_wire.FetchResponse:
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

    # Requests that go out

    def request_to_wire(self, message: Request) -> Message:
        """The request in its newest form; the transport encodes it in a version that the peer knows."""
        match message:
            case Fetch():
                return self._fetch_to_wire(message)
            case FetchSnapshot():
                return self._fetch_snapshot_to_wire(message)
            case Vote():
                return self._vote_to_wire(message)
            case BeginQuorumEpoch():
                return self._begin_to_wire(message)
            case EndQuorumEpoch():
                return self._end_to_wire(message)
            case AddVoter() | RemoveVoter() | UpdateVoter():
                return voter_rpc.request_to_wire(message, self.cluster_id, self._timeout_ms)
            case ProbeVersions():
                return voter_rpc.probe()
            case DescribeQuorum():
                raise AssertionError("a replica never asks another to describe the quorum")

    def _fetch_to_wire(self, message: Fetch) -> fetch_wire.FetchRequest:
        part = fetch_wire.FetchPartition(
            partition=METADATA_PARTITION,
            current_leader_epoch=message.epoch,
            fetch_offset=message.offset,
            last_fetched_epoch=message.last_epoch,
            replica_directory_id=message.replica.directory_id,
            high_watermark=message.high_watermark,
        )
        return fetch_wire.FetchRequest(
            cluster_id=self.cluster_id,
            replica_state=fetch_wire.ReplicaState(replica_id=message.replica.id),
            max_wait_ms=message.max_wait_ms,
            max_bytes=message.max_bytes,
            topics=[fetch_wire.FetchTopic(topic_id=Uuid.METADATA_TOPIC, partitions=[part])],
        )

    def _fetch_snapshot_to_wire(self, message: FetchSnapshot) -> snapshot_wire.FetchSnapshotRequest:
        snapshot = message.snapshot
        part = snapshot_wire.FetchSnapshotRequestPartitionSnapshot(
            partition=METADATA_PARTITION,
            current_leader_epoch=message.epoch,
            snapshot_id=snapshot_wire.FetchSnapshotRequestSnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch),
            position=message.position,
            replica_directory_id=message.replica.directory_id,
        )
        return snapshot_wire.FetchSnapshotRequest(
            cluster_id=self.cluster_id,
            replica_id=message.replica.id,
            max_bytes=message.max_bytes,
            topics=[snapshot_wire.FetchSnapshotRequestTopicSnapshot(name=METADATA_TOPIC, partitions=[part])],
        )

    def _vote_to_wire(self, message: Vote) -> vote_wire.VoteRequest:
        part = vote_wire.VoteRequestPartitionData(
            partition_index=METADATA_PARTITION,
            replica_epoch=message.epoch,
            replica_id=message.candidate.id,
            replica_directory_id=message.candidate.directory_id,
            voter_directory_id=message.voter.directory_id,
            last_offset_epoch=message.last.epoch,
            last_offset=message.last.offset,
            pre_vote=message.pre_vote,
        )
        topic = vote_wire.VoteRequestTopicData(topic_name=METADATA_TOPIC, partitions=[part])
        return vote_wire.VoteRequest(cluster_id=self.cluster_id, voter_id=message.voter.id, topics=[topic])

    def _begin_to_wire(self, message: BeginQuorumEpoch) -> begin_wire.BeginQuorumEpochRequest:
        part = begin_wire.BeginQuorumEpochRequestPartitionData(
            partition_index=METADATA_PARTITION,
            voter_directory_id=message.voter.directory_id,
            leader_id=message.leader_id,
            leader_epoch=message.epoch,
        )
        topic = begin_wire.BeginQuorumEpochRequestTopicData(topic_name=METADATA_TOPIC, partitions=[part])
        return begin_wire.BeginQuorumEpochRequest(
            cluster_id=self.cluster_id,
            voter_id=message.voter.id,
            topics=[topic],
            leader_endpoints=[
                begin_wire.LeaderEndpoint(name=one.name, host=one.host, port=one.port)
                for one in message.endpoints.listeners
            ],
        )

    def _end_to_wire(self, message: EndQuorumEpoch) -> end_wire.EndQuorumEpochRequest:
        # Version 0 ranks ids, version 1 keys; both are ignorable where they do not exist.
        part = end_wire.EndQuorumEpochRequestPartitionData(
            partition_index=METADATA_PARTITION,
            leader_id=message.leader_id,
            leader_epoch=message.epoch,
            preferred_successors=[key.id for key in message.successors],
            preferred_candidates=[
                end_wire.ReplicaInfo(candidate_id=key.id, candidate_directory_id=key.directory_id)
                for key in message.successors
            ],
        )
        return end_wire.EndQuorumEpochRequest(
            cluster_id=self.cluster_id,
            topics=[end_wire.EndQuorumEpochRequestTopicData(topic_name=METADATA_TOPIC, partitions=[part])],
            leader_endpoints=[
                end_wire.LeaderEndpoint(name=one.name, host=one.host, port=one.port)
                for one in message.endpoints.listeners
            ],
        )

    # Replies that come in

    def reply_from_wire(self, message: Message) -> Reply:
        """The flat form of a peer's reply; raises `DecodeError` for one that is not about the metadata partition."""
        match message:
            case fetch_wire.FetchResponse():
                return self._fetch_reply_from_wire(message)
            case snapshot_wire.FetchSnapshotResponse():
                return self._fetch_snapshot_reply_from_wire(message)
            case vote_wire.VoteResponse():
                top, part = _checked(message)
                if part is None:
                    return VoteReply(epoch=_NO_LEADER_EPOCH, top_error=top)
                return VoteReply(
                    epoch=part.leader_epoch,
                    leader_id=part.leader_id,
                    endpoints=self._leader_endpoints(message, part.leader_id),
                    error=Error.of(part.error_code),
                    granted=part.vote_granted,
                )
            case begin_wire.BeginQuorumEpochResponse():
                top, part = _checked(message)
                if part is None:
                    return BeginQuorumEpochReply(epoch=_NO_LEADER_EPOCH, top_error=top)
                return BeginQuorumEpochReply(
                    epoch=part.leader_epoch,
                    leader_id=part.leader_id,
                    endpoints=self._leader_endpoints(message, part.leader_id),
                    error=Error.of(part.error_code),
                )
            case end_wire.EndQuorumEpochResponse():
                top, part = _checked(message)
                if part is None:
                    return EndQuorumEpochReply(epoch=_NO_LEADER_EPOCH, top_error=top)
                return EndQuorumEpochReply(
                    epoch=part.leader_epoch,
                    leader_id=part.leader_id,
                    endpoints=self._leader_endpoints(message, part.leader_id),
                    error=Error.of(part.error_code),
                )
            case AddRaftVoterResponse() | RemoveRaftVoterResponse() | UpdateRaftVoterResponse():
                return voter_rpc.reply_from_wire(message, self.listener)
            case ApiVersionsResponse():
                return voter_rpc.probed(message)
            case other:
                raise DecodeError(f"a {type(other).__name__} answers no request of ours")

    def _fetch_reply_from_wire(self, message: fetch_wire.FetchResponse) -> FetchReply:
        if message.error_code != Error.NONE:
            return FetchReply(epoch=_NO_LEADER_EPOCH, top_error=Error.of(message.error_code))
        topics = message.responses
        if len(topics) != 1 or topics[0].topic_id != Uuid.METADATA_TOPIC or len(topics[0].partitions) != 1:
            raise DecodeError("a Fetch answer is not about the metadata partition", field="responses")
        part = topics[0].partitions[0]
        if part.partition_index != METADATA_PARTITION:
            raise DecodeError(f"a Fetch answer is about partition {part.partition_index}", field="partition_index")
        data = part.records or b""
        batches, damage = facts_of(data) if data else ((), None)
        leader, diverging, snapshot = part.current_leader, part.diverging_epoch, part.snapshot_id
        return FetchReply(
            epoch=leader.leader_epoch,
            leader_id=leader.leader_id,
            endpoints=self._leader_endpoints(message, leader.leader_id),
            error=Error.of(part.error_code),
            high_watermark=part.high_watermark,
            log_start_offset=part.log_start_offset,
            diverging=OffsetAndEpoch(epoch=diverging.epoch, offset=diverging.end_offset)
            if diverging.epoch >= 0
            else None,
            snapshot=OffsetAndEpoch(epoch=snapshot.epoch, offset=snapshot.end_offset)
            if snapshot.epoch >= 0 or snapshot.end_offset >= 0
            else None,
            batches=batches,
            data=data,
            damage=damage,
        )

    def _fetch_snapshot_reply_from_wire(self, message: snapshot_wire.FetchSnapshotResponse) -> FetchSnapshotReply:
        if message.error_code != Error.NONE:
            return FetchSnapshotReply(epoch=_NO_LEADER_EPOCH, top_error=Error.of(message.error_code))
        topics = message.topics
        if len(topics) != 1 or topics[0].name != METADATA_TOPIC or len(topics[0].partitions) != 1:
            raise DecodeError("a FetchSnapshot answer is not about the metadata partition", field="topics")
        part = topics[0].partitions[0]
        leader = part.current_leader
        return FetchSnapshotReply(
            epoch=leader.leader_epoch,
            leader_id=leader.leader_id,
            endpoints=self._leader_endpoints(message, leader.leader_id),
            error=Error.of(part.error_code),
            snapshot=OffsetAndEpoch(epoch=part.snapshot_id.epoch, offset=part.snapshot_id.end_offset),
            size=part.size,
            position=part.position,
            data=part.unaligned_records or b"",
        )

    def _leader_endpoints(self, message: Any, leader_id: int) -> Endpoints:
        """Where the reply says that its leader listens; it names one endpoint, that of the listener it came through."""
        for node in message.node_endpoints:
            if node.node_id == leader_id:
                return Endpoints((ListenerAddress(self.listener, node.host, node.port),))
        return _NO_ENDPOINTS


_NO_ENDPOINTS: Final = Endpoints()
_TEXTS: Final = {
    Error.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
    Error.NOT_LEADER_OR_FOLLOWER: (
        "For requests intended only for the leader, this error indicates that the broker is not the current leader. "
        "For requests intended for any replica, this error indicates that the broker is not a replica of the topic "
        "partition."
    ),
}
"""What Kafka's tools print when the quorum is not described."""


def facts_of(data: bytes) -> tuple[tuple[BatchFacts, ...], str | None]:
    """The whole and intact batches at the start of fetched data, and what is wrong with the one after them.

    A batch that is merely cut is how Kafka fills an answer up to its size, and nothing wrong.
    """
    found: list[BatchFacts] = []
    try:
        for batch in scan(data):
            if batch.last_offset_delta < 0:
                return tuple(found), f"a batch ends {-batch.last_offset_delta} offsets before it begins"
            changes = tuple(changes_in(batch)) if batch.is_control else ()
            found.append(BatchFacts(batch.base_offset, batch.next_offset, batch.epoch, batch.end_position, changes))
    except IncompleteBatch:
        pass
    except MetadataLogError as bad:
        return tuple(found), str(bad)
    return tuple(found), None


def _only_partition(topics: Any) -> Any:
    """The one partition of a request or reply about the metadata partition and nothing else; None for any other.

    Typed loosely: every API has classes of its own for the same shape.
    """
    if len(topics) != 1 or topics[0].topic_name != METADATA_TOPIC or len(topics[0].partitions) != 1:
        return None
    part = topics[0].partitions[0]
    return part if part.partition_index == METADATA_PARTITION else None


def _checked(message: Any) -> tuple[Error, Any]:
    """The top-level error of a reply, or its only partition; raises `DecodeError` where it has neither."""
    top = Error.of(message.error_code)
    if top != Error.NONE:
        return top, None
    part = _only_partition(message.topics)
    if part is None:
        raise DecodeError(f"a {type(message).__name__} is not about the metadata partition", field="topics")
    return top, part


def _endpoints_of(listeners: Any) -> Endpoints:
    return Endpoints(tuple(ListenerAddress(one.name, one.host, one.port) for one in listeners))


def _fetch_snapshot_reply_to_wire(request: WireRequest, reply: FetchSnapshotReply) -> Message:
    if reply.top_error != Error.NONE:
        return snapshot_wire.FetchSnapshotResponse(error_code=reply.top_error)
    snapshot = reply.snapshot or OffsetAndEpoch(epoch=0, offset=0)
    # Where Kafka answers with an error it leaves the records null, which cannot be encoded, and so answers nothing.
    part = snapshot_wire.FetchSnapshotResponsePartitionSnapshot(
        index=METADATA_PARTITION,
        error_code=reply.error,
        snapshot_id=snapshot_wire.FetchSnapshotResponseSnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch),
        current_leader=snapshot_wire.LeaderIdAndEpoch(leader_id=reply.leader_id, leader_epoch=reply.epoch),
        size=reply.size,
        position=reply.position,
        unaligned_records=reply.data,
    )
    nodes = [
        snapshot_wire.NodeEndpoint(node_id=reply.leader_id, host=one.host, port=one.port)
        for one in _addresses(request, reply.endpoints)
    ]
    return _about_snapshot(part, nodes=nodes)


def _about_snapshot(
    part: snapshot_wire.FetchSnapshotResponsePartitionSnapshot,
    *,
    name: str = METADATA_TOPIC,
    nodes: Sequence[snapshot_wire.NodeEndpoint] = (),
) -> Message:
    topic = snapshot_wire.FetchSnapshotResponseTopicSnapshot(name=name, partitions=[part])
    return snapshot_wire.FetchSnapshotResponse(topics=[topic], node_endpoints=list(nodes))


def _vote_reply_to_wire(request: WireRequest, reply: VoteReply) -> Message:
    if reply.top_error != Error.NONE:
        return vote_wire.VoteResponse(error_code=reply.top_error)
    part = vote_wire.VoteResponsePartitionData(
        partition_index=METADATA_PARTITION,
        error_code=reply.error,
        leader_id=reply.leader_id,
        leader_epoch=reply.epoch,
        vote_granted=reply.granted,
    )
    return vote_wire.VoteResponse(
        topics=[vote_wire.VoteResponseTopicData(topic_name=METADATA_TOPIC, partitions=[part])],
        node_endpoints=[
            vote_wire.NodeEndpoint(node_id=reply.leader_id, host=one.host, port=one.port)
            for one in _addresses(request, reply.endpoints)
        ],
    )


def _begin_reply_to_wire(request: WireRequest, reply: BeginQuorumEpochReply) -> Message:
    if reply.top_error != Error.NONE:
        return begin_wire.BeginQuorumEpochResponse(error_code=reply.top_error)
    part = begin_wire.BeginQuorumEpochResponsePartitionData(
        partition_index=METADATA_PARTITION,
        error_code=reply.error,
        leader_id=reply.leader_id,
        leader_epoch=reply.epoch,
    )
    return begin_wire.BeginQuorumEpochResponse(
        topics=[begin_wire.BeginQuorumEpochResponseTopicData(topic_name=METADATA_TOPIC, partitions=[part])],
        node_endpoints=[
            begin_wire.NodeEndpoint(node_id=reply.leader_id, host=one.host, port=one.port)
            for one in _addresses(request, reply.endpoints)
        ],
    )


def _end_reply_to_wire(request: WireRequest, reply: EndQuorumEpochReply) -> Message:
    if reply.top_error != Error.NONE:
        return end_wire.EndQuorumEpochResponse(error_code=reply.top_error)
    part = end_wire.EndQuorumEpochResponsePartitionData(
        partition_index=METADATA_PARTITION,
        error_code=reply.error,
        leader_id=reply.leader_id,
        leader_epoch=reply.epoch,
    )
    return end_wire.EndQuorumEpochResponse(
        topics=[end_wire.EndQuorumEpochResponseTopicData(topic_name=METADATA_TOPIC, partitions=[part])],
        node_endpoints=[
            end_wire.NodeEndpoint(node_id=reply.leader_id, host=one.host, port=one.port)
            for one in _addresses(request, reply.endpoints)
        ],
    )


def _addresses(request: WireRequest, endpoints: Endpoints) -> tuple[ListenerAddress, ...]:
    """The leader's address on the listener that the request came by; version 0 cannot carry it."""
    address = endpoints.find(request.listener) if request.version >= 1 else None
    return () if address is None else (address,)


def _describe_from_wire(message: describe_wire.DescribeQuorumRequest) -> DescribeQuorum | Message:
    if _only_partition(message.topics) is not None:
        return DescribeQuorum()
    error = Error.UNKNOWN_TOPIC_OR_PARTITION
    topics = [
        describe_wire.DescribeQuorumResponseTopicData(
            topic_name=topic.topic_name,
            partitions=[
                describe_wire.DescribeQuorumResponsePartitionData(
                    partition_index=part.partition_index, error_code=error, error_message=_TEXTS[error]
                )
                for part in topic.partitions
            ],
        )
        for topic in message.topics
    ]
    return describe_wire.DescribeQuorumResponse(topics=topics)


def _describe_reply_to_wire(request: WireRequest, reply: DescribeQuorumReply) -> Message:
    with_directories = request.version >= 2
    if reply.error != Error.NONE:
        part = describe_wire.DescribeQuorumResponsePartitionData(
            partition_index=METADATA_PARTITION,
            error_code=reply.error,
            error_message=_TEXTS.get(reply.error, reply.error.message),
        )
    else:
        part = describe_wire.DescribeQuorumResponsePartitionData(
            partition_index=METADATA_PARTITION,
            leader_id=reply.leader_id,
            leader_epoch=reply.epoch,
            high_watermark=reply.high_watermark,
            current_voters=[_progress_to_wire(one, with_directories) for one in reply.voters],
            observers=[_progress_to_wire(one, with_directories) for one in reply.observers],
        )
    nodes = [
        describe_wire.Node(
            node_id=node_id,
            listeners=[
                describe_wire.Listener(name=one.name, host=one.host, port=one.port) for one in endpoints.listeners
            ],
        )
        for node_id, endpoints in reply.nodes
    ]
    return describe_wire.DescribeQuorumResponse(
        topics=[describe_wire.DescribeQuorumResponseTopicData(topic_name=METADATA_TOPIC, partitions=[part])],
        nodes=nodes if with_directories else [],
    )


def _progress_to_wire(one: ReplicaProgress, with_directory: bool) -> describe_wire.ReplicaState:
    return describe_wire.ReplicaState(
        replica_id=one.key.id,
        replica_directory_id=one.key.directory_id if with_directory else Uuid.ZERO,
        log_end_offset=one.log_end_offset,
        last_fetch_timestamp=one.last_fetch_ms,
        last_caught_up_timestamp=one.last_caught_up_ms,
    )
