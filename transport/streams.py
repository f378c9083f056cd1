"""The sockets of systems without epoll: Trio's streams, two tasks per connection, with the contract of `epoll`."""

from __future__ import annotations

import logging
import math
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import trio

from transport.addresses import (
    ADDRESS_SECONDS,
    NO_ADDRESS,
    PEER_CLOSED,
    SILENT_ADDRESS,
    Address,
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
from transport.channels import Channel, Owner, Socket
from transport.descriptors import ACCEPT_PAUSE_SECONDS, CANNOT_ACCEPT, OUT_OF_DESCRIPTORS, SpareDescriptors
from transport.interface import Cause, Endpoint, Listener
from transport.limited_log import LimitedLog
from transport.limits import HELD_AT_ONCE, MOST_READ_BYTES, READ_BYTES

log = logging.getLogger("transport")


class StreamSockets:
    """One nursery for the tasks of every listener and connection."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._bound: deque[tuple[socket.socket, Listener]] = deque()
        self._unopened: list[tuple[socket.socket, Listener]] = []
        """The bound sockets that wait for `open_listeners`."""
        self._nursery: trio.Nursery | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._spares = SpareDescriptors()
        self._held = 0
        """The peers that come too fast, and whose sockets are still open."""
        self._log = LimitedLog(log, time.monotonic)

    def listen_later(self, listener: Listener) -> Endpoint:
        """Bind now, and refuse connections until `open_listeners`. Raises `OSError` with a readable text."""
        bound = bind(listener, opens_later=True)
        self._spares.fill()
        self._unopened.append((bound, listener))
        return bound_to(listener, bound)

    def listen(self, listener: Listener) -> Endpoint:
        """Bind now. Raises `OSError` with a readable text."""
        bound = bind(listener)
        self._spares.fill()
        endpoint = bound_to(listener, bound)
        if self._nursery is None:
            self._bound.append((bound, listener))
        else:
            self._nursery.start_soon(self._accept, bound, listener)
        return endpoint

    def open_listeners(self) -> None:
        """Accept connections at the listeners of `listen_later`."""
        assert self._nursery is not None, "the transport is not running"
        unopened, self._unopened = self._unopened, []
        for bound, listener in unopened:
            open_socket(bound)
            self._nursery.start_soon(self._accept, bound, listener)

    def connect(self, endpoint: Endpoint, channel: Channel, failures: int) -> Socket:
        """Begin to connect; ends with `on_connected` or `on_closed`, never from inside this call."""
        assert self._nursery is not None, "the transport is not running"
        connection = _Connection()
        self._nursery.start_soon(self._connect, endpoint, connection, channel, failures)
        return connection

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Accept, read and write until cancelled, then close everything."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                self._token = trio.lowlevel.current_trio_token()
                while self._bound:
                    nursery.start_soon(self._accept, *self._bound.popleft())
                task_status.started()
                await trio.sleep_forever()
        finally:
            for bound, _ in (*self._bound, *self._unopened):
                bound.close()
            self._spares.close()

    def poll_nowait(self) -> None:
        """Nothing to do: only the task of a stream can read it."""

    def wake(self) -> None:
        """Schedule a call of the owner's `batch_delivered`; from any thread."""
        assert self._token is not None, "the transport is not running"
        self._token.run_sync_soon(self._settle, idempotent=True)

    def _settle(self) -> None:
        self._owner.batch_delivered()

    async def _accept(self, bound: socket.socket, listener: Listener) -> None:
        assert self._nursery is not None
        with trio.socket.from_stdlib_socket(bound) as listening:
            while True:
                is_short = False
                try:
                    accepted, address = await listening.accept()
                except ConnectionError:
                    continue  # that peer has closed already
                except OSError as failed:
                    self._log.write(logging.WARNING, "accept", CANNOT_ACCEPT, listener.name, reason_of(failed))
                    is_short = failed.errno in OUT_OF_DESCRIPTORS and self._spares.spend()
                    if not is_short:
                        await trio.sleep(ACCEPT_PAUSE_SECONDS)
                        continue
                    # A spare descriptor: this closes the peer again unless it has a reserve, and so reaches the
                    # peers behind it in the backlog.
                    try:
                        accepted, address = await listening.accept()
                    except OSError:
                        continue
                    finally:
                        self._spares.fill()
                if is_short and not self._owner.has_reserve(text_of(address)):
                    accepted.close()
                    self._spares.fill()
                    continue
                wait_s = self._owner.wait_s(listener)
                if wait_s > 0:
                    with _closed_if_cancelled(accepted):
                        await trio.sleep(wait_s)
                hold_s = self._owner.hold_s(listener, text_of(address))
                if hold_s > 0:
                    self._hold(accepted, hold_s)
                    continue
                connection = _Connection()
                channel = self._owner.accepted(connection, listener, text_of(address))
                if channel is None:
                    accepted.close()
                else:
                    self._nursery.start_soon(self._serve, connection, accepted, channel)

    def _hold(self, accepted: trio.socket.SocketType, seconds: float) -> None:
        """Close the socket of a peer that comes too fast, after a time."""
        assert self._nursery is not None
        if self._held >= HELD_AT_ONCE:
            accepted.close()
            return
        self._held += 1
        self._nursery.start_soon(self._close_later, accepted, seconds)

    async def _close_later(self, accepted: trio.socket.SocketType, seconds: float) -> None:
        with accepted:
            await trio.sleep(seconds)
        self._held -= 1

    async def _serve(self, connection: _Connection, accepted: trio.socket.SocketType, channel: Channel) -> None:
        with accepted, connection.scope:
            await connection.run(accepted, channel, self._owner.batch_delivered)

    async def _connect(self, endpoint: Endpoint, connection: _Connection, channel: Channel, failures: int) -> None:
        with connection.scope:
            try:
                connected = await _connect_to_first(numeric(endpoint) or await resolve(endpoint, failures))
            except OSError as failed:
                connected = cause_of(failed), reason_of(failed)
            if isinstance(connected, tuple):
                await _unless_closed()
                channel.on_closed(*connected)
                self._owner.batch_delivered()
            else:
                channel.on_connected()
                self._owner.batch_delivered()
                await connection.run(connected, channel, self._owner.batch_delivered)


@contextmanager
def _closed_if_cancelled(accepted: trio.socket.SocketType) -> Iterator[None]:
    try:
        yield
    except BaseException:
        accepted.close()
        raise


async def _connect_to_first(addresses: list[Address]) -> trio.socket.SocketType | tuple[Cause, str]:
    """A socket connected to the first address that accepts; the failure, if none does."""
    failure: tuple[Cause, str] = (Cause.TIMEOUT, NO_ADDRESS)
    for left, (family, address) in zip(reversed(range(len(addresses))), addresses, strict=True):
        attempt = trio.socket.socket(family, socket.SOCK_STREAM)
        try:
            with trio.fail_after(ADDRESS_SECONDS if left else math.inf):
                await attempt.connect(address)
            await _unless_closed()
            refuse_itself(attempt.getsockname(), attempt.getpeername())
        except trio.TooSlowError:
            attempt.close()
            failure = clearer(failure, (Cause.TIMEOUT, SILENT_ADDRESS))
        except OSError as failed:
            attempt.close()
            failure = clearer(failure, (cause_of(failed), reason_of(failed)))
        except BaseException:
            attempt.close()
            raise
        else:
            return attempt
    return failure


async def _unless_closed() -> None:
    """End the task of a connection that was closed while it waited for the socket.

    What the system has done is done: no cancellation interrupts a task that it has woken already.
    """
    await trio.lowlevel.checkpoint_if_cancelled()


class _Connection:
    """One connected or connecting socket: its pending bytes, and whether to read."""

    def __init__(self) -> None:
        self.unsent = 0
        self.scope = trio.CancelScope()
        """Cancelled by `close`."""
        self._out: deque[bytes] = deque()
        self._written = trio.Event()
        self._may_read = trio.Event()
        self._may_read.set()
        self._is_broken = False
        """Whether writing is impossible from now on."""

    async def run(
        self, connected: trio.socket.SocketType, channel: Channel, batch_delivered: Callable[[], object]
    ) -> None:
        """Move bytes in both directions until either side closes; within `scope`."""
        with connected:
            set_options(connected)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write_all, connected, channel)
                cause, detail = await self._read_all(connected, channel, batch_delivered)
                nursery.cancel_scope.cancel()
        await _unless_closed()
        channel.on_closed(cause, detail)
        batch_delivered()

    async def _read_all(
        self, connected: trio.socket.SocketType, channel: Channel, batch_delivered: Callable[[], object]
    ) -> tuple[Cause, str]:
        read_bytes = READ_BYTES
        while True:
            await self._may_read.wait()
            try:
                data = await connected.recv(read_bytes)
            except OSError as failed:
                return cause_of(failed), reason_of(failed)
            await _unless_closed()
            if not data:
                return Cause.RESET, PEER_CLOSED
            read_bytes = max(READ_BYTES, min(channel.on_data(data), MOST_READ_BYTES))
            batch_delivered()

    async def _write_all(self, connected: trio.socket.SocketType, channel: Channel) -> None:
        while True:
            await self._written.wait()
            self._written = trio.Event()
            while self._out:
                data = memoryview(self._out.popleft())
                while data:
                    try:
                        sent = await connected.send(data)
                    except OSError:
                        # Reading meets the same failure and reports it after the peer's last bytes.
                        self._is_broken = True
                        self._may_read.set()
                        return
                    self.unsent -= sent
                    data = data[sent:]
            await _unless_closed()
            channel.on_drained()

    def write(self, data: bytes) -> None:
        """Hand the bytes to the writing task."""
        self._out.append(data)
        self.unsent += len(data)
        self._written.set()

    def write_pieces(self, pieces: Sequence[bytes]) -> None:
        """Hand the pieces to the writing task."""
        for piece in pieces:
            self.write(piece)

    def pause(self) -> None:
        """Read no more until `resume`."""
        if self._may_read.is_set() and not self._is_broken:
            self._may_read = trio.Event()

    def resume(self) -> None:
        """Read again."""
        self._may_read.set()

    def close(self) -> None:
        """Close at once. Nothing is reported after that."""
        self.scope.cancel()
