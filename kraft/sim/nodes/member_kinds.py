"""The kinds of nodes in a run, and their settings, drawn from the seed."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

from kraft.controller.decision.request_context import DecisionSettings
from kraft.quorum.values import QuorumConfig
from kraft.quorum.voters import VoterSet
from kraft.replica.hosts.controller_host import host_controller
from kraft.replica.interface.application import ApplicationFactory, host_raw_log
from kraft.sim.nodes.canonical_core import CanonicalCore
from kraft.sim.nodes.core_member import CoreMember
from kraft.sim.nodes.dynamic import draw_snapshots
from kraft.sim.nodes.replica_member import ReplicaMember
from kraft.sim.nodes.state_machine_member import COUNTS, StateMachineMember
from kraft.sim.nodes.workload_spec import WorkloadSpec
from kraft.sim.world.member_interface import Member
from transport.protocol.apis import APIS, ApiKey

MakeMember = Callable[[int, VoterSet, QuorumConfig, Random], Member]
"""Makes the node of an id; its draws from the `Random` are part of the run."""


def draw_config(rng: Random) -> QuorumConfig:
    """Kafka's defaults, or something tighter that finds other interleavings."""
    return QuorumConfig(
        election_timeout_ms=rng.choice((200, 1000)),
        fetch_timeout_ms=rng.choice((500, 1500)),
        election_backoff_max_ms=rng.choice((100, 1000)),
        request_timeout_ms=rng.choice((500, 2000)),
        retry_backoff_ms=rng.choice((20, 100)),
        append_linger_ms=rng.choice((0, 0, 25)),
        fetch_max_bytes=rng.choice((1, 300, 1_048_576)),
        fetch_max_wait_ms=rng.choice((100, 250)),
        high_watermark_propagation_delay_ms=rng.choice((0, 5)),
    )


def core_member(node_id: int, voters: VoterSet, config: QuorumConfig, rng: Random) -> Member:
    """A bare core over a log in memory."""
    return CoreMember(node_id, voters=voters, config=config)


def canonical_core_member(node_id: int, voters: VoterSet, config: QuorumConfig, rng: Random) -> Member:
    """A bare core without random numbers, for exploration."""
    return CanonicalCore(node_id, voters=voters, config=config)


def replica_member(node_id: int, voters: VoterSet, config: QuorumConfig, rng: Random) -> Member:
    """A whole replica that hosts a raw log; some speak old versions, and some do without the codecs."""
    return _replica(node_id, voters, config, rng, host_raw_log)


def controller_member(node_id: int, voters: VoterSet, config: QuorumConfig, rng: Random) -> Member:
    """A whole replica that hosts the controller; clients alter its configurations over the wire."""
    return _replica(node_id, voters, config, rng, host_controller)


def state_machine_members(workload_spec: WorkloadSpec) -> MakeMember:
    """Whole replicas that host the machine of a workload specification, with snapshots; clients ask any node."""

    def machine_member(node_id: int, voters: VoterSet, config: QuorumConfig, rng: Random) -> Member:
        snapshots = draw_snapshots(rng)
        return StateMachineMember(
            node_id, workload_spec=workload_spec, voters=voters, config=config, snapshots=snapshots, **_draw(rng)
        )

    return machine_member


def loaded_member(node_id: int, voters: VoterSet, config: QuorumConfig, rng: Random) -> Member:
    """A controller over a quick disk, for runs in which decisions take long."""
    return ReplicaMember(
        node_id,
        voters=voters,
        config=config,
        application=host_controller,
        segment_bytes=1 << 30,
        versions={},
        uses_codecs=False,
        decisions=DecisionSettings(broker_session_timeout_ms=3000),
        judged_per_turn=JUDGED_PER_TURN,
    )


JUDGED_PER_TURN: Final = 100
"""So few records that a loaded follower judges nearly every answer with a batch of a topic in several turns."""
LOADED: Final = "loaded"
"""What a scenario of controllers with much to decide calls its members."""
MACHINES: Final = "state-machine"
"""What a scenario of state machines calls its members."""
MEMBERS: Final[dict[str, MakeMember]] = {
    "core": core_member,
    "steady-core": canonical_core_member,
    "replica": replica_member,
    "controller": controller_member,
    LOADED: loaded_member,
    MACHINES: state_machine_members(COUNTS),
}
"""Every kind of voters by the name that a `Scenario` calls it."""


def _replica(
    node_id: int, voters: VoterSet, config: QuorumConfig, rng: Random, application: ApplicationFactory
) -> ReplicaMember:
    return ReplicaMember(node_id, voters=voters, config=config, application=application, **_draw(rng))


def _draw(rng: Random) -> dict[str, Any]:
    """What is drawn for each replica."""
    speaks_old = rng.random() < 0.2
    oldest = {ApiKey.FETCH: 15, ApiKey.VOTE: 0, ApiKey.BEGIN_QUORUM_EPOCH: 0, ApiKey.END_QUORUM_EPOCH: 0}
    versions = {int(key): rng.randint(low, APIS[key].versions.highest) for key, low in oldest.items()}
    return {
        "segment_bytes": rng.choice((1000, 1_000_000)),
        "versions": versions if speaks_old else {},
        "uses_codecs": rng.random() < 0.5,
    }
