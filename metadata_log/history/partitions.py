"""What partitions were, who led them and who was in sync (Kafka: `PartitionRegistration`, `TopicsDelta`).

This is the hot path of every history: nearly all records of a busy cluster are PartitionChangeRecords. State is one
tuple for each partition; what follows from changes (leaders, ISRs, unavailability …) is told to listeners, and where
there are none a change costs one merge, one reason and one row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from metadata_log.history.causes import LOST_SIGHT, SNAPSHOT, CauseRow, Reason, Trigger, explain
from metadata_log.history.events import BrokerEvent, trigger_of
from metadata_log.history.open_rows import Sink, When
from metadata_log.history.values import recovery_state, uuids
from metadata_log.image.topics import Partition, merge, partition_of
from metadata_log.image.topics_delta import NO_ELR
from metadata_log.records import metadata as records
from metadata_log.types import Uuid

_MEMO_SIZE: Final = 65_536


class PartitionChanged(Struct, frozen=True, gc=False):
    """One change of one partition; `old` is None for a new one, `new` is None for one whose topic was deleted."""

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

_Row = tuple[Partition, str | None, int, int, int, CauseRow]
"""What is known of a partition: its state, the rule that elected its leader, offset, time, epoch, cause."""


class Topic:
    """A topic and the rows of its partitions that still hold, by their numbers."""

    __slots__ = ("id_text", "name", "rows")

    def __init__(self, name: str, topic_id: Uuid) -> None:
        self.name = name
        self.id_text = str(topic_id)
        self.rows: dict[int, _Row] = {}


class Partitions:
    """All partitions of a cluster, and the rows of `partition_history` if they are wanted."""

    def __init__(self, sink: Sink, unclean_allowed: UncleanAllowed) -> None:
        self.topics: dict[Uuid, Topic] = {}
        self.listeners: list[Listener] = []
        self._emit = sink.emit
        self._wanted = "partition_history" in sink.wanted
        self._unclean_allowed = unclean_allowed
        self._directories: dict[tuple[Uuid, ...], tuple[str, ...]] = {}
        self._reasons: dict[tuple[object, ...], Reason] = {}

    def on_topic(self, record: records.TopicRecord) -> Topic:
        """Begin a topic, without partitions so far."""
        topic = self.topics[record.topic_id] = Topic(record.name, record.topic_id)
        return topic

    def on_partition(self, record: records.PartitionRecord, when: When, cause: CauseRow) -> None:
        """Put a partition as a PartitionRecord has it."""
        topic = self.topics[record.topic_id]
        partition = partition_of(record)
        former = topic.rows.get(record.partition_id)
        # A snapshot does not tell what elected the leader.
        election = None if cause[0] == SNAPSHOT else "first"
        if former is not None:
            self._write(topic, record.partition_id, former, when.offset, when.timestamp, cause[0])
        topic.rows[record.partition_id] = (partition, election, when.offset, when.timestamp, when.epoch, cause)
        if self.listeners:
            old = None if former is None else former[0]
            self._tell(
                topic, record.partition_id, old, partition, when, Reason(cause[0], cause[3], election, cause[4]), cause
            )

    def on_change(
        self,
        record: records.PartitionChangeRecord,
        offset: int,
        when: When,
        events: Sequence[BrokerEvent],
        index: int,
    ) -> None:
        """Merge one change, the record at `index` of a batch with these events of brokers.

        Raises `KeyError` for a partition that does not exist.
        """
        topic = self.topics[record.topic_id]
        number = record.partition_id
        row = topic.rows[number]
        old = row[0]
        new = merge(old, record)
        trigger = trigger_of(events, index, old, new) if events else None
        reason = self._reason(topic, old, new, record, trigger)
        cause = (reason.code, "PartitionChangeRecord", offset, reason.broker, reason.text)
        if self._wanted:
            self._write(topic, number, row, when.offset, when.timestamp, reason.code)
        topic.rows[number] = (new, reason.election, when.offset, when.timestamp, when.epoch, cause)
        if self.listeners:
            self._tell(topic, number, old, new, when, reason, cause)

    def peek(self, record: records.PartitionChangeRecord) -> Partition | None:
        """The partition that a record changes, as it is before."""
        topic = self.topics.get(record.topic_id)
        row = None if topic is None else topic.rows.get(record.partition_id)
        return None if row is None else row[0]

    def on_clear_elr(self, topic_name: str, when: When, cause: CauseRow) -> None:
        """Clear the eligible leader replicas of a topic, or of all; the epoch grows where there were any (KIP-966)."""
        for topic in self.topics.values():
            if topic_name not in ("", topic.name):
                continue
            for number, row in topic.rows.items():
                old = row[0]
                if not old.elr and not old.last_known_elr:
                    continue
                new = merge(old, NO_ELR)
                reason = Reason(cause[0], None, None, cause[4])
                self._write(topic, number, row, when.offset, when.timestamp, cause[0])
                topic.rows[number] = (new, None, when.offset, when.timestamp, when.epoch, cause)
                self._tell(topic, number, old, new, when, reason, cause)

    def on_remove_topic(self, topic_id: Uuid, when: When, cause: CauseRow) -> Topic:
        """Forget a topic and its partitions; raises `KeyError` if there is none."""
        topic = self.topics.pop(topic_id)
        reason = Reason(cause[0], None, None, cause[4])
        for number, row in topic.rows.items():
            self._write(topic, number, row, when.offset, when.timestamp, cause[0])
            self._tell(topic, number, row[0], None, when, reason, cause)
        return topic

    def lose_sight(self, when: When) -> None:
        """End every row, as what follows is not known."""
        for topic in self.topics.values():
            for number, row in topic.rows.items():
                self._write(topic, number, row, when.offset, when.timestamp, LOST_SIGHT)
        self.topics.clear()

    def finish(self) -> None:
        """Write the rows that still hold at the end of the history."""
        for topic in self.topics.values():
            for number, row in topic.rows.items():
                self._write(topic, number, row, None, None, None)

    def _reason(
        self,
        topic: Topic,
        old: Partition,
        new: Partition,
        record: records.PartitionChangeRecord,
        trigger: Trigger | None,
    ) -> Reason:
        if (
            old.directories is new.directories
            and old.replicas is new.replicas
            and not new.adding_replicas
            and not new.removing_replicas
            and not old.adding_replicas
            and not old.removing_replicas
        ):
            # Nearly all changes are alike: the same few ISRs and leaders, again and again.
            key = (
                old.isr,
                new.isr,
                old.leader,
                new.leader,
                record.leader,
                old.elr,
                new.elr,
                old.last_known_elr,
                old.leader_recovery_state,
                record.leader_recovery_state,
                new.replicas[:1],
                trigger,
            )
            reason = self._reasons.get(key)
            if reason is None:
                reason = self._explain(topic, old, new, record, trigger)
                if reason.election != "unclean":
                    if len(self._reasons) >= _MEMO_SIZE:
                        self._reasons.clear()
                    self._reasons[key] = reason
            return reason
        return self._explain(topic, old, new, record, trigger)

    def _explain(
        self,
        topic: Topic,
        old: Partition,
        new: Partition,
        record: records.PartitionChangeRecord,
        trigger: Trigger | None,
    ) -> Reason:
        return explain(old, new, record, trigger, unclean_allowed=self._unclean_allowed(topic.name))

    def _tell(
        self,
        topic: Topic,
        number: int,
        old: Partition | None,
        new: Partition | None,
        when: When,
        reason: Reason,
        cause: CauseRow,
    ) -> None:
        changed = PartitionChanged(topic.name, topic.id_text, number, old, new, when, reason, cause)
        for listener in self.listeners:
            listener(changed)

    def _write(
        self, topic: Topic, number: int, row: _Row, until: int | None, until_ms: int | None, end_cause: str | None
    ) -> None:
        if not self._wanted:
            return
        partition, election, since, since_ms, epoch, cause = row
        directories = self._directories.get(partition.directories)
        if directories is None:
            if len(self._directories) >= _MEMO_SIZE:
                self._directories.clear()
            directories = self._directories[partition.directories] = uuids(partition.directories)
        values = (
            topic.name,
            topic.id_text,
            number,
            partition.leader,
            partition.leader_epoch,
            partition.partition_epoch,
            partition.replicas,
            partition.isr,
            partition.elr,
            partition.last_known_elr,
            partition.adding_replicas,
            partition.removing_replicas,
            recovery_state(partition.leader_recovery_state),
            directories,
            election,
            since,
            since_ms,
            until,
            until_ms,
            end_cause,
            epoch,
            *cause,
        )
        self._emit("partition_history", values)
