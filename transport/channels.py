"""The interfaces around a socket: its loop, its channel, and the transport that owns both.

`server_channel` and `client_channel` are the two kinds of channels; `epoll` and `streams` are the two loops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol, runtime_checkable

import trio

from transport.interface import Cause, Endpoint, Failed, Listener, Reply


class Socket(Protocol):
    """A connected (or connecting) socket. No method calls back, and none raises for a peer's behaviour."""

    @property
    def unsent(self) -> int:
        """Bytes that `write` took and the operating system has not accepted yet."""

    def write(self, data: bytes) -> None:
        """Send `data` after everything written before."""

    def write_pieces(self, pieces: Sequence[bytes]) -> None:
        """Send the pieces in order, as `write`; a TCP socket does not copy them."""

    def pause(self) -> None:
        """Read no more until `resume`."""

    def resume(self) -> None:
        """Read again."""

    def close(self) -> None:
        """Close at once. Nothing is reported after that."""


class Channel(Protocol):
    """The receiver of a socket's reports."""

    def on_connected(self) -> None:
        """The requested connection is established."""

    def on_data(self, data: bytes) -> int:
        """Bytes came in (at least one). Returns how many bytes the frame that has begun still needs."""

    def on_drained(self) -> None:
        """Everything written has been taken by the operating system, after some of it had to wait."""

    def on_closed(self, cause: Cause, detail: str) -> None:
        """The peer or the network ended the connection, or the connection failed. The socket is closed already."""


class _Ended:
    """The rest of a socket or a channel for the other one after the end: nothing happens any more.

    They refer to each other. Apart, both are freed at once, and the collector has no cycle to find.
    """

    unsent: Final = 0

    def write(self, data: bytes) -> None:
        """Drop the bytes."""

    def write_pieces(self, pieces: Sequence[bytes]) -> None:
        """Drop the pieces."""

    def pause(self) -> None:
        """Nothing is read anyway."""

    def resume(self) -> None:
        """Nothing is read anyway."""

    def close(self) -> None:
        """Nothing is open."""

    def on_connected(self) -> None:
        """Nobody waits for the connection."""

    def on_data(self, data: bytes) -> int:
        """Drop the bytes."""
        return 0

    def on_drained(self) -> None:
        """Nobody writes."""

    def on_closed(self, cause: Cause, detail: str) -> None:
        """Nobody asks."""


ENDED: Final = _Ended()


class Connector(Protocol):
    """Connects to peers."""

    def connect(self, endpoint: Endpoint, channel: Channel, failures: int) -> Socket:
        """Begin to connect; ends with `on_connected` or `on_closed`, never from inside this call.

        `failures` is the number of failures in a row. A host with several addresses may start at another one each time.
        """


class Sockets(Connector, Protocol):
    """A loop around sockets: one for `epoll`, one for every other system."""

    def listen(self, listener: Listener) -> Endpoint:
        """Bind now. Raises `OSError` with a readable text."""

    def poll_nowait(self) -> object:
        """Read what has arrived, if the implementation can see that without waiting."""

    def wake(self) -> None:
        """Schedule a call of the owner's `batch_delivered`; from any thread."""

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Accept, read and write until cancelled, then close everything."""


@runtime_checkable
class LateSockets(Sockets, Protocol):
    """Sockets with listeners that may refuse connections at first, as those of a fenced broker."""

    def listen_later(self, listener: Listener) -> Endpoint:
        """Bind now, and refuse connections until `open_listeners`. Raises `OSError` with a readable text."""

    def open_listeners(self) -> None:
        """Accept connections at the listeners of `listen_later`."""


class Gate(Protocol):
    """Bounds how fast connections are made."""

    def wait_s(self, listener: str) -> float:
        """As `Owner.wait_s`."""

    def hold_s(self, listener: str, address: str) -> float:
        """As `Owner.hold_s`, for the address of the peer."""


class Owner(Protocol):
    """The part of the transport that channels and sockets use."""

    def accepted(self, socket: Socket, listener: Listener, peer: str) -> Channel | None:
        """A peer has connected. Returns None to refuse the connection."""

    def wait_s(self, listener: Listener) -> float:
        """A peer has connected: for how many seconds a listener accepts neither this connection nor another."""

    def hold_s(self, listener: Listener, peer: str) -> float:
        """After `wait_s`, for how many seconds to hold the connection, to close it then; 0 to go on with `accepted`."""

    def has_reserve(self, peer: str) -> bool:
        """Whether to spend a spare descriptor on this peer's connection when no other descriptor is left."""

    def finish(self, outcome: Reply | Failed) -> None:
        """Report the outcome of a request; to be called from the transport's own tasks only."""

    def finish_later(self, outcome: Reply | Failed) -> None:
        """As `finish`, but after the method of the transport's user that calls this has returned."""

    def batch_delivered(self) -> bool:
        """The batch of calls is complete; to be called after any of the calls above and those of a channel.

        Returns whether only the network and time can bring more work; the caller may then wait.
        """

    def later(self, action: Callable[[], None], delay_s: float = 0.0) -> None:
        """Run an action in the transport's own task, after `delay_s` seconds."""

    def now(self) -> float:
        """Seconds on a monotonic clock."""
