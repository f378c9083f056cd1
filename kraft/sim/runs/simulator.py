"""Draws the actions of a run from one seed: the workload, the faults of nodes and network, and the times of fsyncs
(Kafka: `RaftEventSimulationTest`).

Two runs with one seed have equal traces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Final, TypedDict

from kraft.quorum.events import FailureCause
from kraft.quorum.recorded import RecordedCore, Recorder
from kraft.sim.faults.attacker import Attacker
from kraft.sim.faults.nemesis import Nemesis, draw_clock_error_ms, draw_faults
from kraft.sim.faults.network import Corruptor, Network, StrandedLeaders, failure_of
from kraft.sim.faults.profiles import BROAD, Profile
from kraft.sim.nodes.data_broker import DataBroker
from kraft.sim.nodes.frames import kind_of
from kraft.sim.nodes.member_kinds import MakeMember, spec_for
from kraft.sim.nodes.workload_spec import WorkloadSpec
from kraft.sim.runs.event_queue import EventQueue
from kraft.sim.runs.scenario import Scenario
from kraft.sim.workloads.workload import WRITES_MS, make_workload
from kraft.sim.world.actions import (
    CALM,
    WORLD,
    Act,
    Action,
    Administer,
    Conclude,
    Crash,
    CrashSoon,
    DamageDisk,
    FailDisk,
    FillDirectory,
    Flushed,
    HangUp,
    LimitDisk,
    Move,
    Note,
    Resign,
    SetClock,
    ShutDown,
    SlowDown,
    Start,
    Submit,
    Wipe,
)
from kraft.sim.world.disk_damage import Damage
from kraft.sim.world.driver import Driver, Exchange
from kraft.sim.world.trace import Trace
from kraft.sim.world.world import World
from metadata_log.serde import Message, encode
from transport.faults import FaultPlan, Faults

CALM_RECORDS: Final = 10
AFTERMATHS: Final = 2
"""The number of restarts of every node after a run with forged messages."""
AFTERMATH_MS: Final = 3_000
CALM_NETWORK: Final = Faults(delay_ms=(1, 1))
PAUSES_MS: Final = (200, 600, 2000)
"""The mean time between faults in a run; one of these is drawn."""
NEVER_MS: Final = 10**9
"""A deadline later than this counts as no deadline."""
_SEED_BITS: Final = 32


AGAIN_MS: Final = 100
"""The time until the next attempt to start a node, or to stop it, in ms."""


class Work:
    """A workload for a quorum in addition to submissions, such as voter changes or the requests of brokers."""

    pauses_ms: tuple[int, ...]
    """The mean time between faults in this phase; one of these is drawn."""
    writes_ms: tuple[int, ...]
    """The mean time between submissions in this phase; one of these is drawn."""
    quiet_ms: int = 0
    """How long the run has no faults in the beginning, for what the clients need before anything can go wrong."""

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

    def bears_loss(self, node_id: int) -> bool:
        """Whether the quorum can go on if the disk of a node is damaged now, which then happens."""
        return True  # the world decides for static voters


class RunOptions(TypedDict, total=False):
    """The options of every kind of run, beside settings of its own."""

    keep_trace: bool
    """Whether the result contains the whole trace."""
    recorded: list[Action] | None
    """Receives all actions, up to a failure."""
    faults: tuple[str, ...] | None
    """The names of the possible faults, of which the seed draws some; None for those of the profile."""
    profile: Profile
    """The settings of the faults and of the workload; by default the broad profile."""
    recorder: Recorder | None
    """Receives the steps of the protocol that the nodes take."""
    observer: Callable[[World, Action], None] | None
    """Called after each action of a run that is recorded."""


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
        faults: tuple[str, ...] | None = None,
        profile: Profile = BROAD,
        recorder: Recorder | None = None,
        observer: Callable[[World, Action], None] | None = None,
        world: World | None = None,
    ) -> None:
        """Prepare the run of a scenario, whose seed determines the whole run; the other arguments are `RunOptions`.

        Args:
            make_member: Makes nodes of a kind that is not in `MEMBERS`.
            workload_spec: The state machine of the nodes, if not counters.
            work: A workload in addition to submissions.
            world: A world to continue from its present state, in place of a new one.

        Raises:
            KeyError: The kind of members is unknown.
        """
        seed = scenario.seed
        self.scenario = scenario
        self.world = world or scenario.make_world(Trace(keep_all=keep_trace), make_member, workload_spec)
        self.world.driver = self
        if recorder is not None:
            for host in self.world.hosts.values():
                host.member.make_core = partial(RecordedCore, recorder=recorder)
        self._perform = self.world.perform if recorded is None else partial(self._record, recorded)
        self.queue = EventQueue(self.world, self._perform)
        self._rng = Random(f"{seed}/world")
        self._is_calm = False
        self._work = work
        has_all = profile.is_focused and faults is None
        faults = profile.faults if faults is None else faults
        network_rng = Random(f"{seed}/network")
        self.faults = FaultPlan(network_rng, draw_faults(network_rng, faults))
        self._stranded_leaders = StrandedLeaders(self.faults, self.world)
        self._network = Network(network_rng, self.faults, self.queue, late_ms=profile.late_ms)
        means_ms = (profile.pauses_ms or PAUSES_MS) if work is None else work.pauses_ms
        nemesis_rng = Random(f"{seed}/nemesis")
        self._nemesis = Nemesis(nemesis_rng, self.faults, self, means_ms, faults, has_all=has_all)
        self._clock_error_ms = draw_clock_error_ms(nemesis_rng, faults)
        self._attacker = Attacker(Random(f"{seed}/attacker"), self.world)
        self._corruptor = Corruptor(Random(f"{seed}/corruption"), self.queue, self._perform)
        writes_ms = (profile.writes_ms or WRITES_MS) if work is None else work.writes_ms
        self._workload = make_workload(
            Random(f"{seed}/workload"), spec_for(scenario.members, seed, workload_spec), writes_ms
        )
        self.queue.draw_flush_times(Random(f"{seed}/flushes"), profile.flush_ms)
        self._most_at_once = profile.most_at_once
        self._has_strikes = profile.has_strikes
        self.on_performed = observer
        """Called after each action of a run that is recorded."""
        self.watcher = Driver()
        """Also told of each request and of each answer."""
        self._burst_rng = Random(f"{seed}/bursts")

    @property
    def now_ms(self) -> int:
        """The virtual time since the beginning of the run, in ms."""
        return self.queue.now_ms

    def run_until(self, end_ms: int, is_done: Callable[[], bool] | None = None) -> None:
        """Process events up to this virtual time, or until `is_done`, which is asked before each event."""
        self.queue.run_until(end_ms, is_done)

    def _record(self, recorded: list[Action], action: Action) -> bool:
        """Perform an action and record it first, so that a failing action is the last recorded one."""
        recorded.append(action)
        has_happened = self.world.perform(action)
        if not has_happened:
            recorded.pop()
        elif self.on_performed is not None:
            self.on_performed(self.world, action)
        return has_happened

    # A run

    def begin(self) -> None:
        """Start all nodes, at slightly different times, and the workload."""
        for node_id in self.world.node_ids:
            self.queue.schedule(self._rng.randint(0, 500), partial(self._start, node_id, 0))
        self.queue.schedule(self._workload.pause_ms(), self._submit)
        if self._work is not None:
            self._work.begin(self)

    def resume(self, first_submission: int) -> None:
        """Continue in a world after some actions: pending messages are lost, and pending fsyncs complete. The next
        submission has the given id.
        """
        now_ms = self.now_ms
        for node_id, host in self.world.hosts.items():
            for one in host.waiting.values():
                self.queue.plan(failure_of(one, now_ms, FailureCause.RESET))
            for number in host.flushing:
                self.queue.plan(Flushed(now_ms, node_id, number))
            if host.held is not None:
                self.queue.plan(Act(now_ms, node_id))
            elif host.is_running:
                self.on_stepped(node_id)
        self._workload.next_id = first_submission
        self.queue.schedule(self._workload.pause_ms(), self._submit)

    def chaos(self, duration_ms: int) -> None:
        """Start the nodes and run with faults."""
        for end_ms in self.phases(duration_ms):
            self.run_until(end_ms)

    def phases(self, duration_ms: int) -> Iterator[int]:
        """Start the nodes, and then begin each part of the phase with faults; yields the virtual time of its end, up to
        which the caller processes events before it takes the next.
        """
        quiet_ms = 0 if self._work is None else self._work.quiet_ms
        network = self.faults.faults
        self.begin()
        if quiet_ms:
            self.faults.faults = CALM_NETWORK
            yield quiet_ms
            self.faults.faults = network
        if self._has_strikes:
            self.queue.schedule(self._nemesis.pause_ms(), self._strike)
        yield quiet_ms + duration_ms

    def calm(self, duration_ms: int, records: int = CALM_RECORDS) -> None:
        """End all faults, and require that all nodes follow one leader and commit more records (`NoProgress`)."""
        target = self.begin_calm(records)
        self.run_until(self.now_ms + duration_ms, partial(self.world.has_settled, target))
        self.conclude(target)

    def begin_calm(self, records: int = CALM_RECORDS) -> int:
        """End all faults; returns the offset below which all nodes have to know everything as committed."""
        self._end_faults()
        return self.world.invariants.commits.end_offset + records

    def conclude(self, target: int) -> None:
        """The run is over: perform the final checks (`NoProgress` if the nodes have not settled at the target)."""
        self._perform(Conclude(self.now_ms, WORLD, target))

    def aftermath(self) -> None:
        """End all faults and restart every node, all that is required after forged messages (`NodeEnded`)."""
        self._end_faults()
        for _ in range(AFTERMATHS):
            for node_id in self.world.node_ids:
                self.crash(node_id, 1)
            self.run_until(self.now_ms + AFTERMATH_MS)
        self._perform(Conclude(self.now_ms, WORLD))

    def _end_faults(self) -> None:
        self._is_calm = True
        self._corruptor.end()
        if self._work is not None:
            self._work.end()
        self.faults.heal()
        self.faults.faults = CALM_NETWORK
        self._perform(Note(self.now_ms, WORLD, CALM))
        for node_id, times in self.queue.times.items():
            times.paused_until_ms, times.flush_ms = 0, 1
            self._free_disk(node_id)
            self.free_directory(node_id)
            if self.world.hosts[node_id].record_us != self.scenario.record_us:
                self.slow_down(node_id, self.scenario.record_us)
                times.busy_until_ms = 0
                self._perform(Act(self.now_ms, node_id))
            if self.world.hosts[node_id].clock_drift:
                self.set_clock(node_id, 0, 0)
            self._replace_disk(node_id)
            self._start(node_id, self.world.hosts[node_id].life)

    def _strike(self) -> None:
        if not self._is_calm:
            self._perform(Note(self.now_ms, WORLD, self._nemesis.strike()))
            self.queue.schedule(self._nemesis.pause_ms(), self._strike)

    def _submit(self) -> None:
        candidates = self._workload.candidates(self.world)
        for _ in range(self._burst_rng.randint(1, self._most_at_once) if candidates else 0):
            submit_id, node_id, value = self._workload.next_submission(candidates)
            self.queue.perform_when_awake(Submit(self.now_ms, node_id, submit_id, value))
        self.queue.schedule(self._workload.pause_ms(), self._submit)

    def administer(self, node_id: int, request_id: int, request: Message, version: int | None = None) -> None:
        """Let a client send a request to a controller or a broker, by default in the highest version."""
        key, highest, _ = kind_of(type(request))
        version = highest if version is None else version
        body = encode(request, version)
        self.queue.perform_when_awake(Administer(self.now_ms, node_id, request_id, key, version, body))

    def hang_up(self, node_id: int, peer: str) -> None:
        """Let a client end its connection to a broker."""
        self.queue.perform_when_awake(HangUp(self.now_ms, node_id, peer))

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
        self.queue.times[node_id].crash_down_ms = down_ms
        self._perform(CrashSoon(self.now_ms, node_id, operations, self._draw_seed()))

    def restart(self, node_id: int) -> None:
        """Start a node that is down, before its time."""
        self._start(node_id, self.world.hosts[node_id].life)

    def resign(self, node_id: int) -> None:
        """Make a leader resign."""
        self.queue.perform_when_awake(Resign(self.now_ms, node_id))

    def shut_down(self, node_id: int, grace_ms: int, down_ms: int) -> None:
        """Shut a node down gracefully, at most for the grace period, and start it again."""
        host = self.world.hosts[node_id]
        if not host.is_running:
            return
        life = host.life
        self.queue.perform_when_awake(ShutDown(self.now_ms, node_id))

        def end() -> None:
            if host.life == life:
                self.crash(node_id, down_ms)

        self.queue.schedule(grace_ms, end)

    def pause(self, node_id: int, pause_ms: int) -> None:
        """Pause a node for a while."""
        self.queue.times[node_id].paused_until_ms = self.now_ms + pause_ms

    def slow_disk(self, node_id: int, flush_ms: int) -> None:
        """From now on an fsync at this node takes up to this time."""
        self.queue.times[node_id].flush_ms = flush_ms

    def set_clock(self, node_id: int, jump_ms: int, drift: int) -> None:
        """Let a node's clock jump ahead, and run too fast by this many thousandths from now on."""
        self._perform(SetClock(self.now_ms, node_id, self.world.clock_offset_ms(node_id) + jump_ms, drift))

    def step_clock(self, node_id: int, step_ms: int, drift: int, down_ms: int) -> None:
        """Restart a node after its clock has stepped; it runs too fast by this many thousandths from now on."""
        self.set_clock(node_id, 0, drift)
        self.queue.times[node_id].clock_step_ms += step_ms
        self.crash(node_id, down_ms)

    def reset_connections(self, node_id: int) -> None:
        """Break the connections of a node with pending requests, in both directions."""
        for exchange in self.world.under_way(node_id):
            self.queue.perform_when_awake(failure_of(exchange, self.now_ms, FailureCause.RESET))

    def fail_disk(self, node_id: int, operations: int, down_ms: int) -> None:
        """Let one of the next operations on a disk fail, and start the node again a while after it has stopped."""
        self.queue.times[node_id].crash_down_ms = down_ms
        self._perform(FailDisk(self.now_ms, node_id, operations, self._draw_seed()))

    def limit_disk(self, node_id: int, free_bytes: int, full_ms: int) -> None:
        """Limit the free space of a node's disk for a while."""
        self.queue.times[node_id].crash_down_ms = full_ms
        self._perform(LimitDisk(self.now_ms, node_id, self._draw_seed(), free_bytes))
        self.queue.schedule(full_ms, partial(self._free_disk, node_id))

    def fill_directory(self, node_id: int, full_ms: int) -> None:
        """Fill the disk of the second log directory of a broker, if there is one, for a while."""
        directories = self.directories_of(node_id)
        if len(directories) > 1:
            self._perform(FillDirectory(self.now_ms, node_id, directories[1]))
            self.queue.schedule(full_ms, partial(self.free_directory, node_id))

    def free_directory(self, node_id: int) -> None:
        """Let all log directories of a node have room again."""
        if self.world.hosts[node_id].full_directory:
            self._perform(FillDirectory(self.now_ms, node_id))

    def directories_of(self, node_id: int) -> tuple[str, ...]:
        """The log directories of a broker with data; of another node none."""
        member = self.world.hosts[node_id].member
        return member.log_dirs if isinstance(member, DataBroker) else ()

    def damage_disk(self, node_id: int, what: Damage, down_ms: int) -> None:
        """Damage a disk permanently, unless the quorum cannot bear the loss."""
        if not self.world.disk_losses.is_bearable(node_id):
            self._draw_seed()
            return
        if self._work is not None and not self._work.bears_loss(node_id):
            return
        if what.needs_stop:
            self.crash(node_id, down_ms)
        self._perform(DamageDisk(self.now_ms, node_id, what, self._draw_seed()))

    def refuse_connections(self, node_id: int, target: int, refused_ms: int) -> None:
        """Let the address that a node advertises refuse connections of another node for a while."""
        self._network.refuse_connections(node_id, target)
        self.queue.schedule(refused_ms, partial(self._network.accept_connections, node_id, target))

    def strand(self) -> None:
        """Cut a leader off. Once the leader has a successor, cut off the successor instead, which then alone has the
        end of its log.
        """
        self._stranded_leaders.strand()

    def note(self, note: Note) -> None:
        """Add a remark to the run."""
        self._perform(note)

    def slow_down(self, node_id: int, record_us: int) -> None:
        """From now on a node needs this time for every record that it decides on or applies."""
        self._perform(SlowDown(self.now_ms, node_id, record_us))

    def attack(self, node_id: int, frames: int, answers: int, *, is_forging: bool) -> None:
        """Send hostile requests to a node now, unless it is paused, and hostile responses to its next requests."""
        self._attacker.lie_in_wait(node_id, answers)
        for _ in range(frames if self.queue.is_awake(node_id) else 0):
            request = self._attacker.request(node_id, self.now_ms, is_forging=is_forging)
            if request is not None:
                self._perform(request)

    def corrupt_answers(self, node_id: int, answers: int) -> None:
        """Corrupt the next answers with records to a node."""
        self._corruptor.lie_in_wait(node_id, answers)

    def _free_disk(self, node_id: int) -> None:
        if self.world.hosts[node_id].is_disk_limited:
            self._perform(LimitDisk(self.now_ms, node_id, self._draw_seed()))

    def _replace_disk(self, node_id: int) -> None:
        """The operator stops a node with a damaged disk as soon as the other voters can do without it, by the rules of
        `kraft.sim.world.disk_losses`.
        """
        world, losses = self.world, self.world.disk_losses
        if not losses.is_damaged(node_id) or not world.hosts[node_id].is_running:
            return
        if losses.is_of_dynamic_quorum and not losses.may_stop(node_id, world.running(), world.invariants):
            self.queue.schedule(AGAIN_MS, partial(self._replace_disk, node_id))
            return
        self.crash(node_id, 1)

    def _let_epoch_rise(self, node_id: int) -> None:
        """Request the resignation of every leader with an earlier epoch than the restarting node has seen."""
        election = self.world.invariants.observed(node_id).election
        for leader_id in self.leaders():
            view = self.world.hosts[leader_id].view
            if election is not None and view is not None and view.epoch < election.epoch:
                self.resign(leader_id)

    def _draw_seed(self) -> int:
        return self._rng.getrandbits(_SEED_BITS)

    def _restart(self, node_id: int, down_ms: int) -> None:
        times = self.queue.times[node_id]
        times.paused_until_ms = times.busy_until_ms = times.crash_down_ms = 0
        times.is_tick_late = False
        if self._work is not None:
            self._work.on_died(node_id)
        self.queue.schedule(down_ms, partial(self._start, node_id, self.world.hosts[node_id].life))

    def _start(self, node_id: int, life: int) -> None:
        """Start a node, if it is still down after that life, as soon as the quorum can bear that.

        If the node refuses its disk, the operator formats the disk again, and the node starts once more.
        """
        host = self.world.hosts[node_id]
        if host.life != life or host.is_running:
            return
        if self.world.needs_format(node_id):
            self._perform(DamageDisk(self.now_ms, node_id, Damage.WIPED, self._draw_seed()))
        if not self.world.may_start(node_id):
            self._let_epoch_rise(node_id)
            self.queue.schedule(AGAIN_MS, partial(self._start, node_id, life))
            return
        self.queue.times[node_id].tick_at_ms = -1
        error_ms, step_ms = self._clock_error_ms, self.queue.times[node_id].clock_step_ms
        self._perform(Start(self.now_ms, node_id, self._draw_seed(), self._rng.randint(-error_ms, error_ms) + step_ms))
        if not host.is_running and self.world.disk_losses.is_damaged(node_id):
            self._perform(DamageDisk(self.now_ms, node_id, Damage.WIPED, self._draw_seed()))

    # Reactions to actions (`Driver`)

    def on_asked(self, exchange: Exchange) -> None:
        """A node has sent a request."""
        self.watcher.on_asked(exchange)
        if exchange.target not in self.world.hosts:
            self._network.refuse(exchange)
            return
        self._network.send(exchange)
        if self._attacker.is_lying_in_wait:
            self.queue.schedule(0, partial(self._forge, exchange))
        if self._work is not None:
            self._work.on_asked(exchange)

    def _forge(self, exchange: Exchange) -> None:
        """Answer a request in place of its target, if an attacker waits for it."""
        if not self._is_calm and self.queue.is_awake(exchange.sender):
            answer = self._attacker.answer(exchange, self.now_ms, is_forging=self.scenario.is_forged)
            if answer is not None:
                self._perform(answer)

    def on_answered(self, exchange: Exchange, copy: int) -> None:
        """A node has answered a delivery."""
        self.watcher.on_answered(exchange, copy)
        self._corruptor.answered(exchange, copy)
        self._network.answer(exchange, copy)

    def on_abandoned(self, exchange: Exchange) -> None:
        """The target is not running, or has crashed during the request."""
        self._network.break_off(exchange)

    def on_flush(self, node_id: int, number: int) -> None:
        """An fsync has begun."""
        flush_ms = self._rng.randint(0, self.queue.times[node_id].flush_ms)
        self.queue.plan(Flushed(self.now_ms + flush_ms, node_id, number))

    def on_administered(self, node_id: int, request_id: int) -> None:
        """A client has received its response."""
        if self._work is not None:
            self._work.on_administered(request_id)

    def on_stepped(self, node_id: int) -> None:
        """Wake the node at its deadline; a deadline that has moved since makes the old wake-up void."""
        deadline_ms, now_ms = self.world.hosts[node_id].deadline_ms(), self.queue.now_ms
        at_ms = deadline_ms if deadline_ms > now_ms else now_ms
        if self._stranded_leaders.waiting is not None:
            change = self._stranded_leaders.succeeded_by(node_id, is_calm=self._is_calm)
            if change:
                self.queue.schedule(0, partial(self.note, Note(now_ms, WORLD, change)))
        if at_ms <= now_ms + NEVER_MS:
            self.queue.plan_tick(node_id, at_ms)

    def on_busy(self, node_id: int, work_ms: int) -> None:
        """A node is busy for this time and takes no events meanwhile."""
        times = self.queue.times[node_id]
        times.busy_until_ms = self.now_ms + work_ms
        self.queue.plan(Act(times.busy_until_ms, node_id))

    def on_died(self, node_id: int) -> None:
        """A node has crashed within a step, or cannot start with its disk."""
        self._restart(node_id, self.queue.times[node_id].crash_down_ms or AGAIN_MS)
