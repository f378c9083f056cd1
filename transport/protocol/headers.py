"""Request and response headers around messages (Kafka: `RequestHeader`, `ResponseHeader`, KIP-482, KIP-511).

A frame here is the header and the body, without the length prefix. `apis` are the APIs of the caller; by default those
of the controller.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Mapping
from functools import lru_cache
from typing import Final

from msgspec import Struct, structs

from metadata_log.errors import DecodeError, EncodeError, LimitExceeded, UnsupportedVersion
from metadata_log.serde.codec import decode_from_within, decode_within, encode, encode_in_pieces, encode_in_steps
from metadata_log.serde.fields import Message
from transport.protocol.apis import APIS, Api, ApiKey
from transport.protocol.limits import HEADER_VALUES, Limit, answer_limit, request_limit
from transport.protocol.messages.fetch import FetchResponse
from transport.protocol.messages.header import RequestHeader, ResponseHeader

_REQUEST_START: Final = struct.Struct(">hhi")
_BEFORE_CORRELATION_ID: Final = 4
_CORRELATION_ID: Final = struct.Struct(">i")
_LENGTH_AND_ID: Final = struct.Struct(">ii")
LARGE_BYTES: Final = 16 * 1024
"""The size from which bytes are a piece of their own: a copy of so many takes as long as a further piece."""
_MOST_PIECES: Final = 64
"""The pieces of a frame that one call of the system sends; the rest is copied into one more."""


def api_of(api_key: int, version: int, *, apis: Mapping[int, Api] = APIS, where: str | None = None) -> Api:
    """The API of a key; raises `UnsupportedVersion` if key or version is unknown here."""
    api = apis.get(api_key)
    if api is None:
        raise UnsupportedVersion(f"api key {api_key} is unknown", where=where)
    if not api.versions.lowest <= version <= api.versions.highest:
        raise UnsupportedVersion(f"{api.name} has no version {version}; versions {api.versions} are known", where=where)
    return api


def encode_request(
    api_key: int,
    version: int,
    correlation_id: int,
    client_id: str | None,
    message: Message,
    *,
    apis: Mapping[int, Api] = APIS,
) -> bytes:
    """The frame of a request; raises `EncodeError`, or `UnsupportedVersion` for an unknown key or version."""
    if apis is APIS:
        before, behind = _around_own_correlation_id(api_key, version, client_id)
    else:
        header_version = api_of(api_key, version, apis=apis).request_header_version(version)
        before, behind = _around_correlation_id(api_key, version, client_id, header_version)
    try:
        head = before + _CORRELATION_ID.pack(correlation_id) + behind
    except struct.error as bad:
        raise EncodeError(f"correlation id {correlation_id}: {bad}") from None
    return encode(message, version, head)


@lru_cache(maxsize=256)
def _around_own_correlation_id(api_key: int, version: int, client_id: str | None) -> tuple[bytes, bytes]:
    return _around_correlation_id(api_key, version, client_id, api_of(api_key, version).request_header_version(version))


@lru_cache(maxsize=256)
def _around_correlation_id(
    api_key: int, version: int, client_id: str | None, header_version: int
) -> tuple[bytes, bytes]:
    """The bytes of a request header around its correlation id, the only field that differs between requests."""
    header = encode(RequestHeader(api_key, version, 0, client_id), header_version)
    return header[:_BEFORE_CORRELATION_ID], header[_REQUEST_START.size :]


def decode_request_header(
    frame: bytes, *, apis: Mapping[int, Api] = APIS, where: str | None = None
) -> tuple[RequestHeader, int]:
    """The header of a request, and where its body begins.

    Raises `DecodeError` if the frame is too short or damaged, `UnsupportedVersion` for an unknown key or version. An
    ApiVersions request of any version is read: the sender may be newer than this software (KIP-511).
    """
    if len(frame) < _REQUEST_START.size:
        raise DecodeError(f"a request of {len(frame)} bytes is shorter than any header", where=where, position=0)
    api_key, version, _ = _REQUEST_START.unpack_from(frame)
    api = apis.get(api_key)
    if api is not None and api_key == ApiKey.API_VERSIONS and version not in api.versions:
        version = api.versions.highest if version > 0 else api.versions.lowest
    header_version = api_of(api_key, version, apis=apis, where=where).request_header_version(version)
    return decode_from_within(RequestHeader, header_version, frame, 0, HEADER_VALUES, where)


def decode_request(
    frame: bytes, *, apis: Mapping[int, Api] = APIS, where: str | None = None
) -> tuple[RequestHeader, Message]:
    """Header and body of a request; raises `DecodeError`, `LimitExceeded` or `UnsupportedVersion`."""
    header, position = decode_request_header(frame, apis=apis, where=where)
    version = header.request_api_version
    api = api_of(header.request_api_key, version, apis=apis, where=where)
    limit = request_limit(header.request_api_key)
    if len(frame) > limit.size:
        raise LimitExceeded(f"a frame of {len(frame)} bytes; at most {limit.size} are allowed for {api.name} requests")
    return header, decode_within(api.request, version, frame, position, limit.values, where)


@lru_cache(maxsize=1024)
def _behind_own_correlation_id(api_key: int, version: int) -> bytes:
    """The bytes of the header of a controller's response after its correlation id: tagged fields, of which none is."""
    return bytes(api_of(api_key, version).response_header_version(version))


class ResponseShape(Struct, frozen=True, gc=False):
    """How the response of an API in one version is read: its type, its header's version, and the most values."""

    api: Api
    version: int
    header_version: int
    values: int


def response_shape(
    api_key: int, version: int, *, apis: Mapping[int, Api] = APIS, limits: Callable[[int], Limit] = answer_limit
) -> ResponseShape:
    """The shape of a response; raises `UnsupportedVersion` for an unknown key or version."""
    api = api_of(api_key, version, apis=apis)
    return ResponseShape(api, version, api.response_header_version(version), limits(api_key).values)


class _LastResponse:
    """Caches the last encoded response: a leader sends the same one to each follower."""

    __slots__ = ("body", "message", "version")

    def __init__(self) -> None:
        self.message: Message | None = None
        self.version = 0
        self.body = b""


_last_response: Final = _LastResponse()


def encode_response(
    api_key: int, version: int, correlation_id: int, message: Message, *, apis: Mapping[int, Api] = APIS
) -> bytes:
    """The frame of a response; raises `EncodeError`, or `UnsupportedVersion` for an unknown key or version."""
    return frame_response(api_key, version, correlation_id, message, apis=apis)[4:]


def frame_response(
    api_key: int, version: int, correlation_id: int, message: Message, *, apis: Mapping[int, Api] = APIS
) -> bytes:
    """As `encode_response`, with the length of the frame in front."""
    if apis is APIS:
        behind = _behind_own_correlation_id(api_key, version)
    else:
        behind = bytes(api_of(api_key, version, apis=apis).response_header_version(version))
    if version == 0 and api_key == ApiKey.ELECT_LEADERS:
        # In its oldest version only the items carry an error (`ElectLeadersResponse`).
        message = structs.replace(message, error_code=0)
    last = _last_response
    if message is not last.message or version != last.version:
        last.body = encode(message, version)
        last.message, last.version = message, version
    size = 4 + len(behind) + len(last.body)
    return b"".join((_LENGTH_AND_ID.pack(size, correlation_id), behind, last.body))


def has_large_records(message: Message) -> bool:
    """Whether an answer has records for which `encode_response_in_pieces` pays."""
    if not isinstance(message, FetchResponse):
        return False
    for topic in message.responses:
        for part in topic.partitions:
            if part.records is not None and len(part.records) >= LARGE_BYTES:
                return True
    return False


def encode_response_in_pieces(
    api_key: int, version: int, correlation_id: int, message: Message, *, apis: Mapping[int, Api] = APIS
) -> list[bytes]:
    """The frame of a response in a few pieces: each large field of bytes is one, without a copy.

    Raises `EncodeError`, or `UnsupportedVersion` for an unknown key or version.
    """
    header_version = api_of(api_key, version, apis=apis).response_header_version(version)
    pieces: list[bytes] = []
    small = [_CORRELATION_ID.pack(correlation_id), bytes(header_version)]
    for piece in encode_in_pieces(message, version):
        if len(piece) < LARGE_BYTES or len(pieces) >= _MOST_PIECES:
            small.append(piece)
        else:
            pieces += (b"".join(small), piece)
            small = []
    return [*pieces, b"".join(small)] if small else pieces


def encode_response_in_steps(
    api_key: int,
    version: int,
    correlation_id: int,
    message: Message,
    *,
    first: int,
    following: int,
    apis: Mapping[int, Api] = APIS,
) -> Generator[None, None, list[bytes]]:
    """The frame of a response in pieces, encoded in steps of a number of array elements (`encode_in_steps`).

    Raises `EncodeError`, or `UnsupportedVersion` for an unknown key or version.
    """
    header_version = api_of(api_key, version, apis=apis).response_header_version(version)
    if version == 0 and api_key == ApiKey.ELECT_LEADERS:
        message = structs.replace(message, error_code=0)
    pieces = yield from encode_in_steps(message, version, first, following)
    return [_CORRELATION_ID.pack(correlation_id), bytes(header_version), *pieces]


def decode_response_header(
    api_key: int, version: int, frame: bytes, *, apis: Mapping[int, Api] = APIS, where: str | None = None
) -> tuple[ResponseHeader, int]:
    """The header of the response to a request of this key and version, and where the body begins."""
    header_version = api_of(api_key, version, apis=apis, where=where).response_header_version(version)
    if len(frame) > _CORRELATION_ID.size and frame[_CORRELATION_ID.size] == 0:  # the header has no tagged fields
        return ResponseHeader(*_CORRELATION_ID.unpack_from(frame)), _CORRELATION_ID.size + header_version
    return decode_from_within(ResponseHeader, header_version, frame, 0, HEADER_VALUES, where)


def decode_response(
    api_key: int, version: int, frame: bytes, *, apis: Mapping[int, Api] = APIS, where: str | None = None
) -> tuple[ResponseHeader, Message]:
    """Header and body of a response; raises `DecodeError`, `LimitExceeded` or `UnsupportedVersion`."""
    header, position = decode_response_header(api_key, version, frame, apis=apis, where=where)
    values = answer_limit(api_key).values
    return header, decode_within(apis[api_key].response, version, frame, position, values, where)


def decode_response_body(shape: ResponseShape, frame: bytes) -> Message:
    """The body alone, in half the time. The frame holds a whole correlation id; raises as `decode_response`."""
    position = _CORRELATION_ID.size + shape.header_version
    if shape.header_version and not frame.startswith(b"\x00", _CORRELATION_ID.size):  # the header has tagged fields
        position = decode_from_within(ResponseHeader, shape.header_version, frame, 0, HEADER_VALUES)[1]
    return decode_within(shape.api.response, shape.version, frame, position, shape.values)
