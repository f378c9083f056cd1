"""The past states of partitions, their leaders and in-sync replicas (Kafka: `PartitionRegistration`, `TopicsDelta`).

This is the hot path of every history. Partitions are similar: of a thousand with the same replicas in order, most have
the same ISR and leader, and the same change has the same effect on them. So the common part, everything except epochs,
is a `Shape`, and each `Step` from one shape to another is merged and explained once, and judged once by each view that
follows partitions. A further change of a partition costs two look-ups, the rows that it ends, and a call for each view
to which it means something.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from struct import Struct as Layout
from typing import Any, Final, Protocol

from msgspec.structs import replace

from metadata_log.errors import ReplayError
from metadata_log.history.causes import SNAPSHOT, CauseRow, Reason, Trigger, explain
from metadata_log.history.changes import Creation, Keyed, Template, partition_key
from metadata_log.history.events import BrokerEvent, trigger_of
from metadata_log.history.open_rows import Sink, When, lost_sight
from metadata_log.history.partition_rows import GONE, PARTITION_HISTORY, Cell, Head, Shape, Step, Told, TopicHead
from metadata_log.image.topics import Partition, merge, partition_of
from metadata_log.image.topics_delta import NO_ELR
from metadata_log.records import metadata as records
from metadata_log.types import Uuid

_NUMBER_AND_TOPIC: Final = Layout(">i16s").unpack
"""The parts of a partition's key."""
_MEMO_SIZE: Final = 65_536
_MOST_STEPS: Final = 256
_CHANGE: Final = "PartitionChangeRecord"
_RECORD: Final = "PartitionRecord"
_FIRST: Final = "first"
"""The election rule of a new partition."""
CREATED: Final = "topic-created"
ENLARGED: Final = "partitions-added"
_CREATED: Final = Reason(CREATED, None, _FIRST, "the topic was created; the first live replica leads")


class Follower(Protocol):
    """A view that follows partitions."""

    def judge(self, old: Shape | None, new: Shape, *, is_raised: bool) -> Any:
        """The meaning of a change between these shapes to the view, whatever the partition; None for nothing.

        `old` is None for a new partition, and `new` is `GONE` after the deletion of its topic. `is_raised` is whether
        the leader epoch changes.
        """

    def follow(self, meaning: Any, key: bytes, old: Cell | None, new: Cell) -> None:
        """Process one change with this meaning."""


UncleanAllowed = Callable[[str], bool]


class Topic:
    """A topic and the keys of its partitions."""

    __slots__ = ("head", "keys")

    def __init__(self, cluster: str, name: str, id_text: str) -> None:
        self.head = TopicHead(cluster, name, id_text)
        self.keys: dict[bytes, None] = {}

    @property
    def name(self) -> str:
        """The name."""
        return self.head.topic

    @property
    def id_text(self) -> str:
        """The text form of the id."""
        return self.head.topic_id


class Partitions:
    """All partitions of a cluster, and the rows of `partition_history` if that view is requested."""

    def __init__(self, sink: Sink, unclean_allowed: UncleanAllowed) -> None:
        self.followers: list[Follower] = []
        self._topics: dict[Uuid, Topic] = {}
        self._ids: dict[str, Uuid] = {}
        self._cells: dict[bytes, Cell] = {}
        self._shapes: dict[Partition, Shape] = {}
        self._made: dict[Creation, tuple[Shape, int, int]] = {}
        """The shapes and epochs of new partitions."""
        self._sink = sink
        self._ended = sink.ended.get(PARTITION_HISTORY)
        self._told: dict[tuple[Shape | None, Shape, bool], Told] = {}
        """The meaning of changes to the followers."""
        self._unclean_allowed = unclean_allowed

    def on_topic(self, record: records.TopicRecord) -> Topic:
        """Create a topic without partitions; raises `ReplayError` if the name or the id is in use."""
        if record.name in self._ids or record.topic_id in self._topics:
            raise ReplayError(f"topic {record.name} exists already")
        self._ids[record.name] = record.topic_id
        topic = self._topics[record.topic_id] = Topic(self._sink.cluster, record.name, str(record.topic_id))
        return topic

    def on_partition(self, record: records.PartitionRecord, when: When, cause: CauseRow) -> None:
        """Set a partition from a PartitionRecord; raises `KeyError` if its topic does not exist."""
        topic = self._topics[record.topic_id]
        partition = partition_of(record)
        # A snapshot does not state the election rule.
        reason = Reason(cause[0], cause[3], None if cause[0] == SNAPSHOT else _FIRST, cause[4])
        key = partition_key(record.topic_id, record.partition_id)
        epochs = (partition.leader_epoch, partition.partition_epoch)
        of = (reason, when.offset, when.timestamp, when.epoch, cause[1], cause[2])
        head = Head(topic.head, record.partition_id)
        self._set(topic, key, (head, self._shape(partition), *epochs, *of))

    def _set(self, topic: Topic, key: bytes, cell: Cell) -> None:
        former = self._cells.get(key)
        topic.keys[key] = None
        self._cells[key] = cell
        self._changed(key, former, cell)

    def on_changes(
        self,
        changes: Iterator[tuple[int, Keyed, bytes]],
        timestamp: int,
        epoch: int,
        effective: int | None,
        events: Sequence[BrokerEvent],
        index: int,
        born: Collection[bytes],
    ) -> None:
        """Merge consecutive changes of a batch, the first one at `index`, among these broker events.

        The changes take effect at their own offsets, or all at `effective`. `born` are the topics that the batch
        creates. Raises `KeyError` for a missing partition or topic and `ReplayError` for an invalid change; the changes
        before that one are merged, and that one is consumed.
        """
        cells, ended = self._cells, self._ended
        explained: dict[Step, Reason] = {}
        for offset, change, key in changes:
            at = offset if effective is None else effective
            if isinstance(change, Creation):
                self._create(change, key, offset, at, timestamp, epoch, born)
                continue
            old = cells[key]
            head, shape, leader_epoch, partition_epoch, _, _, _, _, _, _ = old
            step = shape.steps.get(change) or self._step(shape, change)
            reason = explained.get(step) if events else step.reason
            if reason is None:
                trigger = trigger_of(events, index, shape.partition, step.new.partition) if events else None
                reason = self._explain(head.topic, shape, step.new, change, trigger)
                if reason.election != "unclean":
                    if events:
                        explained[step] = reason
                    else:
                        step.reason = reason
            new_epoch = leader_epoch + step.leader_epochs
            new = (head, step.new, new_epoch, partition_epoch + 1, reason, at, timestamp, epoch, _CHANGE, offset)
            cells[key] = new
            if ended is not None:
                ended.append((None, old, new))
            for follow, meaning in step.told:
                follow(meaning, key, old, new)

    def _create(
        self,
        creation: Creation,
        key: bytes,
        offset: int,
        at: int,
        timestamp: int,
        epoch: int,
        born: Collection[bytes],
    ) -> None:
        """Set a partition from a PartitionRecord of the log, as `on_partition` does."""
        number, topic_id = _NUMBER_AND_TOPIC(key)
        topic = self._topics[topic_id]
        shape, leader_epoch, partition_epoch = self._made.get(creation) or self._make(creation)
        reason = _CREATED if topic_id in born else reason_of_new(number, is_born=False)
        head = Head(topic.head, number)
        cell = (head, shape, leader_epoch, partition_epoch, reason, at, timestamp, epoch, _RECORD, offset)
        self._set(topic, key, cell)

    def _make(self, creation: Creation) -> tuple[Shape, int, int]:
        partition = partition_of(creation.record)
        if len(self._made) >= _MEMO_SIZE:
            self._made.clear()
        made = self._made[creation] = (self._shape(partition), partition.leader_epoch, partition.partition_epoch)
        return made

    def peek(self, key: bytes) -> Partition | None:
        """The present state of a partition without its epochs; None for a missing partition."""
        cell = self._cells.get(key)
        return None if cell is None else cell[1].partition

    def cells_of(self, topic_name: str) -> list[Cell]:
        """The partitions of a topic, or with "" of all."""
        named = [self._ids.get(topic_name)] if topic_name else list(self._topics)
        topics = [self._topics[topic_id] for topic_id in named if topic_id is not None]
        return [self._cells[key] for topic in topics for key in topic.keys]

    def on_clear_elr(self, topic_name: str, when: When, cause: CauseRow) -> None:
        """Clear the eligible leader replicas of a topic, or of all; the epoch rises where there were any (KIP-966)."""
        reason = Reason(cause[0], None, None, cause[4])
        of = (reason, when.offset, when.timestamp, when.epoch, cause[1], cause[2])
        for topic in self._topics.values():
            if topic_name not in ("", topic.name):
                continue
            for key in topic.keys:
                old = self._cells[key]
                head, shape, leader_epoch, partition_epoch = old[:4]
                if shape.partition.elr or shape.partition.last_known_elr:
                    cleared = self._shape(merge(shape.partition, NO_ELR))
                    new = self._cells[key] = (head, cleared, leader_epoch, partition_epoch + 1, *of)
                    self._changed(key, old, new)

    def on_remove_topic(self, topic_id: Uuid, when: When, cause: CauseRow) -> Topic:
        """Remove a topic and its partitions; raises `KeyError` for a missing topic."""
        topic = self._topics.pop(topic_id)
        del self._ids[topic.name]
        reason = Reason(cause[0], None, None, cause[4])
        of = (reason, when.offset, when.timestamp, when.epoch, cause[1], cause[2])
        for key in topic.keys:
            cell = self._cells.pop(key)
            self._changed(key, cell, (cell[0], GONE, 0, 0, *of))
        return topic

    def lose_sight(self, when: When) -> None:
        """End every row: the following history is unknown."""
        if self._ended is not None:
            lost = lost_sight(when)
            self._ended.extend([(None, cell, lost) for cell in self._cells.values()])
        self._cells.clear()
        self._topics.clear()
        self._ids.clear()

    def finish(self, now: When) -> None:
        """Write every open row at the end of the history."""
        if self._ended is not None:
            self._ended.extend([(None, cell, None) for cell in self._cells.values()])

    def _changed(self, key: bytes, old: Cell | None, new: Cell) -> None:
        """Write the row that a change ends, and tell the followers."""
        if self._ended is not None and old is not None:
            self._ended.append((None, old, new))
        if self.followers:
            is_raised = old is not None and old[2] != new[2]
            for follow, meaning in self._judged(None if old is None else old[1], new[1], is_raised=is_raised):
                follow(meaning, key, old, new)

    def _judged(self, old: Shape | None, new: Shape, *, is_raised: bool) -> Told:
        of = (old, new, is_raised)
        told = self._told.get(of)
        if told is None:
            if len(self._told) >= _MEMO_SIZE:
                self._told.clear()
            judged = [(one.follow, one.judge(old, new, is_raised=is_raised)) for one in self.followers]
            told = self._told[of] = tuple([one for one in judged if one[1] is not None])
        return told

    def _shape(self, partition: Partition) -> Shape:
        key = replace(partition, leader_epoch=0, partition_epoch=0)
        shape = self._shapes.get(key)
        if shape is None:
            if len(self._shapes) >= _MEMO_SIZE:
                # Partitions keep their shapes; only the sharing with later partitions is lost.
                self._shapes.clear()
            shape = self._shapes[key] = Shape(key)
        return shape

    def _step(self, shape: Shape, template: Template) -> Step:
        merged = merge(shape.partition, template.record)
        if len(shape.steps) >= _MOST_STEPS:
            shape.steps.clear()
        new = self._shape(merged)
        told = self._judged(shape, new, is_raised=merged.leader_epoch != 0) if self.followers else ()
        step = shape.steps[template] = Step(new, merged.leader_epoch, told)
        return step

    def _explain(self, topic: str, old: Shape, new: Shape, template: Template, trigger: Trigger | None) -> Reason:
        of = (old.partition, new.partition, template.record, trigger)
        reason = explain(*of)
        if reason.election == "unclean" and self._unclean_allowed(topic):
            return explain(*of, unclean_allowed=True)
        return reason


def reason_of_new(number: int, *, is_born: bool) -> Reason:
    """Why a partition is new: its topic is, too (`is_born`), or an older topic has grown."""
    if is_born:
        return _CREATED
    return Reason(ENLARGED, None, _FIRST, f"partition {number} was added to the topic; its first live replica leads")
