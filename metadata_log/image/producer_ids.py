"""The allocated producer ids (Kafka: `ProducerIdsImage`, `ProducerIdControlManager`; KIP-730)."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from metadata_log.errors import ReplayError
from metadata_log.records.metadata import ProducerIdsRecord

NONE: Final = -1


class ProducerIdsImage(Struct, frozen=True):
    """`next_producer_id` is the first id of the next block; -1 before the first allocation."""

    next_producer_id: int = NONE


def replay_producer_ids(image: ProducerIdsImage, record: ProducerIdsRecord) -> ProducerIdsImage:
    """Move to the next block; raises `ReplayError` for ids that were allocated before."""
    if image.next_producer_id != NONE and record.next_producer_id <= image.next_producer_id:
        raise ReplayError(
            f"the next producer id {record.next_producer_id} is not above the current one, {image.next_producer_id}"
        )
    return ProducerIdsImage(record.next_producer_id)
