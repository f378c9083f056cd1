"""The counters of authentications in a transport: each outcome once, by listener, mechanism and kind."""

from __future__ import annotations

import ssl
from collections.abc import Callable

import pytest
import trio
import trio.testing

from conversation import LISTENER, Node, echo, logins, numbered
from support.interop.certificates import client_context, leaf, server_context, tls
from transport import Failed, MemoryStreams, Principal, Reply, Tls, WireTransport
from transport.sasl import NO_SASL, Sasl
from transport.traffic import AuthenticationOutcome


def refuse_all(certificate: bytes) -> Principal:
    raise ValueError("no rule matches")


async def counts_after_a_call(
    server_tls: Tls | None, client_tls: Tls | None, server_sasl: Sasl, client_sasl: Sasl
) -> tuple[dict[tuple[str, str], int], int, bool]:
    """The counts of the server and of the client after one request, and whether it was answered."""
    streams = MemoryStreams()
    server = Node(streams.transport(tls=server_tls, sasl=server_sasl))
    client = Node(streams.transport(tls=client_tls, sasl=client_sasl))
    server.answer_with = echo
    endpoint = server.transport.listen(LISTENER)
    async with server.running(), client.running():
        outcome = await client.call(endpoint, numbered(3))
        await trio.sleep(1)
        assert isinstance(server.transport, WireTransport)
        assert isinstance(client.transport, WireTransport)
        found = server.transport.serving.authentications.counts
        assert {one.listener for one in found} <= {LISTENER.name}
        by_kind = {(one.mechanism, one.result): count for one, count in found.items()}
        return by_kind, client.transport.client_traffic.refused, isinstance(outcome, Reply)


@pytest.mark.parametrize(
    ("server", "client", "counted", "refused"),
    [
        pytest.param(lambda: None, lambda: None, {}, 0, id="plain"),
        pytest.param(tls, tls, {("TLS", "success"): 1}, 0, id="tls"),
        pytest.param(
            lambda: tls(server=server_context(client_auth=ssl.CERT_REQUIRED)),
            tls,
            {("TLS", "tls-certificate"): 1},
            1,
            id="no-certificate",
        ),
        pytest.param(
            lambda: tls(server=server_context(leaf("x", "elsewhere.example"))),
            tls,
            {("TLS", "tls-alert"): 1},
            1,
            id="wrong-host",
        ),
        pytest.param(
            lambda: tls(server=server_context(client_auth=ssl.CERT_REQUIRED), principal_of=refuse_all),
            lambda: tls(client=client_context(leaf("x"))),
            {("TLS", "tls-principal"): 1},
            0,
            id="no-principal",
        ),
        pytest.param(tls, lambda: None, {("TLS", "tls-plain-bytes"): 1}, 0, id="plain-to-tls"),
    ],
)
async def test_each_handshake_counts_once(
    autojump_clock: trio.testing.MockClock,
    server: Callable[[], Tls | None],
    client: Callable[[], Tls | None],
    counted: dict[tuple[str, str], int],
    refused: int,
) -> None:
    found = await counts_after_a_call(server(), client(), NO_SASL, NO_SASL)
    assert found[:2] == (counted, refused)


@pytest.mark.parametrize(
    ("client", "counted", "refused"),
    [
        pytest.param(logins(), {("SCRAM-SHA-256", "success"): 1}, 0, id="scram"),
        pytest.param(logins(mechanism="PLAIN"), {("PLAIN", "success"): 1}, 0, id="plain"),
        pytest.param(logins(password="wrong"), {("SCRAM-SHA-256", "bad-credentials"): 1}, 1, id="bad-credentials"),
        pytest.param(logins(mechanism="SCRAM-SHA-512"), {("none", "unsupported-mechanism"): 1}, 1, id="mechanism"),
        pytest.param(NO_SASL, {("none", "illegal-state"): 1}, 0, id="no-login"),
    ],
)
@pytest.mark.parametrize("is_secured", [False, True], ids=["clear", "tls"])
async def test_each_login_counts_once_also_behind_tls(
    autojump_clock: trio.testing.MockClock,
    client: Sasl,
    counted: dict[tuple[str, str], int],
    refused: int,
    is_secured: bool,
) -> None:
    carrier = tls() if is_secured else None
    found, seen, is_answered = await counts_after_a_call(carrier, carrier, logins(), client)
    assert (found, seen) == (counted, refused)
    assert is_answered is any(result == "success" for _, result in counted)


async def test_a_silent_peer_counts_when_its_time_is_over(autojump_clock: trio.testing.MockClock) -> None:
    """A kept connection asks for ApiVersions, and has no login to send."""
    streams = MemoryStreams()
    server = Node(streams.transport(sasl=logins(timeout_ms=2_000)))
    client = Node(streams.transport())
    endpoint = server.transport.listen(LISTENER)
    async with server.running(), client.running():
        client.transport.keep_connected([endpoint], "voter")
        await trio.sleep(10)
        assert isinstance(server.transport, WireTransport)
        late = AuthenticationOutcome(LISTENER.name, "none", "timeout")
        assert server.transport.serving.authentications.counts[late] >= 1
        outcome = await client.call(endpoint, numbered(1))
        assert isinstance(outcome, Failed)
