"""A whole quorum in one thread and virtual time, everything drawn from one seed (Kafka: `RaftEventSimulationTest`).

`run` is the door: chaos for a while, the invariants checked after every event, then a calm phase that must make
progress. Two runs with one seed are the same to the last line of their traces.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from random import Random
from typing import Final, Protocol

from msgspec import Struct

from kraft.quorum.events import FailureCause
from kraft.quorum.values import QuorumConfig
from kraft.quorum.voters import VoterSet
from kraft.sim.invariants import Invariants
from kraft.sim.member import (
    Administered,
    Answer,
    Applied,
    Ask,
    Changed,
    Crashed,
    Done,
    Flush,
    Member,
    Outcome,
    Output,
    View,
)
from kraft.sim.members import MakeMember, draw_config, replica_member
from kraft.sim.nemesis import Nemesis, draw_faults
from kraft.sim.network import Exchange, Network
from kraft.sim.trace import Trace
from kraft.sim.workload import Workload
from transport.faults import FaultPlan, Faults

START_MS: Final = 1_700_000_000_000
CHAOS_MS: Final = 8_000
CALM_MS: Final = 60_000
CALM_RECORDS: Final = 10
CALM_NETWORK: Final = Faults(delay_ms=(1, 1))
PAUSES_MS: Final = (200, 600, 2000)
"""How often on average something goes wrong in a run; one of these."""
PAUSES_WITH_BROKERS_MS: Final = (700, 2000, 5000)
"""The same with brokers, who need a quorum for everything they do."""
RARELY_MS: Final = (300, 1000)
"""How often on average somebody writes, in a run with brokers, where others write more."""
SAME_MOMENT_LIMIT: Final = 20_000
"""More events than this without any time passing are a loop."""


class Result(Struct, frozen=True, kw_only=True):
    """A run that went well."""

    seed: int
    nodes: int
    digest: str
    events: int
    leaders: tuple[int, ...]
    committed: int
    acknowledged: int
    trace: str


class Host(Struct):
    """One node and its place in the simulation. `life` counts its starts."""

    member: Member
    view: View | None = None
    clock_offset_ms: int = 0
    life: int = 0
    is_running: bool = False
    paused_until_ms: int = 0
    crash_down_ms: int = 0
    flush_ms: int = 1
    tick_at_ms: int = -1
    asked: dict[int, Exchange] = {}


class Brokers(Protocol):
    """What a run with brokers has beside its quorum: see `kraft.sim.brokers`."""

    @property
    def ids(self) -> tuple[int, ...]:
        """The brokers."""

    def join(self, simulator: Simulator) -> None:
        """Become part of a run."""

    def make_member(self, node_id: int, voters: VoterSet, config: QuorumConfig) -> Member:
        """A broker."""

    def begin(self) -> None:
        """Everybody is about to start."""

    def started(self, member: Member) -> None:
        """A node begins a life."""

    def stepped(self, member: Member, outputs: list[Output]) -> None:
        """A node has done something."""

    def unsettled(self) -> str:
        """What is not yet as it has to become when all faults end; empty if nothing."""


class Simulator:
    """The event heap, the nodes, and what befalls them."""

    def __init__(
        self,
        *,
        seed: int,
        nodes: int,
        make_member: MakeMember,
        config: QuorumConfig | None = None,
        brokers: Brokers | None = None,
        keep_trace: bool = False,
    ) -> None:
        self.trace = Trace(keep_all=keep_trace)
        self.now_ms = START_MS
        self.events = 0
        self._seed = seed
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        self._next_request_id = 1
        self._rng = Random(f"{seed}/world")
        self._is_calm = False
        ids = tuple(range(1, nodes + 1))
        voters = VoterSet.parse(",".join(f"{one}@n{one}:9000" for one in ids))
        config = config or draw_config(Random(f"{seed}/config"))
        members_rng = Random(f"{seed}/members")
        self._hosts = {one: Host(make_member(one, voters, config, members_rng)) for one in ids}
        self._voter_ids = ids
        self._brokers = brokers
        if brokers is not None:
            brokers.join(self)
            self._hosts |= {one: Host(brokers.make_member(one, voters, config)) for one in brokers.ids}
        self.invariants = Invariants(ids)
        network_rng = Random(f"{seed}/network")
        self.plan = FaultPlan(network_rng, draw_faults(network_rng))
        self._network = Network(network_rng, self.plan, self.schedule, self)
        means_ms = PAUSES_MS if brokers is None else PAUSES_WITH_BROKERS_MS
        self._nemesis = Nemesis(Random(f"{seed}/nemesis"), self.plan, self, means_ms)
        workload_rng = Random(f"{seed}/workload")
        self.workload = Workload(workload_rng) if brokers is None else Workload(workload_rng, RARELY_MS)

    # The heap

    def schedule(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Call `action` when this much virtual time has passed; actions of one moment come in this order."""
        self._sequence += 1
        heappush(self._heap, (self.now_ms + delay_ms, self._sequence, action))

    def run_until(self, end_ms: int, is_done: Callable[[], bool] | None = None) -> None:
        """Let events happen until `is_done`, at the latest until the time has come."""
        moment = 0
        while self._heap and self._heap[0][0] <= end_ms:
            if is_done is not None and is_done():
                return
            at_ms, _, action = heappop(self._heap)
            moment = moment + 1 if at_ms == self.now_ms else 0
            assert moment < SAME_MOMENT_LIMIT, f"a loop in which no time passes, at {at_ms}"
            self.now_ms = at_ms
            self.events += 1
            action()
        self.now_ms = max(self.now_ms, end_ms)

    @property
    def elapsed_ms(self) -> int:
        """The virtual time that has passed."""
        return self.now_ms - START_MS

    # A run

    def begin(self) -> None:
        """Start everybody, at slightly different times, and the workload."""
        for node_id in self._hosts:
            self.schedule(self._rng.randint(0, 500), partial(self._start, node_id, 0))
        self.schedule(self.workload.pause_ms(), self._work)
        if self._brokers is not None:
            self._brokers.begin()

    def chaos(self, duration_ms: int) -> None:
        """Let the nemesis loose for a while."""
        self.begin()
        self.schedule(self._nemesis.pause_ms(), self._strike)
        self.run_until(START_MS + duration_ms)

    def calm(self, duration_ms: int, records: int = CALM_RECORDS) -> None:
        """End all faults; soon everybody must follow one leader and have so many records more committed."""
        self._is_calm = True
        self.plan.heal()
        self.plan.faults = CALM_NETWORK
        self.trace.add(self.now_ms, 0, "calm")
        for node_id, host in self._hosts.items():
            host.paused_until_ms, host.flush_ms = 0, 1
            if not host.is_running:
                self._start(node_id, host.life)
        target = self.invariants.committed_end + records
        self.run_until(self.now_ms + duration_ms, lambda: self._has_settled(target))
        self.invariants.refused(self.workload.refused)
        views = [host.view for host in self._hosts.values()]
        unsettled = "" if self._brokers is None else self._brokers.unsettled()
        assert self._has_settled(target), f"no progress to {target} in {duration_ms} ms of calm: {views} {unsettled}"

    def _has_settled(self, target: int) -> bool:
        if self.invariants.committed_end < target:
            return False
        views = [host.view for host in self._hosts.values() if host.is_running and host.view is not None]
        return (
            len(views) == len(self._hosts)
            and all(view.high_watermark >= target for view in views)
            and all(view.leader == views[0].leader for view in views)
            and (self._brokers is None or not self._brokers.unsettled())
        )

    def _strike(self) -> None:
        if not self._is_calm:
            self.trace.add(self.now_ms, 0, self._nemesis.strike())
            self.schedule(self._nemesis.pause_ms(), self._strike)

    def _work(self) -> None:
        candidates = self.leaders() or self.running_voters()
        if candidates:
            submit_id, node_id, value = self.workload.next_submission(candidates)
            host = self._hosts[node_id]
            life = host.life
            self._when_awake(host, life, lambda: host.member.submit(submit_id, value, self._clock(host)), "submit")
        self.schedule(self.workload.pause_ms(), self._work)

    # Nodes (`nemesis.World`, `network.Hosts`)

    @property
    def node_ids(self) -> tuple[int, ...]:
        """All nodes, down ones too."""
        return tuple(self._hosts)

    def running(self) -> list[int]:
        """The nodes that are up."""
        return [node_id for node_id, host in self._hosts.items() if host.is_running]

    def running_voters(self) -> list[int]:
        """The voters that are up."""
        return [node_id for node_id in self._voter_ids if self._hosts[node_id].is_running]

    def member(self, node_id: int) -> Member:
        """A node."""
        return self._hosts[node_id].member

    def let(self, node_id: int, step: Callable[[int], list[Output]], what: str) -> None:
        """Let a node that is up take a step, once it is awake; the step gets the time by the node's clock."""
        host = self._hosts[node_id]
        self._when_awake(host, host.life, lambda: step(self._clock(host)), what)

    def leaders(self) -> list[int]:
        """The nodes that take themselves for leaders."""
        return [
            node_id
            for node_id, host in self._hosts.items()
            if host.is_running and host.view is not None and host.view.state == "Leader"
        ]

    def crash(self, node_id: int, down_ms: int) -> None:
        """Crash a node and start it again after a while."""
        host = self._hosts[node_id]
        if not host.is_running:
            return
        host.is_running = False
        host.paused_until_ms = 0
        host.crash_down_ms = 0
        host.member.crash(self._rng)
        for exchange in host.asked.values():
            self._network.break_off(exchange)
        host.asked.clear()
        self.trace.add(self.now_ms, node_id, "crashed")
        self.schedule(down_ms, partial(self._start, node_id, host.life))

    def crash_within_a_step(self, node_id: int, operations: int, down_ms: int) -> None:
        """Crash a node in the middle of one of its next steps, or of its next start."""
        host = self._hosts[node_id]
        host.crash_down_ms = down_ms
        host.member.crash_soon(operations)

    def resign(self, node_id: int) -> None:
        """Make a leader give up."""
        host = self._hosts[node_id]
        if host.is_running:
            self._when_awake(host, host.life, lambda: host.member.resign(self._clock(host)), "resign")

    def shut_down(self, node_id: int, grace_ms: int, down_ms: int) -> None:
        """Stop a node in good order, if it manages within the grace period, and start it again."""
        host = self._hosts[node_id]
        if not host.is_running:
            return
        life = host.life
        self._when_awake(host, life, lambda: host.member.shut_down(self._clock(host)), "shut-down")

        def end() -> None:
            if host.life == life:
                self.crash(node_id, down_ms)

        self.schedule(grace_ms, end)

    def pause(self, node_id: int, pause_ms: int) -> None:
        """Let a node do nothing for a while."""
        self._hosts[node_id].paused_until_ms = self.now_ms + pause_ms

    def slow_disk(self, node_id: int, flush_ms: int) -> None:
        """From now on an fsync at this node takes up to that long."""
        self._hosts[node_id].flush_ms = flush_ms

    def arrived(self, exchange: Exchange) -> None:
        """A request arrives at its target, which may be down."""
        host = self._hosts[exchange.target]
        if not host.is_running:
            self._network.break_off(exchange)
            return
        request_id = self._next_request_id
        self._next_request_id += 1
        host.asked[request_id] = exchange
        self._when_awake(
            host,
            host.life,
            lambda: host.member.on_request(request_id, exchange.message, self._clock(host)),
            f"request {exchange.sender}",
        )

    def replied(self, exchange: Exchange, message: object) -> None:
        """The reply is back at the sender."""
        host = self._hosts[exchange.sender]
        self._when_awake(
            host,
            exchange.life,
            lambda: host.member.on_reply(exchange.request_id, message, self._clock(host)),
            f"reply {exchange.target}",
        )

    def failed(self, exchange: Exchange, cause: FailureCause) -> None:
        """The sender learns that there will be no reply."""
        host = self._hosts[exchange.sender]
        self._when_awake(
            host,
            exchange.life,
            lambda: host.member.on_failed(exchange.request_id, cause, self._clock(host)),
            f"failed {exchange.target} {cause}",
        )

    def _start(self, node_id: int, life: int) -> None:
        host = self._hosts[node_id]
        if host.is_running or host.life != life:
            return
        host.life += 1
        host.is_running = True
        host.clock_offset_ms = self._rng.randint(-5000, 5000)
        host.tick_at_ms = -1
        try:
            outputs = host.member.start(Random(f"{self._seed}/{node_id}/{host.life}"), self._clock(host))
        except Crashed as crashed:
            self._crash_midway(host, f"start: crashes {crashed}")
            return
        host.view = self.invariants.started(host.member)
        if self._brokers is not None:
            self._brokers.started(host.member)
        self._settle(host, outputs, "started")

    def _clock(self, host: Host) -> int:
        return self.now_ms + host.clock_offset_ms

    def _when_awake(self, host: Host, life: int, step: Callable[[], list[Output]], what: str) -> None:
        """Let a node take a step, once it is not paused, if it still lives the same life."""
        if host.life != life or not host.is_running:
            return
        if host.paused_until_ms > self.now_ms:
            self.schedule(host.paused_until_ms - self.now_ms, partial(self._when_awake, host, life, step, what))
            return
        try:
            outputs = step()
        except Crashed as crashed:
            self._crash_midway(host, f"{what}: crashes {crashed}")
            return
        host.view = self.invariants.stepped(host.member)
        if self._brokers is not None:
            self._brokers.stepped(host.member, outputs)
        self._settle(host, outputs, what)

    def _crash_midway(self, host: Host, what: str) -> None:
        node_id = host.member.node_id
        self.trace.add(self.now_ms, node_id, what)
        self.invariants.interrupted(node_id)
        self.crash(node_id, host.crash_down_ms)

    def _settle(self, host: Host, outputs: list[Output], what: str) -> None:
        node_id, view = host.member.node_id, host.view
        assert view is not None
        self.trace.add(
            self.now_ms,
            node_id,
            f"{what}: {view.state} {view.epoch} {view.leader.leader_id}"
            f" {view.high_watermark}/{view.flushed_offset}/{view.log_end_offset}",
        )
        for output in outputs:
            self._carry_out(host, output)
        self._schedule_tick(host)

    def _carry_out(self, host: Host, output: Output) -> None:
        node_id = host.member.node_id
        match output:
            case Ask():
                if output.fetch_offset is not None:
                    self.invariants.fetched(node_id, output.fetch_offset)
                exchange = Exchange(node_id, host.life, output.request_id, output.peer_id, output.message)
                self._network.send(exchange, output.timeout_ms)
            case Answer():
                if output.granted is not None:
                    self.invariants.granted(node_id, *output.granted)
                self._network.answer(host.asked.pop(output.request_id), output.message)
            case Flush(ticket=ticket):
                delay_ms = self._rng.randint(0, host.flush_ms)
                self.schedule(
                    delay_ms,
                    partial(
                        self._when_awake,
                        host,
                        host.life,
                        lambda: host.member.on_flushed(ticket, self._clock(host)),
                        "flushed",
                    ),
                )
            case Done():
                value = self.workload.done(output.submit_id, output.outcome)
                if output.outcome is Outcome.COMMITTED:
                    self.invariants.acknowledged(node_id, value, output.base_offset)
            case Applied():
                self.invariants.applied(host.member, output)
            case Administered():
                pass
            case Changed(what=what):
                self.trace.add(self.now_ms, node_id, what)

    def _schedule_tick(self, host: Host) -> None:
        """Wake the node at its deadline; a deadline that has moved since makes the old wake-up void."""
        at_ms = max(host.member.deadline_ms() - host.clock_offset_ms, self.now_ms)
        if at_ms == host.tick_at_ms or at_ms > self.now_ms + 10**9:
            return
        host.tick_at_ms = at_ms
        life = host.life

        def wake() -> None:
            if host.tick_at_ms == at_ms and host.life == life:
                host.tick_at_ms = -1
                self._when_awake(host, life, lambda: host.member.tick(self._clock(host)), "tick")

        self.schedule(at_ms - self.now_ms, wake)


def run(
    seed: int,
    nodes: int = 3,
    *,
    make_member: MakeMember = replica_member,
    chaos_ms: int = CHAOS_MS,
    calm_ms: int = CALM_MS,
    keep_trace: bool = False,
) -> Result:
    """Simulate one quorum; what goes wrong in it is raised, with the seed and the end of the trace in its notes."""
    simulator = Simulator(seed=seed, nodes=nodes, make_member=make_member, keep_trace=keep_trace)
    try:
        simulator.chaos(chaos_ms)
        simulator.calm(calm_ms)
    except Exception as failure:
        failure.add_note(simulator.trace.text)
        failure.add_note(
            f"seed {seed}: replay with run({seed}, {nodes}, make_member={make_member.__name__}, chaos_ms={chaos_ms})"
        )
        raise
    return result_of(simulator, seed, nodes)


def result_of(simulator: Simulator, seed: int, nodes: int) -> Result:
    """What a run that went well came to."""
    return Result(
        seed=seed,
        nodes=nodes,
        digest=simulator.trace.digest,
        events=simulator.events,
        leaders=simulator.invariants.leaders,
        committed=simulator.invariants.committed_end,
        acknowledged=simulator.workload.acknowledged,
        trace=simulator.trace.text,
    )
