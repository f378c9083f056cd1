"""`MemorySockets`: connections of bytes within one process, on Trio's clock (or a `MockClock`).

With these sockets a `WireTransport` runs in virtual time with everything below the messages: frames, TLS, limits and
deadlines. `MemoryTransport` carries whole messages instead.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Unpack

import trio

from transport.addresses import PEER_CLOSED
from transport.channels import Channel, Owner, Socket
from transport.interface import Cause, Endpoint, Listener
from transport.tcp import WireOptions
from transport.wire import WireTransport

_FIRST_PORT: Final = 9093


class MemoryStreams:
    """The addresses of one network of `MemorySockets`.

    Args:
        latency_s: The time in seconds that bytes take from one end to the other.
    """

    def __init__(self, latency_s: float = 0.0) -> None:
        self.latency_s = latency_s
        self.listening: dict[Endpoint, tuple[MemorySockets, Listener]] = {}
        self._next_port = _FIRST_PORT
        self._next_peer = 1

    def bind(self, sockets: MemorySockets, listener: Listener) -> Endpoint:
        """Assign an address to a listener. Raises `OSError` if the address is in use."""
        port = listener.port
        if port == 0:
            port, self._next_port = self._next_port, self._next_port + 1
        endpoint = Endpoint(listener.host or "localhost", port)
        if endpoint in self.listening:
            raise OSError(errno.EADDRINUSE, f"cannot listen on {endpoint}: Address already in use")
        self.listening[endpoint] = (sockets, listener)
        return endpoint

    def unbind(self, sockets: MemorySockets) -> None:
        """Refuse connections to these sockets from now on."""
        self.listening = {at: bound for at, bound in self.listening.items() if bound[0] is not sockets}

    def next_peer(self) -> str:
        """The address of the next connection's client."""
        self._next_peer += 1
        return f"127.0.0.1:{self._next_peer}"

    def transport(self, **options: Unpack[WireOptions]) -> WireTransport:
        """A transport on this network, with the options of `WireTransport`."""
        return WireTransport(partial(MemorySockets, network=self), **options)


class MemorySockets:
    """The `Sockets` of one transport on a network of `MemoryStreams`."""

    def __init__(self, owner: Owner, network: MemoryStreams) -> None:
        self.owner = owner
        self.network = network
        self.ends: dict[_End, None] = {}
        self._token: trio.lowlevel.TrioToken | None = None
        self.is_open = True
        """Whether the listeners accept connections."""

    def listen(self, listener: Listener) -> Endpoint:
        """Bind now. Raises `OSError` if the address is in use."""
        return self.network.bind(self, listener)

    def listen_later(self, listener: Listener) -> Endpoint:
        """Bind now, and refuse connections until `open_listeners`. Raises `OSError` if the address is in use."""
        self.is_open = False
        return self.network.bind(self, listener)

    def open_listeners(self) -> None:
        """Accept connections at the listeners of `listen_later`."""
        self.is_open = True

    def connect(self, endpoint: Endpoint, channel: Channel, failures: int) -> Socket:
        """Begin to connect; ends with `on_connected` or `on_closed`, never from inside this call."""
        end = _End(self)
        end.channel = channel
        self.owner.later(partial(self._connect, endpoint, end), self.network.latency_s)
        return end

    def _connect(self, endpoint: Endpoint, end: _End) -> None:
        if end.is_closed:
            return
        bound = self.network.listening.get(endpoint)
        if bound is None or not bound[0].is_open:
            end.lose(Cause.REFUSED, "Connection refused")
            return
        sockets, listener = bound
        other = _End(sockets)
        channel = sockets.owner.accepted(other, listener, self.network.next_peer())
        if channel is None:
            end.lose(Cause.RESET, PEER_CLOSED)
            return
        other.channel = channel
        end.other, other.other = other, end
        assert end.channel is not None
        end.channel.on_connected()

    def poll_nowait(self) -> None:
        """Nothing to do: bytes arrive at their own times, in the tasks of the owners."""

    def wake(self) -> None:
        """Schedule a call of the owner's `batch_delivered`; from any thread."""
        assert self._token is not None, "the transport is not running"
        self._token.run_sync_soon(self._settle, idempotent=True)

    def _settle(self) -> None:
        self.owner.batch_delivered()

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Exist until cancelled, then close everything."""
        self._token = trio.lowlevel.current_trio_token()
        task_status.started()
        try:
            await trio.sleep_forever()
        finally:
            self.network.unbind(self)
            for end in list(self.ends):
                end.close()


class _End:
    """One end of a connection."""

    def __init__(self, sockets: MemorySockets) -> None:
        self.channel: Channel | None = None
        self.other: _End | None = None
        self.is_closed = False
        self.unsent = 0
        self._sockets = sockets
        self._out: deque[bytes] = deque()
        """Written bytes that have not arrived."""
        self._is_paused = False
        sockets.ends[self] = None

    def write(self, data: bytes) -> None:
        """Send the bytes, which arrive after the latency of the network."""
        if self.is_closed or self.other is None:
            return
        self._out.append(data)
        self.unsent += len(data)
        self.other.later(self.other.receive)

    def write_pieces(self, pieces: Sequence[bytes]) -> None:
        """Send the pieces at once."""
        self.write(b"".join(pieces))

    def later(self, action: Callable[[], None]) -> None:
        """Run an action of this end in the task of its owner."""
        self._sockets.owner.later(action, self._sockets.network.latency_s)

    def receive(self) -> None:
        """Take what the other end has written, unless this end is paused."""
        other, channel = self.other, self.channel
        if other is None or channel is None:
            return
        while other._out and not self._is_paused and not self.is_closed:
            data = other._out.popleft()
            other.unsent -= len(data)
            channel.on_data(data)
            if not other._out and not other.is_closed:
                other.later(other.drained)
        if other.is_closed and (not other._out or self._is_paused):
            self.lose(Cause.RESET, PEER_CLOSED)

    def drained(self) -> None:
        """The other end has taken everything."""
        if not self.is_closed and not self.unsent and self.channel is not None:
            self.channel.on_drained()

    def pause(self) -> None:
        """Read no more until `resume`."""
        self._is_paused = True

    def resume(self) -> None:
        """Read again."""
        if self._is_paused:
            self._is_paused = False
            self.later(self.receive)

    def lose(self, cause: Cause, detail: str) -> None:
        """Report that the connection ended."""
        if not self.is_closed and self.channel is not None:
            self.close()
            self.channel.on_closed(cause, detail)

    def close(self) -> None:
        """Close. What was written still arrives, and then the other end learns of the close."""
        if not self.is_closed:
            self.is_closed = True
            del self._sockets.ends[self]
            if self.other is not None:
                self.other.later(self.other.receive)
