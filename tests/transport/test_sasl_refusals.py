"""A peer that stops at any byte of any login, and a refusal of any kind: a named cause at both ends, and no detail."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from random import Random, SystemRandom

import pytest
import trio
import trio.testing

from conversation import LISTENER, echo, numbered
from sasl_pairs import Stranger, carrier_of, pair
from transport.channels import Socket
from transport.interface import PEERS, Cause, Failed, Listener, Reply
from transport.memory_sockets import MemoryStreams
from transport.protocol.frames import FrameReader, with_length
from transport.protocol.inbound import Principal
from transport.protocol.login import PeerRefused
from transport.protocol.sasl import plain
from transport.protocol.sasl.client import SaslClient, SaslLogin
from transport.protocol.sasl.credentials import MECHANISMS, Login, TokenRefused, Users
from transport.protocol.sasl.scram import LEAST_ITERATIONS, keys_of
from transport.protocol.sasl.server import SaslListener, SaslServer
from transport.sasl import Sasl

TOKEN = "a.good.token"
REASONS = ("the token has expired", "the token's signature is wrong", "the token is for another audience")


def judge(token: str) -> Login:
    if token == TOKEN:
        return Login(Principal(name="alice"), 1 << 50)
    raise TokenRefused(REASONS[len(token) % len(REASONS)])


KEYS = {name: keys_of(name, b"a-secret", b"salt", LEAST_ITERATIONS) for name in MECHANISMS if name.startswith("SCRAM")}
USERS = Users(
    passwords={"alice": "a-secret"},
    scram=lambda mechanism, name: KEYS[mechanism] if name == "alice" else None,
    bearer=judge,
    hiding_key=b"hidden",
)
LISTENING = SaslListener(mechanisms=MECHANISMS, users=dict.fromkeys(MECHANISMS, USERS))


def login(mechanism: str, *, is_right: bool = True) -> SaslLogin:
    if mechanism == "OAUTHBEARER":
        return SaslLogin(mechanism=mechanism, bearer=lambda: TOKEN if is_right else "a.bad.token")
    return SaslLogin(mechanism=mechanism, user="alice", password="a-secret" if is_right else "wrong")


def sides(mechanism: str) -> tuple[Sasl, Sasl]:
    return (
        Sasl(listeners={LISTENER.name: LISTENING}, timeout_ms=3000),
        Sasl(outgoing={PEERS: login(mechanism)}),
    )


class Halting(Stranger):
    """A peer that logs in rightly, and stops after so many bytes."""

    def __init__(self, mechanism: str, most: int) -> None:
        super().__init__()
        self.sent = 0
        self.has_stopped = trio.Event()
        self._client = SaslClient(login(mechanism), client_id="", nonce=lambda: "client-nonce")
        self._frames = FrameReader(1 << 20)
        self._most = most

    def begin(self, socket: Socket) -> None:
        self.socket = socket
        self._write(self._client.begin())

    def on_data(self, data: bytes) -> int:
        super().on_data(data)
        for frame in self._frames.feed(data):
            following = self._client.answer(frame)
            if following is not None:
                self._write(following)
        return 0

    def _write(self, frame: bytes) -> None:
        assert self.socket is not None
        data = with_length(frame)[: self._most - self.sent]
        self.sent += len(data)
        if data:
            self.socket.write(data)
        if self.sent == self._most:
            self.has_stopped.set()


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_client_that_stops_at_any_byte_is_named_in_the_log_and_holds_nothing(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture, mechanism: str
) -> None:
    caplog.set_level(logging.INFO)
    seed = SystemRandom().getrandbits(32)
    print(f"seed {seed}")
    rng = Random(seed)
    async with pair(*sides(mechanism)) as (server, client, endpoint, carrier):
        server.answer_with = echo
        whole = Halting(mechanism, 1 << 20)
        socket = carrier._sockets.connect(endpoint, whole, 0)
        await whole.is_connected.wait()
        whole.begin(socket)
        await trio.sleep(1)
        assert whole._client.is_done
        stops = sorted([*rng.sample(range(whole.sent), 20), 0, whole.sent - 1])
        for turn, at in enumerate(stops):
            caplog.clear()
            began = trio.current_time()
            halting = Halting(mechanism, at)
            socket = carrier._sockets.connect(endpoint, halting, 0)
            await halting.is_connected.wait()
            halting.begin(socket)
            assert isinstance(await client.call(endpoint, numbered(turn)), Reply)
            await halting.is_closed.wait()
            assert 3 <= trio.current_time() - began <= 3.6, at
            assert "the peer has not logged in in time" in caplog.text, at
            assert len(carrier_of(server).logins) == 0
        assert carrier_of(server).serving.connections == 2


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("is_right", [True, False])
async def test_a_refusal_has_a_cause_at_both_ends_and_no_secret(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture, mechanism: str, is_right: bool
) -> None:
    caplog.set_level(logging.DEBUG)
    serving, _ = sides(mechanism)
    async with pair(serving, Sasl(outgoing={PEERS: login(mechanism, is_right=is_right)})) as (
        server,
        client,
        endpoint,
        _,
    ):
        server.answer_with = echo
        outcome = await client.call(endpoint, numbered(1))
        if is_right:
            assert isinstance(outcome, Reply)
        else:
            assert isinstance(outcome, Failed)
            assert outcome.cause is Cause.AUTHENTICATION
            assert f"the peer refuses the login by {mechanism}" in outcome.detail
            assert f"the login by {mechanism} failed: " in caplog.text
    for secret in ("a-secret", "wrong\x00", TOKEN, "a.bad.token"):
        assert secret not in caplog.text


async def test_a_server_that_stops_in_the_middle_of_a_login_is_a_failure_in_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    network = MemoryStreams()
    silent, client = (network.transport(sasl=one) for one in (Sasl(), Sasl(outgoing={PEERS: login("PLAIN")})))
    outcomes: list[object] = []
    async with trio.open_nursery() as nursery:
        await nursery.start(silent.run, lambda inbound: None)
        await nursery.start(client.run, outcomes.append)
        endpoint = silent.listen(Listener("CONTROLLER", "silent", 1))
        client.request(endpoint, 1, numbered(1), timeout_ms=2000, client_id="me")
        await trio.sleep(3)
        (outcome,) = outcomes
        assert isinstance(outcome, Failed)
        assert outcome.cause is Cause.TIMEOUT
        assert "during the login" in outcome.detail
        nursery.cancel_scope.cancel()


def refusals(mechanism: str, *messages: Callable[[bytes], bytes]) -> bytes:
    """The answer that ends a login with these messages; each is made from the server's answer before."""
    server = SaslServer(LISTENING, now_ms=lambda: 0, nonce=lambda: "server-nonce")
    name = mechanism.encode()
    server.judge(bytes.fromhex("0011 0001 00000001 ffff") + len(name).to_bytes(2, "big") + name)
    told = b""
    for message in messages:
        token = message(told)
        frame = bytes.fromhex("0024 0001 00000002 ffff") + len(token).to_bytes(4, "big") + token
        if message is messages[-1]:
            with pytest.raises(PeerRefused) as caught:
                server.judge(frame)
            assert caught.value.is_delayed
            return caught.value.answer or b""
        told = server.judge(frame) or b""
    raise AssertionError(messages)


def always(message: bytes) -> Callable[[bytes], bytes]:
    """A message that does not depend on the server's answer."""
    return lambda _: message


def test_every_failure_of_scram_has_the_same_answer() -> None:
    first = always(b"n,,n=alice,r=client")
    finals = (
        b"c=biws,r=clientserver-nonce,p=" + b"A" * 43 + b"=",
        b"c=eSws,r=clientserver-nonce,p=" + b"A" * 43 + b"=",
        b"c=biws,r=other,p=" + b"A" * 43 + b"=",
        b"c=biws,r=clientserver-nonce,p=!",
        b"c=biws",
        b"",
    )
    answers = {refusals("SCRAM-SHA-256", first, always(final)) for final in finals}
    answers.add(refusals("SCRAM-SHA-256", always(b"y,,n=alice,r=client")))
    assert len(answers) == 1


def test_every_bad_token_has_the_same_answer() -> None:
    tokens = (b"a", b"ab", b"abc")
    assert {judge_of_length(len(one)) for one in tokens} == set(REASONS)
    answers = {
        refusals("OAUTHBEARER", always(b"n,,\x01auth=Bearer " + token + b"\x01\x01"), always(b"\x01"))
        for token in tokens
    }
    (answer,) = answers
    assert json.loads(answer[answer.index(b"{") : answer.index(b"}") + 1]) == {"status": "invalid_token"}


def judge_of_length(length: int) -> str:
    with pytest.raises(TokenRefused) as caught:
        judge("x" * length)
    return caught.value.why


def test_a_password_is_compared_by_values_of_one_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """The size of an argument can show in the time of `compare_digest`, and the size of a password is a secret, too."""
    sizes: list[tuple[int, int]] = []
    compare = plain.compare_digest

    def spying(one: bytes, other: bytes) -> bool:
        sizes.append((len(one), len(other)))
        return compare(one, other)

    monkeypatch.setattr(plain, "compare_digest", spying)
    for message in (b"\0alice\0x", b"\0alice\0" + b"x" * 500, b"\0mallory\0x", b"\0alice\0a-secreT"):
        assert b"Invalid username or password" in refusals("PLAIN", always(message))
    assert len(sizes) == 4
    assert len(set(sizes)) == 1
