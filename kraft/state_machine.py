"""A state machine of the user's own on the replicated log: what one has to write, and what it is told.

Kafka's counterpart is `RaftClient.Listener`, which leaves to its user what stands here already: sessions that keep a
repeated command from being applied twice, snapshots, and reads that are never stale.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar, get_args, get_origin

import msgspec

C = TypeVar("C")
"""A command."""
R = TypeVar("R")
"""What applying a command returns."""


class Position(msgspec.Struct, frozen=True, order=True):
    """Where a command stands in the log, the same on every node; `timestamp_ms` is the clock of whoever led then."""

    offset: int
    epoch: int
    timestamp_ms: int


class Change(msgspec.Struct, Generic[C, R], frozen=True, gc=False):
    """A command that was applied, and what it returned."""

    at: Position
    command: C
    result: R


class Refused(Exception):
    """Raised by `StateMachine.apply`, before it has changed anything: `submit` raises the same to its caller.

    Any other exception of `apply` is a bug: it stops the node, and every other node at the same command.
    """


class StateMachine(ABC, Generic[C, R]):
    """A state, and what commands make of it. Every node has one of its own and applies the same commands in the same
    order, so everything here must depend on the state, the command and the position alone: no clock, no randomness, no
    files, no order of a set.

    `C` and `R` are types that msgspec can encode, such as a frozen `msgspec.Struct`, a tagged union of them, a
    dataclass or `int`. What `apply` returns must not be changed later on.
    """

    @abstractmethod
    def apply(self, command: C, at: Position) -> R:
        """Change the state and say what came of it, or raise `Refused`."""

    @abstractmethod
    def snapshot(self) -> bytes:
        """The whole state."""

    @abstractmethod
    def restore(self, data: bytes) -> None:
        """Take the state that `snapshot` returned, here or on another node, in place of this one."""

    def value(self) -> R:
        """What `read` returns where it is not told what to look at."""
        raise TypeError(f"{type(self).__name__} has no `value`: tell `read` what to look at")


class Codec(Generic[C, R]):
    """How the commands and results of a state machine stand in the log: MessagePack."""

    def __init__(self, machine: StateMachine[C, R]) -> None:
        """Raises `TypeError` where msgspec cannot encode the types that the machine's class names."""
        command, result = _types_of(type(machine))
        self.command_type: type[C] = command
        self._encoder = msgspec.msgpack.Encoder()
        self._commands: msgspec.msgpack.Decoder[C] = msgspec.msgpack.Decoder(command)
        self._results: msgspec.msgpack.Decoder[R] = msgspec.msgpack.Decoder(result)

    def encode(self, value: C | R) -> bytes:
        """The bytes of a command or a result; raises `TypeError` where msgspec has none for it."""
        return self._encoder.encode(value)

    def command(self, data: bytes) -> C:
        """The command; raises `msgspec.DecodeError`."""
        return self._commands.decode(data)

    def result(self, data: bytes) -> R:
        """The result; raises `msgspec.DecodeError`."""
        return self._results.decode(data)


def _types_of(machine: type[StateMachine[Any, Any]]) -> tuple[Any, Any]:
    """The types in `class Counter(StateMachine[Add, int])`."""
    for one in machine.__mro__:
        for base in one.__dict__.get("__orig_bases__", ()):
            if get_origin(base) is StateMachine:
                command, result = get_args(base)
                return command, result
    raise TypeError(f"{machine.__name__} does not say what it works on: derive it from StateMachine[Command, Result]")
