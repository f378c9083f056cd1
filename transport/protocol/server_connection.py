"""The serving end of a connection, without its socket: bytes to requests, and answers to bytes.

Kafka: `SocketServer.Processor`, `RequestContext`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Mapping
from typing import Final

from msgspec import Struct

from metadata_log.errors import DecodeError
from metadata_log.serde import Message, Versions
from metadata_log.serde.codec import UNCOUNTED_BYTES, decode_in_steps, decode_within
from transport.protocol.apis import APIS, Api, ApiKey
from transport.protocol.errors import Error
from transport.protocol.frames import FrameReader, with_length
from transport.protocol.headers import (
    decode_request_header,
    encode_response,
    encode_response_in_pieces,
    encode_response_in_steps,
    frame_response,
)
from transport.protocol.inbound import ANONYMOUS, Principal, Request
from transport.protocol.limits import MAX_FRAME_BYTES, PIPELINED, Limit, request_limit
from transport.protocol.login import PeerRefused, ServerLogin
from transport.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse


def _refuse_version(correlation_id: int, known: Versions) -> bytes:
    """The answer to ApiVersions in an unknown version: in version 0, listing only ApiVersions (KIP-511)."""
    itself = ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=known.lowest, max_version=known.highest)
    refusal = ApiVersionsResponse(error_code=Error.UNSUPPORTED_VERSION, api_keys=[itself])
    return encode_response(ApiKey.API_VERSIONS, 0, correlation_id, refusal)


_NOT_LARGER: Final = frozenset(
    (ApiKey.PRODUCE, ApiKey.OFFSET_COMMIT, ApiKey.HEARTBEAT, ApiKey.TXN_OFFSET_COMMIT, ApiKey.END_TXN)
)
"""The bulk requests of which the answer is about as long as the request, or shorter."""


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
_BEHIND_ID: Final = 8


_SHORT: Final = (ApiKey.FETCH, ApiKey.FETCH_SNAPSHOT, ApiKey.PRODUCE)
"""The bulk APIs with answers that have few elements, if the request is short."""
LONG_REQUEST_BYTES: Final = 2048
"""The size of a request to a pipelined API below which its answer has few elements."""
FIRST_ELEMENTS: Final = 256
"""How many array elements of an answer the first step writes, in a fraction of a millisecond."""
ELEMENTS_PER_STEP: Final = 4096
"""How many array elements of an answer each further step writes, in about three milliseconds."""
REQUEST_WEIGHT: Final = 2048
"""Bytes that an unanswered request counts beside the size of its frame, of which the message has the strings and bytes:
those of its objects.
"""
KEPT_HEADER_BYTES: Final = 512
"""The longest header that a connection remembers between two requests."""
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
        limits: Callable[[int], Limit] = request_limit,
        max_frame_bytes: int = MAX_FRAME_BYTES,
        sasl: ServerLogin | None = None,
    ) -> None:
        self.broken: str | None = None
        self.principal: Principal = ANONYMOUS
        """The identity of the peer, for every further request."""
        self.sasl = sasl
        """The login of the peer, which judges each frame first; None on a listener without login."""
        self.refused: PeerRefused | None = None
        """The end of a failed login, with the frame that may still go to the peer."""
        first_bytes = max_frame_bytes if sasl is None else min(max_frame_bytes, sasl.max_receive_bytes)
        self.frames = FrameReader(first_bytes, self._allowed)
        self._max_frame_bytes = max_frame_bytes
        self.waiting: deque[bytes] = deque()
        """The frames that `take` has not read yet."""
        self.early_bytes = 0
        """The bytes of answers that wait for those of earlier requests."""
        self._handle: object = handle
        self._listener = listener
        self._peer = peer
        self._served = served
        self._limits = limits
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
        return self._limits(start).size, f" for {api.name} requests"

    @property
    def unanswered(self) -> int:
        """How many taken requests have no answer yet."""
        return self._received - self._answered

    @property
    def held_bytes(self) -> int:
        """The memory of received bytes and of unanswered requests: an upper estimate."""
        return self.weight + self.frames.held

    def expected_of(self, request: Request) -> int:
        """The expected bytes of the answer to a bulk request. That to a Produce, or to a member of a group that commits
        or lives on, grows with the request.
        """
        if request.api_key in _NOT_LARGER:
            return min(self.expected_bytes, request.size)
        return self.expected_bytes

    @property
    def is_next_in_bulk(self) -> bool:
        """Whether the answer to the next waiting frame may be much larger than the frame."""
        return self.waiting[0][:2] not in PIPELINED

    @property
    def is_reading(self) -> bool:
        """Whether a long frame is being decoded: `take` does its next step."""
        return self._steps is not None

    @property
    def may_take(self) -> bool:
        """Whether `take` would read a frame now."""
        waiting = self.waiting
        return bool(waiting) and (self.bulk is None or waiting[0][:2] in PIPELINED)

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

    def receive_alone(self, data: bytes, *, is_bulk: bool) -> Request | None:
        """`receive` and `take` in one step, if `data` is exactly one frame that need not wait: the usual case.

        `is_bulk` says whether the answer may be much larger than the frame.

        Returns None in any other case; then nothing has been received.
        """
        size = len(data) - 4
        if (
            size != int.from_bytes(data[:4], "big")
            or size > self.frames.small_bytes
            or self.waiting
            or self.frames.partial
            or self.broken is not None
            or self.sasl is not None
            or (is_bulk and self.bulk is not None)
        ):
            return None
        try:
            request = self._read(data[4:])
        except DecodeError:
            return None
        if type(request) is not Request:
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
        is_bulk = frame[:2] not in PIPELINED
        if is_bulk and self.bulk is not None:
            return None
        try:
            request: Request | bytes | None = None
            if self.sasl is not None:
                request = self._judged(self.sasl, frame)
            if request is None:
                request = self._read(frame) if self._steps is None else self._step()
        except PeerRefused as refused:
            self.refused, self.broken = refused, refused.why
            self._forget_waiting()
            return None
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

    def _judged(self, sasl: ServerLogin, frame: bytes) -> bytes | None:
        """The answer of the login to a frame; None for a request. Raises `PeerRefused`."""
        if self._steps is not None:
            return None
        answer = sasl.judge(frame)
        if sasl.principal is not None and self.principal is not sasl.principal:
            self.principal = sasl.principal
            self.frames.raise_limit(self._max_frame_bytes)
        return None if answer is None else with_length(answer)

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
        self._handle = None
        self.frames.end()
        return unanswered

    def _read(self, frame: bytes) -> Request | bytes | None:
        """Decode one frame, or answer an ApiVersions request of an unknown version.

        Returns None for a long frame that takes more than one step.
        """
        sender = self._sender
        if sender is None or not (
            frame.startswith(sender.before) and frame.startswith(sender.behind, _BEHIND_ID, sender.position)
        ):
            header = self._read_header(frame)
            if isinstance(header, bytes):
                return header
            sender = header
            # A header that a strange client makes long is not kept: nobody counts it.
            self._sender = header if header.position <= KEPT_HEADER_BYTES else None
        if len(frame) > UNCOUNTED_BYTES:
            self._steps = self._read_in_steps(sender, frame)
            return self._step()
        # Bytes after the body are ignored, as in Kafka.
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
            len(frame),
            principal=self.principal,
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
            self._limits(sender.api_key).values,
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
            size=len(frame),
            principal=self.principal,
        )

    def _read_header(self, frame: bytes) -> _Sender | bytes:
        is_known = int.from_bytes(frame[:2], "big", signed=True) in APIS
        header, position = decode_request_header(frame, apis=APIS if is_known else self._served, where=self._peer)
        api_key, version = header.request_api_key, header.request_api_version
        api = self._served.get(api_key)
        if api is None:
            raise DecodeError(f"API {api_key} is not served on listener {self._listener}", where=self._peer)
        if not api.versions.lowest <= version <= api.versions.highest:
            if api_key == ApiKey.API_VERSIONS:
                return with_length(_refuse_version(header.correlation_id, api.versions))
            raise DecodeError(
                f"{api.name} version {version} is not served; versions {api.versions} are", where=self._peer
            )
        before, behind = frame[: _AT.start], frame[_AT.stop : position]
        return _Sender(before, behind, position, api_key, version, header.client_id, api.request)

    def answer(self, request: Request, message: Message) -> bytes:
        """The bytes that may leave now; none while an earlier request has no answer. Raises as `encode`."""
        frame = frame_response(request.api_key, request.version, request.correlation_id, message, apis=self._served)
        sequence = request.sequence
        assert sequence in self._open, f"request {sequence} is answered twice"
        del self._open[sequence]
        return frame if self._is_in_turn(request, sequence, len(frame)) else self._release(sequence, frame)

    def answer_in_pieces(self, request: Request, message: Message) -> list[bytes]:
        """As `answer`, in a few pieces: large records are sent from where they are, not copied into the frame."""
        content = encode_response_in_pieces(
            request.api_key, request.version, request.correlation_id, message, apis=self._served
        )
        sequence = request.sequence
        assert sequence in self._open, f"request {sequence} is answered twice"
        del self._open[sequence]
        return self._answered_with(request, *content)

    def leave_unanswered(self, request: Request) -> bytes:
        """Finish a request without an answer, such as Produce with acks=0; returns the later answers that may leave."""
        sequence = request.sequence
        assert sequence in self._open, f"request {sequence} is answered twice"
        del self._open[sequence]
        self.weight -= request.size + REQUEST_WEIGHT
        if sequence == self.bulk:
            self.bulk = None
        return self._release(sequence, b"")

    def may_be_long(self, request: Request) -> bool:
        """Whether the answer may have so many elements that `answer_in_steps` must write it."""
        if request.size > LONG_REQUEST_BYTES:
            return True
        return request.sequence == self.bulk and request.api_key not in _SHORT

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
            apis=self._served,
        )
        return b"".join(self._answered_with(request, *pieces))

    def _answered_with(self, request: Request, first: bytes, *others: bytes) -> list[bytes]:
        """The pieces that may leave after a request has got its answer, a frame of this content: one for one."""
        size = len(first) + sum(map(len, others))
        sequence, length = request.sequence, size.to_bytes(4, "big")
        if self._is_in_turn(request, sequence, 4 + size):
            return [length + first, *others]
        return [self._release(sequence, b"".join((length, first, *others)))]

    def _is_in_turn(self, request: Request, sequence: int, size: int) -> bool:
        """Count an answer of so many bytes; whether it is the next one to leave, and none waits behind it."""
        self.weight -= request.size + REQUEST_WEIGHT
        if sequence == self.bulk:
            self.bulk = None
            self.expected_bytes = max(size, LEAST_EXPECTED_BYTES)
        if sequence != self._answered or self._early:
            return False
        self._answered = sequence + 1
        return True

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
