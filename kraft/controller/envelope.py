"""Opens and seals the requests that brokers forward for clients (Kafka: `ControllerApis.handleEnvelopeRequest`;
KIP-590)."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from msgspec import Struct

from kraft.access.caller import Caller, host_of
from kraft.access.errors import ApiError
from kraft.limits import CHEAP_PER_STEP
from metadata_log.errors import DecodeError, LimitExceeded
from metadata_log.serde import Message
from metadata_log.serde.codec import decode_from_within
from transport.protocol.apis import APIS, ApiKey
from transport.protocol.errors import Error
from transport.protocol.headers import (
    decode_request,
    decode_request_header,
    encode_response,
    encode_response_in_steps,
)
from transport.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from transport.protocol.messages.principal import DefaultPrincipalData

_PRINCIPAL_VERSION_BYTES: Final = 2
_API_KEY_BYTES: Final = 2
_PRINCIPAL_VALUES: Final = 100
"""The limit on decoded values of a principal, which has three fields; the rest may be unknown tagged fields."""


class Forwarded(Struct, frozen=True):
    """The request of a client, with the data that its response needs."""

    api_key: int
    version: int
    correlation_id: int
    message: Message
    caller: Caller


def api_key_of(request: EnvelopeRequest) -> int:
    """The API key of the client's request, read without further decoding; -1 if there is none."""
    data = request.request_data
    return int.from_bytes(data[:_API_KEY_BYTES], "big", signed=True) if len(data) >= _API_KEY_BYTES else -1


def open_envelope(request: EnvelopeRequest) -> Forwarded:
    """The request in the envelope. Raises `ApiError` if the principal is unreadable or the bytes are not a request.

    A request beyond its limits is refused with POLICY_VIOLATION. The broker then answers UNKNOWN_SERVER_ERROR to the
    client and does not retry (`ForwardingManager`).
    """
    principal = _principal(request.request_principal)
    try:
        host = host_of(request.client_host_address)
    except ValueError:
        raise ApiError(Error.INVALID_REQUEST, "The client's address is neither one of IPv4 nor of IPv6.") from None
    try:
        header, _ = decode_request_header(request.request_data)
        api = APIS[header.request_api_key]
        if not api.forwardable:
            raise ApiError(Error.INVALID_REQUEST, f"{api.name} requests are not forwarded.")
        _, message = decode_request(request.request_data)
    except LimitExceeded as beyond:
        raise ApiError(Error.POLICY_VIOLATION, str(beyond)) from beyond
    except DecodeError as bad:
        raise ApiError(Error.UNSUPPORTED_VERSION, str(bad)) from bad
    asker = header.client_id or ""
    caller = Caller(principal.type, principal.name, principal.token_authenticated, host, client_id=asker)
    return Forwarded(header.request_api_key, header.request_api_version, header.correlation_id, message, caller)


def seal(forwarded: Forwarded, response: Message) -> EnvelopeResponse:
    """The response to the client with its own header, for the broker to forward."""
    data = encode_response(ApiKey(forwarded.api_key), forwarded.version, forwarded.correlation_id, response)
    return EnvelopeResponse(response_data=data)


def seal_in_steps(forwarded: Forwarded, response: Message) -> Generator[None, None, EnvelopeResponse]:
    """As `seal`, in the steps of a decision."""
    pieces = yield from encode_response_in_steps(
        ApiKey(forwarded.api_key),
        forwarded.version,
        forwarded.correlation_id,
        response,
        first=CHEAP_PER_STEP,
        following=CHEAP_PER_STEP,
    )
    return EnvelopeResponse(response_data=b"".join(pieces))


def refuse_envelope(error: Error) -> EnvelopeResponse:
    """The response to the broker itself, which then retries, or turns to another controller."""
    return EnvelopeResponse(error_code=error)


def _principal(data: bytes | None) -> DefaultPrincipalData:
    """The client's principal as the broker serialized it (`DefaultKafkaPrincipalBuilder`)."""
    if data is None or len(data) < _PRINCIPAL_VERSION_BYTES:
        raise ApiError(Error.PRINCIPAL_DESERIALIZATION_FAILURE)
    try:
        version = int.from_bytes(data[:_PRINCIPAL_VERSION_BYTES], "big", signed=True)
        # As in Kafka, bytes after the principal are ignored.
        at = _PRINCIPAL_VERSION_BYTES
        return decode_from_within(DefaultPrincipalData, version, data, at, _PRINCIPAL_VALUES)[0]
    except DecodeError as bad:
        raise ApiError(Error.PRINCIPAL_DESERIALIZATION_FAILURE, str(bad)) from bad
