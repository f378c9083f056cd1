"""Peers that stop within a TLS handshake, at each record of each message: the deadline ends them and is named."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from functools import cache, partial

import pytest
import trio
import trio.testing

from conversation import LISTENER, Node, echo, numbered
from stranger import Stranger
from support.interop.certificates import client_context, leaf, server_context, tls
from transport import Cause, Endpoint, Failed, MemoryStreams, Reply, TcpTransport, WireTransport
from transport.protocol.messages import VoteResponse
from transport.tls import TlsSession

VERSIONS = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
TIMEOUT_MS = 500
_HEADER = 5


@cache
def contexts(version: ssl.TLSVersion) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The client's, which has a certificate, and the server's."""
    return client_context(leaf("x"), version), server_context(client_auth=ssl.CERT_REQUIRED)


def sessions(version: ssl.TLSVersion) -> tuple[TlsSession, TlsSession]:
    """Both ends of a connection."""
    client, server = contexts(version)
    return TlsSession(client, "127.0.0.1"), TlsSession(server)


def records(flight: bytes) -> Iterator[int]:
    """Where each record of these bytes ends."""
    at = 0
    while at < len(flight):
        at += _HEADER + int.from_bytes(flight[at + 3 : at + _HEADER], "big")
        yield at


def flights(version: ssl.TLSVersion, *, of_client: bool) -> list[bytes]:
    """The bytes of one side in a whole handshake, up to each wait for the other side."""
    client, server = sessions(version)
    found = []
    while not (client.is_secured and server.is_secured):
        for one, other in ((client, server), (server, client)):
            if not one.is_secured:
                one.advance()
            if sealed := one.take():
                other.receive(sealed)
                if (one is client) is of_client:
                    found.append(sealed)
    return found


def stops(version: ssl.TLSVersion, *, of_client: bool) -> list[tuple[int, int]]:
    """Where a side may stop: the number of its flight, and how many bytes of the flight are sent.

    Within and after each record. The lengths of signatures differ, so that the ends are those of one handshake. After
    its last byte a side is done.
    """
    whole = flights(version, of_client=of_client)
    found = []
    for number, flight in enumerate(whole):
        begin = 0
        for end in records(flight):
            found += [(number, (begin + end) // 2), (number, end)]
            begin = end
    return found[:-1]


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
async def test_a_client_that_stops_at_any_step_is_named_and_holds_up_no_other(
    autojump_clock: trio.testing.MockClock, version: ssl.TLSVersion, caplog: pytest.LogCaptureFixture
) -> None:
    streams = MemoryStreams()
    secured = tls(server=server_context(client_auth=ssl.CERT_REQUIRED), handshake_timeout_ms=TIMEOUT_MS)
    server = Node(streams.transport(tls=secured))
    other = Node(streams.transport(tls=tls(client=client_context(leaf("x")))))
    server.answer_with = echo
    endpoint = server.transport.listen(LISTENER)
    places = stops(version, of_client=True)
    assert {number for number, _ in places} == {0, 1}
    async with server.running(), other.running():
        assert isinstance(server.transport, WireTransport)
        for number, (flight, size) in enumerate(places):
            client, _ = sessions(version)
            stranger = Stranger(server, endpoint, streams)
            await trio.sleep(0.01)
            for _ in range(flight):
                client.advance()
                stranger.socket.write(client.take())
                await trio.sleep(0.1)
                client.receive(stranger.received)
            client.advance()
            stranger.socket.write(client.take()[:size])
            await trio.sleep(0.1)
            assert len(server.transport.handshakes) == 1, (flight, size)
            assert await other.call(endpoint, numbered(number)) == Reply(number + 1, VoteResponse(error_code=number))
            await trio.sleep(2 * TIMEOUT_MS / 1000 + 0.5)
            assert stranger.is_closed, (flight, size)
            assert len(server.transport.handshakes) == 0
    late = [line for line in caplog.messages if "the TLS handshake was not finished in time" in line]
    assert len(late) == len(places)
    assert all(line.startswith("closing the connection of 127.0.0.1") for line in late)


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
async def test_a_server_that_stops_at_any_step_is_named(
    version: ssl.TLSVersion, caplog: pytest.LogCaptureFixture
) -> None:
    places = stops(version, of_client=False)
    if version is ssl.TLSVersion.TLSv1_3:
        # The client is done when it has the first flight of the server; the second one has tickets only.
        places = [place for place in places if place[0] == 0][:-1]
    secured = tls(client=client_context(leaf("x"), version), handshake_timeout_ms=TIMEOUT_MS)

    async def stop(flight: int, size: int, stream: trio.SocketStream) -> None:
        """Do a part of the handshake, then only read until the client closes."""
        _, session = sessions(version)
        number = 0
        while data := await stream.receive_some():
            if number > flight:
                continue
            session.receive(data)
            if not session.is_secured:
                session.advance()
            if sealed := session.take():
                await stream.send_all(sealed[:size] if number == flight else sealed)
                number += 1

    async def ask(place: tuple[int, int]) -> None:
        client = Node(TcpTransport(tls=secured))
        async with trio.open_nursery() as nursery, client.running():
            serve = partial(trio.serve_tcp, partial(stop, *place), 0, host="127.0.0.1")
            [listener] = await nursery.start(serve)
            host, port = listener.socket.getsockname()
            outcome = await client.call(Endpoint(host, port))
            nursery.cancel_scope.cancel()
        assert isinstance(outcome, Failed), place
        assert outcome.cause is Cause.TIMEOUT, (place, outcome)
        assert "the TLS handshake was not finished in time" in outcome.detail, (place, outcome)

    async with trio.open_nursery() as nursery:
        for place in places:
            nursery.start_soon(ask, place)
    assert len([line for line in caplog.messages if line.startswith("closing the connection to")]) == len(places)
