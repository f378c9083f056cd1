"""Leaders and in-sync replicas of partitions, and derived views (Kafka: `PartitionChangeBuilder`, KIP-455, KIP-966).

`leader_history` and `isr_history` show the changes of `partition_history`, each for one aspect.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from msgspec.structs import replace

from metadata_log.history.causes import NO_LEADER, RECOVERING, SNAPSHOT, CauseRow, reassignment_step, without
from metadata_log.history.configs import MIN_ISR, Configs
from metadata_log.history.incidents import BELOW_MIN_ISR, LEADERLESS, Incidents
from metadata_log.history.open_rows import OpenRow, OpenRows, Sink, When
from metadata_log.history.partitions import PartitionChanged
from metadata_log.history.values import recovery_state, replication_factor
from metadata_log.image.topics import Partition

_UNCLEAN: Final = frozenset({"unclean", "last-known-leader"})


def _key(changed: PartitionChanged) -> Hashable:
    return (changed.topic_id, changed.partition)


class LeaderHistory:
    """The open rows of `leader_history`, and the events of `leadership_changes`."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.rows = OpenRows("leader_history", sink)

    def on_partition(self, changed: PartitionChanged) -> None:
        """Write a row for each leader epoch, and an event for each new leader."""
        old, new, when = changed.old, changed.new, changed.when
        key = _key(changed)
        if new is None:
            self.rows.end(key, when, changed.cause[0])
            return
        if old is not None and (old.leader_epoch, old.leader) == (new.leader_epoch, new.leader):
            return
        of = (changed.topic, changed.topic_id, changed.partition)
        preferred = bool(new.replicas) and new.leader == new.replicas[0]
        previous = None if old is None else old.leader
        election = changed.reason.election
        state = recovery_state(new.leader_recovery_state)
        values = (*of, new.leader, new.leader_epoch, previous, preferred, state, new.replicas, new.isr, election)
        self.rows.begin(key, values, when, changed.cause)
        if old is not None and old.leader != new.leader:
            moved = (*of, old.leader, new.leader, new.leader_epoch, preferred, election not in _UNCLEAN, election)
            moment = (when.offset, when.timestamp, when.epoch)
            self._sink.emit("leadership_changes", (*moved, *moment, *changed.cause))

    def lose_sight(self, when: When) -> None:
        """End every row: the following history is unknown."""
        self.rows.lose_sight(when)

    def finish(self, now: When) -> None:
        """Write the open rows."""
        self.rows.finish(now)


class IsrHistory:
    """The open rows of `isr_history`."""

    def __init__(self, sink: Sink) -> None:
        self.rows = OpenRows("isr_history", sink)

    def on_partition(self, changed: PartitionChanged) -> None:
        """Write a row for each change of the ISR or of the eligible leader replicas."""
        old, new = changed.old, changed.new
        key = _key(changed)
        if new is None:
            self.rows.end(key, changed.when, changed.cause[0])
            return
        if old is not None and (old.isr, old.elr, old.last_known_elr) == (new.isr, new.elr, new.last_known_elr):
            return
        before = () if old is None else old.isr
        joined = () if changed.cause[0] == SNAPSHOT else without(new.isr, before)
        values = (
            changed.topic,
            changed.topic_id,
            changed.partition,
            new.isr,
            new.elr,
            new.last_known_elr,
            joined,
            without(before, new.isr),
            new.leader,
            new.replicas,
        )
        self.rows.begin(key, values, changed.when, changed.cause)

    def lose_sight(self, when: When) -> None:
        """End every row: the following history is unknown."""
        self.rows.lose_sight(when)

    def finish(self, now: When) -> None:
        """Write the open rows."""
        self.rows.finish(now)


class IsrFlaps:
    """Replicas outside of an ISR: the rows of `isr_flaps`, written when a replica returns."""

    def __init__(self, sink: Sink) -> None:
        self.rows = OpenRows("isr_flaps", sink)
        self._out: dict[Hashable, tuple[int, ...]] = {}

    def on_partition(self, changed: PartitionChanged) -> None:
        """Note the replicas that left the ISR and those that returned."""
        old, new = changed.old, changed.new
        if old is None:
            return
        key = _key(changed)
        out = self._out.pop(key, ())
        if new is None:
            self._forget(key, out)
            return
        if old.isr == new.isr:
            if out:
                self._out[key] = out
            return
        for broker in out:
            if broker in new.isr:
                self.rows.end((key, broker), changed.when, changed.cause[0])
            elif broker not in new.replicas:
                self._forget(key, (broker,))
        left = tuple(broker for broker in without(old.isr, new.isr) if broker in new.replicas)
        of = (changed.topic, changed.topic_id, changed.partition)
        for broker in left:
            self.rows.begin((key, broker), (*of, broker, new.leader), changed.when, changed.cause)
        still = (*(broker for broker in out if broker not in new.isr and broker in new.replicas), *left)
        if still:
            self._out[key] = still

    def lose_sight(self, when: When) -> None:
        """Drop the open rows: whether these replicas return is unknown."""
        self.rows.drop()
        self._out.clear()

    def finish(self, now: When) -> None:
        """Drop the open rows: a replica that has not returned is no flap."""
        self.lose_sight(now)

    def _forget(self, key: Hashable, brokers: tuple[int, ...]) -> None:
        for broker in brokers:
            self.rows.drop((key, broker))


class UncleanElections:
    """The open rows of `unclean_elections`: the leader has not recovered."""

    def __init__(self, sink: Sink) -> None:
        self.rows = OpenRows("unclean_elections", sink)

    def on_partition(self, changed: PartitionChanged) -> None:
        """Begin a row at an unclean election, end the row at the recovery."""
        old, new = changed.old, changed.new
        key = _key(changed)
        if changed.reason.election in _UNCLEAN and old is not None and new is not None:
            of = (changed.topic, changed.topic_id, changed.partition)
            values = (*of, old.leader, new.leader, old.isr, old.elr, old.last_known_elr)
            self.rows.begin(key, values, changed.when, changed.cause)
        elif new is None or new.leader_recovery_state != RECOVERING:
            self.rows.end(key, changed.when, changed.cause[0])

    def lose_sight(self, when: When) -> None:
        """End every row: the following history is unknown."""
        self.rows.lose_sight(when)

    def finish(self, now: When) -> None:
        """Write the open rows."""
        self.rows.finish(now)


class Reassignments:
    """The open rows of `reassignments`: those in progress."""

    def __init__(self, sink: Sink) -> None:
        self.rows = OpenRows("reassignments", sink)

    def on_partition(self, changed: PartitionChanged) -> None:
        """Follow a reassignment from the request to its end."""
        old, new, when = changed.old, changed.new, changed.when
        key = _key(changed)
        if new is None:
            self._end(key, when, "topic-deleted", changed.cause[0])
            return
        if old is None:
            if new.is_reassigning:
                self._begin(changed, key, without(new.replicas, new.adding_replicas), new)
            return
        step = reassignment_step(old, new)
        if step is None:
            if old.is_reassigning:
                self._count(key)
        elif step == "started":
            self._begin(changed, key, old.replicas, new)
        elif step == "changed":
            self._end(key, when, "superseded", changed.cause[0])
            self._begin(changed, key, without(old.replicas, old.adding_replicas), new)
        else:
            if not old.is_reassigning:
                self._begin(changed, key, old.replicas, new)
            self._end(key, when, step, changed.cause[0])

    def _begin(self, changed: PartitionChanged, key: Hashable, before: tuple[int, ...], new: Partition) -> None:
        target = without(new.replicas, new.removing_replicas)
        values = (changed.topic, changed.topic_id, changed.partition, before, target, "running", 0)
        self.rows.begin(key, values, changed.when, changed.cause)
        self._count(key)

    def _count(self, key: Hashable) -> None:
        row = self.rows.get(key)
        if row is not None:
            self.rows.replace(key, replace(row, values=(*row.values[:6], row.values[6] + 1)))

    def _end(self, key: Hashable, when: When, outcome: str, end_cause: str) -> None:
        row = self.rows.get(key)
        if row is not None:
            steps = row.values[6] + (outcome in ("completed", "cancelled") and row.since.offset != when.offset)
            self.rows.replace(key, replace(row, values=(*row.values[:5], outcome, steps)))
            self.rows.end(key, when, end_cause)

    def lose_sight(self, when: When) -> None:
        """End every row: the outcome is unknown."""
        for key in self.rows.open_keys():
            row: OpenRow | None = self.rows.get(key)
            if row is not None:
                self.rows.replace(key, replace(row, values=(*row.values[:5], "unknown", row.values[6])))
        self.rows.lose_sight(when)

    def finish(self, now: When) -> None:
        """Write the open rows."""
        self.rows.finish(now)


class Unavailability:
    """Partitions without a leader, or with fewer in-sync replicas than they need: `unavailability` and `incidents`."""

    def __init__(self, sink: Sink, configs: Configs) -> None:
        self.rows = OpenRows("unavailability", sink)
        self.incidents = Incidents(sink)
        self._configs = configs
        self._topics: dict[str, dict[tuple[str, int], Partition]] = {}
        configs.listeners.append(self.on_config)

    def on_partition(self, changed: PartitionChanged) -> None:
        """Begin or end rows after a change of the partition."""
        new = changed.new
        of_topic = self._topics.setdefault(changed.topic, {})
        key = (changed.topic_id, changed.partition)
        if new is None:
            of_topic.pop(key, None)
            if not of_topic:
                del self._topics[changed.topic]
            for kind in (LEADERLESS, BELOW_MIN_ISR):
                self._end((*key, kind), changed.when, changed.cause[0])
            return
        of_topic[key] = new
        self._judge(changed.topic, key, new, changed.when, changed.cause)

    def on_config(self, topic: str, config: str, when: When, cause: CauseRow) -> None:
        """Begin or end rows after a change of min.insync.replicas."""
        if config != MIN_ISR:
            return
        for name in [topic] if topic else list(self._topics):
            for key, partition in self._topics.get(name, {}).items():
                self._judge(name, key, partition, when, cause)

    def _judge(self, topic: str, key: tuple[str, int], partition: Partition, when: When, cause: CauseRow) -> None:
        needed = min(self._configs.min_isr(topic), max(replication_factor(partition), 1))
        size = len(partition.isr)
        for kind, holds in ((LEADERLESS, partition.leader == NO_LEADER), (BELOW_MIN_ISR, size < needed)):
            row_key = (*key, kind)
            if not holds:
                self._end(row_key, when, cause[0])
                continue
            if row_key not in self.rows:
                self.rows.begin(row_key, (topic, *key, kind, size, needed), when, cause)
            self.incidents.begin(row_key, topic, key[1], kind, when, cause)

    def _end(self, row_key: tuple[str, int, str], when: When, end_cause: str) -> None:
        self.rows.end(row_key, when, end_cause)
        self.incidents.end(row_key, when, end_cause)

    def lose_sight(self, when: When) -> None:
        """End every row: the following history is unknown."""
        self._topics.clear()
        self.rows.lose_sight(when)
        self.incidents.lose_sight(when)

    def finish(self, now: When) -> None:
        """Write the open rows."""
        self.rows.finish(now)
        self.incidents.finish(now)
