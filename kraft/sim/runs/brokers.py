"""Runs with brokers, an administrative workload and repeated requests.

`run_cluster` is the entry point. From time to time the run repeats stale requests, from former incarnations of brokers
and from former leaders. Stale requests must change nothing.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from random import Random
from typing import Final, Unpack

from kraft.invariants.majorities import is_majority
from kraft.invariants.partitions import PartitionLedger
from kraft.sim.faults.profiles import BROAD
from kraft.sim.nodes.cluster import (
    CLUSTER,
    COORDINATOR_CLUSTER,
    SHARE_CLUSTER,
    WITH_DATA,
    WITH_VOTER_CHANGES,
    broker_ids,
    draw_combined,
)
from kraft.sim.nodes.frames import Frame
from kraft.sim.nodes.replica_member import ReplicaMember
from kraft.sim.runs.coordinator_work import CoordinatorWork
from kraft.sim.runs.record_work import RecordWork
from kraft.sim.runs.scenario import Scenario
from kraft.sim.runs.seeded_run import CALM_MS, Result, whole_run
from kraft.sim.runs.share_work import ShareWork
from kraft.sim.runs.simulator import RunOptions, Simulator, Work
from kraft.sim.runs.voter_change_run import Reconfiguration
from kraft.sim.workloads.admin_workload import LOOK_MS, AdminWorkload, IsrRequests
from kraft.sim.workloads.coordinator_watch import SPARED
from kraft.sim.workloads.partition_watch import PartitionWatch
from kraft.sim.workloads.share_watch import WATCHED
from kraft.sim.world.driver import Exchange
from metadata_log.serde import Message, decode
from transport.protocol.apis import APIS, ApiKey
from transport.protocol.errors import Error
from transport.protocol.messages.alter_partition import AlterPartitionRequest
from transport.protocol.messages.unregister_broker import UnregisterBrokerRequest

CHAOS_MS: Final = 20_000
TEND_MS: Final = 3_000
"""The interval of the operator's maintenance of the brokers."""
UNREGISTER_MEAN_MS: Final = 10_000
RELEASE_MS: Final = 100
"""The interval of looks at brokers that stay down until they are fenced."""
FIRST_REQUEST: Final = 1_000_000
"""Requests for voter changes have ids below this one."""
REMEMBERED: Final = 40
"""The number of brokers' requests kept for repetition."""
_REPEATABLE: Final = (ApiKey.BROKER_HEARTBEAT, ApiKey.ALTER_PARTITION, ApiKey.ASSIGN_REPLICAS_TO_DIRS)


class Administration(Work):
    """Sends the requests of administrative clients to the controllers of one run."""

    pauses_ms: tuple[int, ...] = (700, 2000, 5000)
    """Longer than for quorums alone, as brokers need a quorum for all of their actions."""
    writes_ms: tuple[int, ...] = (300, 1000)
    """Longer than for quorums alone, as brokers cause writes, too."""

    def __init__(
        self,
        seed: int,
        brokers: int,
        *,
        invents_isrs: bool = True,
        combined: int = 0,
        spared: tuple[str, ...] = (),
    ) -> None:
        """With `invents_isrs` requests in the names of leaders put any replicas into an ISR. Brokers with data would
        lose records by that. `combined` of the brokers are controllers, too. The `spared` topics keep their records.
        """
        self._invents_isrs = invents_isrs
        self._rng = Random(f"{seed}/administration")
        self._broker_ids = broker_ids(brokers, combined)
        self._workload = AdminWorkload(Random(f"{seed}/admin"), self._broker_ids, spared)
        self._repeat_mean_ms = self._rng.choice((200, 1000))
        self._unregister_rng = Random(f"{seed}/unregister")
        self._isr_requests = IsrRequests(Random(f"{seed}/isr"))
        self._sent: deque[Message] = deque(maxlen=REMEMBERED)
        self._next_request_id = FIRST_REQUEST
        self._is_over = False
        self._absent = _draw_absent(Random(f"{seed}/absent"), self._broker_ids)
        """The brokers that stay down into the calm, until they are fenced."""

    def begin(self, simulator: Simulator) -> None:
        """Begin to send administrative requests, and to repeat requests of brokers."""
        watch = simulator.world.watch
        assert isinstance(watch, PartitionWatch), watch
        self._simulator = simulator
        self._watch, self._ledger = watch, watch.ledger
        simulator.queue.schedule(self._workload.pause_ms(), self._administer)
        simulator.queue.schedule(self._repeat_pause_ms(), self._repeat)
        if self._invents_isrs:
            simulator.queue.schedule(LOOK_MS, self._change_isr)
        simulator.queue.schedule(self._unregister_pause_ms(), self._unregister)
        simulator.queue.schedule(TEND_MS, self._tend)

    def end(self) -> None:
        """Send no more requests, so that the cluster can settle. Some brokers first have to be fenced."""
        self._is_over = True
        for broker_id in self._absent:
            if self._is_quorum_without(broker_id):
                self._simulator.world.kept_down.add(broker_id)
                self._simulator.crash(broker_id, 1)
        self._release()

    def _is_quorum_without(self, broker_id: int) -> bool:
        """Whether the voters can elect a leader while a broker stays down, which may be a voter, too."""
        world = self._simulator.world
        voters = world.invariants.voter_sets()[-1].ids
        gone = {one for one in voters if world.disk_losses.is_damaged(one)}.union(world.kept_down, (broker_id,))
        return broker_id not in voters or is_majority(len(set(voters) - gone), len(voters))

    def _release(self) -> None:
        """Let each broker start that is fenced by now."""
        world = self._simulator.world
        world.kept_down.intersection_update(self._watch.not_fenced(world.kept_down))
        if world.kept_down:
            self._simulator.queue.schedule(RELEASE_MS, self._release)

    def on_asked(self, exchange: Exchange) -> None:
        """A broker sends a request, which may be repeated later."""
        frame = exchange.message
        assert isinstance(frame, Frame), frame
        if exchange.sender in self._broker_ids and frame.api_key in _REPEATABLE:
            body = frame.body
            kind = APIS[frame.api_key].request
            self._sent.append(decode(kind, frame.version, body) if isinstance(body, bytes) else body)

    def _administer(self) -> None:
        if not self._is_over:
            self._ask_controller(self._workload.next_request(self._ledger.image))
            self._simulator.queue.schedule(self._workload.pause_ms(), self._administer)

    def _unregister_pause_ms(self) -> int:
        return 1000 + int(self._unregister_rng.expovariate(1 / UNREGISTER_MEAN_MS))

    def _unregister(self) -> None:
        """Unregister a broker, and perhaps restart the broker soon: the next incarnation registers at once."""
        if self._is_over:
            return
        broker_id = self._unregister_rng.choice(self._broker_ids)
        self._ask_controller(UnregisterBrokerRequest(broker_id=broker_id))
        if self._unregister_rng.random() < 0.7:
            pause_ms = self._unregister_rng.randint(1, 300)
            self._simulator.queue.schedule(pause_ms, partial(self._simulator.crash, broker_id, 1))
        self._simulator.queue.schedule(self._unregister_pause_ms(), self._unregister)

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
            request = self._rng.choice(self._sent)
            if isinstance(request, AlterPartitionRequest) and self._invents_isrs:
                request = self._isr_requests.renewed(request, self._ledger.image)
            self._ask_controller(request)
        self._simulator.queue.schedule(self._repeat_pause_ms(), self._repeat)

    def _change_isr(self) -> None:
        """A request in the name of a leader, perhaps with members that may not enter the ISR."""
        if self._is_over:
            return
        for broker_id, (epoch, _) in self._ledger.registrations.items():
            self._isr_requests.registered(broker_id, epoch)
        request = self._isr_requests.next_request(self._ledger.image)
        if request is not None:
            self._ask_controller(request)
        self._simulator.queue.schedule(LOOK_MS, self._change_isr)

    def _ask_controller(self, request: Message) -> None:
        world = self._simulator.world
        candidates = world.leaders() or world.running_voters()
        if candidates:
            self._simulator.administer(self._rng.choice(candidates), self._next_request_id, request)
            self._next_request_id += 1


class AdministrationAndMore(Work):
    """The workload of a dynamic cluster, or of brokers with data: several workloads together."""

    writes_ms = Administration.writes_ms

    def __init__(
        self, administration: Work, *more: Work, pauses_ms: tuple[int, ...] = Administration.pauses_ms
    ) -> None:
        self.pauses_ms = pauses_ms
        self._parts: tuple[Work, ...] = (administration, *more)
        self.quiet_ms = max(part.quiet_ms for part in self._parts)

    def begin(self, simulator: Simulator) -> None:
        """All nodes are about to start."""
        for part in self._parts:
            part.begin(simulator)

    def end(self) -> None:
        """All faults are about to end."""
        for part in self._parts:
            part.end()

    def on_asked(self, exchange: Exchange) -> None:
        """A node has sent a request."""
        for part in self._parts:
            part.on_asked(exchange)

    def on_administered(self, request_id: int) -> None:
        """A client has received its response."""
        for part in self._parts:
            part.on_administered(request_id)

    def on_died(self, node_id: int) -> None:
        """A node has crashed."""
        for part in self._parts:
            part.on_died(node_id)

    def bears_loss(self, node_id: int) -> bool:
        """Whether the cluster can lose the disk of a node now."""
        return all(part.bears_loss(node_id) for part in self._parts)


def _draw_absent(rng: Random, broker_ids: tuple[int, ...]) -> list[int]:
    """In half of the runs, some of the brokers."""
    return [one for one in broker_ids if rng.random() < 0.5] if rng.random() < 0.5 else []


def run_cluster(
    seed: int,
    nodes: int = 3,
    brokers: int = 3,
    *,
    kind: str = CLUSTER,
    chaos_ms: int = CHAOS_MS,
    **given: Unpack[RunOptions],
) -> tuple[Result, PartitionLedger]:
    """Simulate one cluster of controllers (`nodes`) and brokers with an administrative workload, as `run` does.

    `kind` is one of `CLUSTERS`. The second result is the ledger of the partitions.
    """
    simulator = cluster_simulator(seed, nodes, brokers, kind=kind, **given)
    again = f"run_cluster({seed}, {nodes}, {brokers}, kind={kind!r}, chaos_ms={chaos_ms})"
    result = whole_run(simulator, chaos_ms, CALM_MS, again=again)
    watch = simulator.world.watch
    assert isinstance(watch, PartitionWatch), watch
    return result, watch.ledger


def cluster_simulator(
    seed: int, nodes: int = 3, brokers: int = 3, *, kind: str = CLUSTER, **given: Unpack[RunOptions]
) -> Simulator:
    """The simulator of one cluster before its first event; the arguments are those of `run_cluster`."""
    profile = given.get("profile", BROAD)
    scenario = Scenario.drawn(kind, nodes, seed, brokers, profile=profile)
    has_data, combined = kind in WITH_DATA, draw_combined(kind, seed, nodes, brokers)
    spared = {COORDINATOR_CLUSTER: SPARED, SHARE_CLUSTER: WATCHED}.get(kind, ())
    work: Work = Administration(seed, brokers, invents_isrs=not has_data, combined=combined, spared=spared)
    more: list[Work] = []
    if kind == COORDINATOR_CLUSTER:
        more.append(CoordinatorWork(seed, brokers, has_small_logs=profile.has_small_logs))
    elif kind == SHARE_CLUSTER:
        more.append(ShareWork(seed, brokers))
    elif has_data:
        more.append(
            RecordWork(
                seed,
                brokers,
                has_small_logs=profile.has_small_logs,
                has_full_directories=profile.has_full_directories,
                combined=combined,
            )
        )
    if kind in WITH_VOTER_CHANGES:
        more.append(Reconfiguration(scenario, broker_ids(brokers), has_former_selves=profile.has_former_selves))
    if more:
        pauses_ms = profile.pauses_ms if has_data else None
        if kind in (COORDINATOR_CLUSTER, SHARE_CLUSTER):
            pauses_ms = pauses_ms or CoordinatorWork.pauses_ms
        work = AdministrationAndMore(work, *more, pauses_ms=pauses_ms or Administration.pauses_ms)
    return Simulator(scenario, work=work, **given)
