"""Reads the answers to voter changes, and compares them with the log (KIP-853).

An answer of success to AddRaftVoter or RemoveRaftVoter promises that the change is committed; with `ack_when_committed`
false, and for UpdateRaftVoter, that the change is in the log of the leader that answers.
"""

from __future__ import annotations

from typing import Final

from kraft.invariants.identities import IdentityLedger, Piece
from kraft.invariants.violation import InvariantViolated
from kraft.invariants.voters import AnsweredChange
from kraft.quorum.states import LeaderState
from kraft.quorum.values import Endpoints, ListenerAddress, ReplicaKey, VersionRange
from kraft.quorum.voters import VoterSet
from kraft.sim.nodes.frames import Frame
from kraft.sim.world.member_interface import (
    STRANGERS,
    Administered,
    Answer,
    Member,
    Output,
    SimulatedRequest,
    SteppedMember,
)
from kraft.sim.world.simulated_quorum import SimulatedQuorum
from metadata_log.image.features import KRAFT_VERSION
from metadata_log.serde import Message
from metadata_log.types import OffsetAndEpoch
from transport.protocol.apis import ApiKey
from transport.protocol.errors import Error
from transport.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from transport.protocol.messages.fetch_snapshot import FetchSnapshotRequest
from transport.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from transport.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from transport.protocol.messages.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse

_CHANGES: Final = (ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER, ApiKey.UPDATE_RAFT_VOTER)
"""The requests of replicas that change the voters."""
FETCH_SNAPSHOT: Final = "FetchSnapshot"


class VoterWatch:
    """The `Watch` of a world with voter changes."""

    def __init__(self) -> None:
        self.identities = IdentityLedger()
        self._named: dict[int, VoterSet] = {}
        """The last voter set in the log of each node."""
        self.confirmed = 0
        """The number of answers of success so far."""

    def submitting(self, submit_id: int, line: str, world: SimulatedQuorum) -> None:
        """Nothing to do: the ledger of the world observes the outcome."""

    def administering(self, request: Message) -> None:
        """A client is about to send a request; an operator adds a replica with the directory that it has now."""
        if isinstance(request, AddRaftVoterRequest):
            self.identities.has(ReplicaKey(request.voter_id, request.voter_directory_id))

    def started(self, member: Member, world: SimulatedQuorum) -> None:
        """A node has started."""
        if not self._named:
            for host in world.hosts.values():
                self.identities.has(host.member.key)
        self.identities.started(member.key)
        self._look_at_voters(member.node_id, world)
        self._look_at_progress(member)

    def stepped(self, member: Member, outputs: list[Output], world: SimulatedQuorum) -> None:
        """A node has completed a step: each change that the node answers with success must be in its log."""
        host = world.hosts[member.node_id]
        self._look_at_voters(member.node_id, world)
        self._look_at_progress(member)
        for output in outputs:
            if isinstance(output, Administered):
                self._answered(member.node_id, host.administered[output.request_id], output.response, world)
            elif isinstance(output, Answer) and output.request_id < STRANGERS:
                message = output.message
                if isinstance(message, Frame) and message.api_key in _CHANGES:
                    asked = host.asked[output.request_id][0].message
                    assert isinstance(asked, Frame), asked
                    self._answered(member.node_id, asked.request(), message.response(), world)
            elif isinstance(output, SimulatedRequest) and output.kind == FETCH_SNAPSHOT:
                self._look_at_download(member.node_id, output)

    def _look_at_voters(self, node_id: int, world: SimulatedQuorum) -> None:
        voters = world.invariants.voters_of(node_id)
        if self._named.get(node_id) is not voters:
            self._named[node_id] = voters
            self.identities.named(node_id, voters.keys)

    def _look_at_progress(self, member: Member) -> None:
        """A start flushes what it finds, such as a batch whose flush has failed, and the first Fetch asks beyond it."""
        assert isinstance(member, SteppedMember), member
        quorum = member.core._quorum
        self.identities.flushed(member.key, quorum.log.flushed_offset)
        if isinstance(quorum.state, LeaderState):
            for one in quorum.state.progress.values():
                self.identities.counts(member.node_id, one.key, one.end_offset)

    def _look_at_download(self, node_id: int, asked: SimulatedRequest) -> None:
        frame = asked.message
        if not isinstance(frame, Frame):
            return
        request = frame.request()
        assert isinstance(request, FetchSnapshotRequest), request
        (topic,) = request.topics
        (part,) = topic.partitions
        snapshot = OffsetAndEpoch(offset=part.snapshot_id.end_offset, epoch=part.snapshot_id.epoch)
        self.identities.asked(node_id, Piece(asked.peer_id, part.current_leader_epoch, snapshot, part.position))

    def _answered(self, node_id: int, request: Message, response: object, world: SimulatedQuorum) -> None:
        change = change_of(request) if is_success(response) else None
        if change is None:
            return
        self.confirmed += 1
        observed, ledger = world.invariants.observed(node_id), world.invariants.voters
        wrong = ledger.not_made(node_id, observed.voters, observed.verified, change)
        if wrong is not None:
            raise InvariantViolated(wrong)

    def concluded(self, world: SimulatedQuorum) -> None:
        """Nothing to do: all checks happen during the run."""

    def unsettled(self, world: SimulatedQuorum) -> str:
        """At the end no change is pending, and all nodes have the same voter set (ReconfigurationNotStuck)."""
        voters = {host.member.voters() for host in world.hosts.values() if host.is_running}
        return "" if len(voters) == 1 else f"the nodes take for voters {sorted(voters)}"


def is_success(response: object) -> bool:
    """Whether this is the answer of success to a voter change."""
    match response:
        case AddRaftVoterResponse() | RemoveRaftVoterResponse() | UpdateRaftVoterResponse() | UpdateFeaturesResponse():
            return response.error_code == Error.NONE
        case _:
            return False


def change_of(request: Message) -> AnsweredChange | None:
    """The change that an answer of success to a request promises; None if the request changes no voters."""
    match request:
        case AddRaftVoterRequest():
            return AnsweredChange(
                "addition",
                ReplicaKey(request.voter_id, request.voter_directory_id),
                endpoints=_endpoints(request),
                is_committed=request.ack_when_committed,
            )
        case RemoveRaftVoterRequest():
            return AnsweredChange("removal", ReplicaKey(request.voter_id, request.voter_directory_id))
        case UpdateRaftVoterRequest():
            feature = request.kraft_version_feature
            return AnsweredChange(
                "update",
                ReplicaKey(request.voter_id, request.voter_directory_id),
                endpoints=_endpoints(request),
                kraft_versions=VersionRange(feature.min_supported_version, feature.max_supported_version),
                is_committed=False,
            )
        case UpdateFeaturesRequest(validate_only=False) if any(
            one.feature == KRAFT_VERSION and one.max_version_level > 0 for one in request.feature_updates
        ):
            return AnsweredChange("upgrade")
        case _:
            return None


def _endpoints(request: AddRaftVoterRequest | UpdateRaftVoterRequest) -> Endpoints:
    return Endpoints(tuple(ListenerAddress(one.name.upper(), one.host, one.port) for one in request.listeners))
