"""Our server answers recorded logins with the bytes of Apache Kafka, and ends connections where Kafka does."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import pytest

from support.interop.sasl_corpus import listener, recorded, users
from transport.protocol.apis import APIS, ApiKey
from transport.protocol.frames import with_length
from transport.protocol.inbound import Request
from transport.protocol.sasl.server import SaslServer
from transport.protocol.server_connection import ServerConnection

NOW_MS = 1_795_389_198_097
REAUTH_MS = 3000
WAITS = {"reauth-expire": (4, 3500), "reauth-v0-client": (4, 3500)}
"""The step before which so many milliseconds passed."""
FAILED = "Authentication failed during authentication due to invalid credentials with SASL mechanism "
AFTER_ALL_MS = 60_000
"""The recording took less than a minute, for which tokens without a session of their own count."""

OURS = {
    "scram-unknown": "an unknown user is refused where a wrong password is, and not at the first message",
    "scram-v0-unknown": "the same, with bare tokens",
    "scram-tokenauth-unknown": "the same, for a token",
    "token-noext": "the same, for a token without its extension",
    "scram-reserved": "a demanded extension is refused at once, where Kafka refuses the proof",
    "scram-cb-other": "the repeated header is compared",
    "scram-proof-short": "a proof of a wrong length is refused with an answer",
    "scram-proof-empty": "the same, for an empty one",
    "oauth-basic": "another scheme than Bearer is refused with an answer",
}
"""The exchanges that end in another way here, each with the reason."""

EXCHANGES = {exchange["case"]: exchange for exchange in recorded()["exchanges"]}


def sent_before(exchange: dict[str, Any], pattern: str) -> str:
    """The first message of SCRAM of the recorded server."""
    for step in exchange["steps"]:
        data = step.get("hex")
        if step["dir"] == "s2c" and data and (found := re.search(pattern.encode(), bytes.fromhex(data))):
            return found[1].decode()
    return ""


def lifetime(exchange: dict[str, Any]) -> int:
    """How long the session of the recorded login lasted, from the answer to a login by token."""
    return max([step["json"].get("session_lifetime_ms", 0) for step in exchange["steps"] if step.get("json")] or [0])


def time_of(exchange: dict[str, Any]) -> int:
    """When the login took place: for a token, so long before its expiry as the answered session lasts."""
    lasts_ms = lifetime(exchange)
    if not exchange["case"].startswith(("oauth", "jwt", "reauth-oauth")):
        return NOW_MS
    tokens = [
        found[1]
        for step in exchange["steps"]
        if (found := re.search(rb"[Bb]earer [^.]+\.([^.]+)\.", bytes.fromhex(step.get("hex") or "")))
    ]
    if not lasts_ms or not tokens:
        return NOW_MS + AFTER_ALL_MS
    claims = json.loads(base64.urlsafe_b64decode(tokens[-1] + b"=" * (-len(tokens[-1]) % 4)))
    return int(claims["exp"] * 1000) - lasts_ms


class Replay:
    """One recorded exchange with our server."""

    def __init__(self, exchange: dict[str, Any]) -> None:
        self.now_ms = time_of(exchange)
        nonce = sent_before(exchange, r"r=([!-+\--~]+),s=")
        client_nonce = ""
        for step in exchange["steps"]:
            found = re.search(rb"r=([!-+\--~]+)", bytes.fromhex(step.get("hex") or ""))
            if step["dir"] == "c2s" and found:
                client_nonce = found[1].decode()
                break
        salt = base64.b64decode(sent_before(exchange, r",s=([A-Za-z0-9+/=]+),i="))
        known = users(token_salt=salt, token_expires_ms=NOW_MS + lifetime(exchange))
        reauth_ms = REAUTH_MS if exchange["listener"] == "REAUTH" else 0
        options = listener(known, max_reauth_ms=reauth_ms, name=exchange["listener"], now_ms=lambda: self.now_ms)
        server_nonce = nonce.removeprefix(client_nonce)
        sasl = SaslServer(options, now_ms=lambda: self.now_ms, nonce=lambda: server_nonce or "ours")
        self.connection = ServerConnection(handle=None, listener="SASL", peer="peer:1", sasl=sasl)
        self.frames: list[bytes] = []
        """The answers of the login that are not compared yet."""
        self.requests: list[Request] = []
        """The requests that reached the user of the connection."""

    def send(self, data: bytes) -> None:
        requests, released = self.connection.feed(data)
        self.requests += requests
        self.take(released)
        refused = self.connection.refused
        if refused is not None and refused.answer is not None:
            self.frames.append(refused.answer)

    def take(self, released: bytes) -> None:
        while released:
            size = int.from_bytes(released[:4], "big")
            self.frames.append(released[4 : 4 + size])
            released = released[4 + size :]

    @property
    def is_closed(self) -> bool:
        return self.connection.broken is not None


@pytest.mark.parametrize("case", sorted(EXCHANGES.keys() - OURS.keys()))
def test_a_recorded_login_is_answered_byte_for_byte(case: str) -> None:
    exchange = EXCHANGES[case]
    replay = Replay(exchange)
    wait_before, wait_ms = WAITS.get(case, (-1, 0))
    for number, step in enumerate(exchange["steps"]):
        if number == wait_before:
            replay.now_ms += wait_ms
        data = step.get("hex")
        if step["dir"] == "c2s":
            assert not replay.is_closed, step
            replay.send(bytes.fromhex(step["raw_hex"]) if data is None else with_length(bytes.fromhex(data)))
        elif replay.requests and replay.requests[0].correlation_id == int(data[:8] or "0", 16):
            # The user of the connection answers. Only ApiVersions may come before the login.
            request = replay.requests.pop(0)
            assert request.api_key == step["api_key"]
            is_logged_in = request.principal.name != "ANONYMOUS"
            assert is_logged_in or request.api_key == ApiKey.API_VERSIONS
            replay.take(replay.connection.answer(request, APIS[request.api_key].response()))
            assert replay.frames.pop(0)[:4] == bytes.fromhex(data)[:4]
        else:
            # 4.3.1 knew version 4 of ApiVersions as the highest.
            expected = f"{data[:-1]}5" if data.endswith("001200000004") else data
            assert replay.frames.pop(0).hex() == expected, step
    assert (replay.requests, replay.frames) == ([], [])
    assert replay.is_closed == (exchange["end"] == "closed"), replay.connection.broken


@pytest.mark.parametrize("case", sorted(OURS))
def test_a_login_that_ends_otherwise_here_is_refused_with_the_text_of_a_wrong_password(case: str) -> None:
    """Whatever is wrong: the refusal comes where Kafka's comes, or at the end of the exchange."""
    exchange = EXCHANGES[case]
    replay = Replay(exchange)
    for step in exchange["steps"]:
        if step["dir"] == "c2s":
            replay.send(with_length(bytes.fromhex(step["hex"])))
    assert replay.requests == []
    if not replay.is_closed:
        # Kafka has refused the user at the first message. Here any proof is wrong.
        first = replay.frames[-1]
        nonce = re.search(rb"r=([!-+\--~]+),s=[A-Za-z0-9+/=]+,i=4096", first)
        assert nonce is not None, first
        final = b"c=biws,r=" + nonce[1] + b",p=" + base64.b64encode(bytes(32))
        is_bare = case == "scram-v0-unknown"
        frame = bytes.fromhex("00240001000000090001 78") + len(final).to_bytes(4, "big") + final
        replay.send(with_length(final if is_bare else frame))
        assert replay.is_closed
        if is_bare:
            assert replay.connection.refused is not None
            assert replay.connection.refused.answer is None
            return
    mechanism = "OAUTHBEARER" if case.startswith("oauth") else "SCRAM-SHA-256"
    assert f"{FAILED}{mechanism}".encode() in replay.frames[-1]


def test_a_session_that_has_ended_stays_open_until_the_next_request() -> None:
    exchange = EXCHANGES["reauth-idle"]
    replay = Replay(exchange)
    for step in exchange["steps"]:
        if step["dir"] == "c2s":
            replay.send(with_length(bytes.fromhex(step["hex"])))
    replay.now_ms += 8000
    assert not replay.is_closed
    replay.send(with_length(bytes.fromhex("003c000000000003000570726f6265000000")))
    assert replay.is_closed
    assert replay.requests == []
