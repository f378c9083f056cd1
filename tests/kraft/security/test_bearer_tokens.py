"""Bearer tokens: what a listener accepts, and where keys and tokens come from, also when their place is away."""

from __future__ import annotations

import base64
import http.server
import json
import logging
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, OctKey, RSAKey

from kraft.config.described import Secret
from kraft.config.oauth_settings import BearerLogin, TokenRules
from kraft.config.properties import Setting
from kraft.security.bearer_tokens import bearer_of, context_of, judge_of, read_keys, unsecured_token
from kraft.security.remote import MOST_BYTES, Remote, RemoteError, read_url
from support.interop.certificates import authority as tls_authority
from support.interop.certificates import leaf, server_context
from transport.protocol.inbound import Principal
from transport.protocol.login import LoginRefused
from transport.protocol.sasl.credentials import Login, TokenRefused

NOW_MS = 1_800_000_000_000
NOW = NOW_MS // 1000
RSA = RSAKey.generate_key(2048, {"kid": "r1"}, auto_kid=False)
EC = ECKey.generate_key("P-256", {"kid": "e1"}, auto_kid=False)
OTHER = RSAKey.generate_key(2048, {"kid": "r1"}, auto_kid=False)
CLAIMS: dict[str, Any] = {"sub": "alice", "iss": "idp", "aud": "kafka", "iat": NOW - 10, "exp": NOW + 60}
RULES = TokenRules(keys_url="file:///keys", audiences=("kafka", "other"), issuer="idp")
SECRET = "planted-s3cret"


def jwks(*keys: RSAKey | ECKey) -> bytes:
    return json.dumps({"keys": [key.as_dict(private=False) for key in keys]}).encode()


def signed(claims: dict[str, Any], key: Any = RSA, algorithm: str = "RS256", **header: str) -> str:
    named = {"kid": key.kid} if getattr(key, "kid", None) else {}
    return jwt.encode({"alg": algorithm, **named, **header}, claims, key, algorithms=[algorithm])


def judged(token: str, rules: TokenRules = RULES, now_ms: int = NOW_MS) -> Login:
    keys = Remote("keys", lambda: (read_keys(jwks(RSA, EC)), 60.0))
    keys.read_once()
    return judge_of(rules, keys, lambda: now_ms)(token)


@pytest.mark.parametrize(("key", "algorithm"), [(RSA, "RS256"), (RSA, "PS384"), (RSA, "RS512"), (EC, "ES256")])
def test_a_signed_token_is_a_login_until_its_expiry(key: Any, algorithm: str) -> None:
    assert judged(signed(CLAIMS, key, algorithm)) == Login(Principal(name="alice"), (NOW + 60) * 1000)


@pytest.mark.parametrize(
    ("token", "why"),
    [
        (signed(CLAIMS, OTHER), "signature is wrong"),
        (signed(CLAIMS, kid="unknown"), "not among the known ones"),
        (signed(CLAIMS, OctKey.generate_key(256), "HS256"), "algorithm is not accepted"),
        (signed(CLAIMS, RSA)[:-4] + "AAAA", "signature is wrong"),
        (signed(CLAIMS | {"aud": "else"}), "another audience"),
        (signed(CLAIMS | {"aud": 5}), "another audience"),
        (signed(CLAIMS | {"iss": "evil"}), "another issuer"),
        (signed(CLAIMS | {"exp": NOW - 30}), "has expired"),
        (signed(CLAIMS | {"nbf": NOW + 31}), "not valid yet"),
        (signed(CLAIMS | {"sub": 5}), "no text as its claim sub"),
        (signed(CLAIMS | {"sub": " "}), "no text as its claim sub"),
        (signed(CLAIMS | {"exp": True}), "exp is no time"),
        (signed(CLAIMS | {"scope": 5}), "neither a text nor a list"),
        (signed({one: CLAIMS[one] for one in CLAIMS if one != "exp"}), "no expiry"),
        (signed({one: CLAIMS[one] for one in CLAIMS if one != "iat"}), "when it was issued"),
        (unsecured_token(BearerLogin(url=None, claims={"sub": "alice"}), NOW_MS), "algorithm is not accepted"),
        ("a.b.c", "header is malformed"),
        ("", "header is malformed"),
        ("[]", "header is malformed"),
    ],
)
def test_a_bad_token_is_refused_with_a_reason_that_repeats_nothing_of_the_token(token: str, why: str) -> None:
    with pytest.raises(TokenRefused, match=why) as caught:
        judged(token)
    assert caught.value.scope is None
    assert not any(len(part) > 3 and part in str(caught.value) for part in (*token.split("."), "alice", "evil"))


def test_a_token_may_be_out_of_date_by_the_skew_of_the_clocks() -> None:
    login = judged(signed(CLAIMS | {"exp": NOW - 29, "nbf": NOW + 29}))
    assert login.expires_ms == (NOW + 1) * 1000


def test_the_names_of_claims_can_be_chosen() -> None:
    rules = TokenRules(keys_url="file:///keys", subject_claim="client_id", scope_claim="scp")
    token = signed(CLAIMS | {"client_id": "c1", "scp": ["a", "b"], "scope": 5})
    assert judged(token, rules).principal == Principal(name="c1")


def unsecured(claims: dict[str, Any], rules: TokenRules = TokenRules(keys_url=None, skew_ms=0)) -> Login:
    token = unsecured_token(BearerLogin(url=None, claims={"sub": "alice"} | claims), NOW_MS)
    return judge_of(rules, None, lambda: NOW_MS)(token)


def test_a_listener_for_unsigned_tokens_accepts_them_and_refuses_signed_ones() -> None:
    assert unsecured({}) == Login(Principal(name="alice"), NOW_MS + 3_600_000)
    with pytest.raises(TokenRefused, match="takes tokens without signature"):
        judge_of(TokenRules(keys_url=None), None, lambda: NOW_MS)(signed(CLAIMS))


def test_a_token_without_the_required_scope_names_the_scope_to_the_client() -> None:
    rules = TokenRules(keys_url=None, required_scope=("a", "b"))
    assert unsecured({"scope": "b a c"}, rules).principal.name == "alice"
    with pytest.raises(TokenRefused) as caught:
        unsecured({"scope": ["a"]}, rules)
    assert caught.value.scope == "a b"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"{", "no JWKS document"),
        (b'{"keys":5}', "a list of"),
        (b'{"keys":[]}', "no key of RSA or EC"),
        (json.dumps({"keys": [{"kty": "oct", "k": "AAAA"}, 5, {"kty": "RSA"}]}).encode(), "no key of RSA or EC"),
        (json.dumps({"keys": [RSA.as_dict(private=False) | {"use": "enc"}]}).encode(), "no key of RSA or EC"),
        (b"[" * 100_000, "no JWKS document"),
    ],
)
def test_a_bad_document_of_keys_is_refused(content: bytes, why: str) -> None:
    with pytest.raises(RemoteError, match=why):
        read_keys(content)


class Issuer(http.server.ThreadingHTTPServer):
    """A server of keys and tokens on this machine."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = 200
        self.body = b""
        self.asked: list[tuple[str, str, bytes]] = []
        """Method, Authorization header and body of each request."""
        self.arrived = threading.Semaphore(0)

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Issuer

    def do_GET(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append((self.command, self.headers.get("Authorization") or "", content))
        self.send_response(self.server.status)
        self.send_header("Location", "/elsewhere")
        self.end_headers()
        self.wfile.write(self.server.body)
        self.server.arrived.release()

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@contextmanager
def issuer(tls: ssl.SSLContext | None = None) -> Iterator[Issuer]:
    server = Issuer()
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_keys_are_read_over_tls_from_a_server_that_the_configuration_trusts(tmp_path: Path) -> None:
    trusted = tmp_path / "ca.pem"
    trusted.write_bytes(tls_authority().cert_pem.bytes())
    trust = {"ssl.truststore.type": Setting("PEM", "x:1"), "ssl.truststore.location": Setting(str(trusted), "x:1")}
    with issuer(server_context(leaf("idp"))) as server:
        server.body = jwks(RSA)
        url = f"https://localhost:{server.port}/keys"
        assert read_keys(read_url(url, context_of(trust, "x")))[0].kid == "r1"
        with pytest.raises(RemoteError, match="certificate of localhost is not accepted"):
            read_url(url, context_of({}, "x"))


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (500, SECRET.encode(), "the answer is 500"),
        (302, SECRET.encode(), "the answer is 302"),
        (200, b"x" * (MOST_BYTES + 1), "more than"),
    ],
)
def test_a_bad_answer_is_an_error_that_repeats_nothing_of_the_answer(status: int, body: bytes, why: str) -> None:
    with issuer() as server:
        server.status, server.body = status, body
        with pytest.raises(RemoteError, match=why) as caught:
            read_url(f"http://127.0.0.1:{server.port}/", ssl.create_default_context)
        assert len(server.asked) == 1
    assert SECRET not in str(caught.value)


def test_an_unknown_key_is_looked_for_once_a_minute_while_known_keys_stay_in_use() -> None:
    with issuer() as server:
        server.body = jwks(RSA)
        url = f"http://127.0.0.1:{server.port}/keys"
        keys = Remote("keys", lambda: (read_keys(read_url(url, ssl.create_default_context)), 3600.0))
        judge = judge_of(RULES, keys, lambda: NOW_MS)
        with pytest.raises(TokenRefused, match="not read yet"):
            judge(signed(CLAIMS))
        keys.begin()
        keys.wait()
        try:
            assert judge(signed(CLAIMS)).principal.name == "alice"
            server.body = jwks(RSA, EC)
            for _ in range(5):
                with pytest.raises(TokenRefused, match="not among the known"):
                    judge(signed(CLAIMS, kid="unknown"))
            assert server.arrived.acquire(timeout=60)
            assert server.arrived.acquire(timeout=60)
            assert len(server.asked) == 2
        finally:
            keys.end()


def test_values_stay_in_use_while_their_place_cannot_be_read(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    answers: list[int | str] = [1, "gone", "gone", 2]

    def read() -> tuple[int, float]:
        answer = answers.pop(0)
        if isinstance(answer, str):
            raise RemoteError(answer)
        return answer, 60.0

    value: Remote[int] = Remote("the value", read, backoff_ms=100, backoff_max_ms=150)
    pauses = [value.read_once() for _ in range(3)]
    assert (pauses, value.value, value.error) == ([60.0, 0.1, 0.15], 1, "gone")
    value.read_once()
    assert (value.value, value.error) == (2, None)
    told = [record.getMessage() for record in caplog.records]
    assert told == [
        "the value cannot be read, and the last one stays in use: gone",
        "the value can be read again",
    ]


def test_a_client_fetches_its_token_with_its_credentials_and_keeps_them_to_itself() -> None:
    with issuer() as server:
        login = BearerLogin(
            url=f"http://127.0.0.1:{server.port}/token",
            client_id="id:1",
            client_secret=Secret(SECRET),
            scope="kafka admin",
        )
        current, remote = bearer_of(login, lambda: NOW_MS)
        assert remote is not None
        with pytest.raises(LoginRefused, match="not read yet"):
            current()
        token = signed(CLAIMS)
        server.body = json.dumps({"access_token": token, "expires_in": 60}).encode()
        assert remote.read_once() == pytest.approx(48)
        assert current() == token
        method, named, form = server.asked[0]
        assert (method, base64.b64decode(named.removeprefix("Basic "))) == ("POST", f"id:1:{SECRET}".encode())
        assert form == b"grant_type=client_credentials&scope=kafka+admin"
        server.status = 401
        remote.read_once()
        assert remote.error == "the answer is 401 Unauthorized"
        for shown in (repr(login), repr(remote.value), repr(remote)):
            assert SECRET not in shown
            assert token not in shown


def test_a_token_of_a_file_is_read_again_and_refused_after_its_end(tmp_path: Path) -> None:
    file, now_ms = tmp_path / "token.jwt", [NOW_MS]
    current, remote = bearer_of(BearerLogin(url=file.as_uri()), lambda: now_ms[0])
    assert remote is not None
    remote.read_once()
    with pytest.raises(LoginRefused, match="No such file"):
        current()
    token = signed(CLAIMS)
    file.write_text(token + "\n")
    remote.read_once()
    assert current() == token
    now_ms[0] = (NOW + 60) * 1000
    with pytest.raises(LoginRefused, match="has expired"):
        current()
    file.write_text(SECRET)
    remote.read_once()
    with pytest.raises(LoginRefused, match="the token is no JWT") as caught:
        current()
    assert SECRET not in str(caught.value)
