"""Judges bearer tokens (Kafka: `BrokerJwtValidator`, `OAuthBearerUnsecuredValidatorCallbackHandler`), and gets those
with which this side logs in (`DefaultJwtRetriever`, `OAuthBearerUnsecuredLoginCallbackHandler`).

`joserfc` checks signatures. Nothing here blocks: a thread keeps the keys up to date.
"""

from __future__ import annotations

import base64
import binascii
import json
import ssl
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode, urlsplit

from msgspec import Struct

from kraft.config.oauth_settings import BearerLogin, TokenRules
from kraft.config.properties import Setting
from kraft.config.settings_reader import SettingsReader
from kraft.config.tls_settings import ConfigTls, read_tls
from kraft.security.contexts import load_tls
from kraft.security.remote import Remote, RemoteError, read_url
from transport.interface import PEERS
from transport.protocol.inbound import Principal
from transport.protocol.login import LoginRefused
from transport.protocol.sasl.bearer import MOST_TOKEN_BYTES
from transport.protocol.sasl.credentials import Login, TokenRefused

if TYPE_CHECKING:
    from joserfc.jwk import ECKey, RSAKey

    Key = RSAKey | ECKey


RENEW_AT: Final = 0.8
"""The part of a token's lifetime after which the next one is fetched (Kafka: `sasl.login.refresh.window.factor`)."""
_FILE_EVERY_S: Final = 10.0
_LEAST_S: Final = 1.0


class Token(Struct, frozen=True):
    """A token, and when it expires in milliseconds since 1970."""

    text: str
    expires_ms: int

    def __repr__(self) -> str:
        return "Token()"


def bearer_of(login: BearerLogin, now_ms: Callable[[], int]) -> tuple[Callable[[], str], Remote[Token] | None]:
    """The function that returns the current token of a login, and the reader of that token.

    The reader is None for tokens that this side makes. Raises `ConfigError` for bad stores.
    """
    if login.url is None:
        return (lambda: unsecured_token(login, now_ms())), None
    context = context_of(login.trust, login.at)
    remote = Remote(
        f"the token of {login.url}",
        lambda: _fetched(login, context, now_ms()),
        backoff_ms=login.backoff_ms,
        backoff_max_ms=login.backoff_max_ms,
    )

    def current() -> str:
        token = remote.value
        if token is None:
            raise LoginRefused(f"no token from {login.url}: {remote.error or 'not read yet'}")
        if token.expires_ms <= now_ms():
            raise LoginRefused(f"the token from {login.url} has expired: {remote.error or 'a new one is due'}")
        return token.text

    return current, remote


def unsecured_token(login: BearerLogin, now_ms: int) -> str:
    """A token without signature, as Kafka's client makes one from the options of a JAAS string."""
    now = now_ms / 1000
    claims = {"exp": now + login.lifetime_s, "iat": now, **login.claims}
    return f"{_part({'alg': 'none'})}.{_part(claims)}."


def _part(content: Mapping[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(content, separators=(",", ":")).encode()).decode().rstrip("=")


def context_of(trust: Mapping[str, Setting], where: str) -> Callable[[], ssl.SSLContext]:
    """Makes the context of TLS for a URL, from the `ssl.` options of a JAAS string."""
    if not trust:
        return ssl.create_default_context
    tls = load_tls(ConfigTls(outgoing={PEERS: read_tls(SettingsReader(trust, where))})).tls
    assert tls is not None, where
    context = tls.outgoing[PEERS]
    assert context is not None, where
    return lambda: context


def _fetched(login: BearerLogin, context: Callable[[], ssl.SSLContext], now_ms: int) -> tuple[Token, float]:
    """The token of a file or of a token endpoint, and the seconds until the next read."""
    assert login.url is not None, login
    if urlsplit(login.url).scheme == "file":
        text = read_url(login.url, context).decode("ascii", "replace").strip()
        return _checked(text), _FILE_EVERY_S
    secret = "" if login.client_secret is None else login.client_secret.value
    form = {"grant_type": "client_credentials"} | ({} if login.scope is None else {"scope": login.scope})
    named = base64.b64encode(f"{login.client_id}:{secret}".encode()).decode()
    headers = {"Authorization": f"Basic {named}", "Content-Type": "application/x-www-form-urlencoded"}
    try:
        answer = json.loads(read_url(login.url, context, body=urlencode(form).encode(), headers=headers))
        text = answer["access_token"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise RemoteError("the answer has no access_token") from None
    token = _checked(text)
    return token, max((token.expires_ms - now_ms) / 1000 * RENEW_AT, _LEAST_S)


def _checked(text: object) -> Token:
    """A token in the form of a JWT, with its expiry; raises `RemoteError`, which names no part of it."""
    if not isinstance(text, str) or len(text) > MOST_TOKEN_BYTES or not text.isascii() or text.count(".") != 2:
        raise RemoteError("the token is no JWT")
    payload = text.split(".")[1]
    try:
        expires = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))["exp"]
        return Token(text, int(expires * 1000))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        raise RemoteError("the token is no JWT with an expiry") from None


ALGORITHMS: Final = {
    "RS256": "RSA",
    "RS384": "RSA",
    "RS512": "RSA",
    "PS256": "RSA",
    "PS384": "RSA",
    "PS512": "RSA",
    "ES256": "EC",
    "ES384": "EC",
    "ES512": "EC",
}
"""The accepted algorithms, each with its type of key. None of them works with a shared secret."""
_MOST_KEYS: Final = 64
_MOST_TRIED: Final = 8
"""How many keys are tried for a token that names none."""

Judge = Callable[[str], Login]


def judge_of(rules: TokenRules, keys: Remote[tuple[Key, ...]] | None, now_ms: Callable[[], int]) -> Judge:
    """The function that judges the tokens of a listener. Without keys, tokens have no signature."""
    if keys is None:
        return lambda token: _unsecured(token, rules, now_ms())
    return lambda token: _signed(token, rules, keys, now_ms())


def read_keys(content: bytes) -> tuple[Key, ...]:
    """The keys in a JWKS document that can check signatures; raises `RemoteError`."""
    # Loaded here, because a node without tokens needs no library for them.
    from joserfc.errors import JoseError
    from joserfc.jwk import ECKey, RSAKey

    try:
        found = json.loads(content)
        rows = found["keys"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise RemoteError("the content is no JWKS document") from None
    if not isinstance(rows, list) or len(rows) > _MOST_KEYS:
        raise RemoteError(f"a JWKS document has a list of at most {_MOST_KEYS} keys")
    kinds: dict[object, type[RSAKey | ECKey]] = {"RSA": RSAKey, "EC": ECKey}
    keys: list[Key] = []
    for row in rows:
        kind = kinds.get(row.get("kty")) if isinstance(row, dict) else None
        if kind is None or row.get("use", "sig") != "sig":
            continue
        # As in Kafka, a key of RSA checks each algorithm of RSA, whatever `alg` it names.
        public = {name: value for name, value in row.items() if name in ("kty", "n", "e", "crv", "x", "y", "kid")}
        try:
            keys.append(kind.import_key(public))
        except (JoseError, ValueError, TypeError):
            continue
    if not keys:
        raise RemoteError("the JWKS document has no key of RSA or EC that checks signatures")
    return tuple(keys)


def _signed(token: str, rules: TokenRules, keys: Remote[tuple[Key, ...]], now_ms: int) -> Login:
    from joserfc import jwt
    from joserfc.errors import BadSignatureError, JoseError

    header = _object(token.split(".", maxsplit=1)[0], "header")
    algorithm, key_id = header.get("alg"), header.get("kid")
    kind = ALGORITHMS.get(algorithm) if isinstance(algorithm, str) else None
    if kind is None:
        raise TokenRefused("the token's algorithm is not accepted")
    if keys.value is None:
        raise TokenRefused(f"the keys for tokens cannot be read: {keys.error or 'not read yet'}")
    of_kind = [one for one in keys.value if one.key_type == kind]
    candidates = of_kind if key_id is None else [one for one in of_kind if one.kid == key_id]
    if not candidates:
        keys.ask()
        raise TokenRefused("the token is signed by a key that is not among the known ones")
    for key in candidates[:_MOST_TRIED]:
        try:
            claims = jwt.decode(token, key, algorithms=list(ALGORITHMS)).claims
        except BadSignatureError:
            continue
        except (JoseError, ValueError, TypeError, RecursionError):
            raise TokenRefused("the token is malformed") from None
        return _claimed(claims, rules, now_ms, needs_issued=True)
    raise TokenRefused("the token's signature is wrong")


def _unsecured(token: str, rules: TokenRules, now_ms: int) -> Login:
    parts = token.split(".")
    if len(parts) != 3:
        raise TokenRefused("the token is malformed")
    if _object(parts[0], "header").get("alg") != "none" or parts[2]:
        raise TokenRefused("the token is signed, and this listener takes tokens without signature")
    claims = _object(parts[1], "content")
    issued, expires = _time(claims, "iat"), _time(claims, "exp")
    if issued is not None and issued > now_ms + rules.skew_ms:
        raise TokenRefused("the token was issued in the future")
    if issued is not None and expires is not None and expires <= issued:
        raise TokenRefused("the token expires before it was issued")
    login = _claimed(claims, rules, now_ms, needs_issued=False)
    scopes = _scopes(claims, rules)
    if not scopes.issuperset(rules.required_scope):
        raise TokenRefused("the token lacks a scope", scope=" ".join(rules.required_scope))
    return login


def _claimed(claims: Mapping[str, Any], rules: TokenRules, now_ms: int, *, needs_issued: bool) -> Login:
    """The login by a token with a right signature, or without one where that is allowed."""
    expires = _time(claims, "exp")
    if expires is None:
        raise TokenRefused("the token has no expiry")
    if now_ms - rules.skew_ms >= expires:
        raise TokenRefused("the token has expired")
    if needs_issued and _time(claims, "iat") is None:
        raise TokenRefused("the token does not say when it was issued")
    begins = _time(claims, "nbf")
    if begins is not None and begins > now_ms + rules.skew_ms:
        raise TokenRefused("the token is not valid yet")
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise TokenRefused("the token is of another issuer")
    audience = claims.get("aud")
    if rules.audiences and not set(rules.audiences) & set(_texts(audience)):
        raise TokenRefused("the token is for another audience")
    _scopes(claims, rules)
    name = claims.get(rules.subject_claim)
    if not isinstance(name, str) or not name.strip():
        raise TokenRefused(f"the token has no text as its claim {rules.subject_claim}")
    # Within the skew a token is as good as new: its session lasts until the skew is over.
    ends = expires if expires > now_ms else expires + rules.skew_ms
    return Login(Principal(name=name.strip()), ends)


def _scopes(claims: Mapping[str, Any], rules: TokenRules) -> frozenset[str]:
    """The scopes: a list, or a text with blanks between."""
    found = claims.get(rules.scope_claim)
    texts = _texts(found)
    if found is not None and not texts and found not in ("", []):
        raise TokenRefused(f"the claim {rules.scope_claim} is neither a text nor a list of texts")
    return frozenset(texts[0].split() if isinstance(found, str) and texts else texts)


def _texts(value: object) -> list[str]:
    """A text or a list of texts as a list; empty for anything else."""
    if isinstance(value, str):
        return [value]
    return value if isinstance(value, list) and all(isinstance(one, str) for one in value) else []


def _time(claims: Mapping[str, Any], name: str) -> int | None:
    """A time in milliseconds since 1970."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e12:
        raise TokenRefused(f"the claim {name} is no time")
    return int(value * 1000)


def _object(text: str, what: str) -> dict[str, Any]:
    """A part of a token: JSON in base64."""
    try:
        found = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        raise TokenRefused(f"the token's {what} is malformed") from None
    if not isinstance(found, dict):
        raise TokenRefused(f"the token's {what} is malformed")
    return found
