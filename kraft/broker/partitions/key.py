"""How the rooms of a broker name a partition, and the number that stands for an epoch that is not known."""

from __future__ import annotations

from typing import Final

from metadata_log.types import Uuid

PartitionKey = tuple[Uuid, int]
"""The topic's id and the number of the partition."""
NO_EPOCH: Final = -1
"""The epoch of a broker or of a leader that is not known."""
