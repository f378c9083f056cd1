"""Blocks of producer ids for brokers (Kafka: `ProducerIdControlManager`; KIP-730)."""

from __future__ import annotations

from typing import Final

from kraft.access.errors import ApiError
from kraft.controller.decision.request_context import RequestContext
from kraft.controller.decision.result import ControllerResult
from metadata_log.records.frame import VersionedRecord
from metadata_log.records.metadata import ProducerIdsRecord
from transport.protocol.errors import Error
from transport.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)

BLOCK: Final = 1000
"""The number of ids in a block (`ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE`)."""


def allocate_producer_ids(context: RequestContext, request: AllocateProducerIdsRequest) -> ControllerResult:
    """Allocate the next block to a broker; raises `ApiError` for another incarnation of the broker."""
    broker = context.image.brokers.by_id.get(request.broker_id)
    if broker is None or broker.epoch != request.broker_epoch:
        raise ApiError(Error.STALE_BROKER_EPOCH)
    start = max(context.image.producer_ids.next_producer_id, 0)
    record = ProducerIdsRecord(
        broker_id=request.broker_id, broker_epoch=request.broker_epoch, next_producer_id=start + BLOCK
    )
    response = AllocateProducerIdsResponse(producer_id_start=start, producer_id_len=BLOCK)
    return ControllerResult((VersionedRecord(record),), response, is_atomic=False)
