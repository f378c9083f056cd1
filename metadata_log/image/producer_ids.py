"""Which producer ids are given out (Kafka: `ProducerIdsImage`, `ProducerIdControlManager`; KIP-730)."""

from __future__ import annotations

from msgspec import Struct

from metadata_log.image.faults import ReplayError
from metadata_log.records.metadata import ProducerIdsRecord


class ProducerIdsImage(Struct, frozen=True):
    """`next_producer_id` begins the next block; -1 if none was ever given out."""

    next_producer_id: int = -1


def replay_producer_ids(image: ProducerIdsImage, record: ProducerIdsRecord) -> ProducerIdsImage:
    """Go on to the next block; raises `ReplayError` where ids would be given out again."""
    if record.next_producer_id <= max(image.next_producer_id, 0):
        raise ReplayError(
            f"the next producer id {record.next_producer_id} is not above the current one, {image.next_producer_id}"
        )
    return ProducerIdsImage(record.next_producer_id)
