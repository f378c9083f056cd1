"""The client's end of a connection, without its socket: requests to bytes, and bytes to answers.

Kafka: `NetworkClient`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from metadata_log.errors import DecodeError, EncodeError
from metadata_log.serde import Message, schema_of
from metadata_log.serde.codec import UNCOUNTED_BYTES
from metadata_log.serde.fields import OPEN_END
from transport.protocol.apis import APIS, Api, ApiKey
from transport.protocol.errors import Error
from transport.protocol.frames import FrameReader, with_length
from transport.protocol.headers import (
    ResponseShape,
    decode_response,
    decode_response_body,
    encode_request,
    response_shape,
)
from transport.protocol.inbound import Cause, Failed, Reply
from transport.protocol.limits import MAX_FRAME_BYTES, SASL, Limit, answer_limit
from transport.protocol.login import ClientLogin, LoginRefused
from transport.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

_MAX_CORRELATION_ID: Final = 0x7FFF_FFFF


def _common_versions(ours: Mapping[int, Api], theirs: list[ApiVersion]) -> dict[int, int]:
    """The highest version that both ends know, by API key; without the APIs that have no common version."""
    common: dict[int, int] = {}
    for each in theirs:
        if (api := ours.get(each.api_key)) is not None:
            highest = min(each.max_version, api.versions.highest)
            if highest >= max(each.min_version, api.versions.lowest):
                common[each.api_key] = highest
    return common


class _Waiting(Struct, gc=False):
    """A request that waits for the peer's versions."""

    token: int
    message: Message
    client_id: str
    highest: int


class _InFlight(Struct, gc=False):
    """A sent request, in the order of sending."""

    correlation_id: int
    token: int
    api_key: int
    version: int


_HANDSHAKE: Final = -1
"""The token of the ApiVersions request that opens a connection."""


class ClientConnection:
    """The client's end. It begins with ApiVersions and sends each request in the highest version that both ends know.

    Earlier requests wait for the ApiVersions answer. Malformed bytes, or an answer out of order, set `broken`. Then the
    owner closes the connection, and `lost` returns the outcomes of its requests. A login comes first, if there is one;
    `begin_login` renews the login.
    """

    def __init__(
        self,
        *,
        software: tuple[str, str],
        apis: Mapping[int, Api] = APIS,
        answer_limits: Callable[[int], Limit] = answer_limit,
        max_frame_bytes: int = MAX_FRAME_BYTES,
        sasl: ClientLogin | None = None,
        peer: str = "",
    ) -> None:
        """`peer` is the address of the peer, for the texts of failures."""
        self.broken: str | None = None
        self.is_refused = False
        """Whether `broken` is a failed login."""
        self.sasl = sasl
        """The login at the peer; None for a peer without login."""
        self.has_answered = False
        """Whether the peer has answered any request of the user."""
        self.is_logging_in = False
        """Whether the peer has to answer a login before anything else."""
        self._has_heard_login = False
        """Whether the peer has answered any request of a login."""
        self.ready = False
        self.frames = FrameReader(max_frame_bytes, self._allowed)
        self._before_texts = f"{peer}: " if peer else ""
        self._software = software
        self._client_id = ""
        self._apis = apis
        self._answer_limits = answer_limits
        self._shapes: dict[tuple[int, int], ResponseShape] = {}
        """How answers are read, by key and version."""
        self._versions: dict[int, int] = {}
        self._next_correlation_id = 0
        self._waiting: deque[_Waiting] = deque()
        self._in_flight: deque[_InFlight] = deque()
        self._unanswered: list[Reply] = []

    def _allowed(self, before: int, start: int) -> tuple[int, str]:
        """The most bytes of the answer that follows `before` others; answers come in the order of requests."""
        if before >= len(self._in_flight):
            if self.is_logging_in:
                return SASL.size, " during the login"
            return UNCOUNTED_BYTES, ", as no request is outstanding"
        api_key = self._in_flight[before].api_key
        return self._answer_limits(api_key).size, f" for {self._apis[api_key].name} answers"

    @property
    def unanswered(self) -> int:
        """How many requests wait to be sent or answered, not counting the handshake."""
        return len(self._waiting) + (len(self._in_flight) if self.ready or self._versions else 0)

    @property
    def may_lack_login(self) -> bool:
        """Whether the peer has named its versions, and answered no request of this side, which has no login."""
        return self.sasl is None and self.ready and not self.has_answered and bool(self._in_flight)

    @property
    def is_known(self) -> bool:
        """Whether the peer has named its versions of Kafka's APIs."""
        return bool(self._versions)

    @property
    def is_unheard(self) -> bool:
        """Whether the peer was asked for its versions, or to begin a login, and has not answered."""
        if self.is_logging_in and not self.ready:
            return not self._has_heard_login
        return not self.ready and bool(self._in_flight)

    def begin(self, client_id: str) -> bytes:
        """The first bytes of a new connection."""
        self._client_id = client_id
        if self.sasl is not None:
            self.is_logging_in = True
            return with_length(self.sasl.begin())
        return self._ask_versions(self._apis[ApiKey.API_VERSIONS].versions.highest, client_id)

    def begin_login(self) -> bytes:
        """Log in again, after the requests in flight; further requests wait until the login is complete."""
        assert self.sasl is not None, self._client_id
        if not self.ready:
            return b""
        self.ready = False
        self.is_logging_in = True
        return with_length(self.sasl.begin_again())

    def _ask_versions(self, version: int, client_id: str) -> bytes:
        name, software_version = self._software
        message = ApiVersionsRequest(client_software_name=name, client_software_version=software_version)
        return self._encode(_HANDSHAKE, self._apis[ApiKey.API_VERSIONS], version, message, client_id)

    def send(self, token: int, message: Message, client_id: str, highest: int = OPEN_END) -> bytes:
        """The bytes of the request, in a version up to `highest`; none while the peer's versions are unknown.

        Raises:
            EncodeError: No common version can carry the message. The connection stays usable.
        """
        if not self.ready:
            self._waiting.append(_Waiting(token, message, client_id, highest))
            return b""
        api_key = schema_of(type(message)).api_key
        assert api_key is not None, type(message)
        version = self._versions.get(api_key)
        if version is None:
            api = self._apis.get(api_key)
            name = ApiKey(api_key).name if api is None else api.name
            raise EncodeError(f"the peer has no version of {name} that is known here")
        return self._encode(token, self._apis[api_key], min(version, highest), message, client_id)

    def _encode(self, token: int, api: Api, version: int, message: Message, client_id: str) -> bytes:
        correlation_id = self._next_correlation_id
        # The headers of the controller's APIs are cached.
        apis = APIS if api.key in APIS else self._apis
        frame = encode_request(api.key, version, correlation_id, client_id, message, apis=apis)
        self._next_correlation_id = (correlation_id + 1) & _MAX_CORRELATION_ID
        if api.key == ApiKey.PRODUCE and getattr(message, "acks", None) == 0:
            self._unanswered.append(Reply(token, api.response()))
        else:
            self._in_flight.append(_InFlight(correlation_id, token, api.key, version))
        return with_length(frame)

    def take_unanswered(self) -> list[Reply]:
        """Take the outcomes of sent requests that the peer does not answer: Produce with acks=0. They hold no facts."""
        taken, self._unanswered = self._unanswered, []
        return taken

    def feed(self, data: bytes) -> tuple[list[Reply | Failed], bytes]:
        """Take bytes in: the outcomes of requests, and bytes to send at once."""
        outcomes: list[Reply | Failed] = []
        released = b""
        if self.broken is not None:
            return outcomes, released
        for frame in self.frames.feed(data):
            try:
                if self.ready:
                    outcomes.append(self._read_answer(frame))
                elif not self.is_logging_in:
                    released += self._read_versions(frame, outcomes)
                elif self._in_flight:
                    outcomes.append(self._read_answer(frame))  # sent before the new login
                else:
                    released += self._log_in(frame, outcomes)
            except DecodeError as bad:
                self.broken = str(bad)
                return outcomes, released
            except LoginRefused as refused:
                self.broken = refused.why
                self.is_refused = True
                return outcomes, released
        self.broken = self.frames.broken
        return outcomes, released

    def _log_in(self, frame: bytes, outcomes: list[Reply | Failed]) -> bytes:
        """Continue the login; then ask for the versions, or send what has waited for a new login."""
        assert self.sasl is not None, self._client_id
        self._has_heard_login = True
        following = self.sasl.answer(frame)
        if following is not None:
            return with_length(following)
        self.is_logging_in = False
        if not self._versions:
            return self._ask_versions(self._apis[ApiKey.API_VERSIONS].versions.highest, self._client_id)
        self.ready = True
        return self._send_waiting(outcomes)

    def _take(self, frame: bytes) -> _InFlight:
        """The request of this answer: always the oldest one."""
        if not self._in_flight:
            raise DecodeError("an answer arrived without a request")
        if len(frame) < 4:
            raise DecodeError(f"an answer of {len(frame)} bytes is shorter than any header")
        asked = self._in_flight[0]
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        if correlation_id != asked.correlation_id:
            raise DecodeError(f"an answer carries correlation id {correlation_id}; {asked.correlation_id} was due")
        return asked

    def _read_answer(self, frame: bytes) -> Reply:
        asked = self._take(frame)
        named = asked.api_key, asked.version
        shape = self._shapes.get(named)
        if shape is None:
            shape = self._shapes[named] = response_shape(*named, apis=self._apis, limits=self._answer_limits)
        message = decode_response_body(shape, frame)
        self._in_flight.popleft()
        self.has_answered = True
        return Reply(asked.token, message)

    def _read_versions(self, frame: bytes, outcomes: list[Reply | Failed]) -> bytes:
        """Read the peer's versions and send the waiting requests."""
        asked = self._take(frame)
        refused = int.from_bytes(frame[4:6], "big", signed=True) == Error.UNSUPPORTED_VERSION
        # A peer without our version answers in version 0, where the error has the same position.
        _, answer = decode_response(asked.api_key, 0 if refused else asked.version, frame)
        assert isinstance(answer, ApiVersionsResponse), answer
        self._in_flight.popleft()
        if refused:
            return self._ask_lower(answer, asked.version)
        if answer.error_code != Error.NONE:
            raise DecodeError(f"the peer answers ApiVersions with error {answer.error_code}")
        self._versions = _common_versions(self._apis, answer.api_keys)
        self.ready = True
        return self._send_waiting(outcomes)

    def _ask_lower(self, answer: ApiVersionsResponse, refused: int) -> bytes:
        """The peer does not know our version of ApiVersions: retry in the highest version it lists (KIP-511)."""
        theirs = _common_versions(self._apis, answer.api_keys).get(ApiKey.API_VERSIONS, 0)
        if theirs >= refused:
            raise DecodeError(f"the peer refuses ApiVersions version {refused} and offers {theirs}")
        return self._ask_versions(theirs, self._client_id)

    def _send_waiting(self, outcomes: list[Reply | Failed]) -> bytes:
        released: list[bytes] = []
        while self._waiting:
            waiting = self._waiting.popleft()
            try:
                released.append(self.send(waiting.token, waiting.message, waiting.client_id, waiting.highest))
            except EncodeError as bad:
                outcomes.append(Failed(waiting.token, Cause.UNSUPPORTED_VERSION, f"{self._before_texts}{bad}"))
        outcomes.extend(self.take_unanswered())
        return b"".join(released)

    def lost(self, cause: Cause, detail: str) -> list[Failed]:
        """The connection is closed: the outcome of every unanswered request, oldest first."""
        tokens = [asked.token for asked in self._in_flight if asked.token != _HANDSHAKE]
        tokens += [waiting.token for waiting in self._waiting]
        self._in_flight.clear()
        self._waiting.clear()
        self.frames.end()
        return [Failed(token, cause, detail) for token in tokens]
