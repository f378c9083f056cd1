"""The sockets of Linux: one Trio task serves all of them with its own `epoll` set (Kafka: `Selector`).

The task waits for Trio once per burst of messages; a task per connection would wait once per message. With 128
connections this was measured to be more than three times as fast as a `SocketStream` each.
"""

from __future__ import annotations

import errno
import logging
import os
import select
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import trio

from transport.addresses import (
    ADDRESS_SECONDS,
    NO_ADDRESS,
    PEER_CLOSED,
    SILENT_ADDRESS,
    Address,
    SocketAddress,
    bind,
    bound_to,
    cause_of,
    clearer,
    numeric,
    open_socket,
    reason_of,
    refuse_itself,
    resolve,
    set_options,
    text_of,
)
from transport.channels import ENDED, Channel, Owner, Socket
from transport.descriptors import ACCEPT_PAUSE_SECONDS, CANNOT_ACCEPT, OUT_OF_DESCRIPTORS, SpareDescriptors
from transport.interface import Cause, Endpoint, Listener
from transport.limited_log import LimitedLog
from transport.limits import HELD_AT_ONCE, MOST_READ_BYTES, READ_BYTES

log = logging.getLogger("transport")

_READ: Final = select.EPOLLIN | select.EPOLLRDHUP
_WRITE: Final = select.EPOLLOUT
_ENDED: Final = select.EPOLLHUP | select.EPOLLERR
_READABLE: Final = int(select.EPOLLIN)
_READ_OR_ENDED: Final = _READ | _ENDED
_EVENTS_AT_ONCE: Final = 512
_BURSTS_PER_TURN: Final = 4
"""Polls of the set before other tasks run. Under load every poll finds events, and a poll takes a tenth of the time of
Trio's scheduling.
"""
_PATIENT_BURSTS_PER_TURN: Final = 16
"""The same, for programs that accept delays of their other tasks."""
_ACCEPTS_AT_ONCE: Final = 64


class EpollSockets:
    """The event loop, and its sockets by file descriptor."""

    def __init__(self, owner: Owner, patience_ms: int) -> None:
        self._owner = owner
        self._patience_s = patience_ms / 1000
        self._bursts_per_turn = _PATIENT_BURSTS_PER_TURN if patience_ms else _BURSTS_PER_TURN
        self._epoll = select.epoll()
        waker = _Waker()
        self._wake = waker.wake
        self.log = LimitedLog(log, time.monotonic)
        self._members: dict[int, _Connection | _Listening | _Waker] = {waker.fileno(): waker}
        self._epoll.register(waker.fileno(), select.EPOLLIN)
        self._nursery: trio.Nursery | None = None
        self.spares = SpareDescriptors()
        self._unopened: list[tuple[socket.socket, Listener]] = []
        """The bound sockets that wait for `open_listeners`."""
        self._held: set[socket.socket] = set()
        """The sockets of peers that come too fast."""

    def listen(self, listener: Listener) -> Endpoint:
        """Bind now. Raises `OSError` with a readable text."""
        bound = bind(listener)
        self.spares.fill()
        self._accept_at(bound, listener)
        return bound_to(listener, bound)

    def listen_later(self, listener: Listener) -> Endpoint:
        """Bind now, and refuse connections until `open_listeners`. Raises `OSError` with a readable text."""
        bound = bind(listener, opens_later=True)
        self.spares.fill()
        # epoll reports a bound socket that does not listen as hung up, again and again.
        self._unopened.append((bound, listener))
        return bound_to(listener, bound)

    def open_listeners(self) -> None:
        """Accept connections at the listeners of `listen_later`."""
        unopened, self._unopened = self._unopened, []
        for bound, listener in unopened:
            open_socket(bound)
            self._accept_at(bound, listener)

    def _accept_at(self, bound: socket.socket, listener: Listener) -> None:
        self._members[bound.fileno()] = _Listening(self, bound, listener)
        self._epoll.register(bound.fileno(), select.EPOLLIN)

    def connect(self, endpoint: Endpoint, channel: Channel, failures: int) -> Socket:
        """Begin to connect; ends with `on_connected` or `on_closed`, never from inside this call."""
        connection = _Connection(self)
        if addresses := numeric(endpoint):
            connection.begin(deque(addresses), channel)
        else:
            assert self._nursery is not None, "the transport is not running"
            self._nursery.start_soon(self._connect_by_name, endpoint, connection, channel, failures)
        return connection

    async def _connect_by_name(
        self, endpoint: Endpoint, connection: _Connection, channel: Channel, failures: int
    ) -> None:
        try:
            addresses = await resolve(endpoint, failures)
        except OSError as failed:
            if not connection.is_closed:
                channel.on_closed(cause_of(failed), reason_of(failed))
                self._owner.batch_delivered()
        else:
            connection.begin(deque(addresses), channel)

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Accept, read and write until cancelled, then close everything."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                task_status.started()
                await self._poll()
        finally:
            for member in list(self._members.values()):
                member.close()
            for bound, _ in self._unopened:
                bound.close()
            for held in self._held:
                held.close()
            self._epoll.close()
            self.spares.close()

    async def _poll(self) -> None:
        wait_readable, poll_nowait, batch_delivered = (
            trio.lowlevel.wait_readable,
            self.poll_nowait,
            self._owner.batch_delivered,
        )
        while True:
            await wait_readable(self._epoll)
            patience_s = 0.0
            for _ in range(self._bursts_per_turn):
                if not poll_nowait(patience_s):
                    break
                patience_s = self._patience_s if batch_delivered() else 0.0

    def poll_nowait(self, patience_s: float = 0.0) -> bool:
        """Read and write what is ready within `patience_s` seconds; returns whether anything was."""
        ready = self._epoll.poll(patience_s, _EVENTS_AT_ONCE)
        members = self._members
        for descriptor, events in ready:
            # An earlier event of this burst may have closed the socket.
            if (member := members.get(descriptor)) is not None:
                member.on_events(events)
        return bool(ready)

    def wake(self) -> None:
        """Schedule a call of the owner's `batch_delivered`; from any thread."""
        self._wake()

    def enter(self, connection: _Connection, descriptor: int, interest: int) -> None:
        """Watch a socket from now on, for the events in `interest`."""
        self._members[descriptor] = connection
        self._epoll.register(descriptor, interest)

    def change(self, descriptor: int, interest: int) -> None:
        """Change the events for which a socket is watched."""
        self._epoll.modify(descriptor, interest)

    def leave(self, descriptor: int) -> None:
        """Stop watching a socket; to be called before the socket is closed."""
        del self._members[descriptor]
        self._epoll.unregister(descriptor)

    def later(self, action: Callable[[], None], delay_s: float = 0.0) -> None:
        """Run an action outside of the user's call, after `delay_s` seconds."""
        self._owner.later(action, delay_s)

    def accepted(
        self, accepted: socket.socket, address: SocketAddress, listener: Listener, *, is_short: bool = False
    ) -> float:
        """Make a connection of a peer's socket; `is_short` where the socket uses a spare descriptor.

        Returns for how many seconds the listener accepts nothing more.
        """
        peer = text_of(address)
        if is_short and not self._owner.has_reserve(peer):
            accepted.close()
            return 0.0
        wait_s = self._owner.wait_s(listener)
        if wait_s > 0:
            self._hold(accepted, wait_s, partial(self._admit, accepted, listener, peer))
        else:
            self._admit(accepted, listener, peer)
        return wait_s

    def _hold(self, accepted: socket.socket, seconds: float, then: Callable[[], None]) -> None:
        """Keep a socket of a peer that nobody reads from yet."""

        def let_go() -> None:
            if accepted in self._held:
                self._held.remove(accepted)
                then()

        if len(self._held) >= HELD_AT_ONCE:
            accepted.close()
            return
        self._held.add(accepted)
        self._owner.later(let_go, seconds)

    def _admit(self, accepted: socket.socket, listener: Listener, peer: str) -> None:
        hold_s = self._owner.hold_s(listener, peer)
        if hold_s > 0:
            self._hold(accepted, hold_s, accepted.close)
            return
        connection = _Connection(self)
        channel = self._owner.accepted(connection, listener, peer)
        if channel is None:
            accepted.close()
        else:
            connection.adopt(accepted, channel)


class _Waker:
    """A socket pair that wakes the loop from another thread. A pair rules out a closed descriptor that was reused."""

    __slots__ = ("_receiver", "_sender")

    def __init__(self) -> None:
        self._sender, self._receiver = socket.socketpair()
        self._sender.setblocking(False)
        self._receiver.setblocking(False)

    def fileno(self) -> int:
        """The descriptor that the loop watches."""
        return self._receiver.fileno()

    def wake(self) -> None:
        """Wake the loop; does nothing if the loop has ended."""
        with suppress(OSError):  # also when the socket buffer is full of bytes that the loop has not read yet
            self._sender.send(b"!")

    def on_events(self, _events: int) -> None:
        """Another thread called `wake`."""
        with suppress(OSError):
            self._receiver.recv(READ_BYTES)

    def close(self) -> None:
        """Close both sockets."""
        self._sender.close()
        self._receiver.close()


class _Listening:
    """A listening socket."""

    __slots__ = ("_bound", "_listener", "_loop")

    def __init__(self, loop: EpollSockets, bound: socket.socket, listener: Listener) -> None:
        self._loop = loop
        self._bound = bound
        self._listener = listener

    def on_events(self, _events: int) -> None:
        """Accept waiting connections, a bounded number at a time."""
        for _ in range(_ACCEPTS_AT_ONCE):
            try:
                accepted, address = self._bound.accept()
            except BlockingIOError:
                return
            except OSError as failed:
                if failed.errno not in OUT_OF_DESCRIPTORS:
                    continue  # that peer has closed already
                self._loop.log.write(logging.WARNING, "accept", CANNOT_ACCEPT, self._listener.name, failed.strerror)
                if not self._accept_with_spare():
                    self._pause_accepting(ACCEPT_PAUSE_SECONDS)
                    return
            else:
                wait_s = self._loop.accepted(accepted, address, self._listener)
                if wait_s > 0:
                    self._pause_accepting(wait_s)
                    return

    def _accept_with_spare(self) -> bool:
        """Spend a spare descriptor to accept one peer, and close that connection unless the peer has a reserve.

        This empties the backlog, so that peers with a reserve are reached. Returns whether there may be more to accept.
        """
        spares = self._loop.spares
        if not spares.spend():
            return False
        try:
            accepted, address = self._bound.accept()
        except OSError:
            return False
        else:
            self._loop.accepted(accepted, address, self._listener, is_short=True)
            return True
        finally:
            spares.fill()

    def _pause_accepting(self, seconds: float) -> None:
        """Leave peers in the backlog for a while: no descriptor is left, and epoll would report the socket again, or
        there are too many of them.
        """
        self._loop.change(self._bound.fileno(), 0)
        self._loop.later(self._wake, seconds)

    def _wake(self) -> None:
        if self._bound.fileno() >= 0:
            self._loop.change(self._bound.fileno(), select.EPOLLIN)

    def close(self) -> None:
        """Stop listening."""
        self._loop.leave(self._bound.fileno())
        self._bound.close()


class _Connection:
    """One connected or connecting socket."""

    __slots__ = (
        "_addresses",
        "_channel",
        "_closed",
        "_failure",
        "_interest",
        "_loop",
        "_out",
        "_read_bytes",
        "_socket",
        "unsent",
    )

    _channel: Channel
    _socket: socket.socket | None

    def __init__(self, loop: EpollSockets) -> None:
        self.unsent = 0
        self._loop = loop
        self._socket = None
        self._closed = False
        self._interest = 0
        self._addresses: deque[Address] | None = None
        """While connecting: the addresses that are not tried yet."""
        self._failure: tuple[Cause, str] | None = None
        """While connecting: why the earlier addresses failed."""
        self._out: deque[bytes | memoryview] = deque()
        self._read_bytes = READ_BYTES

    def adopt(self, accepted: socket.socket, channel: Channel) -> None:
        """Begin with a peer's socket."""
        self._channel = channel
        self._take_over(accepted, _READ)

    def begin(self, addresses: deque[Address], channel: Channel) -> None:
        """Begin to connect to the first of `addresses` that accepts."""
        if self._closed:
            return
        self._channel = channel
        self._addresses = addresses
        self._try_next(Cause.TIMEOUT, NO_ADDRESS)

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def _take_over(self, new: socket.socket, interest: int) -> None:
        new.setblocking(False)
        set_options(new)
        self._socket = new
        self._interest = interest
        self._loop.enter(self, new.fileno(), interest)

    def _watch(self, interest: int) -> None:
        if interest != self._interest and self._socket is not None:
            self._interest = interest
            self._loop.change(self._socket.fileno(), interest)

    def _release(self) -> None:
        if self._socket is not None:
            self._loop.leave(self._socket.fileno())
            self._socket.close()
            self._socket = None

    def _try_next(self, cause: Cause, detail: str) -> None:
        """Try the next address. If none is left, report why all of them failed."""
        self._release()
        self._failure = clearer(self._failure, (cause, detail))
        while self._addresses:
            family, address = self._addresses.popleft()
            try:
                attempt = socket.socket(family, socket.SOCK_STREAM)
                self._take_over(attempt, _WRITE)
                attempt.connect(address)
            except BlockingIOError:
                if self._addresses:
                    self._loop.later(partial(self._give_up, attempt), ADDRESS_SECONDS)
                return
            except OSError as failed:
                self._release()
                self._failure = clearer(self._failure, (cause_of(failed), reason_of(failed)))
            else:
                return  # connected already; epoll reports it as writable
        self._loop.later(partial(self.lose, *self._failure))

    def _give_up(self, attempt: socket.socket) -> None:
        """Try the next address if this one has not answered yet."""
        if self._socket is attempt and self._addresses is not None:
            self._try_next(Cause.TIMEOUT, SILENT_ADDRESS)

    def lose(self, cause: Cause, detail: str) -> None:
        """Report that the connection ended; to be called from the loop's own tasks only."""
        if not self._closed:
            channel = self._channel
            self.close()
            channel.on_closed(cause, detail)

    def on_events(self, events: int) -> None:
        """Connect, write or read, as the events of the socket say."""
        if self._addresses is not None:
            self._finish_connecting()
            return
        if events & _WRITE:
            self._flush()
        if self._interest & _READABLE:
            connected = self._socket
            if events & _READ_OR_ENDED and connected is not None:
                try:
                    data = connected.recv(self._read_bytes)
                except BlockingIOError:
                    return
                except OSError as failed:
                    self.lose(cause_of(failed), reason_of(failed))
                    return
                if not data:
                    self.lose(Cause.RESET, PEER_CLOSED)
                    return
                wanted = self._channel.on_data(data)
                self._read_bytes = READ_BYTES if wanted <= READ_BYTES else min(wanted, MOST_READ_BYTES)
        elif events & (_ENDED | select.EPOLLRDHUP):
            self.lose(Cause.RESET, PEER_CLOSED)

    def _finish_connecting(self) -> None:
        assert self._socket is not None
        error = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        try:
            if error:
                raise OSError(error, os.strerror(error))
            refuse_itself(self._socket.getsockname(), self._socket.getpeername())
        except OSError as failed:
            if failed.errno != errno.ENOTCONN:  # else the event belongs to another socket that had the same number
                self._try_next(cause_of(failed), reason_of(failed))
            return
        self._addresses = None
        self._watch(_READ)
        self._channel.on_connected()

    def write(self, data: bytes) -> None:
        """Send what the system accepts now, and the rest later."""
        if self._socket is None:
            return
        left: bytes | memoryview = data
        if not self.unsent:
            try:
                sent = self._socket.send(data)
            except OSError:
                sent = 0  # the buffer is full, or the connection is broken: epoll reports either
            if sent == len(data):
                return
            left = memoryview(data)[sent:]
            self._watch(self._interest | _WRITE)
        self._out.append(left)
        self.unsent += len(left)

    def write_pieces(self, pieces: Sequence[bytes]) -> None:
        """Send what the system accepts of the pieces now, and the rest later; nothing is copied."""
        if self._socket is None:
            return
        sent = 0
        if not self.unsent:
            with suppress(OSError):  # as in `write`
                sent = self._socket.sendmsg(pieces)
        for piece in pieces:
            size = len(piece)
            if sent < size:
                self._out.append(memoryview(piece)[sent:])
                self.unsent += size - sent
            sent = max(0, sent - size)
        if self.unsent:
            self._watch(self._interest | _WRITE)

    def _flush(self) -> None:
        assert self._socket is not None
        while self._out:
            data = self._out[0]
            try:
                sent = self._socket.send(data)
            except OSError:
                return  # the buffer is full again, or the connection is broken
            self.unsent -= sent
            if sent < len(data):
                self._out[0] = memoryview(data)[sent:]
                return
            self._out.popleft()
        self._watch(self._interest & ~_WRITE)
        self._channel.on_drained()

    def pause(self) -> None:
        """Read no more until `resume`. A peer's close is still noticed; bytes sent before the close are not read."""
        self._watch(self._interest & ~_READ | select.EPOLLRDHUP)

    def resume(self) -> None:
        """Read again."""
        self._watch(self._interest | _READ)

    def close(self) -> None:
        """Close at once. Nothing is reported after that."""
        self._closed = True
        self._addresses = None
        self._out.clear()
        self._release()
        self._channel = ENDED
