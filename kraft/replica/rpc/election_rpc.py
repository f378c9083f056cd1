"""The RPCs of elections between wire and flat form: Vote, BeginQuorumEpoch, EndQuorumEpoch (Kafka: `RaftUtil`; KIP-595,
KIP-853, KIP-996).
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from kraft.quorum.messages import (
    BeginQuorumEpoch,
    BeginQuorumEpochReply,
    EndQuorumEpoch,
    EndQuorumEpochReply,
    Vote,
    VoteReply,
)
from kraft.quorum.values import ReplicaKey
from kraft.replica.rpc.rpc_parts import (
    NO_LEADER_EPOCH,
    checked,
    endpoints_of,
    leader_address,
    leader_endpoints,
    only_partition,
)
from kraft.wire import WireRequest
from metadata_log.serde import Message
from metadata_log.types import METADATA_PARTITION, METADATA_TOPIC, OffsetAndEpoch
from transport.protocol.errors import Error
from transport.protocol.messages import begin_quorum_epoch as begin_wire
from transport.protocol.messages import end_quorum_epoch as end_wire
from transport.protocol.messages import vote as vote_wire

ElectionRequest = Vote | BeginQuorumEpoch | EndQuorumEpoch
ElectionReply = VoteReply | BeginQuorumEpochReply | EndQuorumEpochReply
ElectionWireRequest = vote_wire.VoteRequest | begin_wire.BeginQuorumEpochRequest | end_wire.EndQuorumEpochRequest
ElectionWireResponse = vote_wire.VoteResponse | begin_wire.BeginQuorumEpochResponse | end_wire.EndQuorumEpochResponse


class _Shape(Struct, frozen=True):
    """The classes that one kind of answer consists of; each API has its own for the same."""

    reply: type[VoteReply | BeginQuorumEpochReply | EndQuorumEpochReply]
    response: Any
    topic: Any
    partition: Any
    node: Any


_VOTE: Final = _Shape(
    VoteReply,
    vote_wire.VoteResponse,
    vote_wire.VoteResponseTopicData,
    vote_wire.VoteResponsePartitionData,
    vote_wire.NodeEndpoint,
)
_BEGIN: Final = _Shape(
    BeginQuorumEpochReply,
    begin_wire.BeginQuorumEpochResponse,
    begin_wire.BeginQuorumEpochResponseTopicData,
    begin_wire.BeginQuorumEpochResponsePartitionData,
    begin_wire.NodeEndpoint,
)
_END: Final = _Shape(
    EndQuorumEpochReply,
    end_wire.EndQuorumEpochResponse,
    end_wire.EndQuorumEpochResponseTopicData,
    end_wire.EndQuorumEpochResponsePartitionData,
    end_wire.NodeEndpoint,
)
_BY_REPLY: Final = {shape.reply: shape for shape in (_VOTE, _BEGIN, _END)}
_BY_RESPONSE: Final = {shape.response: shape for shape in (_VOTE, _BEGIN, _END)}


def refused(message: ElectionWireRequest, error: Error) -> Message:
    """The answer to a request that does not reach the core."""
    match message:
        case vote_wire.VoteRequest():
            return vote_wire.VoteResponse(error_code=error)
        case begin_wire.BeginQuorumEpochRequest():
            return begin_wire.BeginQuorumEpochResponse(error_code=error)
        case end_wire.EndQuorumEpochRequest():
            return end_wire.EndQuorumEpochResponse(error_code=error)


def request_from_wire(message: ElectionWireRequest) -> ElectionRequest | Message:
    """The flat form, or the answer to a request about something else than the metadata partition."""
    part = only_partition(message.topics)
    if part is None:
        return refused(message, Error.INVALID_REQUEST)
    match message:
        case vote_wire.VoteRequest():
            return Vote(
                epoch=part.replica_epoch,
                candidate=ReplicaKey(part.replica_id, part.replica_directory_id),
                voter=ReplicaKey(message.voter_id, part.voter_directory_id),
                last=OffsetAndEpoch(epoch=part.last_offset_epoch, offset=part.last_offset),
                pre_vote=part.pre_vote,
            )
        case begin_wire.BeginQuorumEpochRequest():
            return BeginQuorumEpoch(
                epoch=part.leader_epoch,
                leader_id=part.leader_id,
                voter=ReplicaKey(message.voter_id, part.voter_directory_id),
                endpoints=endpoints_of(message.leader_endpoints),
            )
        case end_wire.EndQuorumEpochRequest():
            named = tuple(ReplicaKey(one.candidate_id, one.candidate_directory_id) for one in part.preferred_candidates)
            return EndQuorumEpoch(
                epoch=part.leader_epoch,
                leader_id=part.leader_id,
                successors=named or tuple(ReplicaKey(node_id) for node_id in part.preferred_successors),
                endpoints=endpoints_of(message.leader_endpoints),
            )


def reply_to_wire(request: WireRequest, reply: ElectionReply) -> Message:
    """The answer, with the leader's endpoint on the listener of the request."""
    shape = _BY_REPLY[type(reply)]
    if reply.top_error != Error.NONE:
        return _message(shape.response(error_code=reply.top_error))
    part = shape.partition(
        partition_index=METADATA_PARTITION,
        error_code=reply.error,
        leader_id=reply.leader_id,
        leader_epoch=reply.epoch,
        **({"vote_granted": reply.granted} if isinstance(reply, VoteReply) else {}),
    )
    at = leader_address(request, reply.endpoints)
    nodes = [] if at is None else [shape.node(node_id=reply.leader_id, host=at.host, port=at.port)]
    topic = shape.topic(topic_name=METADATA_TOPIC, partitions=[part])
    return _message(shape.response(topics=[topic], node_endpoints=nodes))


def _message(made: Any) -> Message:
    assert isinstance(made, Message), made
    return made


def request_to_wire(message: ElectionRequest, cluster_id: str) -> Message:
    """The request in its newest form."""
    match message:
        case Vote():
            return _vote_to_wire(message, cluster_id)
        case BeginQuorumEpoch():
            return _begin_to_wire(message, cluster_id)
        case EndQuorumEpoch():
            return _end_to_wire(message, cluster_id)


def reply_from_wire(message: ElectionWireResponse, listener: str) -> ElectionReply:
    """The flat form; raises `DecodeError` for a reply about something else."""
    make = _BY_RESPONSE[type(message)].reply
    top, part = checked(message)
    if part is None:
        return make(epoch=NO_LEADER_EPOCH, top_error=top)
    return make(
        epoch=part.leader_epoch,
        leader_id=part.leader_id,
        endpoints=leader_endpoints(message, part.leader_id, listener),
        error=Error.of(part.error_code),
        **({"granted": part.vote_granted} if make is VoteReply else {}),
    )


def _vote_to_wire(message: Vote, cluster_id: str) -> vote_wire.VoteRequest:
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
    return vote_wire.VoteRequest(cluster_id=cluster_id, voter_id=message.voter.id, topics=[topic])


def _begin_to_wire(message: BeginQuorumEpoch, cluster_id: str) -> begin_wire.BeginQuorumEpochRequest:
    part = begin_wire.BeginQuorumEpochRequestPartitionData(
        partition_index=METADATA_PARTITION,
        voter_directory_id=message.voter.directory_id,
        leader_id=message.leader_id,
        leader_epoch=message.epoch,
    )
    topic = begin_wire.BeginQuorumEpochRequestTopicData(topic_name=METADATA_TOPIC, partitions=[part])
    return begin_wire.BeginQuorumEpochRequest(
        cluster_id=cluster_id,
        voter_id=message.voter.id,
        topics=[topic],
        leader_endpoints=[
            begin_wire.LeaderEndpoint(name=one.name, host=one.host, port=one.port)
            for one in message.endpoints.listeners
        ],
    )


def _end_to_wire(message: EndQuorumEpoch, cluster_id: str) -> end_wire.EndQuorumEpochRequest:
    # Version 0 has ids, version 1 has keys. Each field is ignorable in the other version.
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
        cluster_id=cluster_id,
        topics=[end_wire.EndQuorumEpochRequestTopicData(topic_name=METADATA_TOPIC, partitions=[part])],
        leader_endpoints=[
            end_wire.LeaderEndpoint(name=one.name, host=one.host, port=one.port) for one in message.endpoints.listeners
        ],
    )
