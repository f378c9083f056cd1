"""Performs actions on a simulated quorum one at a time, and checks the invariants after each of them
(Kafka: the `Cluster` of `RaftEventSimulationTest`).

The world draws nothing and chooses nothing: a `Driver` does. The same actions produce the same history with every
driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Final

from kraft.broker import NoLogDirectory
from kraft.invariants.observation import Applied, View
from kraft.invariants.violation import InvariantViolated
from kraft.sim.world import inputs, node_faults
from kraft.sim.world.actions import (
    CALM,
    Act,
    Action,
    Administer,
    Conclude,
    Corrupt,
    Crash,
    CrashSoon,
    DamageDisk,
    Deliver,
    Fail,
    FailDisk,
    FillDirectory,
    Flushed,
    Forge,
    HangUp,
    Happening,
    Intrude,
    LimitDisk,
    Move,
    Note,
    Read,
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
from kraft.sim.world.driver import Exchange
from kraft.sim.world.host import Held, Host
from kraft.sim.world.inputs import Input
from kraft.sim.world.member_interface import (
    STRANGERS,
    Administered,
    Answer,
    Changed,
    Corrupted,
    Crashed,
    Done,
    Flush,
    Output,
    PeerFaultReported,
    ReadAnswered,
    SimulatedRequest,
    WriteOutcome,
)
from kraft.sim.world.read_watch import UncheckedReads
from kraft.sim.world.signs_of_life import UncheckedSigns
from kraft.sim.world.simulated_quorum import DAMAGE_SHOWS_MS, STUCK_MS, SimulatedQuorum
from kraft.sim.world.unchecked import NoCheckQuorum, Unchecked
from metadata_log.errors import MetadataLogError
from metadata_log.types import NO_NODE

_SOUGHT: Final = {"Prospective": "pre-votes", "Candidate": "votes"}
"""The messages that a node in this state needs from the other voters."""


def waits(world: SimulatedQuorum, target: int) -> list[str]:
    """Say what the parts of a quorum that have not settled wait for: nodes for other nodes, the high watermark for
    voters, and clients for nodes. Every node has to know everything below `target` as committed.
    """
    nodes = [text for node_id, host in world.hosts.items() if (text := _of_node(world, node_id, host, target))]
    watched = "" if world.watch is None else world.watch.unsettled(world)
    return [*nodes, *_of_submissions(world), *([watched] if watched else [])]


def _of_node(world: SimulatedQuorum, node_id: int, host: Host, target: int) -> str:
    view = host.view
    if not host.is_running or view is None:
        is_held_back = world.disk_losses.is_damaged(node_id) and not world.may_start(node_id)
        return f"node {node_id} is down" + (
            ", and waits for a quorum that bears the loss on its disk" if is_held_back else ""
        )
    waits = [_for_leader(world, node_id, view), _for_commits(world, node_id, view, target)]
    told = " and ".join(filter(None, waits))
    under_way = ", ".join(f"{one.kind} to node {one.target}" for one in host.waiting.values())
    asked = f" (requests without an answer: {under_way})" if told and under_way else ""
    return f"node {node_id} {told}{asked}" if told else ""


def _for_leader(world: SimulatedQuorum, node_id: int, view: View) -> str:
    place = f"({view.state} in epoch {view.epoch})"
    if view.state in _SOUGHT:
        others = [one for one in world.invariants.voters_of(node_id).ids if one != node_id]
        return f"{place} waits for {_SOUGHT[view.state]} of the voters {_listed(others)}"
    leader_id = view.leader.leader_id
    if leader_id == NO_NODE:
        return f"{place} waits for a leader"
    leader = world.hosts.get(leader_id)
    known = None if leader is None or not leader.is_running else leader.view
    if known is None:
        return f"{place} waits for its leader, node {leader_id}, which is down"
    if known.state != "Leader" or known.epoch != view.epoch:
        return f"{place} waits for its leader, node {leader_id}, which is {known.state} in epoch {known.epoch}"
    return ""


def _for_commits(world: SimulatedQuorum, node_id: int, view: View, target: int) -> str:
    if view.high_watermark >= target:
        return ""
    known = f"has the high watermark {view.high_watermark}, below {target}"
    if view.state != "Leader":
        return f"{known}, and waits for node {view.leader.leader_id}" if view.leader.leader_id != NO_NODE else known
    behind = [
        f"{voter_id} (flushed to {world.invariants.observed(voter_id).flushed_offset})"
        for voter_id in world.invariants.voters_of(node_id).ids
        if world.invariants.observed(voter_id).flushed_offset < min(target, view.log_end_offset)
    ]
    if view.log_end_offset < target:
        return f"{known}, and waits for submissions: its log ends at {view.log_end_offset}"
    return f"{known}, and waits for the voters {', '.join(behind) or 'none: all have flushed its log'}"


def _of_submissions(world: SimulatedQuorum) -> Iterator[str]:
    stuck = world.stuck()
    for node_id in sorted({node_id for node_id, _ in stuck}):
        ids = [submit_id for one, submit_id in stuck if one == node_id]
        what = f"submission {ids[0]} waits" if len(ids) == 1 else f"submissions {_listed(ids)} wait"
        yield f"{what} for node {node_id} since more than {STUCK_MS} ms"


def _listed(ids: list[int]) -> str:
    return ", ".join(map(str, ids)) or "none"


_OF_SOUND_PEERS: Final = (
    "or the Fetch arrived after its deadline",
    "with no known address",
    "it calls our request invalid",
)
"""The endings of reported faults that a correct peer can cause: a Fetch overtaken by later ones; the resignation of a
leader that the node does not know, and the response to that.
"""


class NodeEnded(AssertionError):
    """A frame from the network has ended a node, which violates the guarantee that no frame does so."""


class NoProgress(AssertionError):
    """The quorum made no progress after the end of all faults."""


class World(SimulatedQuorum):
    """A simulated quorum to which actions happen."""

    def demand_only_survival(self) -> None:
        """Check only that no node ends: forged messages may be indistinguishable from correct ones."""
        voters = self.invariants.voter_sets()[-1]
        self.invariants, self.check_quorum, self.watch = Unchecked(voters), NoCheckQuorum(0), None
        self.is_attacked, self.signs, self.reads = True, UncheckedSigns(0), UncheckedReads()

    def perform(self, action: Action) -> bool:
        """Perform an action; returns False if its subject does not exist, such as a request or a running node.

        Raises `InvariantViolated`, `NodeEnded` after a message of an attacker, `NoProgress` if a `Conclude` requires
        some, and the `AssertionError` of a node.
        """
        at_ms = action.at_ms
        self.now_ms = at_ms if at_ms > self.now_ms else self.now_ms
        kind = type(action)
        find_input = _INPUTS.get(kind)
        if find_input is None:
            return _PERFORM[kind](self, action)
        given = find_input(self, action)
        if given is None:
            return False
        return self._step_over_hostile(given) if given.is_hostile else self._step(given)

    # Lives

    def _start(self, action: Start) -> bool:
        host = self.hosts[action.node]
        if host.is_running or not self.may_start(action.node):
            return False
        host.life += 1
        host.is_running = True
        host.clock_offset_ms, host.clock_set_ms = action.clock_offset_ms, self.now_ms
        self.events += 1
        lost = self.must_refuse(action.node)
        try:
            outputs = host.member.start(Random(action.seed), host.clock_ms(self.now_ms))
        except (Crashed, OSError, MetadataLogError) as failure:
            self._die(host, "start", failure)
            return True
        if lost:
            raise InvariantViolated(f"node {action.node} has started, though its disk is damaged: {lost}")
        view = self.invariants.started(host.member, is_damaged=self.disk_losses.is_damaged(action.node))
        self.disk_losses.end(action.node)
        if self.invariants.nodes.was_damaged(action.node) and not host.member.damaged_files():
            self.invariants.nodes.healed(action.node)
            self.damage_until_ms[action.node] = self.now_ms + DAMAGE_SHOWS_MS
        if self.watch is not None:
            self.watch.started(host.member, self)
        self._settle(host, view, outputs, "started")
        return True

    def _die(self, host: Host, what: str, failure: Crashed | OSError | MetadataLogError) -> None:
        """A node has died within a step. Raises the failure again if no injected fault explains the failure."""
        node_id = host.member.node_id
        losses = self.disk_losses
        is_failing = isinstance(failure, OSError) and (host.is_disk_failing or host.is_disk_limited)
        if isinstance(failure, NoLogDirectory):  # a later step may notice the failed directories
            is_failing = host.is_disk_failing or host.was_disk_limited
        is_expected = isinstance(failure, Crashed) or is_failing or losses.is_damaged(node_id)
        if not is_expected:
            assert not isinstance(failure, Crashed), failure
            if not self.is_explained(node_id, failure):
                raise failure
            # The node did not detect this damage at its start. The operator replaces the disk if the quorum bears that.
            if losses.is_bearable(node_id):
                losses.damage(node_id)
        self.trace.add(self.now_ms, node_id, f"{what}: {type(failure).__name__} {failure}")
        self.invariants.interrupted(node_id)
        node_faults.end_life(self, host, host.crash_seed)
        self.driver.on_died(node_id)

    def _round_trip(self, action: RoundTrip) -> bool:
        at_ms, sender, target, number, kind = action.at_ms, action.node, action.peer, action.number, action.kind
        if not self.perform(Deliver(at_ms, target, sender, number, kind)):
            return False
        copy = len(self.exchanges[sender, number].answers) - 1
        self.perform(Return(at_ms, sender, target, number, copy, kind))
        return True

    def _corrupt(self, action: Corrupt) -> bool:
        """Corrupt a response that is on its way. Every copy of the response arrives so."""
        exchange = self.exchanges.get((action.node, action.number))
        if exchange is None or exchange.is_settled or action.copy >= len(exchange.answers):
            return False
        message = exchange.answers[action.copy]
        if message is None or isinstance(message, Corrupted):
            return False
        corruption = self.hosts[action.node].member.corrupted(message, Random(action.seed))
        if corruption is None:
            return False
        exchange.answers[action.copy] = corruption
        self.trace.add(self.now_ms, action.node, f"answer of {action.peer} corrupted: {corruption.what}")
        return True

    # Steps

    def _step_over_hostile(self, given: Input) -> bool:
        """Let a node take a step over a message of an attacker; `NodeEnded` if it ends the node."""
        try:
            return self._step(given)
        except InvariantViolated:
            raise
        except Exception as failure:
            node_id = given.host.member.node_id
            text = f"node {node_id} ends over {given.what}: {type(failure).__name__}: {failure}"
            raise NodeEnded(text).with_traceback(failure.__traceback__) from failure

    def _step(self, given: Input) -> bool:
        """Let a node take a step over an input, if the node is running and not busy."""
        host, what = given.host, given.what
        if not host.is_running or host.held is not None:
            return False
        self.events += 1
        clock_ms = host.clock_ms(self.now_ms)
        try:
            outputs = given.step(*given.arguments, clock_ms)
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
                    self.signs.pre_granted(host.member, host.view, host.clock_ms(self.now_ms))
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
            case ReadAnswered(read_id=read_id, offset=offset):
                assert host.view is not None, node_id
                self.reads.answered(node_id, read_id, offset, host.view)
            case Administered(request_id=request_id):
                del host.administered[request_id]
                self.driver.on_administered(node_id, request_id)

    def _suspected(self, node_id: int, peer_id: int, what: str) -> None:
        """A node reports a fault of a peer. Without hostile messages and lost data, such a report is wrong."""
        if self.is_attacked:
            self.trace.add(self.now_ms, node_id, f"suspects {peer_id}: {what}")
        shows_damage = self.may_show_damage(node_id) or self.may_show_damage(peer_id)
        shows_damage = shows_damage or self.was_corrupted(node_id, peer_id)
        is_sound = not self.is_attacked and not self.has_forgotten and not shows_damage
        if is_sound and not what.endswith(_OF_SOUND_PEERS):
            raise InvariantViolated(f"node {node_id} reports a fault of node {peer_id}, which has none: {what}")

    def _ask(self, host: Host, node_id: int, ask: SimulatedRequest) -> Exchange:
        host.requests = number = host.requests + 1
        exchange = Exchange(node_id, number, ask.peer_id, ask.kind, ask.timeout_ms, ask.request_id, ask.message)
        exchange.is_indirect, exchange.is_of_quorum = ask.is_indirect, ask.is_of_quorum
        if host.view is not None and host.view.state == "Follower":
            exchange.asked_in = host.view.epoch
        self.exchanges[node_id, number] = host.waiting[number] = exchange
        return exchange

    def _done(self, node_id: int, done: Done) -> None:
        value = self.submissions.pop(done.submit_id)
        del self.hosts[node_id].submitted[done.submit_id]
        if done.outcome is WriteOutcome.COMMITTED:
            self.acknowledged += 1
            submission = value if done.record is None else done.record
            member = self.hosts[node_id].member
            self.invariants.acknowledged(node_id, submission, done.base_offset, member.is_record_of)
        elif done.outcome is WriteOutcome.REFUSED:
            self.refused.append(value)
        if self.driver.on_done is not None:
            self.driver.on_done(node_id, value, done.outcome)

    # The end of a run

    def _note(self, action: Note) -> bool:
        self.trace.add(self.now_ms, action.node, action.text)
        self.is_calm = self.is_calm or action.text == CALM
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
            raise NoProgress(f"no progress to offset {target} by {self.now_ms} ms: {'; '.join(waits(self, target))}")
        return True


_INPUTS: Final[dict[type[Happening], Callable[[SimulatedQuorum, Any], Input | None]]] = {
    Deliver: inputs.deliver,
    Return: inputs.reply,
    Fail: inputs.fail,
    Flushed: inputs.flushed,
    Tick: inputs.tick,
    Submit: inputs.submit,
    Read: inputs.read,
    Administer: inputs.administer,
    HangUp: inputs.hang_up,
    Intrude: inputs.intrude,
    Forge: inputs.forge,
    Resign: inputs.resign,
    ShutDown: inputs.shut_down,
}
"""The actions that are an input of one node, which takes a step."""
_PERFORM: Final[dict[type[Happening], Callable[[World, Any], bool]]] = {
    Start: World._start,
    RoundTrip: World._round_trip,
    Corrupt: World._corrupt,
    Act: World._act,
    Note: World._note,
    Conclude: World._conclude,
    Crash: node_faults.crash,
    CrashSoon: node_faults.crash_soon,
    Wipe: node_faults.wipe,
    Move: node_faults.move,
    SlowDown: node_faults.slow_down,
    SetClock: node_faults.set_clock,
    FailDisk: node_faults.fail_disk,
    FillDirectory: node_faults.fill_directory,
    LimitDisk: node_faults.limit_disk,
    DamageDisk: node_faults.damage_disk,
}
"""All other actions."""
