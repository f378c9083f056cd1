"""Both ends of one connection without its socket: bytes to messages and messages to bytes.

Kafka: `NetworkReceive`, `SocketServer.Processor` and `RequestContext` at the serving end, `NetworkClient` at the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct

from metadata_log.errors import DecodeError, EncodeError
from metadata_log.serde import Message, Versions, schema_of
from metadata_log.serde.codec import UNCOUNTED_BYTES, decode_in_steps, decode_within
from transport.protocol.apis import APIS, Api, ApiKey
from transport.protocol.errors import Error
from transport.protocol.headers import (
    decode_request_header,
    decode_response,
    decode_response_body,
    encode_request,
    encode_response,
    encode_response_in_steps,
)
from transport.protocol.limits import MAX_FRAME_BYTES, answer_limit, request_limit
from transport.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

_MAX_CORRELATION_ID: Final = 0x7FFF_FFFF


class Cause(StrEnum):
    """Why a request got no answer. Only `REFUSED` and `RESET` come from the peer's own host."""

    REFUSED = "refused"
    """The peer's own host reports that no process listens at the address."""
    RESET = "reset"
    """The peer closed or reset the connection before it answered."""
    TIMEOUT = "timeout"
    """No answer or no connection in time; also an unknown or unreachable host."""
    UNSUPPORTED_VERSION = "unsupported-version"
    """The peer has no version of this API that can carry the message."""
    BAD_BYTES = "bad-bytes"
    """The peer answered with bytes that do not follow the schema."""
    CLOSED = "closed"
    """This side closed the connection or ended the transport."""


class Request(Struct, eq=False):
    """A request of a peer, to be passed to `Transport.answer` or `Transport.drop` exactly once."""

    handle: object
    """The route of the request. Only the transport that delivered the request reads this field."""
    sequence: int
    """The position among the requests of its connection, from 0."""
    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    message: Message
    listener: str
    """The name of the listener that received the request."""
    peer: str
    """The peer's address, for logs and errors."""
    encoded: bytes | memoryview = b""
    """The received frame, header included, without its length; empty if the message was never encoded."""
    tag: int = 0
    """A number that the user may set, to identify the request in `Gone`."""


class Gone(Struct, frozen=True, eq=False):
    """The connection of these requests closed before they were answered: their answers would reach no peer.

    The user may forget the requests. `Transport.answer` and `Transport.drop` do nothing for them.
    """

    requests: tuple[Request, ...]


class Reply(Struct, frozen=True):
    """The answer to the request with this token."""

    token: int
    message: Message


class Failed(Struct, frozen=True):
    """The request with this token gets no answer. `detail` is a text for the log."""

    token: int
    cause: Cause
    detail: str


Allowed = Callable[[int, int], tuple[int, str]]
"""A function that limits a frame. Its arguments are the number of whole frames before this one, and the int16 that this
frame begins with. The result is the most bytes of the frame, and the reason for the error text.
"""


class FrameReader:
    """Splits a byte stream into frames: an int32 length, then that many bytes.

    No frame may exceed `max_frame_bytes`. For a frame of more than `UNCOUNTED_BYTES` the reader also calls `allowed`
    before it reads the frame.
    """

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES, allowed: Allowed | None = None) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._allowed = allowed
        self.small_bytes = min(max_frame_bytes, UNCOUNTED_BYTES)
        """The frame size up to which no limit is checked."""
        self.partial = bytearray()
        """The bytes of an incomplete frame."""
        self._needed = 4
        self.broken: str | None = None
        """Why the reader takes no further bytes: a length that is negative or above the limit."""

    @property
    def missing(self) -> int:
        """How many bytes the incomplete frame (or length) still needs; a hint for the size of the next read."""
        return self._needed - len(self.partial)

    @property
    def held(self) -> int:
        """How many bytes of an incomplete frame are buffered."""
        return len(self.partial)

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that `data` completes. The buffer never exceeds one frame, however the bytes are sliced."""
        is_whole = len(data) - 4 == int.from_bytes(data[:4], "big") <= self.small_bytes
        if is_whole and not self.partial and self.broken is None:
            return [data[4:]]  # the usual case
        if self.partial:
            # Not a list of parts: a part of one byte would take forty bytes.
            self.partial += data
            if len(self.partial) < self._needed:
                return []
            data = bytes(self.partial)
            self.partial = bytearray()
        frames: list[bytes] = []
        position, end = 0, len(data)
        self._needed = 4
        while end - position >= 4 and self.broken is None:
            size = int.from_bytes(data[position : position + 4], "big", signed=True)
            stop = position + 4 + size
            if not 0 <= size <= self.small_bytes:
                start = data[position + 4 : position + 6]
                if 0 <= size <= self._max_frame_bytes and len(start) < 2:
                    self._needed = 6
                    break
                self.broken = self._too_long(size, len(frames), int.from_bytes(start, "big", signed=True))
                if self.broken is not None:
                    break
            if stop > end:
                self._needed = 4 + size
                break
            frames.append(data[position + 4 : stop])
            position = stop
        if position < end and self.broken is None:
            self.partial += memoryview(data)[position:]
        return frames

    def _too_long(self, size: int, before: int, start: int) -> str | None:
        """Why a frame of this size is not read; None if it may be."""
        most, why = self._max_frame_bytes, ""
        if self._allowed is not None and 0 <= size <= most:
            allowed, why = self._allowed(before, start)
            most = min(most, allowed)
        if 0 <= size <= most:
            return None
        return f"a frame of {size} bytes was announced; at most {most} are allowed{why}"


def _frame(content: bytes) -> bytes:
    """Prefix the length."""
    return len(content).to_bytes(4, "big") + content


def _refuse_version(correlation_id: int, known: Versions) -> bytes:
    """The answer to ApiVersions in an unknown version: in version 0, listing only ApiVersions (KIP-511)."""
    itself = ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=known.lowest, max_version=known.highest)
    refusal = ApiVersionsResponse(error_code=Error.UNSUPPORTED_VERSION, api_keys=[itself])
    return encode_response(ApiKey.API_VERSIONS, 0, correlation_id, refusal)


def _common_versions(ours: Mapping[int, Api], theirs: list[ApiVersion]) -> dict[int, int]:
    """The highest version that both ends know, by API key; without the APIs that have no common version."""
    common: dict[int, int] = {}
    for each in theirs:
        if (api := ours.get(each.api_key)) is not None:
            highest = min(each.max_version, api.versions.highest)
            if highest >= max(each.min_version, api.versions.lowest):
                common[each.api_key] = highest
    return common


class _Sender(Struct, frozen=True, eq=False):
    """The parsed header of a request. Headers differ only in the correlation id as long as a client repeats one API.

    Parsing the header anew would double the time that a request takes.
    """

    before: bytes
    """The bytes before the correlation id."""
    behind: bytes
    """The bytes between the correlation id and the body, which begins at `position`."""
    position: int
    api_key: int
    version: int
    client_id: str | None
    message: type[Message]


_AT: Final = slice(4, 8)
"""The position of the correlation id in a frame."""


_PIPELINED: Final = frozenset(
    key.to_bytes(2, "big")
    for key in (
        ApiKey.API_VERSIONS,
        ApiKey.VOTE,
        ApiKey.BEGIN_QUORUM_EPOCH,
        ApiKey.END_QUORUM_EPOCH,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
        ApiKey.UPDATE_RAFT_VOTER,
        ApiKey.BROKER_REGISTRATION,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.CONTROLLER_REGISTRATION,
        ApiKey.ALTER_PARTITION,
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.CREATE_ACLS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.UPDATE_FEATURES,
    )
)
"""The APIs, as their two bytes, with answers of a size in proportion to the request.

Any other API is a bulk API: a few bytes of request can cause megabytes of answer. A connection has one such request in
progress at a time. Kafka processes every request this way.
"""

_OF_RECORDS: Final = (ApiKey.FETCH, ApiKey.FETCH_SNAPSHOT)
"""The bulk APIs with answers of a few values around one field of records."""
LONG_REQUEST_BYTES: Final = 2048
"""The size of a request to a pipelined API below which its answer has few elements."""
FIRST_ELEMENTS: Final = 256
"""How many array elements of an answer the first step writes, in a fraction of a millisecond."""
ELEMENTS_PER_STEP: Final = 4096
"""How many array elements of an answer each further step writes, in about three milliseconds."""
REQUEST_WEIGHT: Final = 2048
"""Bytes that an unanswered request counts beside its frame: the size of its objects."""
FIRST_EXPECTED_BYTES: Final = 128 * 1024
"""The expected size of the first bulk answer of a connection."""
LEAST_EXPECTED_BYTES: Final = 32 * 1024
"""The least expected size of a bulk answer: a large answer may follow a small one."""
_FRAME_WEIGHT: Final = 64
"""The same for a waiting frame."""


class ServerConnection:
    """The serving end. `receive` takes bytes, `take` returns requests, and answers leave in the order of the requests.

    Malformed bytes set `broken`. Then no further bytes are read, and the owner closes the connection once `unanswered`
    is 0. As in Kafka, an API or version that is not served counts as malformed; only ApiVersions answers an unknown
    version.
    """

    def __init__(
        self,
        *,
        handle: object,
        listener: str,
        peer: str,
        served: Mapping[int, Api] = APIS,
        max_frame_bytes: int = MAX_FRAME_BYTES,
    ) -> None:
        self.broken: str | None = None
        self.frames = FrameReader(max_frame_bytes, self._allowed)
        self.waiting: deque[bytes] = deque()
        """The frames that `take` has not read yet."""
        self.early_bytes = 0
        """The bytes of answers that wait for those of earlier requests."""
        self._handle = handle
        self._listener = listener
        self._peer = peer
        self._served = served
        self._received = 0
        self._answered = 0
        self._sender: _Sender | None = None
        """The parsed header of the last request."""
        self._early: dict[int, bytes] = {}
        """Encoded answers, by sequence, that wait for those of earlier requests."""
        self._open: dict[int, Request] = {}
        """The taken and unanswered requests, by sequence."""
        self.bulk: int | None = None
        """The sequence of the one unanswered bulk request."""
        self.expected_bytes = FIRST_EXPECTED_BYTES
        """The expected size of the next bulk answer, from the size of the last one."""
        self.weight = 0
        """The bytes that the waiting frames and the unanswered requests count."""
        self._steps: Generator[None, None, Request] | None = None
        """The remaining steps of a long frame, the first of `waiting`."""

    def _allowed(self, before: int, start: int) -> tuple[int, str]:
        """The most bytes of a request that begins with this API key."""
        api = self._served.get(start)
        if api is None:
            return UNCOUNTED_BYTES, f" for API {start}, which is not served"
        return request_limit(start).size, f" for {api.name} requests"

    @property
    def unanswered(self) -> int:
        """How many taken requests have no answer yet."""
        return self._received - self._answered

    @property
    def held_bytes(self) -> int:
        """The memory of received bytes and of unanswered requests: an upper estimate."""
        return self.weight + self.frames.held

    @property
    def is_next_in_bulk(self) -> bool:
        """Whether the answer to the next waiting frame may be much larger than the frame."""
        return self.waiting[0][:2] not in _PIPELINED

    @property
    def is_reading(self) -> bool:
        """Whether a long frame is being decoded: `take` does its next step."""
        return self._steps is not None

    @property
    def may_take(self) -> bool:
        """Whether `take` would read a frame now."""
        waiting = self.waiting
        return bool(waiting) and (self.bulk is None or waiting[0][:2] in _PIPELINED)

    def receive(self, data: bytes) -> None:
        """Take bytes in; `take` returns the requests that they complete."""
        if self.broken is not None:
            return
        frames = self.frames.feed(data)
        for frame in frames:
            self.weight += len(frame) + _FRAME_WEIGHT
        self.waiting.extend(frames)
        if not self.waiting:
            self.broken = self.frames.broken

    def receive_alone(self, data: bytes, *, may_be_bulk: bool) -> Request | None:
        """`receive` and `take` in one step, if `data` is exactly one frame that need not wait: the usual case.

        Returns None in any other case; then nothing has been received.
        """
        size = len(data) - 4
        if (
            size != int.from_bytes(data[:4], "big")
            or size > self.frames.small_bytes
            or self.waiting
            or self.frames.partial
            or self.broken is not None
        ):
            return None
        is_bulk = data[4:6] not in _PIPELINED
        if is_bulk and not (may_be_bulk and self.bulk is None):
            return None
        try:
            request = self._read(data[4:])
        except DecodeError:
            return None
        if not isinstance(request, Request):
            return None
        sequence = self._received
        self._received = sequence + 1
        self._open[sequence] = request
        self.weight += size + REQUEST_WEIGHT
        if is_bulk:
            self.bulk = sequence
        return request

    def take(self) -> Request | bytes | None:
        """The next request, or the bytes that answer that request at once; None if the next frame has to wait.

        A bulk request waits while another bulk request of the same connection is unanswered.
        """
        waiting = self.waiting
        if not waiting:
            return None
        frame = waiting[0]
        is_bulk = frame[:2] not in _PIPELINED
        if is_bulk and self.bulk is not None:
            return None
        try:
            request = self._read(frame) if self._steps is None else self._step()
        except DecodeError as bad:
            self.broken = str(bad)
            self._forget_waiting()
            return None
        if request is None:
            return None
        waiting.popleft()
        self.weight -= len(frame) + _FRAME_WEIGHT
        sequence = self._received
        self._received = sequence + 1
        if not waiting:
            self.broken = self.frames.broken
        if isinstance(request, bytes):
            return self._release(sequence, request)
        self._open[sequence] = request
        self.weight += len(frame) + REQUEST_WEIGHT
        if is_bulk:
            self.bulk = sequence
        return request

    def feed(self, data: bytes) -> tuple[list[Request], bytes]:
        """`receive`, then every request that can be taken, and bytes to send at once (usually none)."""
        self.receive(data)
        if self._steps is not None:
            return [], b""
        return self.read_on()

    def read_on(self) -> tuple[list[Request], bytes]:
        """Do the next step of a long frame, if any, and take what can be taken; returns as `feed`."""
        requests: list[Request] = []
        released = b""
        while (taken := self.take()) is not None:
            if isinstance(taken, bytes):
                released += taken
            else:
                requests.append(taken)
        return requests, released

    def _forget_waiting(self) -> None:
        self._steps = None
        for frame in self.waiting:
            self.weight -= len(frame) + _FRAME_WEIGHT
        self.waiting.clear()

    def forget(self, request: Request) -> None:
        """The user will not answer this request; the owner closes the connection."""
        self._open.pop(request.sequence, None)

    def lost(self) -> tuple[Request, ...]:
        """The connection is closed: the taken and unanswered requests, oldest first."""
        unanswered = tuple(self._open.values())
        self._open.clear()
        self._early.clear()
        self._forget_waiting()
        return unanswered

    def _read(self, frame: bytes) -> Request | bytes | None:
        """Decode one frame, or answer an ApiVersions request of an unknown version.

        Returns None for a long frame that takes more than one step.
        """
        sender = self._sender
        if sender is None or not (
            frame.startswith(sender.before) and frame.startswith(sender.behind, _AT.stop, sender.position)
        ):
            found = self._read_header(frame)
            if isinstance(found, bytes):
                return found
            sender = self._sender = found
        if len(frame) > UNCOUNTED_BYTES:
            self._steps = self._read_in_steps(sender, frame)
            return self._step()
        # Bytes behind the body are ignored, as in Kafka.
        message = decode_within(
            sender.message, sender.version, frame, sender.position, UNCOUNTED_BYTES, self._peer, False
        )
        return Request(
            self._handle,
            self._received,
            sender.api_key,
            sender.version,
            int.from_bytes(frame[_AT], "big", signed=True),
            sender.client_id,
            message,
            self._listener,
            self._peer,
            frame,
        )

    def _step(self) -> Request | None:
        """Do one step of a long frame; most frames need only one."""
        assert self._steps is not None, self._peer
        try:
            next(self._steps)
        except StopIteration as done:
            self._steps = None
            request: Request = done.value
            return request
        except DecodeError:
            self._steps = None
            raise
        return None

    def _read_in_steps(self, sender: _Sender, frame: bytes) -> Generator[None, None, Request]:
        """Decode a long frame within the limits of its API."""
        message, _ = yield from decode_in_steps(
            sender.message,
            sender.version,
            frame,
            sender.position,
            request_limit(sender.api_key).values,
            self._peer,
        )
        return Request(
            handle=self._handle,
            sequence=self._received,
            api_key=sender.api_key,
            version=sender.version,
            correlation_id=int.from_bytes(frame[_AT], "big", signed=True),
            client_id=sender.client_id,
            message=message,
            listener=self._listener,
            peer=self._peer,
            encoded=frame,
        )

    def _read_header(self, frame: bytes) -> _Sender | bytes:
        header, position = decode_request_header(frame, where=self._peer)
        api_key, version = header.request_api_key, header.request_api_version
        api = self._served.get(api_key)
        if api is None:
            raise DecodeError(f"API {api_key} is not served on listener {self._listener}", where=self._peer)
        if not api.versions.lowest <= version <= api.versions.highest:
            if api_key == ApiKey.API_VERSIONS:
                return _frame(_refuse_version(header.correlation_id, api.versions))
            raise DecodeError(
                f"{api.name} version {version} is not served; versions {api.versions} are", where=self._peer
            )
        before, behind = frame[: _AT.start], frame[_AT.stop : position]
        return _Sender(before, behind, position, api_key, version, header.client_id, api.request)

    def answer(self, request: Request, message: Message) -> bytes:
        """The bytes that may leave now; none while an earlier request has no answer. Raises as `encode`."""
        frame = encode_response(request.api_key, request.version, request.correlation_id, message)
        sequence = request.sequence
        assert sequence in self._open, f"request {sequence} is answered twice"
        del self._open[sequence]
        return self._answered_with(request, len(frame).to_bytes(4, "big") + frame)

    def may_be_long(self, request: Request) -> bool:
        """Whether the answer may have so many elements that `answer_in_steps` must write it."""
        if len(request.encoded) > LONG_REQUEST_BYTES:
            return True
        return request.sequence == self.bulk and request.api_key not in _OF_RECORDS

    def answer_in_steps(self, request: Request, message: Message) -> Generator[None, None, bytes]:
        """As `answer`, in steps of a few milliseconds. From the first step on, `lost` no longer returns the request.

        Until the last step the request counts as unanswered: later answers of the connection wait, and a bulk request
        delays further bulk requests.
        """
        sequence = request.sequence
        assert sequence in self._open, f"request {sequence} is answered twice"
        del self._open[sequence]
        pieces = yield from encode_response_in_steps(
            request.api_key,
            request.version,
            request.correlation_id,
            message,
            first=FIRST_ELEMENTS,
            following=ELEMENTS_PER_STEP,
        )
        size = sum([len(piece) for piece in pieces])
        return self._answered_with(request, b"".join((size.to_bytes(4, "big"), *pieces)))

    def _answered_with(self, request: Request, encoded: bytes) -> bytes:
        """The bytes that may leave after a request has got its answer."""
        sequence = request.sequence
        self.weight -= len(request.encoded) + REQUEST_WEIGHT
        if sequence == self.bulk:
            self.bulk = None
            self.expected_bytes = max(len(encoded), LEAST_EXPECTED_BYTES)
        if sequence == self._answered and not self._early:
            self._answered += 1
            return encoded
        return self._release(sequence, encoded)

    def _release(self, sequence: int, encoded: bytes) -> bytes:
        if sequence != self._answered:
            assert sequence > self._answered, f"request {sequence} is answered twice"
            self._early[sequence] = encoded
            self.early_bytes += len(encoded)
            return b""
        self._answered += 1
        if not self._early:
            return encoded
        released = [encoded]
        while (following := self._early.pop(self._answered, None)) is not None:
            self.early_bytes -= len(following)
            released.append(following)
            self._answered += 1
        return b"".join(released)


class _Waiting(Struct, gc=False):
    """A request that waits for the peer's versions."""

    token: int
    message: Message
    client_id: str


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
    owner closes the connection, and `lost` returns the outcomes of its requests.
    """

    def __init__(
        self, *, software: tuple[str, str], apis: Mapping[int, Api] = APIS, max_frame_bytes: int = MAX_FRAME_BYTES
    ) -> None:
        self.broken: str | None = None
        self.ready = False
        self.frames = FrameReader(max_frame_bytes, self._allowed)
        self._software = software
        self._client_id = ""
        self._apis = apis
        self._versions: dict[int, int] = {}
        self._next_correlation_id = 0
        self._waiting: deque[_Waiting] = deque()
        self._in_flight: deque[_InFlight] = deque()

    def _allowed(self, before: int, start: int) -> tuple[int, str]:
        """The most bytes of the answer that follows `before` others; answers come in the order of requests."""
        if before >= len(self._in_flight):
            return UNCOUNTED_BYTES, ", as no request is outstanding"
        api_key = self._in_flight[before].api_key
        return answer_limit(api_key).size, f" for {self._apis[api_key].name} answers"

    @property
    def unanswered(self) -> int:
        """How many requests wait to be sent or answered, not counting the handshake."""
        return len(self._waiting) + (len(self._in_flight) if self.ready else 0)

    def begin(self, client_id: str) -> bytes:
        """The first bytes of a new connection."""
        self._client_id = client_id
        return self._ask_versions(self._apis[ApiKey.API_VERSIONS].versions.highest, client_id)

    def _ask_versions(self, version: int, client_id: str) -> bytes:
        name, software_version = self._software
        message = ApiVersionsRequest(client_software_name=name, client_software_version=software_version)
        return self._encode(_HANDSHAKE, self._apis[ApiKey.API_VERSIONS], version, message, client_id)

    def send(self, token: int, message: Message, client_id: str) -> bytes:
        """The bytes of the request; none while the peer's versions are unknown.

        Raises:
            EncodeError: No common version can carry the message. The connection stays usable.
        """
        if not self.ready:
            self._waiting.append(_Waiting(token, message, client_id))
            return b""
        api_key = schema_of(type(message)).api_key
        assert api_key is not None, type(message)
        version = self._versions.get(api_key)
        if version is None:
            raise EncodeError(f"the peer has no version of {self._apis[api_key].name} that is known here")
        return self._encode(token, self._apis[api_key], version, message, client_id)

    def _encode(self, token: int, api: Api, version: int, message: Message, client_id: str) -> bytes:
        correlation_id = self._next_correlation_id
        frame = encode_request(api.key, version, correlation_id, client_id, message)
        self._next_correlation_id = (correlation_id + 1) & _MAX_CORRELATION_ID
        self._in_flight.append(_InFlight(correlation_id, token, api.key, version))
        return _frame(frame)

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
                else:
                    released += self._read_versions(frame, outcomes)
            except DecodeError as bad:
                self.broken = str(bad)
                return outcomes, released
        self.broken = self.frames.broken
        return outcomes, released

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
        message = decode_response_body(asked.api_key, asked.version, frame)
        self._in_flight.popleft()
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
                released.append(self.send(waiting.token, waiting.message, waiting.client_id))
            except EncodeError as bad:
                outcomes.append(Failed(waiting.token, Cause.UNSUPPORTED_VERSION, str(bad)))
        return b"".join(released)

    def lost(self, cause: Cause, detail: str) -> list[Failed]:
        """The connection is closed: the outcome of every unanswered request, oldest first."""
        tokens = [asked.token for asked in self._in_flight if asked.token != _HANDSHAKE]
        tokens += [waiting.token for waiting in self._waiting]
        self._in_flight.clear()
        self._waiting.clear()
        return [Failed(token, cause, detail) for token in tokens]
