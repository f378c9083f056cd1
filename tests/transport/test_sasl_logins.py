"""Logins of our client at our server, of Kafka's client at our server, and what a stranger learns from a refusal."""

from __future__ import annotations

import re
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metadata_log.errors import DecodeError
from support.interop.sasl_corpus import listener, recorded
from transport.protocol.inbound import Principal
from transport.protocol.login import LoginRefused, PeerRefused
from transport.protocol.sasl.client import SaslClient, SaslLogin
from transport.protocol.sasl.credentials import (
    MECHANISMS,
    OAUTHBEARER,
    SCRAM_HASHES,
    Login,
    TokenKeys,
    TokenRefused,
    Users,
)
from transport.protocol.sasl.scram import keys_of
from transport.protocol.sasl.server import SaslListener, SaslServer

NOW_MS = 1_000_000
VERSIONS = bytes.fromhex("7ffffff80000 00000002 0011 0000 0001 0024 0000 0002")
"""The answer to the ApiVersions request of a login: SaslHandshake and SaslAuthenticate."""
JAVA = {
    "plain": SaslLogin(mechanism="PLAIN", user="carol", password="c-4r0l"),
    "scram256": SaslLogin(mechanism="SCRAM-SHA-256", user="carol", password="c-4r0l"),
    "scram512": SaslLogin(mechanism="SCRAM-SHA-512", user="dave", password="d a v e"),
}
WITH_PASSWORD = tuple(one for one in MECHANISMS if one != OAUTHBEARER)
NAMES = st.text(st.characters(min_codepoint=1, max_codepoint=126), min_size=1, max_size=20)
PASSWORDS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20)


def server(known: Users, **options: int) -> SaslServer:
    numbers = count()
    listening = SaslListener(
        mechanisms=MECHANISMS,
        users=dict.fromkeys(MECHANISMS, known),
        max_reauth_ms=dict.fromkeys(MECHANISMS, options.get("max_reauth_ms", 0)),
    )
    return SaslServer(listening, now_ms=lambda: NOW_MS, nonce=lambda: f"server{next(numbers)}")


def client(login: SaslLogin) -> SaslClient:
    return SaslClient(login, client_id="me", nonce=lambda: "fresh")


def judged(other: SaslServer, frame: bytes) -> tuple[bytes, PeerRefused | None]:
    """The server's answer to a frame, and whether the answer is a refusal."""
    try:
        answer = other.judge(frame)
    except PeerRefused as refused:
        return refused.answer or b"", refused
    return answer or b"", None


def converse(one: SaslClient, other: SaslServer) -> list[bytes]:
    """A whole login; returns the server's frames. Raises as the two ends do."""
    assert other.judge(one.begin()) is None, "ApiVersions is for the user of the connection"
    frame = one.answer(VERSIONS)
    told = []
    while frame is not None:
        told.append(judged(other, frame)[0])
        frame = one.answer(told[-1])
    return told


def known_user(mechanism: str, user: str, password: str) -> Users:
    keys = {mechanism: keys_of(mechanism, password.encode(), b"salt", 4096)} if mechanism in SCRAM_HASHES else {}
    return Users(
        passwords={user: password},
        scram=lambda asked, name: keys.get(asked) if name == user else None,
        token=lambda asked, name: (
            TokenKeys(keys[asked], Principal(name="owner", is_token=True), NOW_MS + 500) if name == user else None
        ),
        hiding_key=b"hidden",
    )


@given(st.sampled_from(WITH_PASSWORD), NAMES, PASSWORDS)
@settings(max_examples=30, deadline=None)
def test_a_user_with_the_right_password_is_logged_in(mechanism: str, user: str, password: str) -> None:
    other = server(known_user(mechanism, user, password))
    one = client(SaslLogin(mechanism=mechanism, user=user, password=password))
    converse(one, other)
    assert one.is_done
    assert other.principal == Principal(name=user)


@given(st.sampled_from(WITH_PASSWORD), NAMES, PASSWORDS, PASSWORDS)
@settings(max_examples=30, deadline=None)
def test_a_user_with_a_wrong_password_is_refused(mechanism: str, user: str, password: str, wrong: str) -> None:
    if wrong == password:
        wrong += "x"
    other = server(known_user(mechanism, user, password))
    with pytest.raises(LoginRefused):
        converse(client(SaslLogin(mechanism=mechanism, user=user, password=wrong)), other)
    assert other.principal is None


@pytest.mark.parametrize("mechanism", WITH_PASSWORD)
def test_an_unknown_user_gets_the_bytes_of_a_wrong_password(mechanism: str) -> None:
    def refusal(user: str) -> list[bytes]:
        other, frames = server(known_user(mechanism, "alice", "secret")), list[bytes]()
        one = client(SaslLogin(mechanism=mechanism, user=user, password="guess"))
        other.judge(one.begin())
        frame = one.answer(VERSIONS)
        while frame is not None:
            answer, refused = judged(other, frame)
            if refused is not None:
                assert refused.is_delayed
                return [*frames, answer]
            frames.append(re.sub(rb"s=[A-Za-z0-9+/=]+,", b"s=,", answer))
            frame = one.answer(answer)
        raise AssertionError("a wrong password is right")

    # The salts differ, as those of two users do.
    known, unknown = refusal("alice"), refusal("mallory")
    assert [len(one) for one in known[2:]] == [len(one) for one in unknown[2:]]
    assert known[-1] == unknown[-1]
    assert len(known) == len(unknown)


def test_the_salt_of_an_unknown_user_stays_the_same() -> None:
    def salt(user: str) -> str:
        other = server(known_user("SCRAM-SHA-256", "alice", "secret"))
        one = client(SaslLogin(mechanism="SCRAM-SHA-256", user=user, password="x"))
        other.judge(one.begin())
        first = one.answer(VERSIONS)
        assert first is not None
        begun = one.answer(other.judge(first) or b"")
        assert begun is not None
        found = re.search(rb"s=([A-Za-z0-9+/=]+)", other.judge(begun) or b"")
        assert found is not None
        return found[1].decode()

    assert salt("mallory") == salt("mallory") != salt("trent")


def test_a_token_logs_its_owner_in_until_it_expires() -> None:
    other = server(known_user("SCRAM-SHA-256", "token", "hmac"))
    one = client(SaslLogin(mechanism="SCRAM-SHA-256", user="token", password="hmac", is_token=True))
    converse(one, other)
    assert other.principal == Principal(name="owner", is_token=True)
    assert one.lifetime_ms == 500


@pytest.mark.parametrize("mechanism", WITH_PASSWORD)
def test_a_login_is_renewed_on_the_same_connection(mechanism: str) -> None:
    other = server(known_user(mechanism, "alice", "secret"), max_reauth_ms=4000)
    one = client(SaslLogin(mechanism=mechanism, user="alice", password="secret"))
    converse(one, other)
    assert one.lifetime_ms == 4000
    frame: bytes | None = one.begin_again()
    assert not one.is_done
    while frame is not None:
        answer = other.judge(frame)
        assert answer is not None
        frame = one.answer(answer)
    assert one.is_done
    assert other.principal == Principal(name="alice")


@pytest.mark.parametrize("capture", JAVA)
def test_a_client_sends_the_bytes_of_a_client_of_kafka(capture: str) -> None:
    rows = [row for row in recorded()["java_clients"] if row["capture"] == capture and row["conn"] == 1]
    sent = [bytes.fromhex(row["hex"]) for row in rows if row["dir"] == "c2s"]
    got = [bytes.fromhex(row["hex"]) for row in rows if row["dir"] == "s2c"]
    nonce = re.search(rb"r=([a-z0-9]+)", b"".join(sent))
    one = SaslClient(JAVA[capture], client_id="", nonce=lambda: "" if nonce is None else nonce[1].decode())
    frame: bytes | None = one.begin()
    compared = 0
    while frame is not None and compared < len(sent):
        assert frame.hex() == sent[compared].hex()
        compared += 1
        answer = next((one for one in got if one[:4] == frame[4:8]), None)
        if answer is None:
            break  # the recording ends
        frame = one.answer(answer)
    assert compared >= 3
    assert one.is_done or capture == "plain"


def test_a_client_sends_the_token_and_extensions_that_a_client_of_kafka_sends() -> None:
    rows = [row for row in recorded()["java_clients"] if row["capture"] == "oauth" and row["conn"] == 1]
    sent = [bytes.fromhex(row["hex"]) for row in rows if row["dir"] == "c2s"]
    token = re.search(rb"Bearer ([-_.A-Za-z0-9]+)", b"".join(sent))
    assert token is not None
    login = SaslLogin(mechanism=OAUTHBEARER, bearer=token[1].decode, extensions={"traceId": "42"})
    one = SaslClient(login, client_id="", nonce=str)
    got = {row["hex"][:8]: bytes.fromhex(row["hex"]) for row in rows if row["dir"] == "s2c"}
    frame: bytes | None = one.begin()
    frames = []
    while frame is not None:
        frames.append(frame)
        frame = one.answer(got[frame[4:8].hex()])
    assert frames == sent[: len(frames)]
    assert len(frames) == 3
    assert one.lifetime_ms > 0


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=8))
def test_any_frames_are_answered_refused_or_passed_on(frames: list[bytes]) -> None:
    other = server(known_user("PLAIN", "alice", "secret"))
    for frame in frames:
        try:
            other.judge(frame)
        except PeerRefused:
            break
    assert other.principal is None


@given(st.lists(st.binary(max_size=60), max_size=4), st.sampled_from(MECHANISMS))
def test_any_tokens_are_refused_with_a_reason(tokens: list[bytes], mechanism: str) -> None:
    other = server(known_user(mechanism, "alice", "secret"))
    name = mechanism.encode()
    other.judge(bytes.fromhex("0011 0000 00000001 ffff") + len(name).to_bytes(2, "big") + name)
    for token in tokens:
        answer, refused = judged(other, token)
        if refused is not None:
            assert answer == b""
            assert "secret" not in str(refused)
            break
    assert other.principal is None


def test_a_client_leaves_a_server_that_cannot_prove_itself() -> None:
    one = client(SaslLogin(mechanism="SCRAM-SHA-256", user="alice", password="secret"))
    other = server(known_user("SCRAM-SHA-256", "alice", "secret"))
    other.judge(one.begin())
    frame = one.answer(VERSIONS)
    answers = []
    for _ in range(3):
        assert frame is not None
        answers.append(other.judge(frame) or b"")
        frame = one.answer(answers[-1]) if len(answers) < 3 else None
    forged = re.sub(rb"v=....", b"v=AAAA", answers[-1])
    with pytest.raises(LoginRefused, match="has not proved"):
        one.answer(forged)


@pytest.mark.parametrize(
    ("told", "why"),
    [
        (b"r=other,s=c2FsdA==,i=4096", "another nonce"),
        (b"r=fresh,s=c2FsdA==,i=4096", "another nonce"),
        (b"r=freshx,s=c2FsdA==,i=4095", "iterations"),
        (b"r=freshx,s=c2FsdA==,i=16385", "iterations"),
        (b"r=freshx,s=c2FsdA==,i=1000000000000", "iterations"),
        (b"r=freshx,s=!,i=4096", "base64"),
        (b"r=freshx", "malformed"),
    ],
)
def test_a_client_leaves_a_server_with_a_malformed_or_costly_challenge(told: bytes, why: str) -> None:
    one = client(SaslLogin(mechanism="SCRAM-SHA-256", user="alice", password="secret"))
    one.begin()
    one.answer(VERSIONS)
    one.answer(bytes.fromhex("7ffffff9 0000 00000000"))
    body = bytes([len(told) + 1]) + told
    with pytest.raises(LoginRefused, match=why):
        one.answer(bytes.fromhex("7ffffffa 00 0000 01") + body + bytes(9))


def test_a_client_reads_only_the_answer_that_is_due() -> None:
    one = client(SaslLogin(mechanism="PLAIN", user="alice", password="secret"))
    one.begin()
    with pytest.raises(DecodeError, match="correlation id"):
        one.answer(b"\x7f\xff\xff\xf9" + VERSIONS[4:])


def with_tokens(*good: str, max_reauth_ms: int = 0) -> SaslServer:
    """A server that takes these tokens as those of alice."""

    def judge(token: str) -> Login:
        if token in good:
            return Login(Principal(name="alice"), NOW_MS + 9000)
        raise TokenRefused("the token's signature is wrong")

    return server(Users(bearer=judge), max_reauth_ms=max_reauth_ms)


def test_a_session_by_token_ends_with_the_token() -> None:
    tokens = iter(("first", "second"))
    other = with_tokens("first", "second")
    one = client(SaslLogin(mechanism=OAUTHBEARER, bearer=lambda: next(tokens)))
    converse(one, other)
    assert (one.lifetime_ms, other.principal) == (9000, Principal(name="alice"))
    frame: bytes | None = one.begin_again()
    while frame is not None:
        frame = one.answer(other.judge(frame) or b"")
    assert one.is_done
    assert next(tokens, None) is None, "each login has the token of its time"


@pytest.mark.parametrize("max_reauth_ms", [0, 4000, 20_000])
def test_a_session_ends_with_its_token_or_after_the_longest_time_whichever_is_first(max_reauth_ms: int) -> None:
    other = with_tokens("good", max_reauth_ms=max_reauth_ms)
    one = client(SaslLogin(mechanism=OAUTHBEARER, bearer=lambda: "good"))
    converse(one, other)
    ends_ms = 4000 if max_reauth_ms == 4000 else 9000
    assert one.lifetime_ms == ends_ms
    metadata = bytes.fromhex("0003 000c")
    other._now_ms = lambda: NOW_MS + ends_ms - 1
    assert other.judge(metadata) is None
    other._now_ms = lambda: NOW_MS + ends_ms
    with pytest.raises(PeerRefused, match="the session has ended"):
        other.judge(metadata)


def test_a_client_without_a_token_does_not_ask_for_one() -> None:
    def none() -> str:
        raise LoginRefused("no token from https://idp: connection refused")

    one = client(SaslLogin(mechanism=OAUTHBEARER, bearer=none))
    with pytest.raises(LoginRefused, match="connection refused"):
        converse(one, with_tokens("good"))


def test_a_peer_may_send_three_tokens_and_no_more() -> None:
    other = with_tokens("good")
    other.judge(bytes.fromhex("0011 0001 00000001 ffff 000b") + OAUTHBEARER.encode())
    message = b"n,,\x01auth=Bearer bad\x01\x01"
    frame = bytes.fromhex("0024 0001 00000002 ffff") + len(message).to_bytes(4, "big") + message
    for _ in range(2):
        assert b"invalid_token" in (other.judge(frame) or b"")
    with pytest.raises(PeerRefused, match=r"signature is wrong \(token 3\)") as caught:
        other.judge(frame)
    assert caught.value.is_delayed


def test_no_text_shows_a_secret() -> None:
    login = SaslLogin(mechanism="PLAIN", user="alice", password="hush")
    known = known_user("SCRAM-SHA-256", "alice", "hush")
    keys = known.scram("SCRAM-SHA-256", "alice")
    assert keys is not None
    for shown in (repr(login), str(login), repr(known), repr(keys), repr(listener(known))):
        assert "hush" not in shown
        assert "b'" not in shown
