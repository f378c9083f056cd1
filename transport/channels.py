"""Channels: one connection and its socket, at the serving and at the requesting end.

The protocols between channels, the sockets' loop and the transport are here too. Kafka: `KafkaChannel`,
`ClusterConnectionStates`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import Final, Protocol

import trio
from msgspec import Struct

from metadata_log.errors import EncodeError
from metadata_log.serde import Message
from transport.interface import Cause, Endpoint, Failed, Listener, Reply, Request
from transport.protocol.apis import Api
from transport.protocol.connection import ClientConnection, ServerConnection
from transport.serving import COUNTED_BYTES, QUANTUM, STEADY_BYTES, TURN_REQUESTS, Serving, address_of

log = logging.getLogger("transport")

MAX_UNANSWERED: Final = 1024
"""The channel stops reading at this many unanswered requests, until half of them are answered."""
READ_BYTES: Final = 64 * 1024
"""Bytes per read, which bounds the small requests that one read of a connection brings."""
MOST_READ_BYTES: Final = 1024 * 1024
"""Bytes per read while a large frame is incomplete."""
NOT_TRIED: Final = " (not tried again yet)"
"""Follows the previous failure's reason while the reconnect backoff of a peer lasts."""
UNREADY_SECONDS: Final = 2.0
"""The channel closes a connection that no request waits for and that is not established after this time."""
MAX_UNSENT_BYTES: Final = 1 << 20
"""The channel stops reading from a peer that leaves this many bytes unread, until the peer has caught up."""


class Socket(Protocol):
    """A connected (or connecting) socket. No method calls back, and none raises for a peer's behaviour."""

    unsent: int
    """Bytes that `write` took and the operating system has not accepted yet."""

    def write(self, data: bytes) -> None:
        """Send `data` after everything written before."""

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


class Sockets(Protocol):
    """A loop around sockets: one for `epoll`, one for every other system."""

    def listen(self, listener: Listener) -> Endpoint:
        """Bind now. Raises `OSError` with a readable text."""

    def connect(self, endpoint: Endpoint, channel: Channel, failures: int) -> Socket:
        """Begin to connect; ends with `on_connected` or `on_closed`, never from inside this call.

        `failures` is the number of failures in a row. A host with several addresses may start at another one each time.
        """

    def poll_nowait(self) -> object:
        """Read what has arrived, if the implementation can see that without waiting."""

    def wake(self) -> None:
        """Schedule a call of the owner's `batch_delivered`; from any thread."""

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Accept, read and write until cancelled, then close everything."""


class Owner(Protocol):
    """The part of the transport that channels and sockets use."""

    def accepted(self, socket: Socket, listener: Listener, peer: str) -> Channel | None:
        """A peer has connected. Returns None to refuse the connection."""

    def has_reserve(self, peer: str) -> bool:
        """Whether to spend a spare descriptor on this peer's connection when no other descriptor is left."""

    def finish(self, outcome: Reply | Failed) -> None:
        """Report the outcome of a request; to be called from the transport's own tasks only."""

    def finish_later(self, outcome: Failed) -> None:
        """As `finish`, for a call from inside a method of the user."""

    def batch_delivered(self) -> bool:
        """The batch of calls is complete; to be called after any of the calls above and those of a channel.

        Returns whether only the network and time can bring more work; the caller may then wait.
        """

    def later(self, action: Callable[[], None], delay_s: float = 0.0) -> None:
        """Run an action in the transport's own task, after `delay_s` seconds."""

    def now(self) -> float:
        """Seconds on a monotonic clock."""


class ServerChannel:
    """A peer's connection to one listener of this node."""

    __slots__ = (
        "_deliver",
        "_mark",
        "_marked_at",
        "_paused",
        "_received",
        "_serving",
        "_socket",
        "_written",
        "address",
        "closed",
        "connection",
        "is_blocked",
        "is_queued",
        "is_trusted",
        "last_active",
        "now",
        "peer",
        "received_charged",
        "unsent_charged",
    )

    def __init__(
        self,
        serving: Serving,
        socket: Socket,
        *,
        now: Callable[[], float],
        listener: str,
        peer: str,
        served: Mapping[int, Api],
    ) -> None:
        assert serving.deliver is not None, "peers are accepted only by a running transport"
        self.connection = ServerConnection(
            handle=self, listener=listener, peer=peer, served=served, max_frame_bytes=serving.limits.max_frame_bytes
        )
        self.peer = peer
        self.address = address_of(peer)
        self.is_trusted = serving.is_trusted(self.address)
        self.closed = False
        self.now = now
        self.last_active = now()
        self.is_queued = False
        """Whether this connection waits for its turn to deliver."""
        self.is_blocked = False
        """Whether this connection waits for memory of the node."""
        self.received_charged = 0
        self.unsent_charged = 0
        self._serving = serving
        self._socket = socket
        self._deliver = serving.deliver
        self._paused = False
        self._received = 0
        self._written = 0
        self._mark = (0, 0)
        """Total bytes received and sent when the peer last made progress."""
        self._marked_at = self.last_active

    def on_connected(self) -> None:
        """Nothing to do: accepted connections are connected from the start."""
        raise AssertionError(self.peer)

    def on_data(self, data: bytes) -> int:
        """Deliver the requests that these bytes complete, or queue them for this connection's turn."""
        self.last_active = self.now()
        self._received += len(data)
        connection, serving = self.connection, self._serving
        if serving.requests_left > 0 and not self.is_queued:
            if not self._paused:
                may_be_bulk = serving.bulk_left[self.is_trusted] > 0 and not serving.is_tight
                request = connection.receive_alone(data, may_be_bulk=may_be_bulk)
                if request is not None:
                    serving.requests_left -= 1
                    if connection.bulk == request.sequence:
                        serving.bulk_left[self.is_trusted] -= connection.expected_bytes
                    self._deliver(request)
                    if connection.weight >= COUNTED_BYTES:
                        self.settle()
                    return 0
            connection.receive(data)
            self._serve(QUANTUM)
        else:
            connection.receive(data)
        self.settle()
        return 0 if serving.is_tight else connection.frames.missing

    def take_turn(self, most: int) -> int:
        """Deliver up to `most` requests; returns how many."""
        served = self._serve(most)
        self.settle()
        return served

    def _serve(self, most: int) -> int:
        connection, serving = self.connection, self._serving
        served = 0
        while served < most and not self.closed:  # the user may drop the connection over any request
            if not connection.may_take or self._is_full:
                break
            is_new = not connection.is_reading
            if is_new and connection.is_next_in_bulk and not serving.may_ask_in_bulk(self):
                break
            taken = connection.take()
            if taken is None:
                if connection.is_reading:
                    served = TURN_REQUESTS  # a step of a long frame is a turn's work
                break
            served += 1
            serving.requests_left -= 1
            if isinstance(taken, bytes):
                self._write(taken)
            else:
                if connection.bulk == taken.sequence:
                    serving.bulk_left[self.is_trusted] -= connection.expected_bytes
                self._deliver(taken)
        return served

    @property
    def _is_full(self) -> bool:
        """Whether serving waits: for the peer to read, or for this node to answer."""
        return self.connection.unanswered >= MAX_UNANSWERED or self._socket.unsent >= MAX_UNSENT_BYTES

    def _write(self, data: bytes) -> None:
        self._written += len(data)
        self._serving.written_bytes += len(data)
        self._socket.write(data)

    def answer(self, request: Request, message: Message) -> None:
        """Send an answer, or keep the answer until those before it are sent."""
        if self.closed:
            return
        connection = self.connection
        if connection.may_be_long(request):
            steps = connection.answer_in_steps(request, message)
            if self._write_on(steps):
                self._serving.work_on(partial(self._write_on, steps))
            return
        try:
            released = connection.answer(request, message)
        except EncodeError as bad:
            self._close_unwritten(bad)
        else:
            self._send(released)

    def _write_on(self, steps: Generator[None, None, bytes]) -> bool:
        """Do the next step of a long answer; returns whether more steps follow."""
        if self.closed:
            return False
        try:
            next(steps)
        except StopIteration as done:
            self._send(done.value)
        except EncodeError as bad:
            self._close_unwritten(bad)
        else:
            return True
        return False

    def _close_unwritten(self, bad: EncodeError) -> None:
        text = "closing the connection of %s: its answer cannot be written: %s"
        self._serving.log.write(logging.ERROR, "answer", text, self.peer, bad)
        self.close()

    def _send(self, released: bytes) -> None:
        """Send the answers that may leave now, if any."""
        socket = self._socket
        if released:
            size = len(released)
            self._written += size
            self._serving.written_bytes += size
            socket.write(released)
        if self._paused or socket.unsent or self.received_charged:
            self.settle()

    def drop(self, request: Request) -> None:
        """Close the connection instead of answering."""
        self.connection.forget(request)
        self.close()

    def on_drained(self) -> None:
        """The peer has read the pending bytes."""
        self.settle()

    def settle(self) -> None:
        """Count the memory of this connection; then close, pause or resume the connection accordingly."""
        if self.closed:
            return
        connection, unsent = self.connection, self._socket.unsent
        held, unread = connection.held_bytes, unsent + connection.early_bytes
        if held >= COUNTED_BYTES or self.received_charged or unread or self.unsent_charged:
            self._serving.charge(self, held, unread)
        if connection.broken is not None:
            if connection.unanswered or unsent:
                self._pause()
            else:
                text = "closing the connection of %s: %s"
                self._serving.log.write(logging.INFO, "broken", text, self.peer, connection.broken)
                self.close()
        elif connection.waiting:
            self._pause()
            if connection.may_take and not self._is_full:
                self._serving.queue(self)
        elif self._is_full or (self._serving.is_tight and not self._serving.may_read(self)):
            self._pause()
        elif self._paused and connection.unanswered <= MAX_UNANSWERED // 2 and not unsent:
            self._paused = False
            self._socket.resume()

    def _pause(self) -> None:
        if not self._paused:
            self._paused = True
            self._socket.pause()

    def read_once(self) -> None:
        """Read once although the node is short of memory; `settle` follows and pauses the connection again."""
        if self._paused and not self.connection.waiting and not self._is_full and self.connection.broken is None:
            self._paused = False
            self._socket.resume()

    def has_stalled(self, now: float, stalled_s: float) -> bool:
        """Whether the peer has left answers unread, or a request unfinished, for `stalled_s` seconds.

        A few bytes now and then are no progress. A peer that waits for an answer of this node has not stalled.
        """
        unsent, connection = self._socket.unsent, self.connection
        if self.unsent_charged:
            self.settle()
        if not unsent and (connection.unanswered or connection.waiting or not connection.frames.held):
            self._marked_at = now
            self._mark = (self._received, self._written - unsent)
            return False
        received, sent = self._received - self._mark[0], self._written - unsent - self._mark[1]
        is_steady = sent >= STEADY_BYTES if unsent else received >= STEADY_BYTES
        if is_steady:
            self._marked_at = now
            self._mark = (self._received, self._written - unsent)
            return False
        if now - self._marked_at < stalled_s:
            return False
        what = f"left {unsent} bytes unread" if unsent else "did not finish a request"
        text = "closing the connection of %s: the peer %s for %d seconds"
        self._serving.log.write(logging.INFO, "stalled", text, self.peer, what, stalled_s)
        return True

    def on_closed(self, cause: Cause, detail: str) -> None:
        """The peer has closed the connection; answers to its requests are discarded."""
        log.debug("connection of %s ended (%s): %s", self.peer, cause, detail)
        self.close()

    def close(self) -> None:
        """Close now, even with requests unanswered."""
        if not self.closed:
            self.closed = True
            self._socket.close()
            self._serving.leave(self, self.connection.lost())

    @property
    def is_idle(self) -> bool:
        """Whether no request, frame or answer is pending."""
        return not self.connection.unanswered and not self.connection.waiting and not self._socket.unsent


class ClientOptions(Struct, frozen=True, kw_only=True):
    """The client's identity, its API versions, its frame limit and its reconnect backoff in milliseconds."""

    software: tuple[str, str]
    apis: Mapping[int, Api]
    max_frame_bytes: int
    backoff_ms: int
    """Kafka's `reconnect.backoff.ms` of a raft client."""
    backoff_max_ms: int


class _Open(Struct, eq=False):
    """A connection that is established or being established."""

    socket: Socket
    connection: ClientConnection


class ClientChannel:
    """This node's connection to one endpoint. The channel keeps the memory of failed attempts between connections."""

    def __init__(self, owner: Owner, sockets: Sockets, endpoint: Endpoint, options: ClientOptions) -> None:
        self.endpoint = endpoint
        self.last_active = owner.now()
        self._owner = owner
        self._sockets = sockets
        self._options = options
        self._open: _Open | None = None
        self._client_id = ""
        self._failures = 0
        self._failure: tuple[Cause, str] = (Cause.CLOSED, "")
        self._retry_at = 0.0

    def request(self, token: int, message: Message, client_id: str) -> None:
        """Send a request, connecting first where needed; or fail at once, by way of `finish_later`."""
        now = self._owner.now()
        self.last_active = now
        opened = self._open
        if opened is None:
            if now < self._retry_at:
                cause, detail = self._failure
                self._owner.finish_later(Failed(token, cause, detail + NOT_TRIED))
                return
            opened = self._connect(client_id)
        try:
            released = opened.connection.send(token, message, client_id)
        except EncodeError as bad:
            self._owner.finish_later(Failed(token, Cause.UNSUPPORTED_VERSION, f"{self.endpoint}: {bad}"))
            return
        if released:
            opened.socket.write(released)

    def keep_connected(self, client_id: str) -> None:
        """Connect if there is no connection, so that the next request does not wait for one."""
        now = self._owner.now()
        opened = self._open
        if opened is not None and self.is_idle and not opened.connection.ready:
            # An unreachable host may come back long before the operating system retries.
            if now - self.last_active >= UNREADY_SECONDS:
                self.end(Cause.TIMEOUT, f"{self.endpoint}: not connected in time")
        elif opened is None and now >= self._retry_at:
            self.last_active = now
            self._connect(client_id)

    def _connect(self, client_id: str) -> _Open:
        options = self._options
        connection = ClientConnection(
            software=options.software, apis=options.apis, max_frame_bytes=options.max_frame_bytes
        )
        self._client_id = client_id
        self._open = _Open(self._sockets.connect(self.endpoint, self, self._failures), connection)
        return self._open

    def on_connected(self) -> None:
        """Open the connection with ApiVersions."""
        opened = self._open
        assert opened is not None, self.endpoint
        opened.socket.write(opened.connection.begin(self._client_id))

    def on_data(self, data: bytes) -> int:
        """Report the outcomes of requests that these bytes decide."""
        opened = self._open
        assert opened is not None, self.endpoint
        connection = opened.connection
        self.last_active = self._owner.now()
        outcomes, released = connection.feed(data)
        if connection.ready:
            self._failures = 0
        if released:
            opened.socket.write(released)
        for outcome in outcomes:
            self._owner.finish(outcome)
        if connection.broken is not None and opened is self._open:
            log.warning("closing the connection to %s: %s", self.endpoint, connection.broken)
            self._report(self.end(Cause.BAD_BYTES, f"{self.endpoint}: {connection.broken}"))
        return connection.frames.missing if connection.frames.partial else 0

    def on_drained(self) -> None:
        """Nothing to do: the number of requests is bounded."""

    def on_closed(self, cause: Cause, detail: str) -> None:
        """The peer closed the connection, or the connection failed."""
        self._report(self.end(cause, f"{self.endpoint}: {detail}"))

    def _report(self, outcomes: list[Failed]) -> None:
        for outcome in outcomes:
            self._owner.finish(outcome)

    def end(self, cause: Cause, detail: str) -> list[Failed]:
        """Close, and begin the reconnect backoff if a connection in use failed; returns the unanswered requests."""
        if self._open is None:
            return []
        connection = self._open.connection
        self._open.socket.close()
        self._open = None
        unanswered = connection.lost(cause, detail)
        if cause is Cause.BAD_BYTES or (cause is not Cause.CLOSED and unanswered and not connection.ready):
            options = self._options
            backoff_ms = min(options.backoff_ms << min(self._failures, 16), options.backoff_max_ms)
            self._failures += 1
            self._failure = (cause, detail)
            self._retry_at = self._owner.now() + backoff_ms / 1000
        return unanswered

    @property
    def is_idle(self) -> bool:
        """Whether no request is pending."""
        return self._open is None or not self._open.connection.unanswered

    @property
    def is_blank(self) -> bool:
        """Whether this channel holds no state that is worth keeping."""
        return self._open is None and self._owner.now() >= self._retry_at
