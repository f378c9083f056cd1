"""The formats of the log, the snapshots and the envelopes of a quorum that hosts a user's state machine.

MessagePack, arrays with a tag in front. Every node must read the same from it: the meaning of a tag never changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from kraft.limits import MACHINE_PIECE_BYTES
from metadata_log.errors import CorruptBatch

T = TypeVar("T")


class OpenSession(Struct, frozen=True, array_like=True, tag=0):
    """A client begins, or goes on; `attempt` tells this attempt from others of the same client."""

    client: str
    attempt: str
    ttl_ms: int


class Command(Struct, frozen=True, array_like=True, tag=1):
    """The command with this number in its session. Of those below `acknowledged` the client wants to know nothing."""

    session: int
    sequence: int
    acknowledged: int
    command: bytes


Entry = OpenSession | Command


class Opened(Struct, frozen=True, array_like=True, tag=0):
    """The session, identified by the offset of its first entry, and the highest number of a command in it."""

    session: int
    last_sequence: int


class Result(Struct, frozen=True, array_like=True, tag=1):
    """The command was applied, now or before, with this result."""

    result: bytes


class Refusal(Struct, frozen=True, array_like=True, tag=2):
    """The state machine refused the command."""

    why: str


class Expired(Struct, frozen=True, array_like=True, tag=3):
    """There is no such session any more: the command was not applied, by this entry."""


class Superseded(Struct, frozen=True, array_like=True, tag=4):
    """The client has said already that it knows what came of the command, or its numbers are too far apart."""


Kept = Result | Refusal
"""The outcome of a command that a session keeps, for a client that asks again."""
Outcome = Opened | Result | Refusal | Expired | Superseded


class SessionState(Struct, array_like=True):
    """One session, as it stands in a snapshot, too."""

    id: int
    client: str
    ttl_ms: int
    touched_ms: int
    """The time of the last use, by the clock of the log."""
    acknowledged: int
    last_sequence: int
    kept: dict[int, Kept]


class StateMachineSnapshot(Struct, frozen=True, array_like=True, tag=0):
    """The clock of the log, the sessions, those first that have been silent for longest, and the user's state."""

    now_ms: int
    sessions: tuple[SessionState, ...]
    state: bytes


class Forward(Struct, frozen=True, array_like=True, tag=0):
    """A request to the leader: entries to append, in this order. The leader answers once it has applied all of them."""

    entries: tuple[bytes, ...]


class AskIndex(Struct, frozen=True, array_like=True, tag=1):
    """A request to the leader for its read index: the offset up to which a node must apply before a read."""


class Index(Struct, frozen=True, array_like=True, tag=0):
    """The answer: the offset up to which the node must apply (exclusive)."""

    offset: int


_ENCODER: Final = msgspec.msgpack.Encoder()
_ENTRIES: Final[msgspec.msgpack.Decoder[Entry]] = msgspec.msgpack.Decoder(Entry)
_SNAPSHOTS: Final = msgspec.msgpack.Decoder(StateMachineSnapshot)
_QUESTIONS: Final[msgspec.msgpack.Decoder[Forward | AskIndex]] = msgspec.msgpack.Decoder(Forward | AskIndex)
_INDEXES: Final = msgspec.msgpack.Decoder(Index)
encode: Final = _ENCODER.encode
"""Encode any of these values."""


def decode_entry(data: bytes, where: str | None = None) -> Entry:
    """Decode an entry of the log; raises `CorruptBatch`."""
    return _decoded(_ENTRIES, data, where)


def decode_question(data: bytes) -> Forward | AskIndex:
    """Decode the request in an envelope; raises `CorruptBatch`."""
    return _decoded(_QUESTIONS, data, "envelope")


def decode_index(data: bytes) -> Index:
    """Decode the answer; raises `CorruptBatch`."""
    return _decoded(_INDEXES, data, "envelope")


def _decoded(decoder: msgspec.msgpack.Decoder[T], data: bytes, where: str | None) -> T:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, RecursionError) as bad:
        raise CorruptBatch(f"this is not of a state machine's log: {bad}", where=where) from bad


def snapshot_values(snapshot: StateMachineSnapshot) -> tuple[bytes, ...]:
    """The record values of a snapshot: its bytes, in pieces."""
    data = encode(snapshot)
    return tuple(data[at : at + MACHINE_PIECE_BYTES] for at in range(0, len(data), MACHINE_PIECE_BYTES))


def read_snapshot(values: Iterable[bytes], where: str | None = None) -> StateMachineSnapshot:
    """Decode the snapshot; raises `CorruptBatch`."""
    return _decoded(_SNAPSHOTS, b"".join(values), where)
