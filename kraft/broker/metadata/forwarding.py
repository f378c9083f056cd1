"""Forwards requests of clients to the active controller (Kafka: `ForwardingManager`, `NodeToControllerRequestThread`;
KIP-590).

The request goes in an Envelope with the client's principal and address. While no controller is active, or its
connection fails, the broker sends the Envelope again until the request's own time is over.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from kraft.access.caller import host_of_peer
from kraft.access.errors import ApiError
from kraft.agenda import Agenda, Slot
from kraft.handling.reply_keys import Forwarded, to_broker
from kraft.handling.settings import RequestSettings
from kraft.limits import FORWARDED_REQUESTS
from kraft.wire import Answer, Drop, Outcome, Send, WireRequest
from metadata_log.errors import MetadataLogError
from metadata_log.image import MetadataImage
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

if TYPE_CHECKING:
    from kraft.broker.metadata.config_changes import Refusals
    from transport.protocol.messages import (
        AlterConfigsRequest,
        CreateDelegationTokenRequest,
        IncrementalAlterConfigsRequest,
    )

    _Changes = AlterConfigsRequest | IncrementalAlterConfigsRequest

ENVELOPE_RETRY_MS: Final = 100
"""The pause before a request is sent to a controller again."""
ATTEMPT_MS: Final = 10_000
"""The longest wait for one answer of a controller."""
_PRINCIPAL_VERSION: Final = 0
REQUESTERS_SINCE: Final = 3
"""The first version of CreateDelegationToken that tells who has asked."""


class _Sent(Struct):
    """A request under way. `again_ms` is the time of the next attempt; never, while an answer is outstanding."""

    request: WireRequest
    refusals: Refusals | None
    """The part of the request that this broker has refused itself."""
    envelope: EnvelopeRequest
    give_up_ms: int
    again_ms: int


class Forwarding:
    """The requests of clients that wait for an answer of the active controller."""

    def __init__(self, agenda: Agenda, settings: RequestSettings) -> None:
        self._agenda = agenda
        self._broker_id = settings.broker_id
        self._own = settings.own_settings
        self._timeout_ms = settings.request_timeout_ms
        """The time for a request with all its attempts."""
        self._sent: dict[Forwarded, _Sent] = {}
        self._done: list[Outcome] = []
        self._last_number = 0

    def __len__(self) -> int:
        return len(self._sent)

    def begin(self, request: WireRequest, image: MetadataImage, now_ms: int) -> Outcome | None:
        """Forward a request; `due` has the answer."""
        return self._forward(request, request.message, None, now_ms)

    def begin_configs(self, request: WireRequest[_Changes], image: MetadataImage, now_ms: int) -> Outcome | None:
        """Forward changes of settings, without those of brokers that this broker refuses itself."""
        # Loaded here, because few brokers are ever asked for it.
        from kraft.broker.metadata.config_changes import judged
        from transport.protocol.messages import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse

        message = request.message
        if isinstance(message, IncrementalAlterConfigsRequest) and not message.resources:
            # The node has answered all of it: only changes of its loggers.
            return Answer(request.request_id, IncrementalAlterConfigsResponse())
        refusals = judged(message, self._broker_id, self._own, image)
        if refusals is None:
            return self._forward(request, message, None, now_ms)
        if len(refusals.answers) == len(refusals.message.resources):
            return Answer(request.request_id, refusals.merged())
        return self._forward(request, refusals.kept, refusals, now_ms)

    def _forward(
        self, request: WireRequest, message: Message, refusals: Refusals | None, now_ms: int
    ) -> Outcome | None:
        if len(self._sent) >= FORWARDED_REQUESTS:
            return _merged(refusals, refused(request, ApiError(Error.REQUEST_TIMED_OUT)))
        self._last_number += 1
        envelope = envelope_of(
            request.api_key, request.version, request.client_id, message, request.principal, request.peer
        )
        sent = _Sent(request, refusals, envelope, now_ms + self._timeout_ms, now_ms)
        self._sent[Forwarded(self._last_number)] = sent
        self._agenda.by(Slot.FORWARDING, now_ms)
        return None

    def due(self, image: MetadataImage, broker_epoch: int, now_ms: int) -> Iterator[Send | Outcome]:
        """The attempts and answers that are due."""
        done, self._done = self._done, []
        yield from done
        for key, sent in list(self._sent.items()):
            if now_ms < sent.again_ms:
                continue
            if now_ms >= sent.give_up_ms:
                del self._sent[key]
                yield _merged(sent.refusals, refused(sent.request, ApiError(Error.REQUEST_TIMED_OUT)))
                continue
            sent.again_ms = NEVER_MS
            yield Send(sent.envelope, to_broker(key), min(ATTEMPT_MS, sent.give_up_ms - now_ms))
        self._agenda.at(Slot.FORWARDING, min([one.again_ms for one in self._sent.values()], default=NEVER_MS))

    def on_reply(self, key: Forwarded, message: Message | None, now_ms: int) -> None:
        """Take the answer of a controller; None if the attempt failed."""
        sent = self._sent[key]
        if not isinstance(message, EnvelopeResponse) or message.error_code == Error.NOT_CONTROLLER:
            sent.again_ms = min(now_ms + ENVELOPE_RETRY_MS, sent.give_up_ms)
            self._agenda.by(Slot.FORWARDING, sent.again_ms)
            return
        del self._sent[key]
        self._done.append(_merged(sent.refusals, opened(sent.request, message)))
        self._agenda.now(Slot.FORWARDING)


def _merged(refusals: Refusals | None, outcome: Outcome) -> Outcome:
    """An answer of a controller, with what this broker has refused itself."""
    if refusals is None or not isinstance(outcome, Answer):
        return outcome
    return Answer(outcome.request_id, refusals.merged(outcome.message))


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


def opened(request: WireRequest, response: EnvelopeResponse) -> Answer | Drop:
    """The answer in an Envelope, as the client gets it (`ForwardingManager.handleResponse`)."""
    match response.error_code:
        case Error.NONE:
            try:
                _, message = decode_response(request.api_key, request.version, bytes(response.response_data or b""))
            except MetadataLogError as bad:
                return Drop(request.request_id, f"the answer of the controller cannot be read: {bad}")
            return Answer(request.request_id, message)
        case Error.UNSUPPORTED_VERSION:
            name, version = ApiKey(request.api_key).name, request.version
            return Drop(request.request_id, f"the active controller does not serve version {version} of {name}")
        case _:
            return refused(request, ApiError(Error.UNKNOWN_SERVER_ERROR))


def refused(request: WireRequest, error: ApiError) -> Answer:
    """The answer to a forwarded request that fails as a whole."""
    match request.message:
        case DescribeQuorumRequest():
            return Answer(request.request_id, DescribeQuorumResponse(error_code=error.error))
        case AddRaftVoterRequest():
            return Answer(request.request_id, AddRaftVoterResponse(error_code=error.error))
        case RemoveRaftVoterRequest():
            return Answer(request.request_id, RemoveRaftVoterResponse(error_code=error.error))
        case message:
            # Loaded here, because a broker needs the API table of a controller for such a failure only.
            from kraft.access.refusals import refusal
            from transport.protocol.messages import CreateDelegationTokenRequest

            if isinstance(message, CreateDelegationTokenRequest):
                return _refused_token(request, message, error)
            return Answer(request.request_id, finished(refusal(message, error)))


def _refused_token(request: WireRequest, creation: CreateDelegationTokenRequest, error: ApiError) -> Answer:
    """The answer to a creation of a token, which names who asked and for whom."""
    from transport.protocol.messages import CreateDelegationTokenResponse

    asks = request.principal
    is_told = request.version >= REQUESTERS_SINCE
    answer = CreateDelegationTokenResponse(
        error_code=error.error,
        principal_type=(creation.owner_principal_type or "") if creation.owner_principal_name else asks.type,
        principal_name=creation.owner_principal_name or asks.name,
        token_requester_principal_type=asks.type if is_told else "",
        token_requester_principal_name=asks.name if is_told else "",
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
    )
    return Answer(request.request_id, answer)
