"""The RPCs that change the voter set, between wire and flat form (Kafka: `RaftUtil`; KIP-853)."""

from __future__ import annotations

from typing import Any

from kraft.quorum.messages import (
    AddVoter,
    AddVoterReply,
    ProbeVersionsReply,
    RemoveVoter,
    RemoveVoterReply,
    UpdateVoter,
    UpdateVoterReply,
    VoterReply,
    VoterRequest,
)
from kraft.quorum.values import Endpoints, ListenerAddress, ReplicaKey, VersionRange
from kraft.quorum.voters import Voter
from kraft.replica.rpc.rpc_parts import endpoint
from kraft.wire import WireRequest
from metadata_log.image.features import KRAFT_VERSION
from metadata_log.serde import Message
from transport.protocol.errors import Error
from transport.protocol.messages import add_raft_voter as add_wire
from transport.protocol.messages import remove_raft_voter as remove_wire
from transport.protocol.messages import update_raft_voter as update_wire
from transport.protocol.messages.api_versions import ApiVersionsResponse

VoterWireRequest = (
    add_wire.AddRaftVoterRequest | remove_wire.RemoveRaftVoterRequest | update_wire.UpdateRaftVoterRequest
)
VoterWireResponse = (
    add_wire.AddRaftVoterResponse | remove_wire.RemoveRaftVoterResponse | update_wire.UpdateRaftVoterResponse
)


def request_from_wire(message: VoterWireRequest) -> VoterRequest:
    """Translate a request from its wire form; listener names are upper case from here on."""
    key = ReplicaKey(message.voter_id, message.voter_directory_id)
    match message:
        case add_wire.AddRaftVoterRequest():
            return AddVoter(Voter(key, _endpoints(message.listeners)), message.ack_when_committed)
        case remove_wire.RemoveRaftVoterRequest():
            return RemoveVoter(key)
        case update_wire.UpdateRaftVoterRequest():
            feature = message.kraft_version_feature
            versions = VersionRange(feature.min_supported_version, feature.max_supported_version)
            return UpdateVoter(
                epoch=message.current_leader_epoch, voter=Voter(key, _endpoints(message.listeners), versions)
            )


def refused(message: VoterWireRequest, error: Error) -> Message:
    """The answer to a request that does not reach the core."""
    match message:
        case add_wire.AddRaftVoterRequest():
            return add_wire.AddRaftVoterResponse(error_code=error, error_message=error.message)
        case remove_wire.RemoveRaftVoterRequest():
            return remove_wire.RemoveRaftVoterResponse(error_code=error, error_message=error.message)
        case update_wire.UpdateRaftVoterRequest():
            return update_wire.UpdateRaftVoterResponse(error_code=error)


def reply_to_wire(request: WireRequest, reply: VoterReply) -> Message:
    """The answer, with the leader's endpoint on the listener of the request."""
    match reply:
        case AddVoterReply(error, text):
            return add_wire.AddRaftVoterResponse(error_code=error, error_message=text)
        case RemoveVoterReply(error, text):
            return remove_wire.RemoveRaftVoterResponse(error_code=error, error_message=text)
        case UpdateVoterReply():
            address = reply.endpoints.find(request.listener)
            leader = update_wire.CurrentLeader(leader_id=reply.leader_id, leader_epoch=reply.epoch)
            if address is not None:
                leader = update_wire.CurrentLeader(reply.leader_id, reply.epoch, address.host, address.port)
            return update_wire.UpdateRaftVoterResponse(error_code=reply.error, current_leader=leader)


def request_to_wire(message: VoterRequest, cluster_id: str, timeout_ms: int) -> Message:
    """The request in its newest form."""
    match message:
        case AddVoter(voter):
            return add_wire.AddRaftVoterRequest(
                cluster_id=cluster_id,
                timeout_ms=timeout_ms,
                voter_id=voter.id,
                voter_directory_id=voter.key.directory_id,
                listeners=[add_wire.Listener(one.name, one.host, one.port) for one in voter.endpoints.listeners],
                ack_when_committed=message.ack_when_committed,
            )
        case RemoveVoter(key):
            return remove_wire.RemoveRaftVoterRequest(
                cluster_id=cluster_id, voter_id=key.id, voter_directory_id=key.directory_id
            )
        case UpdateVoter():
            voter = message.voter
            return update_wire.UpdateRaftVoterRequest(
                cluster_id=cluster_id,
                current_leader_epoch=message.epoch,
                voter_id=voter.id,
                voter_directory_id=voter.key.directory_id,
                listeners=[update_wire.Listener(one.name, one.host, one.port) for one in voter.endpoints.listeners],
                kraft_version_feature=update_wire.KRaftVersionFeature(
                    voter.kraft_versions.lowest, voter.kraft_versions.highest
                ),
            )


def reply_from_wire(message: VoterWireResponse, listener: str) -> VoterReply:
    """The flat form of an answer; `listener` is the listener of the controllers."""
    error = Error.of(message.error_code)
    match message:
        case add_wire.AddRaftVoterResponse():
            return AddVoterReply(error, message.error_message)
        case remove_wire.RemoveRaftVoterResponse():
            return RemoveVoterReply(error, message.error_message)
        case update_wire.UpdateRaftVoterResponse():
            leader = message.current_leader
            known = endpoint(listener, leader.host, leader.port) if leader.host else Endpoints()
            return UpdateVoterReply(epoch=leader.leader_epoch, leader_id=leader.leader_id, endpoints=known, error=error)


def probed(message: ApiVersionsResponse) -> ProbeVersionsReply:
    """The supported levels of kraft.version in the answer."""
    ranges = {one.name: VersionRange(one.min_version, one.max_version) for one in message.supported_features}
    return ProbeVersionsReply(ranges.get(KRAFT_VERSION), Error.of(message.error_code))


def _endpoints(listeners: Any) -> Endpoints:
    return Endpoints(tuple(ListenerAddress(one.name.upper(), one.host, one.port) for one in listeners))
