"""The login at a peer, in Kafka's frames (Kafka: `SaslClientAuthenticator`; KIP-43, KIP-152, KIP-368)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from metadata_log.errors import DecodeError
from metadata_log.serde import Message
from transport.protocol.apis import ApiKey
from transport.protocol.errors import Error
from transport.protocol.headers import decode_response, encode_request
from transport.protocol.login import LoginRefused
from transport.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from transport.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from transport.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from transport.protocol.sasl.bearer import BearerClient
from transport.protocol.sasl.credentials import OAUTHBEARER, PLAIN
from transport.protocol.sasl.plain import PlainClient
from transport.protocol.sasl.scram import ScramClient
from transport.protocol.server_text import server_text

_FIRST_CORRELATION_ID: Final = 0x7FFF_FFF8
"""Logins use the last eight correlation ids, as Kafka's clients do, so that no request has one of them."""
_LAST_CORRELATION_ID: Final = 0x7FFF_FFFF
_HANDSHAKE_VERSION: Final = 1
_NEWEST_AUTHENTICATE: Final = 2
_MOST_TOLD: Final = 200
"""How many characters of a peer's text are kept."""


class SaslLogin(Struct, frozen=True, kw_only=True):
    """How this side logs in at its peers (Kafka: `sasl.mechanism`, `sasl.jaas.config`).

    Args:
        mechanism: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER.
        user: The name of the user, or the id of a delegation token.
        password: The password, or the token's HMAC as base64 text.
        is_token: Whether these are a delegation token's.
        bearer: Returns the current token of OAUTHBEARER, or raises `LoginRefused`. The function must not block.
        extensions: Names and values that accompany a token of OAUTHBEARER.
    """

    mechanism: str
    user: str = ""
    password: str = ""
    is_token: bool = False
    bearer: Callable[[], str] | None = None
    extensions: Mapping[str, str] = {}

    def __repr__(self) -> str:
        return f"SaslLogin({self.mechanism})"


class SaslClient:
    """One login at a peer. Its first frame asks for the peer's versions of SaslAuthenticate."""

    def __init__(self, login: SaslLogin, *, client_id: str, nonce: Callable[[], str]) -> None:
        self.is_done = False
        self.lifetime_ms = 0
        """After these milliseconds the peer expects a new login; 0 for never."""
        self._login = login
        self._client_id = client_id
        self._nonce = nonce
        self._correlation_id = _FIRST_CORRELATION_ID
        self._due = ApiKey.API_VERSIONS
        """The API of the outstanding request."""
        self._version = 0
        self._authenticate_version = 0
        self._exchange: PlainClient | ScramClient | BearerClient | None = None

    def begin(self) -> bytes:
        """The first frame of a new connection."""
        return self._ask(ApiKey.API_VERSIONS, 0, ApiVersionsRequest())

    def begin_again(self) -> bytes:
        """The first frame of another login on the same connection."""
        self.is_done = False
        return self._ask(
            ApiKey.SASL_HANDSHAKE, _HANDSHAKE_VERSION, SaslHandshakeRequest(mechanism=self._login.mechanism)
        )

    def answer(self, frame: bytes) -> bytes | None:
        """The next frame, after this answer of the peer; None if the login is complete.

        Raises:
            LoginRefused: The peer refused the login, or is not the right peer.
            DecodeError: The answer is malformed, or is no answer to the last frame.
        """
        header, message = decode_response(self._due, self._version, frame)
        if header.correlation_id != self._correlation_id:
            raise DecodeError(
                f"an answer carries correlation id {header.correlation_id}; {self._correlation_id} was due"
            )
        self._correlation_id += 1
        if self._correlation_id > _LAST_CORRELATION_ID:
            self._correlation_id = _FIRST_CORRELATION_ID
        match message:
            case ApiVersionsResponse():
                return self._choose(message)
            case SaslHandshakeResponse():
                return self._begin_exchange(message)
            case SaslAuthenticateResponse():
                return self._continue(message)
            case _:
                raise AssertionError(message)

    def _ask(self, key: ApiKey, version: int, message: Message) -> bytes:
        self._due, self._version = key, version
        return encode_request(key, version, self._correlation_id, self._client_id, message)

    def _choose(self, answer: ApiVersionsResponse) -> bytes:
        versions = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
        lowest, highest = versions.get(ApiKey.SASL_HANDSHAKE, (0, -1))
        oldest, newest = versions.get(ApiKey.SASL_AUTHENTICATE, (0, -1))
        if not lowest <= _HANDSHAKE_VERSION <= highest or newest < 0 or oldest > _NEWEST_AUTHENTICATE:
            raise LoginRefused("the peer knows no SaslAuthenticate: its listener has no login")
        self._authenticate_version = min(newest, _NEWEST_AUTHENTICATE)
        return self.begin_again()

    def _begin_exchange(self, answer: SaslHandshakeResponse) -> bytes:
        login = self._login
        if answer.error_code == Error.ILLEGAL_SASL_STATE:
            raise LoginRefused("the peer's listener has no login: its security protocol is PLAINTEXT or SSL")
        if answer.error_code != Error.NONE:
            known = ", ".join(answer.mechanisms)[:_MOST_TOLD]
            raise LoginRefused(f"the peer does not accept {login.mechanism}; it accepts {known}")
        if login.mechanism == PLAIN:
            self._exchange = PlainClient(login.user, login.password)
        elif login.mechanism == OAUTHBEARER:
            if login.bearer is None:
                raise LoginRefused("this side has no token for OAUTHBEARER")
            self._exchange = BearerClient(login.bearer(), login.extensions)
        else:
            self._exchange = ScramClient(
                login.mechanism, login.user, login.password, is_token=login.is_token, nonce=self._nonce()
            )
        return self._send(self._exchange.begin())

    def _send(self, token: bytes) -> bytes:
        version = self._authenticate_version
        return self._ask(ApiKey.SASL_AUTHENTICATE, version, SaslAuthenticateRequest(auth_bytes=token))

    def _continue(self, answer: SaslAuthenticateResponse) -> bytes | None:
        assert self._exchange is not None, self._due
        if answer.error_code != Error.NONE:
            told = (server_text(answer.error_message) or Error.of(answer.error_code).name)[:_MOST_TOLD]
            raise LoginRefused(f"the peer refuses the login by {self._login.mechanism}: {told}")
        token = self._exchange.respond(answer.auth_bytes)
        if token is not None:
            return self._send(token)
        self._exchange = None
        self.lifetime_ms = answer.session_lifetime_ms
        self.is_done = True
        return None
