"""InitProducerId for idempotent producers: ids from blocks of the controller (Kafka: `RPCProducerIdManager`).

A broker asks the active controller for a block of 1000 ids, and for the next block once most of the present one is
used.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Final

from msgspec import Struct

from kraft.access.authorizer import AclOperation, AclResource
from kraft.agenda import Agenda, Slot
from kraft.handling.reply_keys import Channel, to_broker
from kraft.handling.rights import Rights
from kraft.wire import Answer, Send, WireRequest
from metadata_log.image import MetadataImage
from metadata_log.serde import Message
from metadata_log.types import NO_EPOCH, NO_PRODUCER
from transport.protocol.errors import Error
from transport.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from transport.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

PREFETCH_FROM: Final = 0.9
"""The used part of a block from which on the next block is requested."""
BLOCK_RETRY_MS: Final = 50


class Block(Struct):
    """A range of producer ids, of which the first `used` are given out."""

    start: int
    size: int
    used: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether every id is given out."""
        return self.used >= self.size


class WaitingProducer(Struct):
    """A producer that waits for an id."""

    request: WireRequest[InitProducerIdRequest]
    timeout_ms: int
    """For how long the producer waits at most."""
    answer: Answer | None = None
    keys = (Channel.PRODUCER_IDS,)
    """The keys that end the wait."""


class ProducerIds:
    """The producer ids that this broker may give out."""

    def __init__(self, agenda: Agenda, tell: Callable[[Hashable], None], broker_id: int, timeout_ms: int) -> None:
        self._agenda = agenda
        self._tell = tell
        self._broker_id = broker_id
        self._timeout_ms = timeout_ms
        self._present: Block | None = None
        self._next: Block | None = None
        self._is_wanted = False
        """Whether a producer has asked: a broker without idempotent producers takes no block."""
        self._is_asking = False
        self._ask_at_ms = 0

    def take(self) -> int | None:
        """A new producer id; None while the broker has none."""
        self._is_wanted = True
        if (self._present is None or self._present.is_empty) and self._next is not None:
            self._present, self._next = self._next, None
        producer_id: int | None = None
        if self._present is not None and not self._present.is_empty:
            producer_id = self._present.start + self._present.used
            self._present.used += 1
        if not self._is_asking and self.needs_block:
            self._agenda.by(Slot.PRODUCER_IDS, self._ask_at_ms)
        return producer_id

    @property
    def needs_block(self) -> bool:
        """Whether the next block is to be requested."""
        present = self._present
        return (
            self._is_wanted and self._next is None and (present is None or present.used >= PREFETCH_FROM * present.size)
        )

    def due(self, image: MetadataImage, broker_epoch: int, now_ms: int) -> Iterator[Send]:
        """The request to the active controller for a block, if one is due."""
        if not self._is_asking and self.needs_block and now_ms >= self._ask_at_ms:
            self._is_asking = True
            request = AllocateProducerIdsRequest(broker_id=self._broker_id, broker_epoch=broker_epoch)
            yield Send(request, to_broker(Channel.PRODUCER_IDS), self._timeout_ms)

    def on_reply(self, key: Channel, message: Message | None, now_ms: int) -> None:
        """The controller's answer, or None if the request failed; after an error the broker asks again."""
        self._is_asking = False
        self._tell(Channel.PRODUCER_IDS)
        match message:
            case AllocateProducerIdsResponse(error_code=Error.NONE, producer_id_start=start, producer_id_len=size):
                self._next = Block(start, size)
            case _:
                self._ask_at_ms = now_ms + BLOCK_RETRY_MS
        if self.needs_block:
            self._agenda.by(Slot.PRODUCER_IDS, self._ask_at_ms)


class InitProducerIdHandler:
    """Answers InitProducerId requests.

    Args:
        ids: The producer ids that this broker may give out.
        rights: What clients may do.
        timeout_ms: For how long a producer waits for an id at most.
        initialize: What answers a producer with a transactional id.
    """

    def __init__(
        self,
        ids: ProducerIds,
        rights: Rights,
        timeout_ms: int,
        initialize: Callable[[WireRequest[InitProducerIdRequest], MetadataImage, int], Answer | None],
    ) -> None:
        self._ids = ids
        self._initialize = initialize
        self._rights = rights
        self._timeout_ms = timeout_ms

    def begin(
        self, request: WireRequest[InitProducerIdRequest], image: MetadataImage, now_ms: int
    ) -> Answer | WaitingProducer | None:
        """The answer; or the request, if it waits for a block of ids. None if a coordinator answers it later."""
        message = request.message
        if message.transactional_id is not None:
            return self._initialize(request, image, now_ms)
        return self._answer(request) or WaitingProducer(request, self._timeout_ms)

    def is_complete(self, waiting: WaitingProducer, image: MetadataImage) -> bool:
        """Whether there is an id now, which the producer gets."""
        waiting.answer = self._answer(waiting.request)
        return waiting.answer is not None

    def end(self, waiting: WaitingProducer, image: MetadataImage, now_ms: int) -> Answer:
        """The answer; without an id the producer asks again."""
        return waiting.answer or _refused(waiting.request, Error.COORDINATOR_LOAD_IN_PROGRESS)

    def _answer(self, request: WireRequest[InitProducerIdRequest]) -> Answer | None:
        message = request.message
        error = self._refusal(request, message)
        if error is not Error.NONE:
            return _refused(request, error)
        producer_id = self._ids.take()
        if producer_id is None:
            return None
        return Answer(request.request_id, InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))

    def _refusal(self, request: WireRequest, message: InitProducerIdRequest) -> Error:
        rights = self._rights
        if not rights.of_any(request, AclOperation.WRITE, AclResource.TOPIC) and not rights(
            request, AclOperation.IDEMPOTENT_WRITE, AclResource.CLUSTER
        ):
            return Error.CLUSTER_AUTHORIZATION_FAILED
        # A producer without transactions gets a new id, whatever id it names; half an identity is a mistake.
        is_half = (message.producer_id == NO_PRODUCER) != (message.producer_epoch == NO_EPOCH)
        return Error.INVALID_REQUEST if is_half else Error.NONE


def _refused(request: WireRequest, error: Error) -> Answer:
    """The answer with an error."""
    return Answer(
        request.request_id,
        InitProducerIdResponse(error_code=error, producer_id=NO_PRODUCER, producer_epoch=NO_EPOCH),
    )
