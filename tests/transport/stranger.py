"""A peer that speaks no protocol of its own: a test writes its bytes."""

from __future__ import annotations

from conversation import Node
from transport import Cause, Endpoint, MemoryStreams, WireTransport
from transport.memory_sockets import MemorySockets


class Stranger:
    """A peer without a transport: writes bytes to a listener in memory, and keeps what comes back."""

    def __init__(self, node: Node, endpoint: Endpoint, streams: MemoryStreams) -> None:
        assert isinstance(node.transport, WireTransport)
        self.received, self.is_connected, self.is_closed = b"", False, False
        sockets = MemorySockets(node.transport, streams)
        self.socket = sockets.connect(endpoint, self, 0)

    def on_connected(self) -> None:
        self.is_connected = True

    def on_data(self, data: bytes) -> int:
        self.received += data
        return 0

    def on_drained(self) -> None:
        """Nothing waits."""

    def on_closed(self, cause: Cause, detail: str) -> None:
        self.is_closed = True
