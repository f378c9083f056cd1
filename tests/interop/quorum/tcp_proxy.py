"""TCP proxies in front of the nodes of a quorum, one a node, each with a link for every other node that connects to it.

The client id of a connection's first request names the connecting node. A link can be cut, so that nothing passes and
neither end notices, and can be delayed, throttled and reset. A link has one direction, that of the connection.
Connections of other clients pass.
"""

from __future__ import annotations

import re
import socket
import struct
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from types import TracebackType
from typing import Final

import trio

CHUNK_BYTES: Final = 1 << 14
POLL_SECONDS: Final = 0.02
FIRST_BYTES: Final = 14
"""The bytes of a request before its client id: size, API, version, correlation id, length of the client id."""
NODE: Final = re.compile(rb"(?:raft-client-)?(\d+)")
RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)
STRANGER: Final = -1

Damage = Callable[[bytes], bytes]
"""What becomes of some bytes on the way back, from the target to the source."""


class Link:
    """The connections from one node to another. Any thread may set its attributes."""

    def __init__(self) -> None:
        self.is_cut = False
        self.delay_s = 0.0
        self.bytes_per_s = 0
        """0 is no limit."""
        self.damage: Damage | None = None
        self.streams: set[trio.SocketStream] = set()

    def heal(self) -> None:
        """As at the beginning; what was held back passes then."""
        self.is_cut, self.delay_s, self.bytes_per_s = False, 0.0, 0

    async def hold(self, size: int) -> None:
        """Wait as long as so many bytes take."""
        while self.is_cut:
            await _let_pass(POLL_SECONDS)
        wait_s = self.delay_s + (size / self.bytes_per_s if self.bytes_per_s else 0)
        if wait_s:
            await _let_pass(wait_s)


async def _let_pass(seconds: float) -> None:
    """Sleep in place of a slow link; no test waits here instead of for a condition."""
    with trio.move_on_after(seconds):
        await trio.sleep_forever()


class Proxies:
    """`ports` are what the nodes advertise, `behind` where they listen. Use as a context manager."""

    def __init__(self, ports: Mapping[int, int], behind: Mapping[int, int]) -> None:
        self._ports = dict(ports)
        self._behind = dict(behind)
        self._links: defaultdict[tuple[int, int], Link] = defaultdict(Link)
        self._is_up = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._token: trio.lowlevel.TrioToken
        self._scope: trio.CancelScope

    def link(self, source: int, target: int) -> Link:
        """That of the connections which one node opens to another."""
        return self._links[source, target]

    @property
    def links(self) -> Iterator[Link]:
        """Those between all nodes."""
        return (self.link(one, other) for one in self._ports for other in self._ports if one != other)

    def isolate(self, node: int) -> None:
        """Nothing passes between a node and the others."""
        for other in self._ports:
            self.link(node, other).is_cut = self.link(other, node).is_cut = True

    def heal(self) -> None:
        """Everything passes again, without delay."""
        for link in self.links:
            link.heal()

    def reset(self, source: int, target: int) -> None:
        """End the connections from one node to another as if the other end had lost its memory."""
        self._token.run_sync_soon(self._abort, self.link(source, target))

    def _abort(self, link: Link) -> None:
        for stream in tuple(link.streams):
            with suppress(OSError):
                stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            stream.socket.close()
            link.streams.discard(stream)

    def __enter__(self) -> Proxies:
        self._thread.start()
        assert self._is_up.wait(60), "the proxies do not listen"
        return self

    def __exit__(self, kind: type[BaseException] | None, bad: BaseException | None, at: TracebackType | None) -> None:
        self._token.run_sync_soon(self._scope.cancel)
        self._thread.join(60)
        assert not self._thread.is_alive(), "the proxies do not end"

    def _run(self) -> None:
        trio.run(self._serve)

    async def _serve(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        async with trio.open_nursery() as nursery:
            self._scope = nursery.cancel_scope
            for node, port in self._ports.items():
                await nursery.start(partial(trio.serve_tcp, partial(self._pass_on, node), port, host="127.0.0.1"))
            self._is_up.set()

    async def _pass_on(self, target: int, source: trio.SocketStream) -> None:
        """One connection to a node, from its first byte to its last."""
        with suppress(OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            first = await _first_bytes(source)
            link = self.link(_sender(first), target)
            link.streams.add(source)
            try:
                await link.hold(len(first))
                await self._join(source, target, link, first)
            finally:
                link.streams.discard(source)

    async def _join(self, source: trio.SocketStream, target: int, link: Link, first: bytes) -> None:
        with _resetting(source):
            sink = await trio.open_tcp_stream("127.0.0.1", self._behind[target])
        link.streams.add(sink)
        try:
            async with sink:
                # Outside of the nursery, which would wrap the error of a node that dies just now.
                await sink.send_all(first)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_pump, sink, source, link, True, nursery.cancel_scope)
                    await _pump(source, sink, link, False, nursery.cancel_scope)
        finally:
            link.streams.discard(sink)


async def _pump(
    source: trio.SocketStream, sink: trio.SocketStream, link: Link, is_back: bool, scope: trio.CancelScope
) -> None:
    """Pass bytes on until one end has no more, or has gone."""
    with suppress(OSError, trio.BrokenResourceError, trio.ClosedResourceError):
        while chunk := await source.receive_some(CHUNK_BYTES):
            await link.hold(len(chunk))
            if is_back:
                chunk = link.damage(chunk) if link.damage else chunk
            await sink.send_all(chunk)
    scope.cancel()


async def _first_bytes(stream: trio.SocketStream) -> bytes:
    """The first request up to its client id; less if the connection ends before."""
    data = b""
    while len(data) < FIRST_BYTES or len(data) < FIRST_BYTES + _client_id_size(data):
        chunk = await stream.receive_some(CHUNK_BYTES)
        if not chunk:
            break
        data += chunk
    return data


def _client_id_size(data: bytes) -> int:
    return max(int.from_bytes(data[12:14], "big", signed=True), 0)


def _sender(first: bytes) -> int:
    """The node that a connection is from."""
    name = NODE.fullmatch(first[FIRST_BYTES : FIRST_BYTES + _client_id_size(first)])
    return int(name[1]) if name else STRANGER


@contextmanager
def _resetting(stream: trio.SocketStream) -> Iterator[None]:
    """A node that is not there refuses the connection, which was accepted in its name."""
    try:
        yield
    except OSError:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        raise
