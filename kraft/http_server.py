"""A small HTTP/1.1 server over Trio and h11, for strangers: every wait and every buffer has a bound.

What may be asked is in its `HttpLimits`: by default GET and HEAD alone, and a body is never read. A connection that is
too many displaces the connection that has waited longest for a request, so that silent connections cannot keep a probe
out.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final
from urllib.parse import parse_qsl

import h11
import trio
from msgspec import Struct

MAX_HEADER_BYTES: Final = 8192
"""The most bytes of a request line with its headers; beyond it the answer is 431."""
REQUEST_SECONDS: Final = 5.0
"""The time for a whole request, from the connection or from the last answer on."""
ANSWER_SECONDS: Final = 5.0
"""The time in which a client has to take its answer."""
LINGER_SECONDS: Final = 0.5
LINGER_BYTES: Final = 1 << 16
"""How many bytes are read and discarded after a last answer, so that a reset does not take the answer away."""
CONNECTIONS_PER_SECOND: Final = 200
BURST: Final = 50
"""How many requests, or connections, may come at once before their rate counts."""
_READ_BYTES: Final = 4096
_OUT_OF_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
_TEXT: Final = "text/plain; charset=utf-8"
_NO_CONTENT: Final = 204


class HttpLimits(Struct, frozen=True, kw_only=True):
    """The limits of a server for requests of strangers.

    Args:
        methods: The methods that are answered.
        connections: How many connections are open at once.
        requests_per_second: The rate beyond which requests wait, those of all connections together.
        body_bytes: The most bytes of a body, beyond which the answer is 413; 0 to read none.
    """

    methods: tuple[str, ...] = ("GET", "HEAD")
    connections: int = 16
    requests_per_second: int = 100
    body_bytes: int = 0


class HttpRequest(Struct, frozen=True):
    """A request with the headers that an answer may depend on. The path is as it was sent, with its escapes."""

    method: str
    path: str
    query: dict[str, str]
    body: bytes = b""
    accept: str = ""
    content_type: str = ""
    host: str = ""


class HttpAnswer(Struct, frozen=True):
    """An answer. `allow` names the methods in an answer of 405."""

    status: int
    body: bytes
    content_type: str = _TEXT
    allow: str = ""


Handler = Callable[[HttpRequest], Awaitable[HttpAnswer]]


class Pace:
    """Spreads what comes too fast: `turn` waits until the rate allows one more, after a burst (GCRA)."""

    def __init__(self, per_second: int, burst: int = BURST) -> None:
        self._interval_s = 1 / per_second
        self._slack_s = burst / per_second
        self._at_s = float("-inf")

    async def turn(self) -> None:
        """Wait for a turn. The call takes a turn even if it is cancelled."""
        now_s = trio.current_time()
        at_s = max(self._at_s, now_s - self._slack_s)
        self._at_s = at_s + self._interval_s
        await trio.sleep(max(0.0, at_s - now_s))


class _Client(Struct, eq=False):
    """One connection: its address, its scope, and since when it has been waiting for a whole request."""

    address: str
    scope: trio.CancelScope
    waits_since_s: float
    is_answered: bool = False
    """Whether a handler works for the connection now."""


class HttpServer:
    """Serves one listening socket with one handler."""

    def __init__(self, listening: trio.SocketListener, handler: Handler, limits: HttpLimits = HttpLimits()) -> None:
        self._listening = listening
        self._handler = handler
        self._limits = limits
        self._clients: dict[_Client, None] = {}
        self._requests = Pace(limits.requests_per_second)
        self._connections = Pace(CONNECTIONS_PER_SECOND)

    @property
    def open_connections(self) -> int:
        """The connections that are open now."""
        return len(self._clients)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled, then close everything."""
        async with self._listening, trio.open_nursery() as nursery:
            task_status.started()
            while True:
                try:
                    stream = await self._listening.accept()
                except OSError as failed:
                    if failed.errno in _OUT_OF_DESCRIPTORS:
                        await trio.sleep(0.1)
                    continue
                nursery.start_soon(self._serve, stream, self._admit(stream))
                await self._connections.turn()

    def _admit(self, stream: trio.SocketStream) -> _Client:
        """Count a connection. One too many ends the one of the busiest address that has waited longest."""
        try:
            address = str(stream.socket.getpeername()[0])
        except OSError:
            address = ""
        client = _Client(address, trio.CancelScope(), trio.current_time())
        if len(self._clients) >= self._limits.connections:
            per_address: dict[str, int] = {}
            for one in self._clients:
                per_address[one.address] = per_address.get(one.address, 0) + 1
            displaced = min(
                self._clients, key=lambda one: (one.is_answered, -per_address[one.address], one.waits_since_s)
            )
            del self._clients[displaced]
            displaced.scope.cancel()
        self._clients[client] = None
        return client

    async def _serve(self, stream: trio.SocketStream, client: _Client) -> None:
        try:
            async with stream:
                # These errors mean that the client has gone.
                with client.scope, suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                    await self._talk(stream, client)
        finally:
            self._clients.pop(client, None)

    async def _talk(self, stream: trio.SocketStream, client: _Client) -> None:
        """Answer the requests of one connection until one side has had enough."""
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEADER_BYTES)
        while True:
            client.is_answered = False
            client.waits_since_s = trio.current_time()
            request: tuple[h11.Request, bytes] | None = None
            try:
                with trio.move_on_after(REQUEST_SECONDS) as limit:
                    request = await self._next_request(connection, stream)
            except _TooLarge:
                await self._refuse(connection, stream, 413, f"a body has at most {self._limits.body_bytes:,} bytes")
                return
            except h11.RemoteProtocolError as bad:
                await self._refuse(connection, stream, bad.error_status_hint, str(bad))
                return
            if limit.cancelled_caught:
                if connection.trailing_data[0]:
                    await self._refuse(connection, stream, 408, f"no whole request within {REQUEST_SECONDS:g} s")
                return
            if request is None:
                return
            client.is_answered = True
            await self._requests.turn()
            answer = await self._answer(*request)
            is_head = request[0].method == b"HEAD"
            if not await _send(connection, stream, answer, is_head=is_head):
                return
            if connection.our_state is not h11.DONE or connection.their_state is not h11.DONE:
                await _linger(stream)
                return
            connection.start_next_cycle()

    async def _answer(self, request: h11.Request, body: bytes) -> HttpAnswer:
        method = request.method.decode("ascii", "replace")
        if method not in self._limits.methods:
            allow = ", ".join(self._limits.methods)
            return HttpAnswer(405, f"The methods of this listener are {allow}.\n".encode(), allow=allow)
        path, _, query = request.target.decode("latin-1").partition("?")
        try:
            pairs = dict(parse_qsl(query, max_num_fields=8, errors="strict"))
        except ValueError:
            return HttpAnswer(400, b"the query has too many fields, or is no UTF-8\n")
        accept, content_type, host = (_header(request, name) for name in (b"accept", b"content-type", b"host"))
        return await self._handler(HttpRequest(method, path, pairs, body, accept, content_type, host))

    async def _refuse(self, connection: h11.Connection, stream: trio.SocketStream, status: int, why: str) -> None:
        """Answer what is no request, if an answer is still possible, and end the connection."""
        if connection.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            await _send(connection, stream, HttpAnswer(status, f"{why}\n".encode()), is_head=False, is_last=True)
            await _linger(stream)

    async def _next_request(
        self, connection: h11.Connection, stream: trio.SocketStream
    ) -> tuple[h11.Request, bytes] | None:
        """The next request with its body; None at the end of the connection.

        A body that is not read makes the answer the last one of the connection.
        """
        request: h11.Request | None = None
        body = bytearray()
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                if connection.they_are_waiting_for_100_continue:
                    await stream.send_all(connection.send(h11.InformationalResponse(status_code=100, headers=[])))
                connection.receive_data(await stream.receive_some(_READ_BYTES))
            elif isinstance(event, h11.Request):
                request = event
                if not self._limits.body_bytes:
                    if connection.their_state is h11.SEND_BODY:
                        connection.next_event()  # the end of a request without a body; the bytes of a body stay unread
                    return request, b""
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > self._limits.body_bytes:
                    raise _TooLarge
            elif isinstance(event, h11.EndOfMessage):
                assert request is not None
                return request, bytes(body)
            elif isinstance(event, h11.ConnectionClosed) or event is h11.PAUSED:
                return None


def _header(request: h11.Request, wanted: bytes) -> str:
    return ", ".join(value.decode("latin-1") for name, value in request.headers if name == wanted)


class _TooLarge(Exception):
    """A body has more bytes than are read."""


async def _send(
    connection: h11.Connection,
    stream: trio.SocketStream,
    answer: HttpAnswer,
    *,
    is_head: bool,
    is_last: bool = False,
) -> bool:
    """Send a whole answer; returns whether the client took it in time."""
    headers = [("content-type", answer.content_type), ("content-length", str(len(answer.body)))]
    if answer.status == _NO_CONTENT:
        headers = []
    headers += [("cache-control", "no-store"), ("x-content-type-options", "nosniff")]
    if answer.allow:
        headers.append(("allow", answer.allow))
    if is_last:
        headers.append(("connection", "close"))
    parts = [connection.send(h11.Response(status_code=answer.status, headers=headers, reason=b""))]
    if not is_head:
        parts.append(connection.send(h11.Data(data=answer.body)))
    parts.append(connection.send(h11.EndOfMessage()))
    with trio.move_on_after(ANSWER_SECONDS) as limit:
        await stream.send_all(b"".join(part for part in parts if part))
    return not limit.cancelled_caught


async def _linger(stream: trio.SocketStream) -> None:
    """Let the client read the last answer before the connection is reset."""
    with trio.move_on_after(LINGER_SECONDS):
        await stream.send_eof()
        left = LINGER_BYTES
        while left > 0 and (data := await stream.receive_some(_READ_BYTES)):
            left -= len(data)
