"""The workload of a state machine in the simulator: the requests of its clients, and the check of the responses.

A request of a client is a line of text, as in schedules and traces. `workload_spec_of` makes a specification from a
state machine alone: its commands are JSON, and the machine is its own specification.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from copy import deepcopy
from random import Random
from typing import Any, Final, TypeVar
from zlib import crc32

import msgspec
from msgspec import Struct

from kraft.state_machine import Codec, CommandRefused, Position, StateMachine

C = TypeVar("C")
READ: Final = "read"
"""The first word of the line of a read."""
READS: Final = 0.45
"""The default share of reads in the workload of `workload_spec_of`."""
REFUSED: Final = "refused"
"""The first element of the answer to a refused command."""
_NOWHERE: Final = Position(offset=0, epoch=0, timestamp_ms=0)


class WorkloadSpec(Struct, frozen=True, kw_only=True):
    """A state machine, the requests of its clients, and the specification of the answers.

    A run with such a workload checks that the answers are linearizable. `workload_spec_of` makes a specification from
    the state machine alone.
    """

    make: Callable[[], StateMachine[Any, Any]]
    """Makes a machine in its initial state, such as its class."""
    draw: Callable[[Random], str]
    """Draws the line of the next request."""
    command: Callable[[str], Any]
    """The command of a line that is not a read."""
    look: Callable[[Any, str], Any]
    """The answer of a machine to the line of a read."""
    initial: Hashable
    """The initial state of the specification."""
    step: Callable[[Any, str], tuple[Any, Any]]
    """The specification: from a state and a line to the new state and the answer, as for `linearizability.check`."""
    key: Callable[[str], Hashable] = lambda line: None
    """The key of a line. Lines of different keys do not affect each other."""


def workload_spec_of(
    make: Callable[[], StateMachine[C, Any]],
    draw_command: Callable[[Random], C],
    *,
    look: Callable[[Any], Any] | None = None,
    reads: float = READS,
) -> WorkloadSpec:
    """Make a workload specification of a state machine, with random commands.

    The machine is its own specification: the responses to clients must equal those of one machine, which never restores
    a snapshot, in some order of the requests. So the result of `apply` must not depend on the offset of a command.

    Args:
        make: Makes a machine in its initial state, such as its class.
        draw_command: Draws a command.
        look: The result of a read; by default that of the machine's `value`.
        reads: The share of reads among the requests, from 0 to 1.

    Returns:
        The specification, for `run`.
    """
    codec = Codec(make())
    lines = msgspec.json.Decoder(codec.command_type)
    looked = look or (lambda machine: machine.value())

    def draw(rng: Random) -> str:
        if rng.random() < reads:
            return READ
        return msgspec.json.encode(draw_command(rng)).decode()

    def step(state: _State, line: str) -> tuple[_State, Any]:
        if line == READ:
            return state, looked(state.machine)
        machine = deepcopy(state.machine)
        try:
            result = machine.apply(lines.decode(line), _NOWHERE)
        except CommandRefused as refused:
            return state, (REFUSED, str(refused))
        return _State(machine), codec.result(codec.encode(result))

    return WorkloadSpec(
        make=make,
        draw=draw,
        command=lines.decode,
        look=lambda machine, line: looked(machine),
        initial=_State(make()),
        step=step,
    )


class _State:
    """A machine as an immutable state; two states are equal if the snapshots of their machines are."""

    def __init__(self, machine: StateMachine[Any, Any]) -> None:
        self.machine = machine
        self._data = machine.snapshot()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _State) and other._data == self._data

    def __hash__(self) -> int:
        return crc32(self._data)
