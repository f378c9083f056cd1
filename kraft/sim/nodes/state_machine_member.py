"""A node that hosts the state machine of a `WorkloadSpec`, and the requests of its clients
(Kafka: `ReplicatedCounter` of its simulation).

A line that ends with ` | CLIENT NUMBER` belongs to the session of a client, which may send the same request to another
node, too. Any other line belongs to the session of the node.
"""

from __future__ import annotations

from random import Random
from typing import Any, Final

from msgspec import Struct
from msgspec.msgpack import decode, encode

from kraft.calls import Call, Returned
from kraft.process.hosting import host_state_machine
from kraft.process.parts import Input as ProcessInput
from kraft.replica.interface import events as replica_events
from kraft.sim.nodes.client_sessions import FOREVER_MS, ClientSessions
from kraft.sim.nodes.replica_member import ReplicaMember
from kraft.sim.nodes.workload_spec import READ, READS, REFUSED, WorkloadSpec
from kraft.sim.world.member_interface import Done, Output, WriteOutcome
from kraft.state_machine import Codec, Position, StateMachine
from kraft.state_machine.calls import MaybeApplied, OpenCall, SubmitCall
from kraft.state_machine.log import Command, Expired, Opened, Refusal, Result, Superseded, decode_entry
from kraft.state_machine.server import ReadCall, ReadReady, StateMachineServer

KEYS: Final = 3
SEPARATOR: Final = " | "
RESUMED: Final = 3
"""Before one of so many commands a client asks a node for its session anew, as after a restart of the client."""


class Count(Struct, frozen=True):
    """Increment the count of a key."""

    key: str


class Counts(StateMachine[Count, int]):
    """A state machine with one count for each key."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def apply(self, command: Count, at: Position) -> int:
        """Increment the count of the key and return the count."""
        self.counts[command.key] = count = self.counts.get(command.key, 0) + 1
        return count

    def snapshot(self) -> bytes:
        """The counts."""
        return encode(self.counts)

    def restore(self, data: bytes) -> None:
        """Replace the counts."""
        self.counts = decode(data, type=dict[str, int])


def _draw(rng: Random) -> str:
    key = f"k{rng.randrange(KEYS)}"
    return f"{READ} {key}" if rng.random() < READS else f"add {key}"


def _step(state: int, line: str) -> tuple[int, int]:
    """The model of one key for the check of linearizability."""
    return (state, state) if line.startswith(READ) else (state + 1, state + 1)


def _key(line: str) -> str:
    return line.split()[1]


COUNTS: Final = WorkloadSpec(
    make=Counts,
    draw=_draw,
    command=lambda line: Count(_key(line)),
    look=lambda machine, line: machine.counts.get(_key(line), 0),
    initial=0,
    step=_step,
    key=_key,
)
"""Counters by key: `add KEY`, `read KEY`."""


class Line(Struct, frozen=True):
    """A request and its session: that of a client, with the sequence number of the command, or that of the node."""

    ask: str
    client: str | None = None
    number: int = 0

    @staticmethod
    def parse(text: str) -> Line:
        """Parse the text that `str` returns."""
        ask, separator, session = text.rpartition(SEPARATOR)
        if not separator:
            return Line(text)
        client, _, number = session.rpartition(" ")
        return Line(ask, client, int(number))

    def __str__(self) -> str:
        return self.ask if self.client is None else f"{self.ask}{SEPARATOR}{self.client} {self.number}"

    @property
    def is_read(self) -> bool:
        """Whether the request is a read."""
        return self.ask.startswith(READ)


class StateMachineMember(ReplicaMember):
    """A `ReplicaMember` that hosts the machine of a workload specification. An answer may come many steps later."""

    def __init__(
        self,
        node_id: int,
        *,
        workload_spec: WorkloadSpec,
        clients: ClientSessions,
        lifetime_ms: int = FOREVER_MS,
        **given: Any,
    ) -> None:
        """`clients` are those of all nodes of the run; a session that is not used for `lifetime_ms` expires."""
        super().__init__(
            node_id, application=host_state_machine(workload_spec.make, session_ttl_ms=lifetime_ms), **given
        )
        self._workload_spec = workload_spec
        self._clients = clients
        self._codec = Codec(workload_spec.make())
        self._lines: dict[int, Line] = {}
        """The pending calls since the last start, by id."""
        self._own: dict[int, tuple[int, int]] = {}
        """The session and the number of the pending commands in the node's own session, by the id of the call."""

    def start(self, rng: Random, now_ms: int) -> list[Output]:
        """Start the node with the content of its disk."""
        self._lines, self._own = {}, {}
        return super().start(rng, now_ms)

    def step(self, event: ProcessInput, now_ms: int) -> list[Output]:
        """Hand an event to the replica. A command that the step ends has had its number before."""
        for call_id, pending in self.host._calls._pending.items():
            if pending.is_own:
                self._own[call_id] = pending.session, pending.sequence
        return super().step(event, now_ms)

    def is_record_of(self, record: bytes, submission: bytes) -> bool:
        """Whether a committed record is the command of a session with that number."""
        entry = decode_entry(record)
        return isinstance(entry, Command) and _identity(entry.session, entry.sequence, entry.command) == submission

    @property
    def host(self) -> StateMachineServer:
        """The application since the last start."""
        application = self.process.application
        assert isinstance(application, StateMachineServer), application
        return application

    def submit(self, submit_id: int, value: bytes, now_ms: int) -> list[Output]:
        """Send the request of a line."""
        line = Line.parse(value.decode())
        if line.is_read:
            return self._call(submit_id, line, ReadCall(), now_ms)
        if line.client is None:
            return self._call(submit_id, line, SubmitCall(self._command(line)), now_ms)
        session = self._clients.id_of(line.client)
        if session is None or line.number % RESUMED == 0:
            return self._call(submit_id, line, OpenCall(line.client), now_ms)
        return self._call(submit_id, line, SubmitCall(self._command(line), session, line.number), now_ms)

    def _command(self, line: Line) -> bytes:
        return self._codec.encode(self._workload_spec.command(line.ask))

    def _call(self, submit_id: int, line: Line, ask: Struct, now_ms: int) -> list[Output]:
        call_id = 2 * submit_id + isinstance(ask, SubmitCall)
        self._lines[call_id] = line
        return self.step(Call(call_id, ask), now_ms)

    def _translate(self, outputs: list[replica_events.Output], now_ms: int) -> list[Output]:
        translated = super()._translate(outputs, now_ms)
        for output in outputs:
            if isinstance(output, Returned):
                translated += self._returned(output, now_ms)
        return translated

    def _returned(self, returned: Returned, now_ms: int) -> list[Output]:
        line = self._lines.pop(returned.call_id)
        submit_id, own = returned.call_id // 2, self._own.pop(returned.call_id, None)
        match returned.outcome:
            case ReadReady():
                seen = self._workload_spec.look(self.host.machine, line.ask)
                return [Done(submit_id, WriteOutcome.UNKNOWN, answer=(seen,))]
            case Opened(session=session) if not self._clients.opened(line.client or "", session):
                return [Done(submit_id, WriteOutcome.UNKNOWN)]
            case Opened(session=session):
                command = SubmitCall(self._command(line), session, line.number)
                return self._call(submit_id, line, command, now_ms)
            case Result(result=result):
                return [self._done(submit_id, line, own, self._codec.result(result))]
            case Refusal(why=why):
                return [self._done(submit_id, line, own, (REFUSED, why))]
            case Expired() if line.client is not None:
                self._clients.expired(line.client)
                return [Done(submit_id, WriteOutcome.UNKNOWN)]
            case MaybeApplied():
                return [Done(submit_id, WriteOutcome.UNKNOWN)]
            case Superseded() if line.client is not None:
                return [Done(submit_id, WriteOutcome.UNKNOWN)]
        raise AssertionError(f"{line} comes to {returned.outcome}")

    def _done(self, submit_id: int, line: Line, own: tuple[int, int] | None, answer: Any) -> Done:
        session, number = own or (None, 0)
        if line.client is not None:
            session, number = self._clients.id_of(line.client), line.number
        assert session is not None, f"{line} has a result and no session"
        record = _identity(session, number, self._command(line))
        return Done(submit_id, WriteOutcome.COMMITTED, answer=(answer,), record=record)


def _identity(session: int, number: int, command: bytes) -> bytes:
    """Bytes that differ between any two commands of a run."""
    return encode((session, number, command))
