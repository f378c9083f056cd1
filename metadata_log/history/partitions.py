"""The past states of partitions, their leaders and in-sync replicas (Kafka: `PartitionRegistration`, `TopicsDelta`).

This is the hot path of every history. Partitions are similar: of a thousand with the same replicas in order, most have
the same ISR and leader, and the same change has the same effect on them. So the common part, everything except epochs,
is a `Shape`, and each `Step` from one shape to another is merged and explained once. Without listeners, a further
change of a partition costs two look-ups and the row that it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from metadata_log.errors import ReplayError
from metadata_log.history.causes import LOST_SIGHT, SNAPSHOT, CauseRow, Reason, Trigger, explain
from metadata_log.history.changes import Template, partition_key
from metadata_log.history.events import BrokerEvent, trigger_of
from metadata_log.history.open_rows import Sink, When
from metadata_log.history.values import recovery_state, uuids
from metadata_log.image.topics import Partition, merge, partition_of
from metadata_log.image.topics_delta import NO_ELR
from metadata_log.records import metadata as records
from metadata_log.types import Uuid

_MEMO_SIZE: Final = 65_536
_MOST_STEPS: Final = 256
_VIEW: Final = "partition_history"
_CHANGE: Final = "PartitionChangeRecord"


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


class Shape:
    """A partition without its epochs, as the columns of a row, and the steps from it by change."""

    __slots__ = ("columns", "leader", "partition", "steps")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.leader = partition.leader
        self.columns = (
            partition.replicas,
            partition.isr,
            partition.elr,
            partition.last_known_elr,
            partition.adding_replicas,
            partition.removing_replicas,
            recovery_state(partition.leader_recovery_state),
            uuids(partition.directories),
        )
        self.steps: dict[Template, Step] = {}


class Step:
    """The effect of one change on one shape; `reason` holds if no broker event caused the change."""

    __slots__ = ("leader_epochs", "new", "reason")

    def __init__(self, new: Shape, leader_epochs: int, reason: Reason | None) -> None:
        self.new = new
        self.leader_epochs = leader_epochs
        self.reason = reason


_Head = tuple[str, str, str, int]
_Cell = tuple[_Head, Shape, int, int, Reason, int, int, int, str | None, int | None]
"""The known state of a partition: cluster, topic, topic id and number; shape, leader epoch and partition epoch; the
cause, and its offset, time and controller epoch; the type and the offset of the record."""


class Topic:
    """A topic and the keys of its partitions."""

    __slots__ = ("id_text", "keys", "name")

    def __init__(self, name: str, topic_id: Uuid) -> None:
        self.name = name
        self.id_text = str(topic_id)
        self.keys: dict[bytes, None] = {}


class Partitions:
    """All partitions of a cluster, and the rows of `partition_history` if that view is requested."""

    def __init__(self, sink: Sink, unclean_allowed: UncleanAllowed) -> None:
        self.listeners: list[Listener] = []
        self._topics: dict[Uuid, Topic] = {}
        self._ids: dict[str, Uuid] = {}
        self._cells: dict[bytes, _Cell] = {}
        self._shapes: dict[Partition, Shape] = {}
        self._steps = 0
        self._sink = sink
        self._wanted = _VIEW in sink.wanted
        self._unclean_allowed = unclean_allowed

    def on_topic(self, record: records.TopicRecord) -> None:
        """Create a topic without partitions; raises `ReplayError` if the name or the id is in use."""
        if record.name in self._ids or record.topic_id in self._topics:
            raise ReplayError(f"topic {record.name} exists already")
        self._ids[record.name] = record.topic_id
        self._topics[record.topic_id] = Topic(record.name, record.topic_id)

    def on_partition(self, record: records.PartitionRecord, when: When, cause: CauseRow) -> None:
        """Set a partition from a PartitionRecord; raises `KeyError` if its topic does not exist."""
        topic = self._topics[record.topic_id]
        key = partition_key(record.topic_id, record.partition_id)
        partition = partition_of(record)
        former = self._cells.get(key)
        # A snapshot does not state the election rule.
        reason = Reason(cause[0], cause[3], None if cause[0] == SNAPSHOT else "first", cause[4])
        if former is not None:
            self._end(former, when, reason.code)
        topic.keys[key] = None
        head = (self._sink.cluster, topic.name, topic.id_text, record.partition_id)
        epochs = (partition.leader_epoch, partition.partition_epoch)
        of = (reason, when.offset, when.timestamp, when.epoch, cause[1], cause[2])
        cell = self._cells[key] = (head, self._shape(partition), *epochs, *of)
        if self.listeners:
            self._tell(former, cell, when)

    def on_changes(
        self,
        changes: Iterator[tuple[int, Template, bytes]],
        timestamp: int,
        epoch: int,
        effective: int | None,
        events: Sequence[BrokerEvent],
        index: int,
    ) -> None:
        """Merge consecutive changes of a batch, the first one at `index`, among these broker events.

        The changes take effect at their own offsets, or all at `effective`. Raises `KeyError` for a missing partition
        and `ReplayError` for an invalid change; the changes before that one are merged, and that one is consumed.
        """
        cells, wanted, tells = self._cells, self._wanted, bool(self.listeners)
        rows: list[tuple[str, tuple[Any, ...]]] = []
        write = rows.append
        explained: dict[Step, Reason] = {}
        try:
            for offset, template, key in changes:
                old = cells[key]
                head, shape, leader_epoch, partition_epoch, was, since, since_ms, since_epoch, record, said_at = old
                step = shape.steps.get(template)
                if step is None:
                    step = self._step(shape, template)
                reason = explained.get(step) if events else step.reason
                if reason is None:
                    trigger = trigger_of(events, index, shape.partition, step.new.partition) if events else None
                    reason = self._explain(head[1], shape, step.new, template, trigger)
                    if reason.election != "unclean":
                        explained[step] = reason
                at = offset if effective is None else effective
                if wanted:
                    row = (
                        *head,
                        shape.leader,
                        leader_epoch,
                        partition_epoch,
                        *shape.columns,
                        was.election,
                        since,
                        since_ms,
                        at,
                        timestamp,
                        reason.code,
                        since_epoch,
                        was.code,
                        record,
                        said_at,
                        was.broker,
                        was.text,
                    )
                    write((_VIEW, row))
                new_epoch = leader_epoch + step.leader_epochs
                new = (head, step.new, new_epoch, partition_epoch + 1, reason, at, timestamp, epoch, _CHANGE, offset)
                cells[key] = new
                if tells:
                    self._tell(old, new, When(at, timestamp, epoch))
        finally:
            self._sink.emit_whole(rows)

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
            self._sink.emit_whole([(_VIEW, _row(cell, None, None, None)) for cell in self._cells.values()])

    def _end(self, cell: _Cell, when: When, end_cause: str) -> None:
        if self._wanted:
            self._sink.emit_whole([(_VIEW, _row(cell, when.offset, when.timestamp, end_cause))])

    def _tell(self, old: _Cell | None, new: _Cell, when: When) -> None:
        before = None if old is None else _partition(old)
        changed = PartitionChanged(*new[0][1:], before, _partition(new), when, new[4], _cause(new))
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
        new = self._shape(merged)
        reason = explain(shape.partition, new.partition, template.record, None)
        if len(shape.steps) >= _MOST_STEPS:
            shape.steps.clear()
        step = shape.steps[template] = Step(new, merged.leader_epoch, None if reason.election == "unclean" else reason)
        return step

    def _explain(self, topic: str, old: Shape, new: Shape, template: Template, trigger: Trigger | None) -> Reason:
        allowed = self._unclean_allowed(topic)
        return explain(old.partition, new.partition, template.record, trigger, unclean_allowed=allowed)


def _partition(cell: _Cell) -> Partition:
    """The whole state of a partition."""
    return replace(cell[1].partition, leader_epoch=cell[2], partition_epoch=cell[3])


def _cause(cell: _Cell) -> CauseRow:
    reason = cell[4]
    return (reason.code, cell[8], cell[9], reason.broker, reason.text)


def _row(cell: _Cell, until: int | None, until_ms: int | None, end_cause: str | None) -> tuple[Any, ...]:
    head, shape, leader_epoch, partition_epoch, reason, since, since_ms, epoch = cell[:8]
    state = (*head, shape.leader, leader_epoch, partition_epoch, *shape.columns, reason.election)
    return (*state, since, since_ms, until, until_ms, end_cause, epoch, *_cause(cell))
