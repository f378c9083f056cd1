"""Describes a schedule moment by moment for a reader: each message with its sender and receiver, and the state of each
node.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from kraft.sim.nodes.workload_spec import WorkloadSpec
from kraft.sim.pictures.records import Records
from kraft.sim.search.schedule import Replayed, Schedule, replay
from kraft.sim.world.actions import (
    CALM,
    WORLD,
    Act,
    Action,
    Administer,
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
    Intrude,
    LimitDisk,
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
)
from kraft.sim.world.driver import Driver, Exchange
from kraft.sim.world.host import Host
from kraft.sim.world.trace import Trace
from kraft.sim.world.world import World

LOG_BATCHES: Final = 12
"""The number of batches of each log in a description, the last ones."""


class NodeState(Struct, frozen=True):
    """The state of a node. Unknown offsets are -1."""

    state: str
    epoch: int
    leader: int
    high_watermark: int
    flushed_offset: int
    log_end_offset: int
    vote: int | None
    """The id of the candidate with the node's vote in the epoch, by quorum-state."""
    log: tuple[tuple[int, int, int], ...]
    """The first offset, the offset after the last record, and the epoch of each of the last batches."""


class Moment(Struct, frozen=True):
    """One action, and the state of every node after it."""

    at_ms: int
    node: int
    what: str
    details: tuple[str, ...]
    """Changes of state, and further lines of the trace."""
    is_fault: bool
    nodes: dict[int, NodeState]


class Arrow(Struct, frozen=True):
    """A message, with the indexes of the moments at which it was sent and arrived; None if it never arrived."""

    sender: int
    receiver: int
    sent: int
    arrived: int | None
    what: str


class Execution(Struct, frozen=True):
    """The description of a whole schedule."""

    schedule: Schedule
    moments: tuple[Moment, ...]
    arrows: tuple[Arrow, ...]
    replayed: Replayed


def execution_of(schedule: Schedule, *, workload_spec: WorkloadSpec | None = None) -> Execution:
    """Replay a schedule and describe each moment.

    Args:
        schedule: The schedule.
        workload_spec: The state machine of the nodes, if not counters.

    Returns:
        The moments, the messages, and the result of the replay.

    Raises:
        BadSchedule: The kind of nodes is unknown.
    """
    trace = HeardTrace()
    notes = Notes(trace)
    replayed = replay(
        schedule,
        workload_spec=workload_spec,
        trace=trace,
        driver=notes,
        on_performed=notes.on_performed,
    )
    if (WORLD, CALM) in trace.heard:
        notes.on_calm(replayed.world, schedule.calm_ms)
    return Execution(schedule, tuple(notes.moments), tuple(notes.arrows()), replayed)


def execution_lines(execution: Execution) -> Iterator[str]:
    """The description as text, a line for each moment."""
    width = max((len(moment.what) for moment in execution.moments), default=0)
    names = {moment.node: "" if moment.node == WORLD else f"node {moment.node}" for moment in execution.moments}
    longest = max((len(name) for name in names.values()), default=0)
    for moment in execution.moments:
        where = names[moment.node].ljust(longest)
        now = moment.nodes.get(moment.node)
        state = "" if now is None else f"{now.state} {now.epoch} {now.high_watermark}/{now.log_end_offset}"
        details = "; ".join(moment.details)
        yield f"{moment.at_ms:>8} ms  {where}  {moment.what:<{width}}  {state:<22} {details}".rstrip()


class HeardTrace(Trace):
    """A trace that also keeps the lines since the last moment."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[tuple[int, str]] = []

    def add(self, now_ms: int, node_id: int, what: str) -> None:
        """Add a line for a node."""
        super().add(now_ms, node_id, what)
        self.heard.append((node_id, what))


class Notes(Driver):
    """Describes the moments of a replay."""

    def __init__(self, trace: HeardTrace) -> None:
        self._trace = trace
        self.moments: list[Moment] = []
        self._asked: dict[tuple[int, int], tuple[int, Exchange]] = {}
        self._answered: dict[tuple[int, int, int], tuple[int, Exchange]] = {}
        self._records = Records()
        self._delivered: dict[tuple[int, int], list[int]] = {}
        self._returned: dict[tuple[int, int, int], int] = {}

    def on_asked(self, exchange: Exchange) -> None:
        """A node has sent a request."""
        self._asked[exchange.sender, exchange.number] = (len(self.moments), exchange)

    def on_answered(self, exchange: Exchange, copy: int) -> None:
        """A node has answered a delivery."""
        self._answered[exchange.sender, exchange.number, copy] = (len(self.moments), exchange)

    def on_performed(self, world: World, action: Action) -> None:
        """The replay has performed an action."""
        place = len(self.moments)
        match action:
            case Deliver():
                self._delivered.setdefault((action.sender, action.number), []).append(place)
            case Return():
                self._returned[action.node, action.number, action.copy] = place
            case RoundTrip():
                asked = action.node, action.number
                self._delivered.setdefault(asked, []).append(place)
                copy = len(world.exchanges[asked].answers) - 1
                if (*asked, copy) in self._answered:
                    self._returned[*asked, copy] = place
            case _:
                pass
        changes = [one for one in self._trace.heard if "->" in one[1] or "crashes" in one[1]]
        details = tuple(
            what if node_id in (action.node, WORLD) else f"node {node_id}: {what}"
            for node_id, what in (*changes, *self._records.changes(world))
        )
        self._trace.heard.clear()
        is_fault = isinstance(action, _FAULTS)
        told = self._told(action, world)
        self.moments.append(Moment(action.at_ms, action.node, told, details, is_fault, _states_in(world)))

    def _told(self, action: Action, world: World) -> str:
        match action:
            case Administer():
                return self._records.request_of(action)
            case Deliver(sender=sender) | RoundTrip(node=sender) if action.kind == "Fetch":
                offsets = self._records.fetched(world.exchanges[sender, action.number].message)
                return f"{_told(action)} {offsets}".rstrip()
            case _:
                return _told(action)

    def on_calm(self, world: World, calm_ms: int) -> None:
        """All faults have ended, and this virtual time has passed."""
        what = f"all faults end, and {calm_ms} ms pass"
        self.moments.append(Moment(world.now_ms, WORLD, what, (), False, _states_in(world)))

    def arrows(self) -> Iterator[Arrow]:
        """All messages."""
        for name, (sent, exchange) in self._asked.items():
            for arrived in self._delivered.get(name, [None]):
                yield Arrow(exchange.sender, exchange.target, sent, arrived, exchange.kind)
        for (sender, number, copy), (sent, exchange) in self._answered.items():
            back = self._returned.get((sender, number, copy))
            yield Arrow(exchange.target, exchange.sender, sent, back, f"{exchange.kind} answered")


_FAULTS: Final = (Crash, CrashSoon, FailDisk, FillDirectory, LimitDisk, DamageDisk, Intrude, Forge, Corrupt)


def _told(action: Action) -> str:
    match action:
        case Start():
            return "starts"
        case Crash():
            return "crashes"
        case CrashSoon():
            return f"will crash before its operation {action.operations}"
        case Deliver():
            return f"{action.kind} from {action.sender}"
        case Return():
            return f"answer of {action.peer} to {action.kind}"
        case RoundTrip():
            return f"asks {action.peer}: {action.kind}"
        case Fail():
            return f"no answer of {action.peer} to {action.kind}: {action.cause}"
        case Flushed():
            return "has flushed"
        case Tick():
            return "looks at its clock"
        case Submit():
            return f"is handed {action.value}"
        case Read():
            return "is read"
        case HangUp():
            return f"loses the connection of {action.peer}"
        case Intrude():
            return f"gets a frame of an intruder: {action.what}"
        case Forge():
            return f"gets a forged answer of {action.peer}: {action.what}"
        case Corrupt():
            return f"the answer of {action.peer} to {action.kind} is corrupted"
        case Resign():
            return "is asked to resign"
        case SlowDown():
            return f"needs {action.record_us} us for a record"
        case Act():
            return "is done with its work"
        case ShutDown():
            return "is told to stop"
        case SetClock():
            return f"clock is {action.offset_ms:+} ms wrong"
        case FailDisk():
            return f"disk will fail at its operation {action.operations}"
        case LimitDisk():
            return "disk has room again" if action.free_bytes is None else f"disk has {action.free_bytes} bytes left"
        case FillDirectory():
            return f"disk of {action.path} is full" if action.path else "every directory has room again"
        case DamageDisk():
            return f"disk loses something: {action.what}"
        case Note():
            return action.text
        case _:
            return type(action).__name__


def _states_in(world: World) -> dict[int, NodeState]:
    return {node_id: _state_of(world, node_id, host) for node_id, host in world.hosts.items()}


def _state_of(world: World, node_id: int, host: Host) -> NodeState:
    known = world.invariants.observed(node_id)
    log = tuple((batch.base_offset, batch.next_offset, batch.epoch) for batch in known.log[-LOG_BATCHES:])
    election = host.member.stored_election()
    vote = None if election is None or election.voted is None else election.voted.id
    if not host.is_running:
        return NodeState("down", 0 if election is None else election.epoch, -1, -1, -1, known.end_offset, vote, log)
    view = host.member.view()
    offsets = view.high_watermark, view.flushed_offset, view.log_end_offset
    return NodeState(view.state, view.epoch, view.leader.leader_id, *offsets, vote, log)
