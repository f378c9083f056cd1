"""A node that hosts a small state machine, and clients that count with it (Kafka: `ReplicatedCounter` of its
simulation).

What a client asks for is a line of text: `add KEY CLIENT NUMBER` counts one up, in the session of a client that may
ask the same of another node, too; `add KEY` does in the session of the node; `read KEY` only looks.
"""

from __future__ import annotations

from random import Random
from typing import Final

from msgspec import Struct
from msgspec.msgpack import decode, encode

from kraft.replica import events as replica_events
from kraft.replica.events import Call, Returned
from kraft.replica.machine_calls import OpenCall, SubmitCall
from kraft.replica.machine_host import MachineHost, ReadCall, ReadReady, host_state_machine
from kraft.replica.machine_log import Opened, Result, Superseded
from kraft.sim.member import Done, Outcome, Output
from kraft.sim.replica_member import ReplicaMember
from kraft.state_machine import Position, StateMachine

FOREVER_MS: Final = 2**62
"""How long sessions live here, where clocks may jump by hours."""


class Count(Struct, frozen=True):
    """Count a key up; `why` is the line that asked for it."""

    key: str
    why: str


class Counts(StateMachine[Count, int]):
    """How often each key was counted."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def apply(self, command: Count, at: Position) -> int:
        """Count up; the number that this comes to."""
        self.counts[command.key] = count = self.counts.get(command.key, 0) + 1
        return count

    def snapshot(self) -> bytes:
        """The counts."""
        return encode(self.counts)

    def restore(self, data: bytes) -> None:
        """Take counts."""
        self.counts = decode(data, type=dict[str, int])


host_counts: Final = host_state_machine(Counts, session_ttl_ms=FOREVER_MS)
"""The factory of a state machine that counts."""


class MachineMember(ReplicaMember):
    """A `ReplicaMember` that hosts `Counts`. A submission may be answered many steps after it was taken."""

    _lines: dict[int, str]
    """What is under way in this life, by the ids of the calls."""

    def start(self, rng: Random, now_ms: int) -> list[Output]:
        """Begin a life with what is on disk."""
        self._lines = {}
        return super().start(rng, now_ms)

    @property
    def host(self) -> MachineHost:
        """The application of this life."""
        application = self.replica.application
        assert isinstance(application, MachineHost), application
        return application

    @property
    def counts(self) -> dict[str, int]:
        """The state of this life."""
        machine = self.host.machine
        assert isinstance(machine, Counts), machine
        return machine.counts

    def submit(self, submit_id: int, value: bytes, now_ms: int) -> list[Output]:
        """Do what a line says."""
        line = value.decode()
        match line.split():
            case ["read", _]:
                return self._call(submit_id, line, ReadCall(), now_ms)
            case ["add", key]:
                return self._call(submit_id, line, SubmitCall(encode(Count(key, line))), now_ms)
            case ["add", _, client, _]:
                return self._call(submit_id, line, OpenCall(client), now_ms)
        raise AssertionError(f"nobody can do {line!r}")

    def _call(self, submit_id: int, line: str, ask: Struct, now_ms: int) -> list[Output]:
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
        submit_id = returned.call_id // 2
        _, key, *numbered = line.split()
        match returned.outcome:
            case ReadReady():
                return [Done(submit_id, Outcome.UNKNOWN, answer=self.counts.get(key, 0))]
            case Opened(session=session):
                command = SubmitCall(encode(Count(key, line)), session, int(numbered[1]))
                return self._call(submit_id, line, command, now_ms)
            case Result(result=result):
                return [Done(submit_id, Outcome.COMMITTED, answer=decode(result, type=int))]
            case Superseded():
                return [Done(submit_id, Outcome.UNKNOWN)]
        raise AssertionError(f"{line!r} comes to {returned.outcome}")
