"""Two ends of a connection with SASL between them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
import trio.testing

from conversation import LISTENER, Node
from transport.channels import Socket
from transport.interface import Cause, Endpoint
from transport.memory_sockets import MemoryStreams
from transport.sasl import NO_SASL, Sasl
from transport.wire import WireTransport


class Stranger:
    """The client's end of one connection of bytes."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.closed_at: float | None = None
        self.socket: Socket | None = None
        self.is_connected = trio.Event()
        self.is_closed = trio.Event()

    def on_connected(self) -> None:
        self.is_connected.set()

    def on_data(self, data: bytes) -> int:
        self.received += data
        return 0

    def on_drained(self) -> None:
        """Nothing to do."""

    def on_closed(self, cause: Cause, detail: str) -> None:
        self.closed_at = trio.current_time()
        self.is_connected.set()
        self.is_closed.set()


@asynccontextmanager
async def pair(server_sasl: Sasl, client_sasl: Sasl) -> AsyncIterator[tuple[Node, Node, Endpoint, WireTransport]]:
    """A running server and a running client, and a third transport for strangers."""
    network = MemoryStreams()
    carriers = [network.transport(sasl=sasl) for sasl in (server_sasl, client_sasl, NO_SASL)]
    server, client, other = (Node(carrier) for carrier in carriers)
    endpoint = server.transport.listen(LISTENER)
    async with server.running(), client.running(), other.running():
        yield server, client, endpoint, carriers[2]


def carrier_of(node: Node) -> WireTransport:
    assert isinstance(node.transport, WireTransport)
    return node.transport
