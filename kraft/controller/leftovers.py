"""Frees deleted topics in portions, after they have left each image.

Python frees an unreferenced object at once, and an image of a million partitions takes a quarter of a second. This
module keeps a reference to such topics for a short time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from kraft.limits import PARTITIONS_FREED_PER_TURN
from metadata_log.image import Partition, TopicImage


class Leftovers:
    """The topics that wait to be freed. No decision depends on them."""

    __slots__ = ("_partitions", "_topics")

    def __init__(self) -> None:
        self._topics: deque[tuple[int, TopicImage]] = deque()
        self._partitions: list[Partition] = []

    def keep(self, topics: Iterable[TopicImage], offset: int) -> None:
        """Keep topics that leave the last image once all records below `offset` are committed."""
        gone = [(offset, topic) for topic in topics]
        if sum(len(topic.partitions) for _, topic in gone) > PARTITIONS_FREED_PER_TURN:
            self._topics.extend(gone)

    def free(self, committed_offset: int) -> bool:
        """Free one portion; returns whether more can be freed."""
        left = PARTITIONS_FREED_PER_TURN
        while left > 0:
            if self._partitions:
                count = min(left, len(self._partitions))
                del self._partitions[-count:]
                left -= count
            elif self._topics and self._topics[0][0] <= committed_offset:
                self._partitions = list(self._topics.popleft()[1].partitions)
                left -= 1
            else:
                return False
        return self.is_due(committed_offset)

    def is_due(self, committed_offset: int) -> bool:
        """Whether a topic can be freed."""
        return bool(self._partitions) or (bool(self._topics) and self._topics[0][0] <= committed_offset)
