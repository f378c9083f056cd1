"""TLS between sockets and frames: what each side is told, what a stranger can cost, and what the principal is.

Most tests run in virtual time over sockets in memory; those with `TcpTransport` use real sockets.
"""

from __future__ import annotations

import logging
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable
from random import Random
from shutil import which
from types import FrameType
from typing import Any

import pytest
import trio
import trio.testing

from conversation import LISTENER, Node, echo, numbered
from stranger import Stranger
from support.interop.certificates import client_context, leaf, server_context, tls
from transport import Cause, Failed, MemoryStreams, Principal, Reply, TcpTransport, Tls, WireTransport
from transport.handshakes import Handshakes
from transport.limits import HANDSHAKE_BYTES, SEAL_BYTES, UNSECURED_CONNECTIONS, UNSECURED_PER_ADDRESS
from transport.protocol.messages import VoteResponse
from transport.tls import Fault, TlsError, TlsSession


def pair(**versions: Any) -> tuple[TlsSession, TlsSession]:
    return TlsSession(client_context(**versions), "localhost"), TlsSession(server_context())


def shake_hands(client: TlsSession, server: TlsSession) -> None:
    """Finish the handshake of both ends."""
    while not (client.is_secured and server.is_secured):
        for one, other in ((client, server), (server, client)):
            if not one.is_secured:
                one.advance()
            if sealed := one.take():
                other.receive(sealed)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("seed", range(4))
def test_bytes_arrive_whole_however_they_are_cut(version: ssl.TLSVersion, seed: int) -> None:
    """Seed 0 feeds byte by byte."""
    random, (client, server) = Random(seed), pair(version=version)
    wire: bytes
    while not (client.is_secured and server.is_secured):
        for one, other in ((client, server), (server, client)):
            if not one.is_secured:
                one.advance()
            wire = one.take()
            while wire:
                size = random.randint(1, 300) if seed else 1
                other.receive(wire[:size])
                if not other.is_secured:
                    other.advance()
                wire = wire[size:]
    client.read()
    message = random.randbytes(40_000)
    client.seal(message)
    wire, received = client.take(), b""
    while wire:
        size = random.randint(1, 20_000) if seed else 1
        server.receive(wire[:size])
        plain, failure = server.read()
        assert failure is None
        received, wire = received + plain, wire[size:]
    assert received == message


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_small_frame_is_sealed_and_opened_by_one_call_each(version: ssl.TLSVersion) -> None:
    """A second look at what is empty costs an error, which takes as long as to open the record."""
    client, server = pair(version=version)
    shake_hands(client, server)
    client.read()
    calls: list[str] = []

    def on_call(_: FrameType, event: str, what: Any) -> None:
        if event == "c_call" and what.__name__ in {"read", "write"} and type(what.__self__).__name__ == "_SSLSocket":
            calls.append(what.__name__)

    sys.setprofile(on_call)
    try:
        client.seal(b"small")
        server.receive(client.take())
        opened = server.read()
    finally:
        sys.setprofile(None)
    assert opened == (b"small", None)
    assert calls == ["write", "read"]
    client.seal(b"one")
    client.seal(b"two")
    client.end()
    server.receive(client.take())
    assert server.read() == (b"onetwo", None)
    assert server.is_ended


def test_a_session_takes_bounded_bytes_before_the_handshake_is_done() -> None:
    _, server = pair()
    for _ in range(HANDSHAKE_BYTES // 1024):
        server.receive(b"\x16" * 1024)
    with pytest.raises(TlsError) as caught:
        server.receive(b"\x16")
    assert caught.value.fault is Fault.TOO_LONG


def test_an_impossible_host_is_a_named_failure() -> None:
    with pytest.raises(TlsError, match="no certificate can name the host"):
        TlsSession(client_context(), "a..b")


async def outcome_of(server_tls: Tls | None, client_tls: Tls | None) -> Reply | Failed:
    """The outcome of one request over sockets in memory."""
    streams = MemoryStreams()
    server, client = Node(streams.transport(tls=server_tls)), Node(streams.transport(tls=client_tls))
    server.answer_with = echo
    endpoint = server.transport.listen(LISTENER)
    async with server.running(), client.running():
        outcome = await client.call(endpoint, numbered(3))
        await trio.sleep(1)
        assert isinstance(server.transport, WireTransport)
        assert len(server.transport.handshakes) == 0
        assert isinstance(outcome, Reply) or server.transport.serving.connections == 0
    return outcome


@pytest.mark.parametrize(
    ("server", "client", "told_client", "told_server"),
    [
        pytest.param(
            lambda: tls(server=server_context(leaf("x", "elsewhere.example"))),
            tls,
            "certificate is not valid for '127.0.0.1'",
            "the peer does not accept this side's certificate",
            id="wrong-host",
        ),
        pytest.param(
            lambda: tls(server=server_context(leaf("x", is_expired=True))),
            tls,
            "the peer's certificate is not accepted: certificate has expired",
            "this side's certificate has expired",
            id="expired",
        ),
        pytest.param(
            lambda: tls(server=server_context(leaf("x", is_trusted=False))),
            tls,
            "the peer's certificate is not accepted: unable to get local issuer certificate",
            "no authority that the peer trusts has signed this side's certificate",
            id="unknown-authority",
        ),
        pytest.param(
            lambda: tls(server=server_context(client_auth=ssl.CERT_REQUIRED)),
            tls,
            "the peer requires a certificate, and this side sent none",
            "the peer sent no certificate, and one is required",
            id="no-certificate",
        ),
        pytest.param(
            lambda: tls(server=server_context(client_auth=ssl.CERT_REQUIRED)),
            lambda: tls(client=client_context(leaf("x", is_expired=True))),
            "this side's certificate has expired",
            "the peer's certificate is not accepted: certificate has expired",
            id="expired-client",
        ),
        pytest.param(
            lambda: tls(server=server_context(client_auth=ssl.CERT_OPTIONAL)),
            lambda: tls(client=client_context(leaf("x", is_trusted=False))),
            "no authority that the peer trusts has signed this side's certificate",
            "the peer's certificate is not accepted: unable to get local issuer certificate",
            id="unknown-authority-of-client",
        ),
        pytest.param(
            lambda: tls(server=server_context(client_auth=ssl.CERT_REQUIRED), principal_of=refuse_all),
            lambda: tls(client=client_context(leaf("x"))),
            "before its first answer: does its port expect another security protocol?",
            "the peer's certificate has no principal: no rule matches",
            id="no-principal",
        ),
        pytest.param(
            tls,
            lambda: None,
            "before its first answer: does its port expect another security protocol?",
            "the peer sends bytes without TLS",
            id="plain-to-tls",
        ),
        pytest.param(
            lambda: None,
            tls,
            "the peer closed the connection at the start of the TLS handshake: does the peer speak TLS?",
            "the peer sends TLS on a connection in the clear",
            id="tls-to-plain",
        ),
    ],
)
async def test_both_sides_name_the_cause(
    autojump_clock: trio.testing.MockClock,
    server: Callable[[], Tls | None],
    client: Callable[[], Tls | None],
    told_client: str,
    told_server: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "transport")
    outcome = await outcome_of(server(), client())
    assert isinstance(outcome, Failed)
    assert told_client in outcome.detail
    assert outcome.cause in (Cause.AUTHENTICATION, Cause.RESET)
    assert any(told_server in line and "connection of 127.0.0.1" in line for line in caplog.messages), caplog.messages


def refuse_all(certificate: bytes) -> Principal:
    raise ValueError("no rule matches")


async def test_versions_without_overlap_are_named_on_both_sides(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    only_1_3 = server_context()
    only_1_3.minimum_version = ssl.TLSVersion.TLSv1_3
    outcome = await outcome_of(tls(server=only_1_3), tls(client=client_context(version=ssl.TLSVersion.TLSv1_2)))
    assert isinstance(outcome, Failed)
    assert "supports no version of TLS that this side offers" in outcome.detail
    assert any("supports no version of TLS that this side allows" in line for line in caplog.messages)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_the_principal_of_a_certificate_is_that_of_each_request(
    autojump_clock: trio.testing.MockClock, version: ssl.TLSVersion
) -> None:
    streams, alice = MemoryStreams(), Principal(name="alice")
    secured = tls(server=server_context(client_auth=ssl.CERT_REQUIRED), principal_of=lambda certificate: alice)
    server = Node(streams.transport(tls=secured))
    client = Node(streams.transport(tls=tls(client=client_context(leaf("alice"), version))))
    endpoint = server.transport.listen(LISTENER)
    async with server.running(), client.running():
        for number in range(2):
            client.ask(endpoint, numbered(number))
            request = await server.next_request()
            assert request.principal == alice
            server.transport.answer(request, VoteResponse())


def hello() -> bytes:
    """The first bytes of a client."""
    client, _ = pair()
    client.advance()
    return client.take()


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x00" * 50,
        b"\x16\x03\x01\x00\x05hello",
        b"\x16" * 3000,
        b"\x15\x03\x03\x00\x02\x02\x28",
    ],
)
async def test_garbage_ends_its_own_connection_and_nothing_else(
    autojump_clock: trio.testing.MockClock, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    streams = MemoryStreams()
    server, client = Node(streams.transport(tls=tls())), Node(streams.transport(tls=tls()))
    server.answer_with = echo
    endpoint = server.transport.listen(LISTENER)
    async with server.running(), client.running():
        stranger = Stranger(server, endpoint, streams)
        await trio.sleep(0.1)
        stranger.socket.write(data)
        await trio.sleep(0.5)
        assert stranger.is_closed
        assert await client.call(endpoint, numbered(7)) == Reply(1, VoteResponse(error_code=7))
    assert any(line.startswith("closing the connection of") for line in caplog.messages)


async def test_half_done_handshakes_are_bounded_and_the_node_serves_on(autojump_clock: trio.testing.MockClock) -> None:
    streams = MemoryStreams()
    server, client = Node(streams.transport(tls=tls())), Node(streams.transport(tls=tls()))
    server.answer_with = echo
    endpoint = server.transport.listen(LISTENER)
    async with server.running(), client.running():
        assert isinstance(await client.call(endpoint, numbered(1)), Reply)
        strangers = [Stranger(server, endpoint, streams) for _ in range(2000)]
        await trio.sleep(0.1)
        first = hello()
        for stranger in strangers:
            if not stranger.is_closed:
                stranger.socket.write(first)
        await trio.sleep(1)
        assert len(server.transport.handshakes) == UNSECURED_CONNECTIONS
        assert sum(stranger.is_closed for stranger in strangers) == 2000 - UNSECURED_CONNECTIONS
        assert isinstance(await client.call(endpoint, numbered(2)), Reply)
        await trio.sleep(11)
        assert len(server.transport.handshakes) == 0
        assert all(stranger.is_closed for stranger in strangers)


class Nothing:
    """A handshake that never advances."""

    def __init__(self, *, is_silent: bool = True) -> None:
        self.is_silent = is_silent
        self.is_closed = False

    def step(self) -> None:
        """No bytes arrive."""

    def expire(self) -> None:
        """The connection is closed."""
        self.is_closed = True


def unfinished() -> Handshakes:
    """Handshakes in which one address has a reserve; what is due at once is done at once."""
    return Handshakes(
        timeout_s=10,
        later=lambda action, delay_s: None if delay_s else action(),
        now=lambda: 0.0,
        has_reserve=lambda at: at == "10.0.0.1",
    )


def begin(handshakes: Handshakes, address: str, *, is_silent: bool = True) -> Nothing:
    """A connection that comes in and has its place."""
    made = Nothing(is_silent=is_silent)
    handshakes.make_room(address)
    handshakes.enter(made, address)
    return made


def test_one_address_has_a_share_of_the_unfinished_handshakes_and_its_oldest_silent_one_gives_way() -> None:
    handshakes = unfinished()
    held = [begin(handshakes, "192.0.2.1", is_silent=number > 0) for number in range(UNSECURED_PER_ADDRESS)]
    other = begin(handshakes, "192.0.2.2")
    assert "32 connections from that address" in (handshakes.make_room("192.0.2.1") or "")
    assert [number for number, one in enumerate(held) if one.is_closed] == [1], "the first one has sent something"
    assert handshakes.make_room("192.0.2.1") is None
    assert not other.is_closed


def test_silent_connections_of_one_address_keep_no_other_address_out() -> None:
    handshakes = unfinished()
    few = [begin(handshakes, f"198.51.100.{number}") for number in range(UNSECURED_CONNECTIONS - 2)]
    many = [begin(handshakes, "192.0.2.1") for _ in range(2)]
    for number in range(50):
        begin(handshakes, f"192.0.2.{number + 2}")
    assert len(handshakes) == UNSECURED_CONNECTIONS
    assert many[0].is_closed, "the address that has the most gives way first"
    assert [one.is_closed for one in few] == [True] * 49 + [False] * (len(few) - 49), "then the oldest"
    reserved = [begin(handshakes, "10.0.0.1") for _ in range(UNSECURED_CONNECTIONS)]
    assert not any(one.is_closed for one in reserved)
    begin(handshakes, "10.0.0.1")
    assert [one.is_closed for one in reserved].index(True) == 0
    assert sum(one.is_closed for one in few) == 49


def test_a_long_plain_stream_is_sealed_in_portions() -> None:
    """A socket gets at most one portion at a time, and all bytes in their order."""
    client, server = pair()
    shake_hands(client, server)
    data = Random(1).randbytes(3 * SEAL_BYTES + 17)
    for at in range(0, len(data), SEAL_BYTES):
        server.seal(data[at : at + SEAL_BYTES])
    client.receive(server.take())
    assert client.read() == (data, None)


class Heard(logging.Handler):
    """Tells a test that a line was logged."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text, self.event = text, trio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if self.text in record.getMessage():
            self.event.set()


@pytest.mark.skipif(which("openssl") is None, reason="needs the command of OpenSSL")
async def test_a_second_handshake_is_refused() -> None:
    """In TLS 1.2, where a client may ask for one: `R` makes the command of OpenSSL ask."""
    server, heard = Node(TcpTransport(tls=tls())), Heard("the peer asked for a second handshake, which is refused")
    endpoint = server.transport.listen(LISTENER)
    command = ["openssl", "s_client", "-tls1_2", "-connect", str(endpoint)]
    logging.getLogger("transport").addHandler(heard)
    try:
        async with server.running(), trio.open_nursery() as nursery:
            with trio.fail_after(30):
                client = await trio.lowlevel.open_process(
                    command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
                assert client.stdin is not None
                nursery.start_soon(client.wait)
                await client.stdin.send_all(b"R\n")
                await heard.event.wait()
                client.kill()
    finally:
        logging.getLogger("transport").removeHandler(heard)


async def test_a_silent_client_on_a_real_socket_holds_up_no_other() -> None:
    server, client = Node(TcpTransport(tls=tls())), Node(TcpTransport(tls=tls()))
    server.answer_with = echo
    endpoint = server.transport.listen(LISTENER)
    async with server.running(), client.running():
        with socket.create_connection((endpoint.host, endpoint.port)) as silent:
            silent.send(hello()[:40])
            assert isinstance(await client.call(endpoint, numbered(1)), Reply)
            assert len(server.transport.handshakes) == 1
