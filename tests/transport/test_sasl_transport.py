"""Logins over connections of bytes in virtual time: principals, refusals, deadlines, renewals."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio
import trio.testing

from conversation import LISTENER, echo, logins, numbered
from metadata_log.serde import Message
from sasl_pairs import Stranger, carrier_of, pair
from transport.interface import PEERS, Cause, Endpoint, Failed, Reply, Request
from transport.protocol.apis import ApiKey
from transport.protocol.frames import with_length
from transport.protocol.headers import encode_request
from transport.protocol.inbound import Principal
from transport.protocol.messages import SaslHandshakeResponse, VoteRequest, VoteResponse
from transport.protocol.sasl.client import SaslLogin
from transport.protocol.sasl.credentials import Login, Users
from transport.protocol.sasl.server import SaslListener
from transport.sasl import NO_SASL, Sasl
from transport.wire import WireTransport

HANDSHAKE = bytes.fromhex("0011 0001 00000001 ffff 0005") + b"PLAIN"
VOTE = bytes.fromhex("0034 0000 00000009 ffff 00 01 01 01 00")


async def connected(carrier: WireTransport, endpoint: Endpoint) -> Stranger:
    stranger = Stranger()
    stranger.socket = carrier._sockets.connect(endpoint, stranger, 0)
    await stranger.is_connected.wait()
    return stranger


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_a_request_has_the_principal_of_the_login(autojump_clock: trio.testing.MockClock, mechanism: str) -> None:
    async with pair(logins(), logins(mechanism=mechanism)) as (server, client, endpoint, _):
        token = client.ask(endpoint, numbered(1))
        request = await server.next_request()
        assert request.principal == Principal(name="alice")
        server.transport.answer(request, echo(request))
        assert await client.outcome(token) == Reply(token, VoteResponse(error_code=1))


async def test_a_client_without_login_is_disconnected(autojump_clock: trio.testing.MockClock) -> None:
    async with pair(logins(), NO_SASL) as (server, client, endpoint, _):
        outcome = await client.call(endpoint)
        assert isinstance(outcome, Failed)
        assert outcome.cause is Cause.RESET
        assert outcome.detail.endswith("before its first answer to a request: does its listener expect a login?")
        assert server.requests == []


async def test_a_listener_without_login_is_named(autojump_clock: trio.testing.MockClock) -> None:
    async with pair(NO_SASL, logins()) as (server, client, endpoint, _):
        server.answer_with = echo_or_illegal
        outcome = await client.call(endpoint)
        assert isinstance(outcome, Failed)
        assert "the peer's listener has no login" in outcome.detail


def echo_or_illegal(request: Request) -> Message:
    is_login = request.api_key == ApiKey.SASL_HANDSHAKE
    return SaslHandshakeResponse(error_code=34) if is_login else echo(request)


async def test_silent_connections_keep_nobody_from_logging_in(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transport.handshakes.UNSECURED_CONNECTIONS", 8)
    async with pair(logins(timeout_ms=3000), logins()) as (server, client, endpoint, carrier):
        strangers = [await connected(carrier, endpoint) for _ in range(8)]
        assert len(carrier_of(server).logins) == 8
        server.answer_with = echo
        assert isinstance(await client.call(endpoint, numbered(1)), Reply)
        assert trio.current_time() < 1
        assert [stranger.is_closed.is_set() for stranger in strangers] == [True] + [False] * 7, "the oldest one goes"
        for stranger in strangers:
            await stranger.is_closed.wait()
        assert len(carrier_of(server).logins) == 0


async def test_a_request_before_the_login_is_never_delivered(autojump_clock: trio.testing.MockClock) -> None:
    async with pair(logins(), logins()) as (server, _, endpoint, carrier):
        stranger = await connected(carrier, endpoint)
        assert stranger.socket is not None
        stranger.socket.write(with_length(VOTE))
        await stranger.is_closed.wait()
        assert (server.requests, bytes(stranger.received)) == ([], b"")


async def test_a_long_frame_before_the_login_is_refused_by_its_length(autojump_clock: trio.testing.MockClock) -> None:
    async with pair(logins(), logins()) as (_, _, endpoint, carrier):
        stranger = await connected(carrier, endpoint)
        assert stranger.socket is not None
        stranger.socket.write((524_289).to_bytes(4, "big"))
        await stranger.is_closed.wait()
        assert trio.current_time() < 1


async def test_a_refusal_waits_for_its_delay_while_others_are_served(autojump_clock: trio.testing.MockClock) -> None:
    async with pair(logins(), logins()) as (server, client, endpoint, carrier):
        server.answer_with = echo
        await client.call(endpoint, numbered(1))
        stranger = await connected(carrier, endpoint)
        assert stranger.socket is not None
        began = trio.current_time()
        wrong = b"\0alice\0wrong"
        frame = bytes.fromhex("0024 0001 00000002 ffff") + len(wrong).to_bytes(4, "big") + wrong
        stranger.socket.write(with_length(HANDSHAKE) + with_length(frame))
        assert isinstance(await client.call(endpoint, numbered(2)), Reply)
        assert trio.current_time() - began < 0.1
        await stranger.is_closed.wait()
        assert trio.current_time() - began >= 0.1
        assert b"Authentication failed: Invalid username or password" in stranger.received


async def test_sessions_are_renewed_without_a_lost_request(autojump_clock: trio.testing.MockClock) -> None:
    async with pair(logins(max_reauth_ms=3000), logins()) as (server, client, endpoint, _):
        server.answer_with = echo
        for number in range(60):
            assert await client.call(endpoint, numbered(number)) == Reply(number + 1, VoteResponse(error_code=number))
            await trio.sleep(0.5 if number % 7 else 4)
        assert carrier_of(server).serving.connections == 1


async def test_a_connection_outlives_the_tokens_of_its_logins(autojump_clock: trio.testing.MockClock) -> None:
    """A session ends with its token; each renewal has the token of its time."""
    now: Callable[[], int] = int
    shown: list[str] = []

    def current() -> str:
        shown.append(f"token.{now() + 3000}.")
        return shown[-1]

    def judge(token: str) -> Login:
        return Login(Principal(name="alice"), int(token.split(".")[1]))

    listening = SaslListener(mechanisms=("OAUTHBEARER",), users={"OAUTHBEARER": Users(bearer=judge)})
    outgoing = Sasl(outgoing={PEERS: SaslLogin(mechanism="OAUTHBEARER", bearer=current)})
    async with pair(Sasl(listeners={LISTENER.name: listening}), outgoing) as (server, client, endpoint, _):
        now = carrier_of(server).now_ms
        server.answer_with = echo
        for number in range(40):
            assert await client.call(endpoint, numbered(number)) == Reply(number + 1, VoteResponse(error_code=number))
            await trio.sleep(0.5)
        assert carrier_of(server).serving.connections == 1
        assert 5 <= len(shown) <= 10
        assert len(set(shown)) == len(shown)


async def test_requests_in_flight_are_answered_before_a_renewal(autojump_clock: trio.testing.MockClock) -> None:
    async with pair(logins(max_reauth_ms=3000), logins()) as (server, client, endpoint, _):
        first = client.ask(endpoint, numbered(1))
        waiting = await server.next_request()
        await trio.sleep(2.9)
        second = client.ask(endpoint, numbered(2))
        await trio.sleep(0.05)
        assert server.requests == []
        server.transport.answer(waiting, echo(waiting))
        later = await server.next_request()
        server.transport.answer(later, echo(later))
        assert await client.outcome(first) == Reply(first, VoteResponse(error_code=1))
        assert await client.outcome(second) == Reply(second, VoteResponse(error_code=2))


async def test_a_request_that_waits_across_the_end_of_a_session_is_answered(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The end of a session refuses the next request, as in Kafka: a broker of 4.4.0 answers a Fetch that waits for
    records three seconds after the session, and closes the connection at the request that follows.
    """
    token = b"\0alice\0a-secret"
    login = bytes.fromhex("0024 0001 00000002 ffff") + len(token).to_bytes(4, "big") + token
    vote = encode_request(ApiKey.VOTE, 2, 9, "stranger", VoteRequest(cluster_id="c"))
    async with pair(logins(max_reauth_ms=3000), logins()) as (server, _, endpoint, carrier):
        stranger = await connected(carrier, endpoint)
        assert stranger.socket is not None
        stranger.socket.write(b"".join(map(with_length, (HANDSHAKE, login, vote))))
        waiting = await server.next_request()
        await trio.sleep(6)
        before = len(stranger.received)
        server.transport.answer(waiting, VoteResponse())
        await trio.sleep(0.1)
        assert stranger.received[before + 4 : before + 8] == vote[4:8]
        assert not stranger.is_closed.is_set()
        stranger.socket.write(with_length(vote))
        await stranger.is_closed.wait()
        assert server.requests == []
