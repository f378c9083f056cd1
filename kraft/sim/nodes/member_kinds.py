"""The kinds of nodes in a run, and their settings, drawn from the seed."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

from kraft.controller.decision.request_context import DecisionSettings
from kraft.process.hosting import host_controller
from kraft.process.parts import ApplicationFactory
from kraft.quorum.values import QuorumConfig
from kraft.quorum.voters import VoterSet
from kraft.sim.nodes.canonical_core import CanonicalCore
from kraft.sim.nodes.client_sessions import FOREVER_MS, ClientSessions
from kraft.sim.nodes.core_member import CoreMember
from kraft.sim.nodes.dynamic import draw_snapshots
from kraft.sim.nodes.registers import host_readable_log, host_registers
from kraft.sim.nodes.replica_member import ReplicaMember
from kraft.sim.nodes.state_machine_member import COUNTS, StateMachineMember
from kraft.sim.nodes.store_workload import store_spec, transactions_spec
from kraft.sim.nodes.workload_spec import WorkloadSpec
from kraft.sim.world.member_interface import Member
from transport.protocol.apis import APIS, ApiKey

MakeMember = Callable[[int, VoterSet, QuorumConfig, Random], Member]
"""Makes a node from its id, the voters, the settings and the `Random` of the run."""


def draw_config(rng: Random) -> QuorumConfig:
    """Draw the settings of the quorum: Kafka's defaults, or shorter times that lead to other interleavings."""
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
    """Make a bare core over a log in memory (Kafka: `RaftClientTestContext`).

    Args:
        node_id: The id of the node.
        voters: The voters of the quorum.
        config: The settings of the quorum.
        rng: Not used.

    Returns:
        The node, for `run(…, make_member=core_member)`.
    """
    return CoreMember(node_id, voters=voters, config=config)


def canonical_core_member(node_id: int, voters: VoterSet, config: QuorumConfig, rng: Random) -> Member:
    """A bare core without random numbers, for exploration."""
    return CanonicalCore(node_id, voters=voters, config=config)


def replica_member(node_id: int, voters: VoterSet, config: QuorumConfig, rng: Random) -> Member:
    """Make a whole replica that hosts a raw log (Kafka: the `RaftNode` of `RaftEventSimulationTest`).

    Args:
        node_id: The id of the node.
        voters: The voters of the quorum.
        config: The settings of the quorum.
        rng: Draws the versions of the node's requests, the size of segments, and whether messages are encoded.

    Returns:
        The node, for `run(…, make_member=replica_member)`.
    """
    return ReplicaMember(node_id, voters=voters, config=config, application=host_readable_log, **_draw(rng))


def controller_member(node_id: int, voters: VoterSet, config: QuorumConfig, rng: Random) -> Member:
    """Make a whole replica that hosts the controller; each submission alters a configuration over the wire.

    Args:
        node_id: The id of the node.
        voters: The voters of the quorum.
        config: The settings of the quorum.
        rng: Draws the versions of the node's requests, the size of segments, and whether messages are encoded.

    Returns:
        The node, for `run(…, make_member=controller_member)`.
    """
    return _replica(node_id, voters, config, rng, host_controller)


def state_machine_members(
    workload_spec: WorkloadSpec, clients: ClientSessions | None = None, lifetime_ms: int = FOREVER_MS
) -> MakeMember:
    """A function that makes whole replicas with the state machine of a workload specification, and with snapshots.

    Args:
        workload_spec: The state machine.
        clients: The sessions of the clients of one run.
        lifetime_ms: The time after which an unused session expires, in ms.
    """
    clients = ClientSessions() if clients is None else clients

    def machine_member(node_id: int, voters: VoterSet, config: QuorumConfig, rng: Random) -> Member:
        snapshots = draw_snapshots(rng)
        return StateMachineMember(
            node_id,
            workload_spec=workload_spec,
            clients=clients,
            lifetime_ms=lifetime_ms,
            voters=voters,
            config=config,
            snapshots=snapshots,
            **_draw(rng),
        )

    return machine_member


def members_with_snapshots(members: str, rng: Random) -> MakeMember:
    """A function that makes plain replicas or controllers as `MEMBERS` has them, with snapshots.

    Args:
        members: A key of `WITH_SNAPSHOTS`.
        rng: Draws the interval of snapshots and the retention.
    """
    snapshots = draw_snapshots(rng)
    application = WITH_SNAPSHOTS[members]

    def member_with_snapshots(node_id: int, voters: VoterSet, config: QuorumConfig, rng: Random) -> Member:
        return ReplicaMember(
            node_id, voters=voters, config=config, application=application, snapshots=snapshots, **_draw(rng)
        )

    return member_with_snapshots


def loaded_member(node_id: int, voters: VoterSet, config: QuorumConfig, rng: Random) -> Member:
    """Make a controller for runs with slow decisions."""
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
"""The records that a loaded follower judges in one turn: so few that nearly every answer takes several turns."""
WITH_SNAPSHOTS: Final[dict[str, ApplicationFactory]] = {"replica": host_registers, "controller": host_controller}
"""The applications of plain replicas and of controllers with snapshots: a raw log has no state for a snapshot."""
LOADED: Final = "loaded"
"""The kind of members of a scenario with slow decisions."""
MACHINES: Final = "state-machine"
"""The kind of members of a scenario with state machines."""
STORE: Final = "store"
"""Replicas of a store: its machine, its leases and its watches."""
MEMBERS: Final[dict[str, MakeMember]] = {
    "core": core_member,
    "steady-core": canonical_core_member,
    "replica": replica_member,
    "controller": controller_member,
    LOADED: loaded_member,
    MACHINES: state_machine_members(COUNTS),
    STORE: state_machine_members(transactions_spec()),
}
"""The kinds of voters, by their name in a `Scenario`."""


def spec_for(members: str, seed: int, given: WorkloadSpec | None = None) -> WorkloadSpec | None:
    """The state machine of the voters of a run; None for members without one.

    Args:
        members: The kind of the voters.
        seed: Draws what a store is asked.
        given: The state machine of `state-machine` members, if not counters.
    """
    if members == STORE:
        return store_spec(seed)
    return (given or COUNTS) if members == MACHINES else None


def _replica(
    node_id: int, voters: VoterSet, config: QuorumConfig, rng: Random, application: ApplicationFactory
) -> ReplicaMember:
    return ReplicaMember(node_id, voters=voters, config=config, application=application, **_draw(rng))


def _draw(rng: Random) -> dict[str, Any]:
    """Draw the options of one replica."""
    speaks_old = rng.random() < 0.2
    oldest = {ApiKey.FETCH: 15, ApiKey.VOTE: 0, ApiKey.BEGIN_QUORUM_EPOCH: 0, ApiKey.END_QUORUM_EPOCH: 0}
    versions = {int(key): rng.randint(low, APIS[key].versions.highest) for key, low in oldest.items()}
    return {
        "segment_bytes": rng.choice((1000, 1_000_000)),
        "versions": versions if speaks_old else {},
        "uses_codecs": rng.random() < 0.5,
    }
