"""Topics: their creation, enlargement and deletion (Kafka: `TopicsImage`, `TopicDelta`)."""

from __future__ import annotations

from typing import Final

from metadata_log.history.causes import CauseRow
from metadata_log.history.open_rows import OpenRows, Sink, When, when_of
from metadata_log.history.partition_rows import GONE, Cell, Shape, cause_of
from metadata_log.history.values import replication_factor

DELETED: Final = "topic-deleted"


class Topics:
    """The open rows of `topic_history`.

    The partitions of a topic follow in records of their own, after the topic's record. They are counted during a
    batch, and the row of the topic is written at the end of the batch.
    """

    def __init__(self, sink: Sink) -> None:
        self._rows = OpenRows("topic_history", sink)
        self._shape: dict[str, tuple[str, int, int]] = {}
        self._changed: dict[str, tuple[When, CauseRow]] = {}

    def on_topic(self, name: str, topic_id: str, when: When, cause: CauseRow) -> None:
        """Create a topic."""
        self._shape[topic_id] = (name, 0, 0)
        self._changed[topic_id] = (when, cause)

    def judge(self, old: Shape | None, new: Shape, *, is_raised: bool) -> int | None:
        """The replication factor, if it changes or is that of a new partition."""
        if new is GONE:
            return None
        factor = replication_factor(new.partition)
        return factor if old is None or factor != replication_factor(old.partition) else None

    def follow(self, partitions_factor: int, _: bytes, old: Cell | None, new: Cell) -> None:
        """Count a new partition; follow the replication factor of partition 0."""
        head = new[0]
        name, count, factor = self._shape[head.topic_id]
        new_factor = partitions_factor if head.partition == 0 else factor
        new_count = count + 1 if old is None else count
        if (new_count, new_factor) != (count, factor):
            self._shape[head.topic_id] = (name, new_count, new_factor)
            self._changed.setdefault(head.topic_id, (when_of(new), cause_of(new)))

    def on_batch_end(self) -> None:
        """Begin the rows of the topics that the batch has changed."""
        for topic_id, (when, cause) in self._changed.items():
            shape = self._shape.get(topic_id)
            if shape is not None:
                name, count, factor = shape
                self._rows.begin(topic_id, (name, topic_id, count, factor), when, cause)
        self._changed.clear()

    def on_remove(self, topic_id: str, when: When) -> None:
        """Delete a topic."""
        self.on_batch_end()
        del self._shape[topic_id]
        self._rows.end(topic_id, when, DELETED)

    def lose_sight(self, when: When) -> None:
        """End every row: the following history is unknown."""
        self._shape.clear()
        self._changed.clear()
        self._rows.lose_sight(when)

    def finish(self, now: When) -> None:
        """Write the open rows."""
        self.on_batch_end()
        self._rows.finish(now)
