"""Requests that brokers pass on for their clients (Kafka: `ControllerApis.handleEnvelopeRequest`; KIP-590)."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from msgspec import Struct

from kraft.controller.caller import Caller, host_of
from kraft.controller.result import CHEAP_PER_STEP, ApiError
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
"""A principal has three fields; no more unknown ones are looked at."""


class Forwarded(Struct, frozen=True):
    """The request of a client, with what its answer needs."""

    api_key: int
    version: int
    correlation_id: int
    message: Message
    caller: Caller


def api_key_of(request: EnvelopeRequest) -> int:
    """The key of the API that the client asks for, without looking further; -1 if there is none."""
    data = request.request_data
    return int.from_bytes(data[:_API_KEY_BYTES], "big", signed=True) if len(data) >= _API_KEY_BYTES else -1


def open_envelope(request: EnvelopeRequest) -> Forwarded:
    """What is inside; raises `ApiError` for a client that cannot be told, and bytes that are no request.

    A request beyond its limits is POLICY_VIOLATION. The broker then answers the client with UNKNOWN_SERVER_ERROR, and
    does not ask again (`ForwardingManager`).
    """
    principal = _principal(request.request_principal)
    try:
        host = host_of(request.client_host_address)
    except ValueError:
        raise ApiError(Error.INVALID_REQUEST, "The client's address is neither one of IPv4 nor of IPv6.") from None
    caller = Caller(principal.type, principal.name, principal.token_authenticated, host)
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
    return Forwarded(header.request_api_key, header.request_api_version, header.correlation_id, message, caller)


def seal(forwarded: Forwarded, response: Message) -> EnvelopeResponse:
    """The answer to the client, with its own header, for the broker to hand on."""
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
    """The answer to the broker itself: it asks again, or whom it should."""
    return EnvelopeResponse(error_code=error)


def _principal(data: bytes | None) -> DefaultPrincipalData:
    """Who the client is, as the broker knows it (`DefaultKafkaPrincipalBuilder`)."""
    if data is None or len(data) < _PRINCIPAL_VERSION_BYTES:
        raise ApiError(Error.PRINCIPAL_DESERIALIZATION_FAILURE)
    try:
        version = int.from_bytes(data[:_PRINCIPAL_VERSION_BYTES], "big", signed=True)
        # Bytes behind it are nobody's business, as with Kafka.
        at = _PRINCIPAL_VERSION_BYTES
        return decode_from_within(DefaultPrincipalData, version, data, at, _PRINCIPAL_VALUES)[0]
    except DecodeError as bad:
        raise ApiError(Error.PRINCIPAL_DESERIALIZATION_FAILURE, str(bad)) from bad
