"""Forwards requests of clients to the active controller (Kafka: `ForwardingManager`, `NodeToControllerRequestThread`;
KIP-590).

The request goes in an Envelope with the client's principal and address. While no controller is active, or its
connection fails, the broker sends the Envelope again until the request's own time is over.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from kraft.access.caller import host_of_peer
from kraft.access.errors import ApiError
from kraft.broker.reply_keys import Forwarded, to_broker
from kraft.limits import FORWARDED_REQUESTS
from kraft.wire import Answer, Drop, Send, WireRequest
from metadata_log.errors import MetadataLogError
from metadata_log.serde import Message, encode
from metadata_log.serde.codec import finished
from metadata_log.types import NEVER_MS
from transport.protocol.apis import ApiKey
from transport.protocol.errors import Error
from transport.protocol.headers import decode_response, encode_request
from transport.protocol.inbound import Principal
from transport.protocol.messages import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    EnvelopeRequest,
    EnvelopeResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)
from transport.protocol.messages.principal import DefaultPrincipalData

RETRY_MS: Final = 100
"""The pause before a request is sent to a controller again."""
ATTEMPT_MS: Final = 10_000
"""The longest wait for one answer of a controller."""
_PRINCIPAL_VERSION: Final = 0


class _Sent(Struct):
    """A request under way. `again_ms` is the time of the next attempt; never, while an answer is outstanding."""

    asked: WireRequest
    envelope: EnvelopeRequest
    give_up_ms: int
    again_ms: int


class Forwarding:
    """The requests of clients that wait for an answer of the active controller, by number."""

    def __init__(self, timeout_ms: int) -> None:
        """`timeout_ms` is Kafka's `request.timeout.ms`: the time for a request with all its attempts."""
        self._timeout_ms = timeout_ms
        self._sent: dict[int, _Sent] = {}
        self._done: list[Answer | Drop] = []
        self._last_number = 0

    def __len__(self) -> int:
        return len(self._sent)

    def forward(self, asked: WireRequest, now_ms: int, message: Message | None = None) -> None:
        """Take a request; `poll` returns the Envelope, and later the answer. `message` goes in place of its body."""
        if len(self._sent) >= FORWARDED_REQUESTS:
            self._done.append(refused(asked, Error.REQUEST_TIMED_OUT))
            return
        self._last_number += 1
        envelope = envelope_of(
            asked.api_key, asked.version, asked.client_id, message or asked.message, asked.principal, asked.peer
        )
        self._sent[self._last_number] = _Sent(asked, envelope, now_ms + self._timeout_ms, now_ms)

    def deadline_ms(self) -> int:
        """When the next `poll` is due."""
        if self._done:
            return 0
        return min((one.again_ms for one in self._sent.values()), default=NEVER_MS)

    def poll(self, now_ms: int) -> Iterator[Send | Answer | Drop]:
        """The attempts and answers that are due."""
        done, self._done = self._done, []
        yield from done
        for number, sent in list(self._sent.items()):
            if now_ms < sent.again_ms:
                continue
            if now_ms >= sent.give_up_ms:
                del self._sent[number]
                yield refused(sent.asked, Error.REQUEST_TIMED_OUT)
                continue
            sent.again_ms = NEVER_MS
            patience_ms = min(ATTEMPT_MS, sent.give_up_ms - now_ms)
            yield Send(sent.envelope, to_broker(Forwarded(number)), patience_ms)

    def on_reply(self, number: int, response: Message | None, now_ms: int) -> None:
        """Take the answer of a controller; None if the attempt failed."""
        sent = self._sent[number]
        if not isinstance(response, EnvelopeResponse) or response.error_code == Error.NOT_CONTROLLER:
            sent.again_ms = min(now_ms + RETRY_MS, sent.give_up_ms)
            return
        del self._sent[number]
        self._done.append(opened(sent.asked, response))


def envelope_of(
    api_key: int, version: int, client_id: str | None, message: Message, principal: Principal, peer: str
) -> EnvelopeRequest:
    """The Envelope of a client's request (`ForwardingManager.buildEnvelopeRequest`)."""
    return EnvelopeRequest(
        request_data=encode_request(api_key, version, 0, client_id, message),
        request_principal=principal_bytes(principal),
        client_host_address=address_bytes(peer),
    )


def principal_bytes(principal: Principal) -> bytes:
    """A principal as Kafka's default builder serializes it (`DefaultKafkaPrincipalBuilder.serialize`)."""
    data = DefaultPrincipalData(type=principal.type, name=principal.name, token_authenticated=principal.is_token)
    return _PRINCIPAL_VERSION.to_bytes(2, "big") + encode(data, _PRINCIPAL_VERSION)


def address_bytes(peer: str) -> bytes:
    """The 4 or 16 bytes of a peer's address; those of 0.0.0.0 if the peer has none, as in simulated networks."""
    try:
        return ipaddress.ip_address(host_of_peer(peer).partition("%")[0]).packed
    except ValueError:
        return bytes(4)


def opened(asked: WireRequest, response: EnvelopeResponse) -> Answer | Drop:
    """The answer in an Envelope, as the client gets it (`ForwardingManager.handleResponse`)."""
    match response.error_code:
        case Error.NONE:
            try:
                _, message = decode_response(asked.api_key, asked.version, bytes(response.response_data or b""))
            except MetadataLogError as bad:
                return Drop(asked.request_id, f"the answer of the controller cannot be read: {bad}")
            return Answer(asked.request_id, message)
        case Error.UNSUPPORTED_VERSION:
            name, version = ApiKey(asked.api_key).name, asked.version
            return Drop(asked.request_id, f"the active controller does not serve version {version} of {name}")
        case _:
            return refused(asked, Error.UNKNOWN_SERVER_ERROR)


def refused(asked: WireRequest, error: Error) -> Answer:
    """The answer to a forwarded request that fails as a whole."""
    match asked.message:
        case DescribeQuorumRequest():
            return Answer(asked.request_id, DescribeQuorumResponse(error_code=error))
        case AddRaftVoterRequest():
            return Answer(asked.request_id, AddRaftVoterResponse(error_code=error))
        case RemoveRaftVoterRequest():
            return Answer(asked.request_id, RemoveRaftVoterResponse(error_code=error))
        case message:
            # Loaded here, because a broker needs the API table of a controller for such a failure only.
            from kraft.access.refusals import refusal

            return Answer(asked.request_id, finished(refusal(message, ApiError(error))))
