"""Topics that are gone from every image, given back to memory a portion at a time.

Python frees what nothing refers to at once: the image of a million partitions takes a quarter of a second. So something
refers to it for a little longer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from metadata_log.image import Partition, TopicImage

AT_ONCE: Final = 5_000
"""So many partitions are freed in a turn. Fewer are not worth a turn of their own."""


class Leftovers:
    """The topics that wait to be freed. No decision depends on them."""

    __slots__ = ("_partitions", "_topics")

    def __init__(self) -> None:
        self._topics: deque[tuple[int, TopicImage]] = deque()
        self._partitions: list[Partition] = []

    def keep(self, topics: Iterable[TopicImage], offset: int) -> None:
        """These are in no image any more as soon as everything below `offset` is committed."""
        gone = [(offset, topic) for topic in topics]
        if sum(len(topic.partitions) for _, topic in gone) > AT_ONCE:
            self._topics.extend(gone)

    def free(self, committed_offset: int) -> bool:
        """Let go of one portion; whether there is more that may go."""
        left = AT_ONCE
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
        """Whether there is something that may go."""
        return bool(self._partitions) or (bool(self._topics) and self._topics[0][0] <= committed_offset)
