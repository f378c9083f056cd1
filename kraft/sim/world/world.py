"""Performs actions on a simulated quorum one at a time, and checks the invariants after each of them
(Kafka: the `Cluster` of `RaftEventSimulationTest`).

The world draws nothing and chooses nothing: a `Driver` does. The same actions produce the same history with every
driver.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final, Protocol

from msgspec import Struct

from kraft.invariants.observation import Applied, View
from kraft.invariants.quorum import Invariants
from kraft.invariants.violation import InvariantViolated
from kraft.quorum.events import FailureCause
from kraft.quorum.voters import VoterSet
from kraft.sim.world.actions import (
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
    Forge,
    Happening,
    Intrude,
    LimitDisk,
    Move,
    Note,
    Resign,
    Return,
    RoundTrip,
    SetClock,
    ShutDown,
    SlowDown,
    Start,
    Submit,
    Tick,
    Wipe,
)
from kraft.sim.world.check_quorum import CheckQuorum
from kraft.sim.world.disk_damage import Damage
from kraft.sim.world.disk_losses import DiskLosses
from kraft.sim.world.driver import Driver, Exchange
from kraft.sim.world.member_interface import (
    STRANGERS,
    Administered,
    Answer,
    Changed,
    Crashed,
    Done,
    Flush,
    Member,
    Outcome,
    Output,
    PeerFaultReported,
    SimulatedRequest,
)
from kraft.sim.world.signs_of_life import SignsOfLife, UncheckedSigns
from kraft.sim.world.trace import Trace
from kraft.sim.world.unchecked import NoCheckQuorum, Unchecked
from metadata_log.errors import MetadataLogError
from metadata_log.serde import Message, decode
from metadata_log.types import Uuid
from transport.protocol.apis import APIS

_OF_SOUND_PEERS: Final = (
    "or the Fetch arrived after its deadline",
    "with no known address",
    "it calls our request invalid",
)
"""The last words of suspicions that a correct peer can cause: a Fetch overtaken by later ones; the resignation of a
leader that the node does not know, and the response to that.
"""
STUCK_MS: Final = 5_000
"""After the end of all faults, a submission is decided within this time (TLA+: ValuesNotStuck)."""
START_MS: Final = 1_700_000_000_000
"""The time of a correct clock at the beginning of a run."""


class NodeEnded(AssertionError):
    """A frame from the network has ended a node, which violates the guarantee that no frame does so."""


class NoProgress(AssertionError):
    """The quorum made no progress after the end of all faults."""


class Held(Struct, frozen=True):
    """The result of a step while the node is still busy with that step."""

    view: View
    outputs: list[Output]
    what: str


class Host(Struct):
    """One node and its simulation state. `life` counts the starts."""

    member: Member
    view: View | None = None
    shown: str = ""
    """The view, for the trace."""
    clock_offset_ms: int = 0
    clock_drift: int = 0
    """The excess speed of the clock, in thousandths."""
    clock_set_ms: int = 0
    """The virtual time since which the drift counts."""
    life: int = 0
    is_running: bool = False
    crash_seed: int = 0
    requests: int = 0
    waiting: dict[int, Exchange] = {}
    """The pending requests of this life, by number."""
    is_disk_failing: bool = False
    """Whether the disk may fail in this life."""
    is_disk_limited: bool = False
    submitted: dict[int, int] = {}
    """The start times of the pending submissions of this life."""
    flushes: int = 0
    flushing: dict[int, int] = {}
    """The tickets of the pending fsyncs, by number."""
    record_us: int = 0
    """The time for each record that the node decides on or applies, in µs."""
    held: Held | None = None
    """The step in progress; the node takes no events meanwhile."""
    asked: dict[int, tuple[Exchange, int]] = {}
    """The deliveries without an answer, by their request id at this node."""


class Watch(Protocol):
    """Additional invariants beside those of the quorum; each method may raise `InvariantViolated`."""

    def submitting(self, submit_id: int, line: str, world: World) -> None:
        """A client is about to submit a record."""

    def administering(self, request: Message) -> None:
        """A client is about to send a request."""

    def started(self, member: Member, world: World) -> None:
        """A node has started."""

    def stepped(self, member: Member, outputs: list[Output], world: World) -> None:
        """A node has completed a step."""

    def unsettled(self, world: World) -> str:
        """Which requirement after the end of all faults is not met yet; empty if none."""

    def concluded(self, world: World) -> None:
        """The run is over."""


class World:
    """The nodes, the messages between them, and the invariants."""

    def __init__(
        self,
        members: dict[int, Member],
        voters: VoterSet,
        *,
        trace: Trace,
        check_quorum: CheckQuorum,
        watch: Watch | None = None,
    ) -> None:
        self.hosts = {node_id: Host(member) for node_id, member in members.items()}
        self.invariants = Invariants(voters)
        self.disk_losses = DiskLosses(tuple(key.id for key in voters.keys if key.directory_id == Uuid.ZERO))
        self.check_quorum = check_quorum
        self.signs = SignsOfLife(check_quorum.fetch_timeout_ms)
        self.trace = trace
        self.watch = watch
        self.driver = Driver()
        self.now_ms = 0
        self.events = 0
        """The number of inputs to all nodes."""
        self.exchanges: dict[tuple[int, int], Exchange] = {}
        """Every request so far, by sender and number."""
        self.is_attacked = False
        """Whether any node has received a hostile message."""
        self.has_forgotten = False
        """Whether any node has received an empty disk."""
        self.acknowledged = 0
        self.refused: list[bytes] = []
        self._pending: dict[int, bytes] = {}
        self._next_request_id = 1

    def demand_only_survival(self) -> None:
        """Check only that no node ends: forged messages may be indistinguishable from correct ones."""
        voters = self.invariants.voter_sets()[-1]
        self.invariants, self.check_quorum, self.watch = Unchecked(voters), NoCheckQuorum(0), None
        self.is_attacked, self.signs = True, UncheckedSigns(0)

    def perform(self, action: Action) -> bool:
        """Perform an action; returns False if its subject does not exist, such as a request or a running node.

        Raises:
            AssertionError: the quorum violates an invariant (`InvariantViolated`), or a node its own assertion.
        """
        at_ms = action.at_ms
        self.now_ms = at_ms if at_ms > self.now_ms else self.now_ms
        return _PERFORM[type(action)](self, action)

    # Questions

    @property
    def node_ids(self) -> tuple[int, ...]:
        """All nodes, including stopped ones."""
        return tuple(self.hosts)

    def running(self) -> list[int]:
        """The running nodes."""
        return [node_id for node_id, host in self.hosts.items() if host.is_running]

    def running_voters(self) -> list[int]:
        """The running voters, by the last voter set in any log."""
        return [node_id for node_id in self.invariants.voter_sets()[-1].ids if self.hosts[node_id].is_running]

    def may_start(self, node_id: int) -> bool:
        """Whether a node may restart with its disk: the quorum bears the loss, or the node must refuse the disk."""
        if self._must_refuse(node_id):
            return True
        return self.disk_losses.may_return(node_id, self.running_voters(), self.invariants)

    def _must_refuse(self, node_id: int) -> str:
        """The damage of a disk that the node has to detect at its start."""
        return self.hosts[node_id].member.must_refuse() if self.disk_losses.is_damaged(node_id) else ""

    def under_way(self, node_id: int) -> list[Exchange]:
        """The pending requests from and to a node."""
        return [
            exchange
            for host in self.hosts.values()
            for exchange in host.waiting.values()
            if node_id in (exchange.sender, exchange.target)
        ]

    def leaders(self) -> list[int]:
        """The nodes in the leader state."""
        return [
            node_id
            for node_id, host in self.hosts.items()
            if host.is_running and host.view is not None and host.view.state == "Leader"
        ]

    def has_settled(self, target: int) -> bool:
        """Whether all nodes are running, follow one leader, know everything below `target` as committed, and have
        decided on all submissions made a while ago.
        """
        if self.invariants.committed_end < target:
            return False
        views = [host.view for host in self.hosts.values() if host.is_running and host.view is not None]
        return (
            len(views) == len(self.hosts)
            and all(view.high_watermark >= target for view in views)
            and all(view.leader == views[0].leader for view in views)
            and (self.watch is None or not self.watch.unsettled(self))
            and not self._stuck()
        )

    def _stuck(self) -> list[tuple[int, int]]:
        """The submissions undecided for too long, by node and id (TLA+: ValuesNotStuck)."""
        return [
            (host.member.node_id, submit_id)
            for host in self.hosts.values()
            for submit_id, since_ms in host.submitted.items()
            if since_ms < self.now_ms - STUCK_MS
        ]

    def deadline_ms(self, node_id: int) -> int:
        """The next deadline of a running node, in virtual time."""
        host = self.hosts[node_id]
        deadline_ms = host.member.deadline_ms() - START_MS - host.clock_offset_ms
        if host.clock_drift:
            wait_ms = deadline_ms - host.clock_set_ms
            deadline_ms = host.clock_set_ms - (-wait_ms * 1000 // (1000 + host.clock_drift))
        return deadline_ms

    def clock_offset_ms(self, node_id: int) -> int:
        """The present error of a node's clock, in ms."""
        return self._clock(self.hosts[node_id]) - START_MS - self.now_ms

    def _clock(self, host: Host) -> int:
        clock_ms = START_MS + self.now_ms + host.clock_offset_ms
        if host.clock_drift:
            clock_ms += (self.now_ms - host.clock_set_ms) * host.clock_drift // 1000
        return clock_ms

    # Lives

    def _start(self, action: Start) -> bool:
        host = self.hosts[action.node]
        if host.is_running or not self.may_start(action.node):
            return False
        host.life += 1
        host.is_running = True
        host.clock_offset_ms, host.clock_set_ms = action.clock_offset_ms, self.now_ms
        self.events += 1
        lost = self._must_refuse(action.node)
        try:
            outputs = host.member.start(Random(action.seed), self._clock(host))
        except (Crashed, OSError, MetadataLogError) as failure:
            self._die(host, "start", failure)
            return True
        if lost:
            raise InvariantViolated(f"node {action.node} has started, though its disk has lost what was there: {lost}")
        view = self.invariants.started(host.member, is_damaged=self.disk_losses.is_damaged(action.node))
        self.disk_losses.end(action.node)
        if self.watch is not None:
            self.watch.started(host.member, self)
        self._settle(host, view, outputs, "started")
        return True

    def _crash(self, action: Crash) -> bool:
        host = self.hosts[action.node]
        if not host.is_running:
            return False
        self._end_life(host, action.seed)
        return True

    def _crash_soon(self, action: CrashSoon) -> bool:
        host = self.hosts[action.node]
        host.crash_seed = action.seed
        host.member.crash_soon(action.operations)
        return True

    def _fail_disk(self, action: FailDisk) -> bool:
        host = self.hosts[action.node]
        if not host.is_running:
            return False
        host.crash_seed = action.seed
        host.is_disk_failing = True
        host.member.fail_soon(action.operations)
        return True

    def _limit_disk(self, action: LimitDisk) -> bool:
        host = self.hosts[action.node]
        host.crash_seed = action.seed
        host.is_disk_limited = action.free_bytes is not None
        host.member.limit_disk(action.free_bytes)
        return True

    def _damage_disk(self, action: DamageDisk) -> bool:
        node_id, what, losses = action.node, action.what, self.disk_losses
        host = self.hosts[node_id]
        if not losses.is_bearable(node_id) or (host.is_running and what.needs_stop):
            return False
        damaged = host.member.damage(what, Random(action.seed))
        if not damaged:
            return False
        losses.damage(node_id)
        self.invariants.damaged(node_id)
        self.trace.add(self.now_ms, node_id, f"{what}: {damaged}")
        return True

    def _wipe(self, action: Wipe) -> bool:
        host = self.hosts[action.node]
        if host.is_running:
            return False
        host.member.damage(Damage.WIPED, Random(action.seed))
        self.has_forgotten = True
        self.trace.add(self.now_ms, action.node, f"disk lost; now {host.member.key.directory_id}")
        return True

    def _move(self, action: Move) -> bool:
        host = self.hosts[action.node]
        if host.is_running:
            return False
        host.member.move(action.port)
        self.trace.add(self.now_ms, action.node, f"moves to port {action.port}")
        return True

    def _die(self, host: Host, what: str, failure: Crashed | OSError | MetadataLogError) -> None:
        """A node has died within a step; raises the failure again if nothing has been done to the node for that."""
        node_id = host.member.node_id
        losses = self.disk_losses
        is_failing = isinstance(failure, OSError) and (host.is_disk_failing or host.is_disk_limited)
        is_expected = isinstance(failure, Crashed) or is_failing or losses.is_damaged(node_id)
        if not is_expected:
            if not self.invariants.was_damaged(node_id):
                raise failure
            # The node did not detect this damage at its start. If the quorum bears the loss, the disk will be replaced.
            if losses.is_bearable(node_id):
                losses.damage(node_id)
        self.trace.add(self.now_ms, node_id, f"{what}: {type(failure).__name__} {failure}")
        self.invariants.interrupted(node_id)
        self._end_life(host, host.crash_seed)
        self.driver.on_died(node_id)

    def _end_life(self, host: Host, seed: int) -> None:
        host.is_running = host.is_disk_failing = False
        host.held = None
        self.signs.died(host.member.node_id)
        host.member.crash(Random(seed))
        host.flushing.clear()
        host.waiting.clear()
        host.submitted.clear()
        abandoned, host.asked = host.asked, {}
        for exchange, _ in abandoned.values():
            self.driver.on_abandoned(exchange)
        self.trace.add(self.now_ms, host.member.node_id, "crashed")

    # Messages

    def _deliver(self, action: Deliver) -> bool:
        exchange = self.exchanges.get((action.sender, action.number))
        if exchange is None or exchange.target != action.node:
            return False
        host = self.hosts[action.node]
        if not host.is_running:
            self.driver.on_abandoned(exchange)
            return False
        if host.held is not None:
            return False
        request_id = self._next_request_id
        self._next_request_id += 1
        host.asked[request_id] = (exchange, len(exchange.answers))
        exchange.answers.append(None)
        self.check_quorum.heard(action.node, action.sender, self._clock(host))
        return self._step(host, f"request {action.sender}", host.member.on_request, request_id, exchange.message)

    def _return(self, action: Return) -> bool:
        host = self.hosts[action.node]
        exchange = host.waiting.get(action.number)
        if exchange is None or action.copy >= len(exchange.answers) or host.held is not None:
            return False
        message = exchange.answers[action.copy]
        if message is None:
            return False
        del host.waiting[action.number]
        exchange.is_settled = True
        self.signs.answered(exchange, message, self._clock(host))
        return self._step(host, f"reply {exchange.target}", host.member.on_reply, exchange.request_id, message)

    def _round_trip(self, action: RoundTrip) -> bool:
        at_ms, sender, target, number, kind = action.at_ms, action.node, action.peer, action.number, action.kind
        if not self._deliver(Deliver(at_ms, target, sender, number, kind)):
            return False
        copy = len(self.exchanges[sender, number].answers) - 1
        self._return(Return(at_ms, sender, target, number, copy, kind))
        return True

    def _fail(self, action: Fail) -> bool:
        host = self.hosts[action.node]
        exchange = None if host.held is not None else host.waiting.pop(action.number, None)
        if exchange is None:
            return False
        exchange.is_settled = True
        if action.cause is FailureCause.REFUSED:
            self.signs.refused(host.member, exchange)
        what = f"failed {exchange.target} {action.cause}"
        return self._step(host, what, host.member.on_failed, exchange.request_id, action.cause)

    # Hostile messages

    def _intrude(self, action: Intrude) -> bool:
        host = self.hosts[action.node]
        if not host.is_running or host.held is not None:
            return False
        self.is_attacked = True
        request_id = STRANGERS + self._next_request_id
        self._next_request_id += 1
        if action.claims is not None:
            self.check_quorum.heard(action.node, action.claims, self._clock(host))
        arguments = request_id, action.api_key, action.version, action.body
        return self._suffer(host, f"intruder: {action.what}", host.member.on_frame, *arguments)

    def _forge(self, action: Forge) -> bool:
        host = self.hosts[action.node]
        exchange = host.waiting.get(action.number)
        if exchange is None or exchange.target != action.peer or exchange.kind != action.kind or host.held is not None:
            return False
        sent = host.member.wire_request(exchange.message)
        if sent is None:
            return False
        del host.waiting[action.number]
        exchange.is_settled = True
        self.is_attacked = True
        self.signs.forged(action.node)
        key, version, _ = sent
        arguments = exchange.request_id, key, version, action.body
        return self._suffer(host, f"forged: {action.what}", host.member.on_forged_reply, *arguments)

    def _suffer(self, host: Host, what: str, step: Callable[..., list[Output]], *arguments: object) -> bool:
        """Let a node take a step over a message of an attacker; no such message may end the node.

        Raises:
            NodeEnded: the step has failed, and that was not done to the node otherwise.
        """
        try:
            return self._step(host, what, step, *arguments)
        except InvariantViolated:
            raise
        except Exception as failure:
            text = f"node {host.member.node_id} ends over {what}: {type(failure).__name__}: {failure}"
            raise NodeEnded(text).with_traceback(failure.__traceback__) from failure

    # Steps

    def _flushed(self, action: Flushed) -> bool:
        host = self.hosts[action.node]
        ticket = None if host.held is not None else host.flushing.pop(action.number, None)
        if ticket is None:
            return False
        return self._step(host, "flushed", host.member.on_flushed, ticket)

    def _tick(self, action: Tick) -> bool:
        host = self.hosts[action.node]
        return self._step(host, "tick", host.member.tick)

    def _submit(self, action: Submit) -> bool:
        host = self.hosts[action.node]
        if not host.is_running or host.held is not None or action.submit_id in self._pending:
            return False
        value = action.value.encode()
        if self.watch is not None:
            self.watch.submitting(action.submit_id, action.value, self)
        self._pending[action.submit_id] = value
        host.submitted[action.submit_id] = self.now_ms
        return self._step(host, "submit", host.member.submit, action.submit_id, value)

    def _administer(self, action: Administer) -> bool:
        host = self.hosts[action.node]
        if not host.is_running or host.held is not None:
            return False
        request = decode(APIS[action.api_key].request, action.version, action.body)
        if self.watch is not None:
            self.watch.administering(request)
        what = f"admin {type(request).__name__}"
        return self._step(host, what, host.member.administer, action.request_id, request)

    def _resign(self, action: Resign) -> bool:
        host = self.hosts[action.node]
        return self._step(host, "resign", host.member.resign)

    def _shut_down(self, action: ShutDown) -> bool:
        host = self.hosts[action.node]
        return self._step(host, "shut-down", host.member.shut_down)

    def _set_clock(self, action: SetClock) -> bool:
        host = self.hosts[action.node]
        offset_ms = max(action.offset_ms, self.clock_offset_ms(action.node)) if host.is_running else action.offset_ms
        host.clock_offset_ms, host.clock_drift, host.clock_set_ms = offset_ms, action.drift, self.now_ms
        self.check_quorum.disturbed(action.node)
        self.trace.add(self.now_ms, action.node, f"clock {offset_ms} {action.drift}")
        if host.is_running:
            self.driver.on_stepped(action.node)
        return True

    def _note(self, action: Note) -> bool:
        self.trace.add(self.now_ms, action.node, action.text)
        return True

    def _conclude(self, action: Conclude) -> bool:
        self.invariants.refused(self.refused)
        for node_id in self.running():
            if not self.disk_losses.is_damaged(node_id):
                self.invariants.concluded(self.hosts[node_id].member)
        if self.watch is not None:
            self.watch.concluded(self)
        target = action.settled_at
        if target and not self.has_settled(target):
            views = [host.view for host in self.hosts.values()]
            unsettled = "" if self.watch is None else self.watch.unsettled(self)
            undecided = (
                f"; these submissions to these nodes are not decided: {stuck}" if (stuck := self._stuck()) else ""
            )
            raise NoProgress(f"no progress to {target} by {self.now_ms} ms: {views} {unsettled}{undecided}")
        return True

    def _step(self, host: Host, what: str, step: Callable[..., list[Output]], *arguments: object) -> bool:
        """Let a node take a step, if it is up and not busy; the last argument is the time by the node's clock."""
        if not host.is_running or host.held is not None:
            return False
        self.events += 1
        clock_ms = self._clock(host)
        try:
            outputs = step(*arguments, clock_ms)
        except (Crashed, OSError, MetadataLogError) as failure:
            self._die(host, what, failure)
            return True
        member = host.member
        view = self.invariants.stepped(member)
        if view.state == "Leader":
            self.check_quorum.led(member.node_id, view.epoch, self.invariants.voters_of(member.node_id), clock_ms)
        if self.watch is not None:
            self.watch.stepped(member, outputs, self)
        work_ms = host.record_us * member.take_work() // 1000 if host.record_us else 0
        if work_ms:
            host.held = Held(view, outputs, what)
            self.trace.add(self.now_ms, member.node_id, f"{what}: {work_ms} ms of work")
            self.driver.on_busy(member.node_id, work_ms)
        else:
            self._settle(host, view, outputs, what)
        return True

    def _act(self, action: Act) -> bool:
        host = self.hosts[action.node]
        held, host.held = host.held, None
        if held is None:
            return False
        self._settle(host, held.view, held.outputs, held.what)
        return True

    def _slow_down(self, action: SlowDown) -> bool:
        host = self.hosts[action.node]
        host.record_us = action.record_us
        host.member.measure(is_on=action.record_us > 0)
        self.trace.add(self.now_ms, action.node, f"a record takes {action.record_us} us")
        return True

    def _settle(self, host: Host, view: View, outputs: list[Output], what: str) -> None:
        node_id = host.member.node_id
        if view is not host.view:
            host.view = view
            host.shown = (
                f"{view.state} {view.epoch} {view.leader.leader_id}"
                f" {view.high_watermark}/{view.flushed_offset}/{view.log_end_offset}"
            )
        self.trace.add(self.now_ms, node_id, f"{what}: {host.shown}")
        for output in outputs:
            self._carry_out(host, node_id, output)
        self.driver.on_stepped(node_id)

    def _carry_out(self, host: Host, node_id: int, output: Output) -> None:
        match output:
            case SimulatedRequest():
                if output.fetch_offset is not None:
                    self.invariants.fetched(node_id, output.fetch_offset)
                self.driver.on_asked(self._ask(host, node_id, output))
            case Answer() if output.request_id >= STRANGERS:
                pass
            case Answer():
                if output.granted is not None:
                    self.invariants.granted(node_id, *output.granted)
                elif output.pre_granted is not None:
                    self.invariants.pre_granted(node_id, output.pre_granted)
                    self.signs.pre_granted(host.member, host.view, self._clock(host))
                exchange, copy = host.asked.pop(output.request_id)
                exchange.answers[copy] = output.message
                self.driver.on_answered(exchange, copy)
            case Flush(ticket=ticket):
                host.flushes += 1
                host.flushing[host.flushes] = ticket
                self.driver.on_flush(node_id, host.flushes)
            case Changed(what=what):
                self.trace.add(self.now_ms, node_id, what)
                self.signs.changed(host.member, what, host.requests)
            case PeerFaultReported(peer_id=peer_id, what=what):
                self._suspected(node_id, peer_id, what)
            case Done():
                self._done(node_id, output)
            case Applied():
                self.invariants.applied(host.member, output)
            case Administered(request_id=request_id):
                self.driver.on_administered(node_id, request_id)

    def _suspected(self, node_id: int, peer_id: int, what: str) -> None:
        """A node suspects a peer; where no peer lies and no disk forgets, that is a mistake of the node's own."""
        if self.is_attacked:
            self.trace.add(self.now_ms, node_id, f"suspects {peer_id}: {what}")
        is_sound = not self.is_attacked and not self.has_forgotten and not self.invariants.has_damaged
        if is_sound and not what.endswith(_OF_SOUND_PEERS):
            raise InvariantViolated(f"node {node_id} suspects node {peer_id}, which is sound: {what}")

    def _ask(self, host: Host, node_id: int, ask: SimulatedRequest) -> Exchange:
        host.requests = number = host.requests + 1
        exchange = Exchange(node_id, number, ask.peer_id, ask.kind, ask.timeout_ms, ask.request_id, ask.message)
        exchange.is_indirect = ask.is_indirect
        if host.view is not None and host.view.state == "Follower":
            exchange.asked_in = host.view.epoch
        self.exchanges[node_id, number] = host.waiting[number] = exchange
        return exchange

    def _done(self, node_id: int, done: Done) -> None:
        value = self._pending.pop(done.submit_id)
        del self.hosts[node_id].submitted[done.submit_id]
        if done.outcome is Outcome.COMMITTED:
            self.acknowledged += 1
            self.invariants.acknowledged(node_id, value if done.record is None else done.record, done.base_offset)
        elif done.outcome is Outcome.REFUSED:
            self.refused.append(value)


_PERFORM: Final[dict[type[Happening], Callable[[World, Any], bool]]] = {
    Start: World._start,
    Crash: World._crash,
    CrashSoon: World._crash_soon,
    Wipe: World._wipe,
    Move: World._move,
    Deliver: World._deliver,
    Return: World._return,
    RoundTrip: World._round_trip,
    Fail: World._fail,
    Flushed: World._flushed,
    Tick: World._tick,
    Submit: World._submit,
    Administer: World._administer,
    Intrude: World._intrude,
    Forge: World._forge,
    Resign: World._resign,
    SlowDown: World._slow_down,
    Act: World._act,
    ShutDown: World._shut_down,
    SetClock: World._set_clock,
    FailDisk: World._fail_disk,
    LimitDisk: World._limit_disk,
    DamageDisk: World._damage_disk,
    Note: World._note,
    Conclude: World._conclude,
}
