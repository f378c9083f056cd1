"""Applications of a replica, with the batches and requests that they are given."""

from __future__ import annotations

from kraft.quorum.accumulator import BATCH_OVERHEAD, RECORD_OVERHEAD
from kraft.state_machine import Position, StateMachine
from kraft.state_machine.log import (
    Command,
    encode,
)
from kraft.state_machine.server import StateMachineServer
from kraft.wire import WireRequest
from metadata_log.serde import Message, schema_of
from support.kraft.known_quorum import KnownQuorum

MAX_ENTRY_BYTES = 200


class Count(StateMachine[int, int]):
    """A sum of numbers."""

    def __init__(self) -> None:
        self.total = 0

    def apply(self, command: int, at: Position) -> int:
        self.total += command
        return self.total

    def snapshot(self) -> bytes:
        return b"%d" % self.total

    def restore(self, data: bytes) -> None:
        self.total = int(data)


def state_machine(*, is_full: bool = False) -> StateMachineServer:
    host = StateMachineServer(
        Count,
        client="c",
        max_batch_bytes=MAX_ENTRY_BYTES + BATCH_OVERHEAD + RECORD_OVERHEAD,
        retry_backoff_ms=20,
        session_ttl_ms=1000,
    )
    host.quorum = KnownQuorum(is_full=is_full)
    return host


def wire(message: Message, version: int = 0) -> WireRequest:
    api_key = schema_of(type(message)).api_key
    assert api_key is not None
    return WireRequest(request_id=5, api_key=api_key, version=version, message=message, listener="CONTROLLER")


def command(size: int) -> bytes:
    """An entry of this size."""
    entry = encode(Command(1, 1, 1, bytes(size - len(encode(Command(1, 1, 1, bytes(100)))) + 100)))
    assert len(entry) == size
    return entry
