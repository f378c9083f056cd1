"""Late requests of replicas that have lost their disks: a node id with a directory id that the node has no more
(KIP-853). No quorum may take them for requests of the voter that has this node id now.
"""

from __future__ import annotations

from random import Random
from typing import Final

from kraft.quorum.states import LeaderState
from kraft.quorum.values import ReplicaKey
from kraft.sim.nodes.replica_member import ReplicaMember
from kraft.sim.world.member_interface import CLUSTER_ID
from kraft.sim.world.world import World
from metadata_log.serde import Message
from metadata_log.types import Uuid
from transport.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from transport.protocol.messages.update_raft_voter import KRaftVersionFeature, Listener, UpdateRaftVoterRequest

MEAN_MS: Final = 400
FIRST_ID: Final = 500_000
"""The id of the first request: voter changes have ids below."""


class FormerSelves:
    """Draws the requests of one run."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._known: dict[int, list[ReplicaKey]] = {}
        self._next_id = FIRST_ID

    def pause_ms(self) -> int:
        """The time until the next request, in ms."""
        return 1 + int(self._rng.expovariate(1 / MEAN_MS))

    def next_request(self, world: World) -> tuple[int, int, Message] | None:
        """A leader, the id of the request, and the request; None if there is no leader."""
        leaders = world.leaders()
        if not leaders:
            return None
        leader_id = self._rng.choice(leaders)
        leader = world.hosts[leader_id].member
        assert isinstance(leader, ReplicaMember), leader
        others = [
            key
            for key in world.invariants.voters_of(leader_id).keys
            if key.id != leader_id and _has_fetched(leader, key.id)
        ]
        if not others:
            return None
        voter = self._rng.choice(others)
        former = self._former(world, voter.id)
        request_id, self._next_id = self._next_id, self._next_id + 1
        is_known = voter.directory_id not in (Uuid.ZERO, former.directory_id)
        if is_known and self._rng.random() < 0.5:
            # The Fetch of any directory counts for a static voter, whose directory the voter set does not name.
            return leader_id, request_id, _fetch(leader, former)
        return leader_id, request_id, _update(leader, world, former)

    def _former(self, world: World, node_id: int) -> ReplicaKey:
        """A directory that a node has had, or one from before the run."""
        present = world.hosts[node_id].member.key
        known = self._known.setdefault(node_id, [ReplicaKey(node_id, Uuid(self._rng.randbytes(16)))])
        if present not in known:
            known.append(present)
        return self._rng.choice([one for one in known if one != present])


def _has_fetched(leader: ReplicaMember, voter_id: int) -> bool:
    """Whether the leader knows the directory of a voter; before that it has to believe any report."""
    state = leader.core._quorum.state
    progress = state.progress.get(voter_id) if isinstance(state, LeaderState) else None
    return progress is not None and progress.directory_id != Uuid.ZERO


def _update(leader: ReplicaMember, world: World, former: ReplicaKey) -> UpdateRaftVoterRequest:
    endpoints = world.hosts[former.id].member.endpoints
    return UpdateRaftVoterRequest(
        cluster_id=CLUSTER_ID,
        current_leader_epoch=leader.core.epoch,
        voter_id=former.id,
        voter_directory_id=former.directory_id,
        listeners=[Listener(one.name, one.host, one.port) for one in endpoints.listeners],
        kraft_version_feature=KRaftVersionFeature(0, 1),
    )


def _fetch(leader: ReplicaMember, former: ReplicaKey) -> FetchRequest:
    log = leader.core.log
    part = FetchPartition(
        partition=0,
        current_leader_epoch=leader.core.epoch,
        fetch_offset=log.end_offset,
        last_fetched_epoch=log.last_epoch,
        replica_directory_id=former.directory_id,
    )
    return FetchRequest(
        cluster_id=CLUSTER_ID,
        replica_state=ReplicaState(replica_id=former.id),
        topics=[FetchTopic(topic_id=Uuid.METADATA_TOPIC, partitions=[part])],
    )
