"""The login of a peer, in Kafka's frames (Kafka: `SaslServerAuthenticator`; KIP-43, KIP-152, KIP-368)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from metadata_log.errors import DecodeError
from metadata_log.serde import Message
from metadata_log.types import NO_NODE
from transport.protocol.apis import APIS, ApiKey
from transport.protocol.errors import Error
from transport.protocol.headers import decode_request, decode_request_header, encode_response
from transport.protocol.inbound import Principal
from transport.protocol.login import LoginRefused, PeerRefused, Refusal
from transport.protocol.messages.api_versions import ApiVersionsRequest
from transport.protocol.messages.header import RequestHeader
from transport.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from transport.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from transport.protocol.sasl.credentials import OAUTHBEARER, PLAIN, Login, Users
from transport.protocol.sasl.plain import PlainServer
from transport.protocol.sasl.scram import ScramServer

if TYPE_CHECKING:
    from transport.protocol.sasl.bearer import BearerServer

MAX_RECEIVE_BYTES: Final = 524_288
"""The default of `sasl.server.max.receive.size`."""
FAILED_DELAY_MS: Final = 100
"""The default of `connection.failed.authentication.delay.ms`."""
LEAST_REAUTH_MS: Final = 1000
"""A peer that logs in again sooner than this after the last time gets ILLEGAL_SASL_STATE."""
_VALID_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""The valid names and versions of client software (`ApiVersionsRequest.isValid`)."""
_SOFTWARE_SINCE: Final = 3
"""The first version of ApiVersions with the name and the version of the client's software."""
_IDENTITY_SINCE: Final = 5
"""The first version of ApiVersions with the cluster and the node that the client looks for."""
ILLEGAL_AUTHENTICATE: Final = "SaslAuthenticate request received after successful authentication"
"""The text for a peer that sends SaslAuthenticate where no login is due."""


def is_sound(request: ApiVersionsRequest, version: int) -> bool:
    """Whether the names of the client are valid, and it names a cluster and a node or neither (KIP-1242)."""
    names = (request.client_software_name, request.client_software_version)
    if version >= _SOFTWARE_SINCE and not all(map(_VALID_SOFTWARE.fullmatch, names)):
        return False
    return version < _IDENTITY_SINCE or (request.cluster_id is None) == (request.node_id == NO_NODE)


class SaslListener(Struct, frozen=True, kw_only=True):
    """How peers log in at a listener.

    Args:
        mechanisms: Kafka's `sasl.enabled.mechanisms`: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER.
        users: The users of each mechanism.
        max_reauth_ms: Kafka's `connections.max.reauth.ms` of each mechanism; 0 for sessions without an end.
        max_receive_bytes: Kafka's `sasl.server.max.receive.size`: the most bytes of a frame before the login is
            complete.
        failed_delay_ms: Kafka's `connection.failed.authentication.delay.ms`: the delay of a refusal in milliseconds.
    """

    mechanisms: tuple[str, ...]
    users: Mapping[str, Users]
    max_reauth_ms: Mapping[str, int] = {}
    max_receive_bytes: int = MAX_RECEIVE_BYTES
    failed_delay_ms: int = FAILED_DELAY_MS


class _State(Enum):
    """The next frame that the peer may send."""

    FIRST = "ApiVersions or SaslHandshake"
    HANDSHAKE = "SaslHandshake"
    TOKEN = "SaslAuthenticate"
    BARE_TOKEN = "a token without a header"
    DONE = "any request"


class SaslServer:
    """One peer's login, and its renewals. `judge` decides on each frame.

    Args:
        options: The listener's mechanisms, users and limits.
        now_ms: The time in milliseconds since 1970; never goes back.
        nonce: Makes fresh nonces of SCRAM.
    """

    def __init__(self, options: SaslListener, *, now_ms: Callable[[], int], nonce: Callable[[], str]) -> None:
        self.principal: Principal | None = None
        """The identity of the peer; None until the first login is complete."""
        self.options = options
        self._now_ms = now_ms
        self._nonce = nonce
        self._state = _State.FIRST
        self._mechanism = ""
        """The mechanism of the login in progress, or else of the last one."""
        self._first_mechanism = ""
        self._exchange: PlainServer | ScramServer | BearerServer | None = None
        self._expires_ms: int | None = None
        """When the session ends, if ever."""
        self._renewed_ms: int | None = None
        """When the peer last began to log in again."""

    @property
    def mechanism(self) -> str:
        """The mechanism of the login in progress, or else of the last one; empty before the first."""
        return self._mechanism

    @property
    def max_receive_bytes(self) -> int:
        """The most bytes of a frame before the first login is complete."""
        return self.options.max_receive_bytes

    @property
    def failed_delay_ms(self) -> int:
        """The delay of a refusal in milliseconds."""
        return self.options.failed_delay_ms

    def judge(self, frame: bytes) -> bytes | None:
        """The frame that answers this one; None if the frame is a request for the user of the connection.

        Raises:
            PeerRefused: The connection ends.
        """
        if self._state is _State.DONE:
            return self._in_session(frame)
        if self._state is _State.BARE_TOKEN:
            return self._bare_token(frame)
        try:
            header, _ = decode_request_header(frame)
            if self._state is _State.TOKEN:
                return self._token(header, frame)
            return self._opening(header, frame)
        except DecodeError as bad:
            raise PeerRefused(f"{bad}, before the login") from bad

    def _opening(self, header: RequestHeader, frame: bytes) -> bytes | None:
        """A frame before the mechanism is known."""
        key, version = header.request_api_key, header.request_api_version
        if key == ApiKey.API_VERSIONS and self._state is _State.FIRST and self.principal is None:
            # The user answers. After an error the peer asks again.
            if version in APIS[key].versions and self._is_sound(header, frame):
                self._state = _State.HANDSHAKE
            return None
        if key != ApiKey.SASL_HANDSHAKE:
            raise PeerRefused(f"{_named(key)} came where {self._state.value} was due: does the peer log in?")
        return self._handshake(header, frame)

    def _is_sound(self, header: RequestHeader, frame: bytes) -> bool:
        _, message = decode_request(frame)
        assert isinstance(message, ApiVersionsRequest), message
        return is_sound(message, header.request_api_version)

    def _handshake(self, header: RequestHeader, frame: bytes) -> bytes:
        """Choose the mechanism."""
        _, message = decode_request(frame)
        assert isinstance(message, SaslHandshakeRequest), message
        mechanisms = list(self.options.mechanisms)
        mechanism = message.mechanism
        if mechanism not in self.options.mechanisms:
            answer = SaslHandshakeResponse(error_code=Error.UNSUPPORTED_SASL_MECHANISM, mechanisms=mechanisms)
            why = "the peer asks for a mechanism that sasl.enabled.mechanisms does not name"
            raise PeerRefused(why, _encoded(header, answer), is_delayed=True, kind=Refusal.MECHANISM)
        self._mechanism = mechanism
        self._exchange = self._exchange_of(mechanism, self.options.users[mechanism])
        self._state = _State.TOKEN if header.request_api_version else _State.BARE_TOKEN
        return _encoded(header, SaslHandshakeResponse(mechanisms=mechanisms))

    def _exchange_of(self, mechanism: str, users: Users) -> PlainServer | ScramServer | BearerServer:
        if mechanism == PLAIN:
            return PlainServer(users)
        if mechanism != OAUTHBEARER:
            return ScramServer(mechanism, users, self._nonce())
        # Loaded here, because few listeners take tokens.
        from transport.protocol.sasl.bearer import BearerServer

        return BearerServer(users)

    def _token(self, header: RequestHeader, frame: bytes) -> bytes:
        """One message of the mechanism, within SaslAuthenticate."""
        if header.request_api_key != ApiKey.SASL_AUTHENTICATE:
            why = f"{_named(header.request_api_key)} came where {self._state.value} was due"
            name = ApiKey(header.request_api_key).name
            told = f"Unexpected Kafka request of type {name} during SASL authentication."
            raise PeerRefused(why, _illegal(header, told))
        _, message = decode_request(frame)
        assert isinstance(message, SaslAuthenticateRequest), message
        if self.principal is not None and self._mechanism != self._first_mechanism:
            raise PeerRefused("the peer logs in again by another mechanism")
        try:
            answer, lifetime_ms = self._respond(message.auth_bytes)
        except LoginRefused as refused:
            told = refused.told or self._no_detail()
            response = SaslAuthenticateResponse(error_code=Error.SASL_AUTHENTICATION_FAILED, error_message=told)
            why = f"the login by {self._mechanism} failed: {refused.why}"
            answer_bytes = _encoded(header, response)
            raise PeerRefused(why, answer_bytes, is_delayed=True, kind=Refusal.CREDENTIALS) from refused
        return _encoded(header, SaslAuthenticateResponse(auth_bytes=answer, session_lifetime_ms=lifetime_ms))

    def _no_detail(self) -> str:
        when = "authentication" if self.principal is None else "re-authentication"
        return f"Authentication failed during {when} due to invalid credentials with SASL mechanism {self._mechanism}"

    def _bare_token(self, frame: bytes) -> bytes:
        """One message of the mechanism, without a header: the peer sent SaslHandshake in version 0."""
        if self.principal is not None and self._mechanism != self._first_mechanism:
            raise PeerRefused("the peer logs in again by another mechanism")
        try:
            return self._respond(frame)[0]
        except LoginRefused as refused:
            why = f"the login by {self._mechanism} failed: {refused.why}"
            raise PeerRefused(why, is_delayed=True, kind=Refusal.CREDENTIALS) from refused

    def _respond(self, message: bytes) -> tuple[bytes, int]:
        """The answer of the mechanism, and how many milliseconds the session lasts; 0 for no end."""
        assert self._exchange is not None, self._state
        answer = self._exchange.respond(message)
        login = self._exchange.login
        return answer, 0 if login is None else self._complete(login)

    def _complete(self, login: Login) -> int:
        """Begin the session."""
        if login.expires_ms is not None and login.expires_ms <= self._now_ms():
            raise LoginRefused("the token has expired")
        if self.principal is None:
            self.principal = login.principal
            self._first_mechanism = self._mechanism
        elif login.principal != self.principal:
            before, now = self.principal, login.principal
            raise LoginRefused(
                "the peer logs in again as another user",
                f"Cannot change principals during re-authentication from {before.type}.{before.name}:"
                f" {now.type}.{now.name}",
            )
        self._exchange = None
        self._state = _State.DONE
        now_ms = self._now_ms()
        ends = [] if login.expires_ms is None else [max(0, login.expires_ms - now_ms)]
        longest_ms = self.options.max_reauth_ms.get(self._mechanism, 0)
        if longest_ms > 0:
            ends.append(longest_ms)
        self._expires_ms = now_ms + min(ends) if ends else None
        return min(ends, default=0)

    def _in_session(self, frame: bytes) -> bytes | None:
        """A frame after the login: a request of the user, or a new login."""
        key = int.from_bytes(frame[:2], "big", signed=True)
        if key not in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE):
            if self._expires_ms is not None and self._now_ms() >= self._expires_ms:
                raise PeerRefused("the session has ended, and the peer has not logged in again")
            return None
        try:
            header, _ = decode_request_header(frame)
            if key == ApiKey.SASL_HANDSHAKE and self._may_renew():
                self._renewed_ms = self._now_ms()
                self._state = _State.HANDSHAKE
                return self._handshake(header, frame)
            illegal = _illegal(header, ILLEGAL_AUTHENTICATE)
        except DecodeError as bad:
            raise PeerRefused(str(bad)) from bad
        assert illegal is not None, header
        return illegal

    def _may_renew(self) -> bool:
        if self._expires_ms is None:
            return False
        return self._renewed_ms is None or self._now_ms() - self._renewed_ms >= LEAST_REAUTH_MS


def _named(api_key: int) -> str:
    api = APIS.get(api_key)
    return f"API {api_key}" if api is None else api.name


def _encoded(header: RequestHeader, message: Message) -> bytes:
    return encode_response(header.request_api_key, header.request_api_version, header.correlation_id, message)


def _illegal(header: RequestHeader, told: str) -> bytes | None:
    """The answer ILLEGAL_SASL_STATE in the form of the request's API; None for an API without an error of its own."""
    response = APIS[header.request_api_key].response
    if "error_code" not in response.__struct_fields__:
        return None
    values: dict[str, Any] = {"error_code": Error.ILLEGAL_SASL_STATE}
    if "error_message" in response.__struct_fields__:
        values["error_message"] = told
    return _encoded(header, response(**values))
