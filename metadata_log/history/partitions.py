"""The past states of partitions, their leaders and in-sync replicas (Kafka: `PartitionRegistration`, `TopicsDelta`).

This is the hot path of every history. Partitions are similar: of a thousand with the same replicas in order, most have
the same ISR and leader, and the same change has the same effect on them. So the common part, everything except epochs,
is a `Shape`, and each `Step` from one shape to another is merged and explained once. Without listeners, a further
change of a partition costs two look-ups and the row that it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final, cast

from msgspec import Struct
from msgspec.structs import replace

from metadata_log.errors import ReplayError
from metadata_log.history.causes import LOST_SIGHT, SNAPSHOT, CauseRow, Reason, Trigger, explain
from metadata_log.history.changes import Creation, Keyed, Template, number_of, partition_key
from metadata_log.history.events import BrokerEvent, trigger_of
from metadata_log.history.open_rows import Sink, When
from metadata_log.history.partition_rows import PARTITION_HISTORY, Cell, Shape, Step, cause_of
from metadata_log.image.topics import Partition, merge, partition_of
from metadata_log.image.topics_delta import NO_ELR
from metadata_log.records import metadata as records
from metadata_log.types import Uuid

_MEMO_SIZE: Final = 65_536
_MOST_STEPS: Final = 256
_CHANGE: Final = "PartitionChangeRecord"
_RECORD: Final = "PartitionRecord"
_FIRST: Final = "first"
"""The election rule of a new partition."""
CREATED: Final = "topic-created"
ENLARGED: Final = "partitions-added"
_CREATED: Final = Reason(CREATED, None, _FIRST, "the topic was created; the first live replica leads")


class PartitionChanged(Struct, frozen=True, gc=False):
    """One change of one partition; `old` is None for a new partition, `new` is None after deletion of its topic."""

    topic: str
    topic_id: str
    partition: int
    old: Partition | None
    new: Partition | None
    when: When
    reason: Reason
    cause: CauseRow


Listener = Callable[[PartitionChanged], None]
UncleanAllowed = Callable[[str], bool]


class Topic:
    """A topic and the keys of its partitions."""

    __slots__ = ("id_text", "keys", "name")

    def __init__(self, name: str, id_text: str) -> None:
        self.name = name
        self.id_text = id_text
        self.keys: dict[bytes, None] = {}


class Partitions:
    """All partitions of a cluster, and the rows of `partition_history` if that view is requested."""

    def __init__(self, sink: Sink, unclean_allowed: UncleanAllowed) -> None:
        self.listeners: list[Listener] = []
        self._topics: dict[Uuid, Topic] = {}
        self._ids: dict[str, Uuid] = {}
        self._cells: dict[bytes, Cell] = {}
        self._shapes: dict[Partition, Shape] = {}
        self._made: dict[Creation, tuple[Shape, int, int]] = {}
        """The shapes and epochs of new partitions."""
        self._sink = sink
        self._wanted = PARTITION_HISTORY in sink.wanted
        self._unclean_allowed = unclean_allowed

    def on_topic(self, record: records.TopicRecord) -> Topic:
        """Create a topic without partitions; raises `ReplayError` if the name or the id is in use."""
        if record.name in self._ids or record.topic_id in self._topics:
            raise ReplayError(f"topic {record.name} exists already")
        self._ids[record.name] = record.topic_id
        topic = self._topics[record.topic_id] = Topic(record.name, str(record.topic_id))
        return topic

    def on_partition(self, record: records.PartitionRecord, when: When, cause: CauseRow) -> None:
        """Set a partition from a PartitionRecord; raises `KeyError` if its topic does not exist."""
        topic = self._topics[record.topic_id]
        partition = partition_of(record)
        # A snapshot does not state the election rule.
        reason = Reason(cause[0], cause[3], None if cause[0] == SNAPSHOT else _FIRST, cause[4])
        head = (self._sink.cluster, topic.name, topic.id_text, record.partition_id)
        epochs = (partition.leader_epoch, partition.partition_epoch)
        of = (reason, when.offset, when.timestamp, when.epoch, cause[1], cause[2])
        cell = (head, self._shape(partition), *epochs, *of)
        self._set(topic, partition_key(record.topic_id, record.partition_id), cell, when)

    def _set(self, topic: Topic, key: bytes, cell: Cell, when: When) -> None:
        former = self._cells.get(key)
        if former is not None:
            self._end(former, when, cell[4].code)
        topic.keys[key] = None
        self._cells[key] = cell
        if self.listeners:
            self._tell(former, cell, when)

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
        cells, wanted, tells = self._cells, self._wanted, bool(self.listeners)
        write = self._sink.ended.append
        explained: dict[Step, Reason] = {}
        for offset, change, key in changes:
            at = offset if effective is None else effective
            if type(change) is Creation:
                self._create(change, key, offset, at, timestamp, epoch, born)
                continue
            template = cast("Template", change)
            old = cells[key]
            head, shape, leader_epoch, partition_epoch, _, _, _, _, _, _ = old
            step = shape.steps.get(template) or self._step(shape, template)
            reason = explained.get(step) if events else step.reason
            if reason is None:
                trigger = trigger_of(events, index, shape.partition, step.new.partition) if events else None
                reason = self._explain(head[1], shape, step.new, template, trigger)
                if reason.election != "unclean":
                    if events:
                        explained[step] = reason
                    else:
                        step.reason = reason
            if wanted:
                write((old, at, timestamp, reason.code))
            new_epoch = leader_epoch + step.leader_epochs
            new = (head, step.new, new_epoch, partition_epoch + 1, reason, at, timestamp, epoch, _CHANGE, offset)
            cells[key] = new
            if tells:
                self._tell(old, new, When(at, timestamp, epoch))

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
        topic_id = key[4:]
        topic = self._topics[cast("Uuid", topic_id)]
        shape, leader_epoch, partition_epoch = self._made.get(creation) or self._make(creation)
        number = number_of(key)
        reason = reason_of_new(number, is_born=topic_id in born)
        head = (self._sink.cluster, topic.name, topic.id_text, number)
        cell = (head, shape, leader_epoch, partition_epoch, reason, at, timestamp, epoch, _RECORD, offset)
        self._set(topic, key, cell, When(at, timestamp, epoch))

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
                    self._end(old, when, reason.code)
                    cleared = self._shape(merge(shape.partition, NO_ELR))
                    new = self._cells[key] = (head, cleared, leader_epoch, partition_epoch + 1, *of)
                    self._tell(old, new, when)

    def on_remove_topic(self, topic_id: Uuid, when: When, cause: CauseRow) -> Topic:
        """Remove a topic and its partitions; raises `KeyError` for a missing topic."""
        topic = self._topics.pop(topic_id)
        del self._ids[topic.name]
        reason = Reason(cause[0], None, None, cause[4])
        for key in topic.keys:
            cell = self._cells.pop(key)
            self._end(cell, when, reason.code)
            if self.listeners:
                changed = PartitionChanged(*cell[0][1:], _partition(cell), None, when, reason, cause)
                for listener in self.listeners:
                    listener(changed)
        return topic

    def lose_sight(self, when: When) -> None:
        """End every row: the following history is unknown."""
        for cell in self._cells.values():
            self._end(cell, when, LOST_SIGHT)
        self._cells.clear()
        self._topics.clear()
        self._ids.clear()

    def finish(self, now: When) -> None:
        """Write every open row at the end of the history."""
        if self._wanted:
            self._sink.ended.extend([(cell, None, None, None) for cell in self._cells.values()])

    def _end(self, cell: Cell, when: When, end_cause: str) -> None:
        if self._wanted:
            self._sink.ended.append((cell, when.offset, when.timestamp, end_cause))

    def _tell(self, old: Cell | None, new: Cell, when: When) -> None:
        before = None if old is None else _partition(old)
        changed = PartitionChanged(*new[0][1:], before, _partition(new), when, new[4], cause_of(new))
        for listener in self.listeners:
            listener(changed)

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
        step = shape.steps[template] = Step(self._shape(merged), merged.leader_epoch)
        return step

    def _explain(self, topic: str, old: Shape, new: Shape, template: Template, trigger: Trigger | None) -> Reason:
        of = (old.partition, new.partition, template.record, trigger)
        reason = explain(*of)
        if reason.election == "unclean" and self._unclean_allowed(topic):
            return explain(*of, unclean_allowed=True)
        return reason


def _partition(cell: Cell) -> Partition:
    """The whole state of a partition."""
    return replace(cell[1].partition, leader_epoch=cell[2], partition_epoch=cell[3])


def reason_of_new(number: int, *, is_born: bool) -> Reason:
    """Why a partition is new: its topic is, too (`is_born`), or an older topic has grown."""
    if is_born:
        return _CREATED
    return Reason(ENLARGED, None, _FIRST, f"partition {number} was added to the topic; its first live replica leads")
