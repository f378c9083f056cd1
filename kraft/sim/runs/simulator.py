"""Simulates a quorum from one seed: the event heap, virtual time, and the faults of the nodes (Kafka:
`RaftEventSimulationTest`).

`run` is the entry point: a phase with faults, with a check of the invariants after every event, then a calm phase that
must make progress. Two runs with one seed have equal traces.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from random import Random
from typing import Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from kraft.quorum.events import FailureCause
from kraft.sim.faults.attacker import Attacker
from kraft.sim.faults.nemesis import FAULTS, FORGED_FRAMES, Nemesis, draw_clock_error_ms, draw_faults
from kraft.sim.faults.network import Network
from kraft.sim.nodes.member_kinds import MACHINES, MakeMember, replica_member
from kraft.sim.nodes.state_machine_member import COUNTS
from kraft.sim.nodes.workload_spec import WorkloadSpec
from kraft.sim.runs.scenario import Scenario, kind_of
from kraft.sim.workloads.client_history import ClientWorkload
from kraft.sim.workloads.workload import Workload
from kraft.sim.world.actions import (
    WORLD,
    Act,
    Action,
    Administer,
    Conclude,
    Crash,
    CrashSoon,
    DamageDisk,
    Deliver,
    Fail,
    FailDisk,
    Flushed,
    LimitDisk,
    Move,
    Note,
    Resign,
    SetClock,
    ShutDown,
    SlowDown,
    Start,
    Submit,
    Tick,
    Wipe,
)
from kraft.sim.world.disk_damage import Damage
from kraft.sim.world.driver import Driver, Exchange
from kraft.sim.world.trace import Trace
from kraft.sim.world.world import World
from metadata_log.serde import Message, encode
from transport.faults import FaultPlan, Faults
from transport.protocol.apis import APIS

CHAOS_MS: Final = 8_000
CALM_MS: Final = 60_000
CALM_RECORDS: Final = 10
CALM: Final = "calm"
"""The text of the note at the end of all faults."""
AFTERMATHS: Final = 2
"""The number of restarts of every node after a run with forged messages."""
AFTERMATH_MS: Final = 3_000
CALM_NETWORK: Final = Faults(delay_ms=(1, 1))
PAUSES_MS: Final = (200, 600, 2000)
"""The mean time between faults in a run; one of these is drawn."""
AGAIN_MS: Final = 100
"""The time until the next attempt to start a node."""
SAME_MOMENT_LIMIT: Final = 20_000
"""More events than this at one moment of virtual time are an endless loop."""
NEVER_MS: Final = 10**9
"""A deadline later than this counts as no deadline."""
_SEED_BITS: Final = 32


class Result(Struct, frozen=True, kw_only=True):
    """The result of a run without a failure."""

    seed: int
    nodes: int
    digest: str
    events: int
    elapsed_ms: int
    leaders: tuple[int, ...]
    committed: int
    acknowledged: int
    voter_sets: int
    """The number of committed Voters records."""
    snapshots: int
    """The number of snapshot ids in the run."""
    trace: str


class Work(Protocol):
    """A workload for a quorum in addition to submissions."""

    pauses_ms: tuple[int, ...]
    """The mean time between faults in this phase; one of these is drawn."""
    writes_ms: tuple[int, ...]
    """The mean time between submissions in this phase; one of these is drawn."""

    def begin(self, simulator: Simulator) -> None:
        """All nodes are about to start."""

    def end(self) -> None:
        """All faults are about to end: the workload stops, so that the quorum can settle."""

    def on_asked(self, exchange: Exchange) -> None:
        """A node has sent a request."""

    def on_administered(self, request_id: int) -> None:
        """A client has received its response."""

    def on_died(self, node_id: int) -> None:
        """A node has crashed."""


class Times(Struct):
    """The scheduling state of one node."""

    tick_at_ms: int = -1
    paused_until_ms: int = 0
    busy_until_ms: int = 0
    """Until then the owner of the replica is busy and takes no events."""
    crash_down_ms: int = 0
    flush_ms: int = 1


class Simulator(Driver):
    """Drives a `World`: draws the actions and keeps the heap of scheduled events."""

    def __init__(
        self,
        scenario: Scenario,
        *,
        make_member: MakeMember | None = None,
        workload_spec: WorkloadSpec | None = None,
        work: Work | None = None,
        keep_trace: bool = False,
        recorded: list[Action] | None = None,
        faults: tuple[str, ...] = FAULTS,
        world: World | None = None,
    ) -> None:
        """`faults` are the names of the possible faults; each seed draws some of these. The simulator continues a given
        `world` from its present state.
        """
        seed = scenario.seed
        self.scenario = scenario
        self.world = world or scenario.make_world(Trace(keep_all=keep_trace), make_member, workload_spec)
        self.world.driver = self
        self.now_ms = self.world.now_ms
        self._perform = self.world.perform if recorded is None else partial(self._record, recorded)
        self._heap: list[tuple[int, int, Action | None, Callable[[], None] | None]] = []
        self._sequence = 0
        self._rng = Random(f"{seed}/world")
        self._is_calm = False
        self._stranded: int | None = None
        """The leader that is cut off and has no successor yet."""
        self._times = {one: Times() for one in self.world.node_ids}
        self._work = work
        network_rng = Random(f"{seed}/network")
        self.faults = FaultPlan(network_rng, draw_faults(network_rng, faults))
        self._network = Network(network_rng, self.faults, self)
        means_ms = PAUSES_MS if work is None else work.pauses_ms
        nemesis_rng = Random(f"{seed}/nemesis")
        self._nemesis = Nemesis(nemesis_rng, self.faults, self, means_ms, faults)
        self._clock_error_ms = draw_clock_error_ms(nemesis_rng, faults)
        self._attacker = Attacker(Random(f"{seed}/attacker"), self.world)
        workload_rng = Random(f"{seed}/workload")
        self._workload: Workload | ClientWorkload
        if scenario.members == MACHINES:
            self._workload = ClientWorkload(workload_rng, workload_spec or COUNTS)
        else:
            self._workload = Workload(workload_rng) if work is None else Workload(workload_rng, work.writes_ms)

    # The heap

    def schedule(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Schedule a call after this much virtual time. Calls at one moment keep the order of scheduling."""
        self._sequence += 1
        heappush(self._heap, (self.now_ms + delay_ms, self._sequence, None, call))

    def plan(self, action: Action) -> None:
        """Schedule an action at its time, or when the node is awake."""
        self._sequence += 1
        heappush(self._heap, (action.at_ms, self._sequence, action, None))

    def run_until(self, end_ms: int, is_done: Callable[[], bool] | None = None) -> None:
        """Process events until `is_done`, at most until this virtual time."""
        moment, heap = 0, self._heap
        while heap and heap[0][0] <= end_ms:
            if is_done is not None and is_done():
                return
            at_ms, _, action, call = heappop(heap)
            moment = moment + 1 if at_ms == self.now_ms else 0
            assert moment < SAME_MOMENT_LIMIT, f"a loop in which no time passes, at {at_ms}"
            self.now_ms = at_ms
            if action is not None:
                self._fall_due(action)
            elif call is not None:
                call()
        self.now_ms = max(self.now_ms, end_ms)

    def _fall_due(self, action: Action) -> None:
        times = self._times[action.node]
        if type(action) is Tick:
            if times.tick_at_ms != action.at_ms:
                return
            times.tick_at_ms = -1
        # Work ends with an `Act`: another action that falls due in the same millisecond comes one later.
        is_busy = self.world.hosts[action.node].held is not None and type(action) is not Act
        if is_busy or times.paused_until_ms > self.now_ms:
            self._postpone(action, times)
        else:
            self._perform(action)

    def _postpone(self, action: Action, times: Times) -> None:
        """Postpone an action until the node is awake. A crash of the node drops local inputs, but not messages."""
        action = replace(action, at_ms=max(self.now_ms + 1, times.paused_until_ms, times.busy_until_ms))
        host = self.world.hosts[action.node]
        life = host.life
        if type(action) is Tick:
            times.tick_at_ms = action.at_ms

        def wake() -> None:
            if host.life == life or type(action) is Deliver:
                self._fall_due(action)

        self.schedule(action.at_ms - self.now_ms, wake)

    def _record(self, recorded: list[Action], action: Action) -> bool:
        """Perform an action and record it first, so that a failing action is the last recorded one."""
        recorded.append(action)
        has_happened = self.world.perform(action)
        if not has_happened:
            recorded.pop()
        return has_happened

    # A run

    def begin(self) -> None:
        """Start all nodes, at slightly different times, and the workload."""
        for node_id in self.world.node_ids:
            self.schedule(self._rng.randint(0, 500), partial(self._start, node_id, 0))
        self.schedule(self._workload.pause_ms(), self._submit)
        if self._work is not None:
            self._work.begin(self)

    def resume(self, first_submission: int) -> None:
        """Continue in a world after some actions: pending messages are lost, and pending fsyncs complete."""
        now_ms = self.now_ms
        for node_id, host in self.world.hosts.items():
            for one in host.waiting.values():
                self.plan(Fail(now_ms, node_id, one.target, one.number, FailureCause.RESET, one.kind))
            for number in host.flushing:
                self.plan(Flushed(now_ms, node_id, number))
            if host.held is not None:
                self.plan(Act(now_ms, node_id))
            elif host.is_running:
                self.on_stepped(node_id)
        self._workload.next_id = first_submission
        self.schedule(self._workload.pause_ms(), self._submit)

    def chaos(self, duration_ms: int) -> None:
        """Run with faults for this time."""
        self.begin()
        self.schedule(self._nemesis.pause_ms(), self._strike)
        self.run_until(duration_ms)

    def calm(self, duration_ms: int, records: int = CALM_RECORDS) -> None:
        """End all faults. Within `duration_ms`, all nodes must follow one leader and commit `records` more records."""
        self._end_faults()
        target = self.world.invariants.committed_end + records
        self.run_until(self.now_ms + duration_ms, partial(self.world.has_settled, target))
        self._perform(Conclude(self.now_ms, WORLD, target))

    def aftermath(self) -> None:
        """End all faults and restart every node, the only requirement after forged messages."""
        self._end_faults()
        for _ in range(AFTERMATHS):
            for node_id in self.world.node_ids:
                self.crash(node_id, 1)
            self.run_until(self.now_ms + AFTERMATH_MS)
        self._perform(Conclude(self.now_ms, WORLD))

    def _end_faults(self) -> None:
        self._is_calm = True
        if self._work is not None:
            self._work.end()
        self.faults.heal()
        self.faults.faults = CALM_NETWORK
        self._perform(Note(self.now_ms, WORLD, CALM))
        for node_id, times in self._times.items():
            times.paused_until_ms, times.flush_ms = 0, 1
            self._free_disk(node_id)
            if self.world.hosts[node_id].record_us != self.scenario.record_us:
                self.slow_down(node_id, self.scenario.record_us)
            if self.world.hosts[node_id].clock_drift:
                self.set_clock(node_id, 0, 0)
            if self.world.disk_losses.is_damaged(node_id):
                self.crash(node_id, 1)
            self._start(node_id, self.world.hosts[node_id].life)

    def _strike(self) -> None:
        if not self._is_calm:
            self._perform(Note(self.now_ms, WORLD, self._nemesis.strike()))
            self.schedule(self._nemesis.pause_ms(), self._strike)

    def _submit(self) -> None:
        candidates = self._workload.candidates(self.world)
        if candidates:
            submit_id, node_id, value = self._workload.next_submission(candidates)
            self._fall_due(Submit(self.now_ms, node_id, submit_id, value))
        self.schedule(self._workload.pause_ms(), self._submit)

    def administer(self, node_id: int, request_id: int, request: Message) -> None:
        """Let a client send a request to a controller."""
        key = type(request).__schema__.api_key
        assert key is not None, request
        version = APIS[key].versions.highest
        body = encode(request, version)
        self._fall_due(Administer(self.now_ms, node_id, request_id, key, version, body))

    # Faults of nodes (`nemesis.Victims`)

    @property
    def node_ids(self) -> tuple[int, ...]:
        """All nodes, including stopped ones."""
        return self.world.node_ids

    @property
    def voter_ids(self) -> tuple[int, ...]:
        """The voters among them."""
        return self.world.invariants.voter_sets()[-1].ids

    def running(self) -> list[int]:
        """The running nodes."""
        return self.world.running()

    def leaders(self) -> list[int]:
        """The nodes in the leader state."""
        return self.world.leaders()

    def crash(self, node_id: int, down_ms: int) -> None:
        """Crash a node and start it again after a while."""
        if self.world.hosts[node_id].is_running:
            self._perform(Crash(self.now_ms, node_id, self._draw_seed()))
            self._restart(node_id, down_ms)

    def wipe(self, node_id: int, down_ms: int) -> None:
        """Crash a node, if it is up, and start it again with an empty disk."""
        self.crash(node_id, down_ms)
        self._perform(Wipe(self.now_ms, node_id, self._draw_seed()))

    def move(self, node_id: int, port: int, down_ms: int) -> None:
        """Crash a node, if it is up, and start it again at another port."""
        self.crash(node_id, down_ms)
        self._perform(Move(self.now_ms, node_id, port))

    def crash_within_a_step(self, node_id: int, operations: int, down_ms: int) -> None:
        """Crash a node in the middle of one of its next steps, or of its next start."""
        self._times[node_id].crash_down_ms = down_ms
        self._perform(CrashSoon(self.now_ms, node_id, operations, self._draw_seed()))

    def resign(self, node_id: int) -> None:
        """Make a leader resign."""
        self._fall_due(Resign(self.now_ms, node_id))

    def shut_down(self, node_id: int, grace_ms: int, down_ms: int) -> None:
        """Shut a node down gracefully, at most for the grace period, and start it again."""
        host = self.world.hosts[node_id]
        if not host.is_running:
            return
        life = host.life
        self._fall_due(ShutDown(self.now_ms, node_id))

        def end() -> None:
            if host.life == life:
                self.crash(node_id, down_ms)

        self.schedule(grace_ms, end)

    def pause(self, node_id: int, pause_ms: int) -> None:
        """Pause a node for a while."""
        self._times[node_id].paused_until_ms = self.now_ms + pause_ms

    def slow_disk(self, node_id: int, flush_ms: int) -> None:
        """From now on an fsync at this node takes up to this time."""
        self._times[node_id].flush_ms = flush_ms

    def set_clock(self, node_id: int, jump_ms: int, drift: int) -> None:
        """Let a node's clock jump ahead, and run too fast by this many thousandths from now on."""
        self._perform(SetClock(self.now_ms, node_id, self.world.clock_offset_ms(node_id) + jump_ms, drift))

    def reset_connections(self, node_id: int) -> None:
        """Break the connections of a node with pending requests, in both directions."""
        for exchange in self.world.under_way(node_id):
            sender, target = exchange.sender, exchange.target
            self._fall_due(Fail(self.now_ms, sender, target, exchange.number, FailureCause.RESET, exchange.kind))

    def fail_disk(self, node_id: int, operations: int, down_ms: int) -> None:
        """Let one of the next operations on a disk fail, and start the node again a while after it has stopped."""
        self._times[node_id].crash_down_ms = down_ms
        self._perform(FailDisk(self.now_ms, node_id, operations, self._draw_seed()))

    def limit_disk(self, node_id: int, free_bytes: int, full_ms: int) -> None:
        """Limit the free space of a node's disk for a while."""
        self._times[node_id].crash_down_ms = full_ms
        self._perform(LimitDisk(self.now_ms, node_id, self._draw_seed(), free_bytes))
        self.schedule(full_ms, partial(self._free_disk, node_id))

    def damage_disk(self, node_id: int, what: Damage, down_ms: int) -> None:
        """Damage a disk permanently, unless the quorum cannot bear the loss."""
        if what.needs_stop and self.world.disk_losses.is_bearable(node_id):
            self.crash(node_id, down_ms)
        self._perform(DamageDisk(self.now_ms, node_id, what, self._draw_seed()))

    def refuse_connections(self, node_id: int, target: int, refused_ms: int) -> None:
        """Let the address that a node advertises refuse connections of another node for a while."""
        self._network.refuse_connections(node_id, target)
        self.schedule(refused_ms, partial(self._network.accept_connections, node_id, target))

    def strand(self) -> None:
        """Cut a leader off. Once the leader has a successor, cut off the successor instead, which then alone has the
        end of its log.
        """
        leaders = self.leaders()
        if leaders:
            self._stranded = leaders[0]
            self.faults.isolate(leaders[0])

    def _strand_successor(self, node_id: int) -> None:
        """If a node has succeeded the leader that is cut off, cut off that node instead."""
        former, view = self._stranded, self.world.hosts[node_id].view
        if former is None or node_id == former or view is None or view.state != "Leader":
            return
        self._stranded = None
        if not self._is_calm:
            self.faults.heal(former)
            self.faults.isolate(node_id)
            back = Note(self.now_ms, WORLD, f"stranded-leaders {former} is back, and its successor {node_id} cut off")
            self.schedule(0, partial(self._note, back))

    def _note(self, note: Note) -> None:
        self._perform(note)

    def slow_down(self, node_id: int, record_us: int) -> None:
        """From now on a node needs this time for every record that it decides on or applies."""
        self._perform(SlowDown(self.now_ms, node_id, record_us))

    def attack(self, node_id: int, frames: int, answers: int, *, is_forging: bool) -> None:
        """Send hostile requests to a node now, unless it is paused, and hostile responses to its next requests."""
        self._attacker.lie_in_wait(node_id, answers)
        for _ in range(frames if self._is_awake(node_id) else 0):
            request = self._attacker.request(node_id, self.now_ms, is_forging=is_forging)
            if request is not None:
                self._perform(request)

    def _free_disk(self, node_id: int) -> None:
        if self.world.hosts[node_id].is_disk_limited:
            self._perform(LimitDisk(self.now_ms, node_id, self._draw_seed()))

    def _draw_seed(self) -> int:
        return self._rng.getrandbits(_SEED_BITS)

    def _restart(self, node_id: int, down_ms: int) -> None:
        times = self._times[node_id]
        times.paused_until_ms = times.busy_until_ms = times.crash_down_ms = 0
        if self._work is not None:
            self._work.on_died(node_id)
        self.schedule(down_ms, partial(self._start, node_id, self.world.hosts[node_id].life))

    def _start(self, node_id: int, life: int) -> None:
        """Start a node, if it is still down after that life, as soon as the quorum can bear that.

        If the node refuses its disk, the operator formats the disk again, and the node starts once more.
        """
        host = self.world.hosts[node_id]
        if host.life != life or host.is_running:
            return
        if not self.world.may_start(node_id):
            self._let_epoch_rise(node_id)
            self.schedule(AGAIN_MS, partial(self._start, node_id, life))
            return
        self._times[node_id].tick_at_ms = -1
        error_ms = self._clock_error_ms
        self._perform(Start(self.now_ms, node_id, self._draw_seed(), self._rng.randint(-error_ms, error_ms)))
        if not host.is_running and self.world.disk_losses.is_damaged(node_id):
            self._perform(DamageDisk(self.now_ms, node_id, Damage.WIPED, self._draw_seed()))

    def _let_epoch_rise(self, node_id: int) -> None:
        """Request the resignation of every leader with an earlier epoch than the restarting node has seen."""
        election = self.world.invariants.observed(node_id).election
        for leader_id in self.leaders():
            view = self.world.hosts[leader_id].view
            if election is not None and view is not None and view.epoch < election.epoch:
                self.resign(leader_id)

    # Reactions to actions (`Driver`)

    def on_asked(self, exchange: Exchange) -> None:
        """A node has sent a request."""
        if exchange.target not in self.world.hosts:
            self._network.refuse(exchange)
            return
        self._network.send(exchange)
        if self._attacker.is_lying_in_wait:
            self.schedule(0, partial(self._forge, exchange))
        if self._work is not None:
            self._work.on_asked(exchange)

    def _forge(self, exchange: Exchange) -> None:
        """Answer a request in place of its target, if an attacker waits for it."""
        if not self._is_calm and self._is_awake(exchange.sender):
            answer = self._attacker.answer(exchange, self.now_ms, is_forging=self.scenario.is_forged)
            if answer is not None:
                self._perform(answer)

    def on_answered(self, exchange: Exchange, copy: int) -> None:
        """A node has answered a delivery."""
        self._network.answer(exchange, copy)

    def on_abandoned(self, exchange: Exchange) -> None:
        """The target is not running, or has crashed during the request."""
        self._network.break_off(exchange)

    def on_flush(self, node_id: int, number: int) -> None:
        """An fsync has begun."""
        flush_ms = self._rng.randint(0, self._times[node_id].flush_ms)
        self.plan(Flushed(self.now_ms + flush_ms, node_id, number))

    def on_administered(self, node_id: int, request_id: int) -> None:
        """A client has received its response."""
        if self._work is not None:
            self._work.on_administered(request_id)

    def on_stepped(self, node_id: int) -> None:
        """Wake the node at its deadline; a deadline that has moved since makes the old wake-up void."""
        deadline_ms, now_ms = self.world.deadline_ms(node_id), self.now_ms
        at_ms = deadline_ms if deadline_ms > now_ms else now_ms
        if self._stranded is not None:
            self._strand_successor(node_id)
        times = self._times[node_id]
        if at_ms != times.tick_at_ms and at_ms <= now_ms + NEVER_MS:
            times.tick_at_ms = at_ms
            self.plan(Tick(at_ms, node_id))

    def on_busy(self, node_id: int, work_ms: int) -> None:
        """A node is busy for this time and takes no events meanwhile."""
        times = self._times[node_id]
        times.busy_until_ms = self.now_ms + work_ms
        self.plan(Act(times.busy_until_ms, node_id))

    def _is_awake(self, node_id: int) -> bool:
        times = self._times[node_id]
        return max(times.paused_until_ms, times.busy_until_ms) <= self.now_ms

    def on_died(self, node_id: int) -> None:
        """A node has crashed within a step, or cannot start with its disk."""
        self._restart(node_id, self._times[node_id].crash_down_ms or AGAIN_MS)


def run(
    seed: int,
    nodes: int = 3,
    *,
    make_member: MakeMember = replica_member,
    workload_spec: WorkloadSpec | None = None,
    chaos_ms: int = CHAOS_MS,
    calm_ms: int = CALM_MS,
    keep_trace: bool = False,
    recorded: list[Action] | None = None,
    faults: tuple[str, ...] = FAULTS,
) -> Result:
    """Simulate one quorum (Kafka: `RaftEventSimulationTest`).

    Args:
        seed: determines the whole run.
        nodes: the number of voters.
        make_member: the kind of the nodes.
        workload_spec: a state machine for the nodes to host; the responses to its clients must be linearizable.
        chaos_ms: the virtual time with faults, in ms.
        calm_ms: the virtual time without faults in which the quorum must make progress, in ms.
        keep_trace: whether the result contains the whole trace.
        recorded: receives all actions, up to a failure.
        faults: the names of the possible faults; the seed draws some of them.

    Returns:
        The counts and the digest of the run.

    Raises:
        InvariantViolated: an invariant does not hold. The notes contain the seed and the end of the trace.
        NoProgress: the quorum made no progress in the calm phase.
    """
    kind = kind_of(make_member) if workload_spec is None else MACHINES
    simulator = Simulator(
        Scenario.drawn(kind, nodes, seed, is_forged=FORGED_FRAMES in faults),
        make_member=make_member,
        workload_spec=workload_spec,
        keep_trace=keep_trace,
        recorded=recorded,
        faults=faults,
    )
    return whole_run(
        simulator,
        chaos_ms,
        calm_ms,
        again=f"run({seed}, {nodes}, chaos_ms={chaos_ms}, …), of members of the kind {kind}",
    )


def whole_run(simulator: Simulator, chaos_ms: int, calm_ms: int, *, again: str) -> Result:
    """Run the phase with faults, then the calm. A failure gets the end of the trace and the call `again` as notes."""
    try:
        simulator.chaos(chaos_ms)
        if simulator.scenario.is_forged:
            simulator.aftermath()
        else:
            simulator.calm(calm_ms)
    except Exception as failure:
        failure.add_note(simulator.world.trace.text)
        failure.add_note(f"seed {simulator.scenario.seed}: it happens again with {again}")
        raise
    return result_of(simulator)


def result_of(simulator: Simulator) -> Result:
    """The result of a run without a failure."""
    world = simulator.world
    return Result(
        seed=simulator.scenario.seed,
        nodes=simulator.scenario.nodes,
        digest=world.trace.digest,
        events=world.events,
        elapsed_ms=simulator.now_ms,
        leaders=world.invariants.votes.leaders,
        committed=world.invariants.committed_end,
        acknowledged=world.acknowledged,
        voter_sets=len(world.invariants.voters.committed),
        snapshots=len(world.invariants.snapshots.ids),
        trace=world.trace.text,
    )
