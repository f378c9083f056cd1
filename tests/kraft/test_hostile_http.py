"""The HTTP server against clients that are slow, many, huge or no HTTP clients at all."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from itertools import count
from random import Random

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from kraft import http_server
from kraft.http_server import HttpAnswer, HttpLimits, HttpRequest, HttpServer, Pace
from transport.addresses import bind, bound_to
from transport.interface import Listener

GOOD = b"GET /a?b=c HTTP/1.1\r\nHost: x\r\n\r\n"
SEED = 20261123


async def handler(request: HttpRequest) -> HttpAnswer:
    if request.path == "/large":
        return HttpAnswer(200, bytes(8 << 20))
    return HttpAnswer(200, f"{request.method} {request.path} {request.query}".encode())


async def until(condition: Callable[[], bool]) -> None:
    """Let the server work until the condition holds."""
    for _ in count():
        if condition():
            return
        await wait_all_tasks_blocked(0.01)


@asynccontextmanager
async def server() -> AsyncIterator[tuple[HttpServer, int]]:
    listener = Listener("METRICS", "127.0.0.1", 0)
    bound = bind(listener)
    port = bound_to(listener, bound).port
    served = HttpServer(trio.SocketListener(trio.socket.from_stdlib_socket(bound)), handler)
    async with trio.open_nursery() as nursery:
        await nursery.start(served.run)
        with trio.fail_after(30):
            yield served, port
        nursery.cancel_scope.cancel()


async def everything(stream: trio.abc.ReceiveStream) -> bytes:
    """All bytes that arrive until the server closes."""
    said = b""
    try:
        while data := await stream.receive_some(65536):
            said += data
    except trio.BrokenResourceError:
        pass  # reset: the server has thrown away what it had not read
    return said


async def answer_to(port: int, data: bytes) -> bytes:
    """Send, and read until the server closes."""
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        # The server may have had enough before the end.
        with suppress(trio.BrokenResourceError):
            await stream.send_all(data)
        return await everything(stream)


async def one_answer(stream: trio.SocketStream) -> bytes:
    said = b""
    while b"\r\n\r\n" not in said:
        said += await stream.receive_some(4096)
    head, _, body = said.partition(b"\r\n\r\n")
    length = next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.startswith(b"content-length"))
    while len(body) < length:
        body += await stream.receive_some(4096)
    return head + b"\r\n\r\n" + body


async def test_a_connection_answers_several_requests() -> None:
    async with server() as (_, port), await trio.open_tcp_stream("127.0.0.1", port) as stream:
        for _ in range(3):
            await stream.send_all(GOOD)
            said = await one_answer(stream)
            assert said.startswith(b"HTTP/1.1 200")
            assert said.endswith(b"GET /a {'b': 'c'}")
        await stream.send_all(GOOD + GOOD)
        assert (await one_answer(stream)).startswith(b"HTTP/1.1 200"), "pipelined requests are answered in turn"


async def test_a_header_that_comes_byte_by_byte_ends_after_the_time_of_a_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_server, "REQUEST_SECONDS", 0.4)
    async with server() as (_, port), await trio.open_tcp_stream("127.0.0.1", port) as stream:
        began = trio.current_time()
        async with trio.open_nursery() as nursery:

            async def drip() -> None:
                with_no_end = iter(b"GET / HTTP/1.1\r\nX: " + b"y" * 10_000)
                try:
                    for byte in with_no_end:
                        await stream.send_all(bytes([byte]))
                        await trio.sleep(0.01)
                except trio.BrokenResourceError:
                    pass  # the server has closed

            nursery.start_soon(drip)
            said = await everything(stream)
            nursery.cancel_scope.cancel()
        assert said.startswith(b"HTTP/1.1 408")
        assert trio.current_time() - began < 5


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET / HTTP/1.1\r\nX: " + b"y" * 100_000, b"431"),
        (b"GET /" + b"a" * 100_000, b"431"),
        (b"GET / HTTP/1.1\r\n" + b"".join(b"X%d: y\r\n" % at for at in range(5000)), b"431"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200) + b"\r\n\r\n", b"400"),
        (b"\x00\x00\x00\x23\x00\x12\x00\x03" + b"\x00" * 27 + b"\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\n\r\n", b"400"),
        (b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\nConnection: close\r\n\r\n", b"405"),
        (b"GET /a?" + b"&".join(b"k%d=v" % at for at in range(50)) + b" HTTP/1.0\r\n\r\n", b"400"),
    ],
    ids=["header", "line", "headers", "tls", "kafka", "length", "host", "body", "query"],
)
async def test_requests_beyond_the_limits_get_an_error_and_a_close(data: bytes, status: bytes) -> None:
    async with server() as (served, port):
        said = await answer_to(port, data)
        assert said.startswith(b"HTTP/1.1 " + status), said[:200]
        await until(lambda: not served.open_connections)
        assert (await answer_to(port, b"GET /a HTTP/1.0\r\n\r\n")).startswith(b"HTTP/1.1 200")


async def test_silent_connections_do_not_keep_a_probe_out() -> None:
    async with server() as (served, port):
        silent = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(HttpLimits().connections * 3)]
        assert (await answer_to(port, b"GET /a HTTP/1.0\r\n\r\n")).startswith(b"HTTP/1.1 200")
        assert served.open_connections <= HttpLimits().connections
        assert await everything(silent[0]) == b"", "the connection that waited longest was closed"
        for stream in silent:
            await stream.aclose()


async def test_an_answer_that_is_not_read_ends_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "ANSWER_SECONDS", 0.3)
    async with server() as (served, port), await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: served.open_connections > 0)
        await until(lambda: not served.open_connections)
        assert len(await everything(stream)) < 8 << 20


async def test_random_bytes_never_end_the_server() -> None:
    rng = Random(SEED)
    print("seed", SEED)
    pieces = [GOOD, b"GET ", b"\r\n", b"HTTP/1.1", b"Host: x", b"\x00", b": ", b"chunked", b"Transfer-Encoding: "]
    async with server() as (_, port):
        for _ in range(40):
            parts = [rng.choice(pieces) if rng.random() < 0.7 else rng.randbytes(rng.randint(1, 40)) for _ in range(8)]
            async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                await stream.send_all(b"".join(parts))
                await stream.send_eof()
                said = await everything(stream)
            assert said == b"" or said.startswith(b"HTTP/1.1 "), said[:100]
        assert (await answer_to(port, b"GET /a HTTP/1.0\r\n\r\n")).startswith(b"HTTP/1.1 200")


async def test_the_pace_lets_a_burst_through_and_then_counts(autojump_clock: object) -> None:
    pace = Pace(10, burst=5)
    began = trio.current_time()
    for _ in range(6):
        await pace.turn()
    assert trio.current_time() - began == pytest.approx(0.0, abs=0.11)
    for _ in range(20):
        await pace.turn()
    assert trio.current_time() - began == pytest.approx(2.0, abs=0.2)
