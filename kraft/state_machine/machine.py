"""The interface of a user's state machine on the replicated log.

Kafka's counterpart is `RaftClient.Listener`. Its users have to implement the parts that this package provides: sessions
that prevent a second application of a repeated command, snapshots, and linearizable reads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar, get_args, get_origin

import msgspec

C = TypeVar("C")
"""A command."""
R = TypeVar("R")
"""The result of a command."""


class Position(msgspec.Struct, frozen=True, order=True):
    """The position of a command in the log, equal on each node.

    `timestamp_ms` is the leader's clock at the append, in milliseconds since 1970.
    """

    offset: int
    epoch: int
    timestamp_ms: int


class Change(msgspec.Struct, Generic[C, R], frozen=True, gc=False):
    """An applied command with its position and its result."""

    at: Position
    command: C
    result: R


class CommandRefused(Exception):
    """A refused command. `StateMachine.apply` raises this exception before any change, and `submit` raises it again.

    Any other exception from `apply` is a bug, which stops this node, and each other node at the same command.
    """


class StateMachine(ABC, Generic[C, R]):
    """A deterministic state machine, which subclasses implement.

    Each node has its own instance and applies the same commands in the same order. The methods must therefore depend
    only on the state, the command and the position: no clock, no randomness, no files, no iteration over a set.

    `C` (the command) and `R` (the result) are types that msgspec can encode, such as a frozen `msgspec.Struct`, a
    tagged union of structs, a dataclass or `int`. A result must not be changed after `apply` has returned it.
    """

    @abstractmethod
    def apply(self, command: C, at: Position) -> R:
        """Apply a command to the state.

        Args:
            command: The committed command.
            at: The position of the command in the log.

        Returns:
            The result, which `submit` returns to its caller.

        Raises:
            CommandRefused: The command is invalid in this state; the state is unchanged.
        """

    @abstractmethod
    def snapshot(self) -> bytes:
        """Encode the whole state.

        Returns:
            The bytes for `restore`.
        """

    @abstractmethod
    def restore(self, data: bytes) -> None:
        """Replace the state.

        Args:
            data: The bytes that `snapshot` returned on this or another node.
        """

    log_kind: str = "a state machine"
    """The content of the log. The directory of a node keeps it, so that no other kind of log is taken for this one."""

    tick_ms: int = 0
    """How often the leader calls `tick`, in milliseconds; 0 for never."""

    def tick(self) -> C | None:
        """A command that the leader submits by itself, so that time passes in the log though nobody writes; or None.

        `apply` gets the leader's clock with it, and all nodes get the same.
        """
        return None

    def value(self) -> R:
        """The result of `read` without a query.

        Raises:
            TypeError: The subclass does not define this method.
        """
        raise TypeError(f"{type(self).__name__} has no `value`: tell `read` what to look at")


class Codec(Generic[C, R]):
    """Encodes the commands and results of a state machine in MessagePack."""

    def __init__(self, machine: StateMachine[C, R]) -> None:
        """Raises `TypeError` if msgspec cannot encode the type arguments of the machine's class."""
        command, result = _types_of(type(machine))
        self.command_type: type[C] = command
        self._encoder = msgspec.msgpack.Encoder()
        self._commands: msgspec.msgpack.Decoder[C] = msgspec.msgpack.Decoder(command)
        self._results: msgspec.msgpack.Decoder[R] = msgspec.msgpack.Decoder(result)

    def encode(self, value: C | R) -> bytes:
        """The bytes of a command or a result; raises `TypeError` if msgspec cannot encode the value."""
        return self._encoder.encode(value)

    def command(self, data: bytes) -> C:
        """Decode a command; raises `msgspec.DecodeError`."""
        return self._commands.decode(data)

    def result(self, data: bytes) -> R:
        """Decode a result; raises `msgspec.DecodeError`."""
        return self._results.decode(data)


def _types_of(machine: type[StateMachine[Any, Any]]) -> tuple[Any, Any]:
    """The type arguments, as in `class Counter(StateMachine[Add, int])`."""
    for one in machine.__mro__:
        for base in one.__dict__.get("__orig_bases__", ()):
            if get_origin(base) is StateMachine:
                command, result = get_args(base)
                return command, result
    raise TypeError(f"{machine.__name__} does not say what it works on: derive it from StateMachine[Command, Result]")
