"""Leaders and in-sync replicas of partitions, and derived views (Kafka: `PartitionChangeBuilder`, KIP-455, KIP-966).

`leader_history` and `isr_history` show the changes of `partition_history`, each for one aspect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from metadata_log.history.causes import RECOVERING, CauseRow, reassignment_step, without
from metadata_log.history.configs import MIN_ISR, Configs
from metadata_log.history.incidents import BELOW_MIN_ISR, LEADERLESS, Incidents
from metadata_log.history.open_rows import CellRows, OpenRow, OpenRows, Sink, When, when_of
from metadata_log.history.partition_rows import (
    GONE,
    ISR_FLAPS,
    ISR_HISTORY,
    LEADER_HISTORY,
    LEADERSHIP_CHANGES,
    UNCLEAN,
    Cell,
    Shape,
    cause_of,
)
from metadata_log.history.topics import DELETED
from metadata_log.history.values import replication_factor
from metadata_log.image.topics import NO_LEADER

Key = tuple[str, int]
"""Topic id and number of a partition."""


def _key(cell: Cell) -> Key:
    return (cell[0].topic_id, cell[0].partition)


def _names(cell: Cell) -> tuple[str, str, int]:
    head = cell[0]
    return (head.topic, head.topic_id, head.partition)


class LeaderHistory:
    """The open rows of `leader_history`, and the events of `leadership_changes`."""

    def __init__(self, sink: Sink) -> None:
        self.rows = CellRows(LEADER_HISTORY, sink)
        self._moves = sink.ended.get(LEADERSHIP_CHANGES)

    def judge(self, old: Shape | None, new: Shape, *, is_raised: bool) -> bool | None:
        """Whether the leader moves; None if neither leader nor epoch changes."""
        if old is None or new is GONE:
            return False
        moves = old.leader != new.leader
        return moves if moves or is_raised else None

    def follow(self, moves: bool, key: bytes, old: Cell | None, new: Cell) -> None:
        """Write a row for each leader epoch, and an event for each new leader."""
        self.rows.follow(moves, key, old, new)
        if moves and self._moves is not None:
            assert old is not None
            self._moves.append((old[1], new, None))

    def lose_sight(self, when: When) -> None:
        """End every row: the following history is unknown."""
        self.rows.lose_sight(when)

    def finish(self, now: When) -> None:
        """Write the open rows."""
        self.rows.finish(now)


class IsrHistory:
    """The open rows of `isr_history`."""

    def __init__(self, sink: Sink) -> None:
        self.rows = CellRows(ISR_HISTORY, sink)
        self.follow = self.rows.follow

    def judge(self, old: Shape | None, new: Shape, *, is_raised: bool) -> bool | None:
        """True for a change of the ISR or of the eligible leader replicas."""
        return True if old is None or new is GONE or _in_sync(old) != _in_sync(new) else None

    def lose_sight(self, when: When) -> None:
        """End every row: the following history is unknown."""
        self.rows.lose_sight(when)

    def finish(self, now: When) -> None:
        """Write the open rows."""
        self.rows.finish(now)


def _in_sync(shape: Shape) -> tuple[tuple[int, ...], ...]:
    partition = shape.partition
    return (partition.isr, partition.elr, partition.last_known_elr)


class IsrFlaps:
    """Replicas outside of an ISR: the rows of `isr_flaps`, written when a replica returns."""

    def __init__(self, sink: Sink) -> None:
        self._ended = sink.ended[ISR_FLAPS]
        self._out: dict[bytes, dict[int, Cell]] = {}
        """By partition the replicas that have left, in order, each with the cell since when."""

    def judge(self, old: Shape | None, new: Shape, *, is_raised: bool) -> tuple[int, ...] | None:
        """The replicas that leave the ISR; None if it does not change."""
        if old is None or (new is not GONE and old.partition.isr == new.partition.isr):
            return None
        left = without(old.partition.isr, new.partition.isr)
        return tuple([broker for broker in left if broker in new.partition.replicas])

    def follow(self, left: tuple[int, ...], key: bytes, old: Cell | None, new: Cell) -> None:
        """Note the replicas that left the ISR and those that returned."""
        out = self._out.pop(key, None)
        still: dict[int, Cell] = {}
        if out is not None:
            partition = new[1].partition
            for broker, since in out.items():
                if broker in partition.isr:
                    self._ended.append((broker, since, new))
                elif broker in partition.replicas:
                    still[broker] = since
        for broker in left:
            still[broker] = new
        if still:
            self._out[key] = still

    def lose_sight(self, _: When) -> None:
        """Drop the open rows: whether these replicas return is unknown."""
        self._out.clear()

    def finish(self, now: When) -> None:
        """Drop the open rows: a replica that has not returned is no flap."""
        self.lose_sight(now)


class UncleanElections:
    """The open rows of `unclean_elections`: the leader has not recovered."""

    def __init__(self, sink: Sink) -> None:
        self.rows = OpenRows("unclean_elections", sink)

    def judge(self, old: Shape | None, new: Shape, *, is_raised: bool) -> bool | None:
        """Whether the leader has recovered; None where no row can begin or end.

        A row begins where the leader moves. While it is open, the leader recovers, or is the whole ISR.
        """
        if old is None:
            return None
        was = old.partition
        if old.leader == new.leader and was.leader_recovery_state != RECOVERING and len(was.isr) != 1:
            return None
        return new.partition.leader_recovery_state != RECOVERING

    def follow(self, is_recovered: bool, _: bytes, old: Cell | None, new: Cell) -> None:
        """Begin a row at an unclean election, end the row at the recovery."""
        if new[4].election in UNCLEAN:
            assert old is not None
            was = old[1].partition
            values = (*_names(new), was.leader, new[1].leader, was.isr, was.elr, was.last_known_elr)
            self.rows.begin(_key(new), values, when_of(new), cause_of(new))
        elif is_recovered:
            self.rows.end(_key(new), when_of(new), new[4].code)

    def lose_sight(self, when: When) -> None:
        """End every row: the following history is unknown."""
        self.rows.lose_sight(when)

    def finish(self, now: When) -> None:
        """Write the open rows."""
        self.rows.finish(now)


_KNOWN: Final = "known"
"""A snapshot or a new partition has it."""
_GOES_ON: Final = "goes on"


class Reassignments:
    """The open rows of `reassignments`: those in progress."""

    def __init__(self, sink: Sink) -> None:
        self.rows = OpenRows("reassignments", sink)

    def judge(self, old: Shape | None, new: Shape, *, is_raised: bool) -> str | None:
        """The step of a reassignment; None outside of one."""
        was = old is not None and old.partition.is_reassigning
        if new is GONE:
            return DELETED if was else None
        if old is None:
            return _KNOWN if new.partition.is_reassigning else None
        return reassignment_step(old.partition, new.partition) or (_GOES_ON if was else None)

    def follow(self, step: str, _: bytes, old: Cell | None, new: Cell) -> None:
        """Follow a reassignment from the request to its end."""
        key, partition = _key(new), new[1].partition
        if old is None:
            self._begin(new, key, without(partition.replicas, partition.adding_replicas))
            return
        was = old[1].partition
        if step == DELETED:
            self._end(key, new, DELETED)
        elif step == _GOES_ON:
            self._count(key)
        elif step == "started":
            self._begin(new, key, was.replicas)
        elif step == "changed":
            self._end(key, new, "superseded")
            self._begin(new, key, without(was.replicas, was.adding_replicas))
        else:
            if not was.is_reassigning:
                self._begin(new, key, was.replicas)
            self._end(key, new, step)

    def _begin(self, new: Cell, key: Key, before: tuple[int, ...]) -> None:
        partition = new[1].partition
        target = without(partition.replicas, partition.removing_replicas)
        self.rows.begin(key, (*_names(new), before, target, "running", 0), when_of(new), cause_of(new))
        self._count(key)

    def _count(self, key: Key) -> None:
        row = self.rows.get(key)
        if row is not None:
            self.rows.replace(key, replace(row, values=(*row.values[:6], row.values[6] + 1)))

    def _end(self, key: Key, new: Cell, outcome: str) -> None:
        row = self.rows.get(key)
        if row is not None:
            when = when_of(new)
            steps = row.values[6] + (outcome in ("completed", "cancelled") and row.since.offset != when.offset)
            self.rows.replace(key, replace(row, values=(*row.values[:5], outcome, steps)))
            self.rows.end(key, when, new[4].code)

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


class _Supply(Struct, frozen=True):
    """The facts that decide on the availability of a partition."""

    has_leader: bool
    size: int
    most_needed: int
    """In-sync replicas that are enough for any min.insync.replicas."""


class Unavailability:
    """Partitions without a leader, or with fewer in-sync replicas than they need: `unavailability` and `incidents`."""

    def __init__(self, sink: Sink, configs: Configs, cells_of: Callable[[str], Iterable[Cell]]) -> None:
        self.rows = OpenRows("unavailability", sink)
        self.incidents = Incidents(sink)
        self._configs = configs
        self._cells_of = cells_of
        self._min_isr: dict[str, int] = {}
        """min.insync.replicas of topics, as far as it was looked up."""
        self._is_quiet = False
        """Whether no row is known to be open."""
        configs.listeners.append(self.on_config)

    def judge(self, old: Shape | None, new: Shape, *, is_raised: bool) -> _Supply:
        """The leader and the in-sync replicas of the partition after this change."""
        return _supply(new)

    def follow(self, supply: _Supply, _: bytes, old: Cell | None, new: Cell) -> None:
        """Begin or end rows after a change of the partition."""
        size, topic = supply.size, new[0].topic
        if new[1] is GONE:
            self._min_isr.pop(topic, None)
            for kind in (LEADERLESS, BELOW_MIN_ISR):
                self._end((*_key(new), kind), when_of(new), new[4].code)
            return
        if self._is_quiet and supply.has_leader and (size >= supply.most_needed or size >= self._needed(topic)):
            return
        self._judge(new, supply, when_of(new), cause_of(new))
        self._is_quiet = not (self.rows or self.incidents)

    def _needed(self, topic: str) -> int:
        known = self._min_isr.get(topic)
        if known is None:
            known = self._min_isr[topic] = self._configs.min_isr(topic)
        return known

    def on_config(self, topic: str, config: str, when: When, cause: CauseRow) -> None:
        """Begin or end rows after a change of min.insync.replicas, of one topic or ("") of all."""
        if config == MIN_ISR:
            self._min_isr.clear()
            self._is_quiet = False
            for cell in self._cells_of(topic):
                self._judge(cell, _supply(cell[1]), when, cause)

    def _judge(self, cell: Cell, supply: _Supply, when: When, cause: CauseRow) -> None:
        topic, key = cell[0].topic, _key(cell)
        needed = min(self._needed(topic), supply.most_needed)
        for kind, holds in ((LEADERLESS, not supply.has_leader), (BELOW_MIN_ISR, supply.size < needed)):
            row_key = (*key, kind)
            if not holds:
                self._end(row_key, when, cause[0])
                continue
            if row_key not in self.rows:
                self.rows.begin(row_key, (topic, *key, kind, supply.size, needed), when, cause)
            self.incidents.begin(row_key, topic, key[1], kind, when, cause)

    def _end(self, row_key: tuple[str, int, str], when: When, end_cause: str) -> None:
        self.rows.end(row_key, when, end_cause)
        self.incidents.end(row_key, when, end_cause)

    def lose_sight(self, when: When) -> None:
        """End every row: the following history is unknown."""
        self._min_isr.clear()
        self.rows.lose_sight(when)
        self.incidents.lose_sight(when)

    def finish(self, now: When) -> None:
        """Write the open rows."""
        self.rows.finish(now)
        self.incidents.finish(now)


def _supply(shape: Shape) -> _Supply:
    partition = shape.partition
    return _Supply(shape.leader != NO_LEADER, len(partition.isr), max(replication_factor(partition), 1))
