"""How the rooms of a broker name a partition, and the number that stands for an epoch that is not known."""

from __future__ import annotations

from typing import Final

from metadata_log.types import Uuid

PartitionKey = tuple[Uuid, int]
"""The topic's id and the number of the partition."""
INTERNAL_TOPICS: Final = frozenset(("__consumer_offsets", "__transaction_state", "__share_group_state"))
"""The topics of coordinators (Kafka: `Topic.INTERNAL_TOPICS`)."""
END: Final = 1
"""A change of a partition: records were appended."""
WATERMARK: Final = 2
"""A change of a partition: its high watermark has moved."""
ANY_CHANGE: Final = 7
"""Both, and everything else that may end the wait of a request: leadership, ISR, log start, settings."""
NOT_THE_END: Final = ANY_CHANGE & ~END
NOT_THE_WATERMARK: Final = ANY_CHANGE & ~WATERMARK
