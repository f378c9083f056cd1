"""Runs with brokers, an administrative workload and repeated requests.

`run_cluster` is the entry point. From time to time the run repeats stale requests, from former incarnations of brokers
and from former leaders. Stale requests must change nothing.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Final

from kraft.invariants.partitions import PartitionLedger
from kraft.sim.faults.profiles import BROAD, Profile
from kraft.sim.nodes.cluster import CLUSTER, broker_ids
from kraft.sim.nodes.frames import Frame
from kraft.sim.nodes.replica_member import ReplicaMember
from kraft.sim.runs.scenario import Scenario
from kraft.sim.runs.seeded_run import CALM_MS, Result, whole_run
from kraft.sim.runs.simulator import Simulator
from kraft.sim.workloads.admin_workload import AdminWorkload
from kraft.sim.workloads.partition_watch import PartitionWatch
from kraft.sim.world.actions import Action
from kraft.sim.world.driver import Exchange
from metadata_log.serde import Message, decode
from transport.protocol.apis import APIS, ApiKey
from transport.protocol.errors import Error

CHAOS_MS: Final = 20_000
TEND_MS: Final = 3_000
"""The interval of the operator's maintenance of the brokers."""
REMEMBERED: Final = 40
"""The number of brokers' requests kept for repetition."""
_REPEATABLE: Final = (ApiKey.BROKER_HEARTBEAT, ApiKey.ALTER_PARTITION, ApiKey.ASSIGN_REPLICAS_TO_DIRS)


class Administration:
    """Sends the requests of administrative clients to the controllers of one run."""

    pauses_ms: tuple[int, ...] = (700, 2000, 5000)
    """Longer than for quorums alone, as brokers need a quorum for all of their actions."""
    writes_ms: tuple[int, ...] = (300, 1000)
    """Longer than for quorums alone, as brokers cause writes, too."""

    def __init__(self, seed: int, brokers: int) -> None:
        self._rng = Random(f"{seed}/administration")
        self._broker_ids = broker_ids(brokers)
        self._workload = AdminWorkload(Random(f"{seed}/admin"), self._broker_ids)
        self._repeat_mean_ms = self._rng.choice((200, 1000))
        self._sent: deque[Message] = deque(maxlen=REMEMBERED)
        self._next_request_id = 1
        self._is_over = False

    def begin(self, simulator: Simulator) -> None:
        """Begin to send administrative requests, and to repeat requests of brokers."""
        watch = simulator.world.watch
        assert isinstance(watch, PartitionWatch), watch
        self._simulator = simulator
        self._ledger = watch.ledger
        simulator.queue.schedule(self._workload.pause_ms(), self._administer)
        simulator.queue.schedule(self._repeat_pause_ms(), self._repeat)
        simulator.queue.schedule(TEND_MS, self._tend)

    def end(self) -> None:
        """Send no more requests, so that the cluster can settle."""
        self._is_over = True

    def on_asked(self, exchange: Exchange) -> None:
        """A broker sends a request, which may be repeated later."""
        frame = exchange.message
        assert isinstance(frame, Frame), frame
        if exchange.sender in self._broker_ids and frame.api_key in _REPEATABLE:
            body = frame.body
            kind = APIS[frame.api_key].request
            self._sent.append(decode(kind, frame.version, body) if isinstance(body, bytes) else body)

    def on_administered(self, request_id: int) -> None:
        """Nothing follows."""

    def on_died(self, node_id: int) -> None:
        """Nothing follows."""

    def bears_loss(self, node_id: int) -> bool:
        """The world decides for static voters."""
        return True

    def _administer(self) -> None:
        if not self._is_over:
            self._ask_controller(self._workload.next_request(self._ledger.image))
            self._simulator.queue.schedule(self._workload.pause_ms(), self._administer)

    def _tend(self) -> None:
        """Restart each broker with a stale epoch: as in Kafka, such a broker does not register again by itself.

        A delayed registration of its former incarnation has replaced that of the present one.
        """
        for node_id in self._broker_ids:
            member = self._simulator.world.hosts[node_id].member
            assert isinstance(member, ReplicaMember), member
            if member.agent is not None and member.agent.lifecycle.last_error is Error.STALE_BROKER_EPOCH:
                self._simulator.crash(node_id, 1)
        self._simulator.queue.schedule(TEND_MS, self._tend)

    def _repeat_pause_ms(self) -> int:
        return 1 + int(self._rng.expovariate(1 / self._repeat_mean_ms))

    def _repeat(self) -> None:
        """A repeated request arrives, perhaps from a former incarnation or at another controller."""
        if self._is_over:
            return
        if self._sent:
            self._ask_controller(self._rng.choice(self._sent))
        self._simulator.queue.schedule(self._repeat_pause_ms(), self._repeat)

    def _ask_controller(self, request: Message) -> None:
        world = self._simulator.world
        candidates = world.leaders() or world.running_voters()
        if candidates:
            self._simulator.administer(self._rng.choice(candidates), self._next_request_id, request)
            self._next_request_id += 1


def run_cluster(
    seed: int,
    nodes: int = 3,
    brokers: int = 3,
    *,
    chaos_ms: int = CHAOS_MS,
    calm_ms: int = CALM_MS,
    keep_trace: bool = False,
    recorded: list[Action] | None = None,
    faults: tuple[str, ...] | None = None,
    profile: Profile = BROAD,
) -> tuple[Result, PartitionLedger]:
    """Simulate one cluster of controllers and brokers with an administrative workload.

    Args:
        seed: Determines the whole run.
        nodes: The number of controllers.
        brokers: The number of brokers.
        chaos_ms: The virtual time with faults, in ms.
        calm_ms: The virtual time without faults in which the cluster must make progress, in ms.
        keep_trace: Whether the result contains the whole trace.
        recorded: Receives all actions, up to a failure.
        faults: The names of the possible faults, of which the seed draws some; None for those of the profile.
        profile: The settings of the faults and of the workload.

    Returns:
        The counts and the digest of the run, and the ledger of its partitions.

    Raises:
        InvariantViolated: An invariant does not hold. The notes contain the seed and the end of the trace.
        NoProgress: The cluster made no progress in the calm phase.
    """
    scenario = Scenario.drawn(CLUSTER, nodes, seed, brokers, profile=profile)
    work = Administration(seed, brokers)
    simulator = Simulator(scenario, work=work, keep_trace=keep_trace, recorded=recorded, faults=faults, profile=profile)
    result = whole_run(
        simulator, chaos_ms, calm_ms, again=f"run_cluster({seed}, {nodes}, {brokers}, chaos_ms={chaos_ms})"
    )
    watch = simulator.world.watch
    assert isinstance(watch, PartitionWatch), watch
    return result, watch.ledger
