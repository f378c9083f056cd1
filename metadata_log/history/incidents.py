"""Incidents: unavailable intervals of one cluster that belong together (the rows of `incidents`).

Two intervals belong together if they overlap or touch in time, and have the same cause or the same partition. The
grouping looks at each beginning and end once, in order of time, and keeps the incidents that may still grow.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Final, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from metadata_log.history.causes import LOST_SIGHT, CauseRow
from metadata_log.history.open_rows import Row, Sink, When

T = TypeVar("T")
LEADERLESS: Final = "leaderless"
BELOW_MIN_ISR: Final = "below-min-isr"


class Outage(Struct, frozen=True, gc=False):
    """An interval in which one partition was leaderless or below min.insync.replicas; `until` is None: it lasts."""

    topic: str
    partition: int
    kind: str
    since: When
    cause: CauseRow
    until: When | None = None
    end_cause: str | None = None


class Group(Struct):
    """The outages of one incident in order of their beginnings, and the places of those that last."""

    outages: list[Outage]
    lasting: dict[Hashable, int]
    causes: dict[str, int]
    """The causes of the outages that last or ended at `end_ms`, each with their number."""
    partitions: dict[tuple[str, int], int]
    """As `causes`."""
    ended: list[int]
    """The places of the outages that ended at `end_ms`."""
    end_ms: int
    """When the last outage that has ended did so."""

    def put(self, key: Hashable, outage: Outage) -> None:
        """Add an outage that begins."""
        self.lasting[key] = len(self.outages)
        self.outages.append(outage)
        self._count(outage, 1)

    def end(self, place: int, outage: Outage, now_ms: int) -> None:
        """The outage at this place has ended."""
        self.outages[place] = outage
        self.forget(now_ms)
        self.ended.append(place)
        self.end_ms = max(self.end_ms, now_ms)

    def forget(self, now_ms: int) -> None:
        """Outages that ended before this moment overlap nothing that begins from now on."""
        if self.ended and self.end_ms < now_ms:
            for place in self.ended:
                self._count(self.outages[place], -1)
            self.ended = []

    def overlaps(self, outage: Outage) -> bool:
        """Whether an outage that begins belongs to this incident."""
        self.forget(outage.since.timestamp)
        return outage.cause[0] in self.causes or (outage.topic, outage.partition) in self.partitions

    def take_in(self, other: Group) -> None:
        """Add the outages of an incident that proved to be the same one."""
        begin = len(self.outages)
        self.outages += other.outages
        self.lasting |= {key: begin + place for key, place in other.lasting.items()}
        self.ended += [begin + place for place in other.ended]
        self.end_ms = max(self.end_ms, other.end_ms)
        for cause, count in other.causes.items():
            self.causes[cause] = self.causes.get(cause, 0) + count
        for partition, count in other.partitions.items():
            self.partitions[partition] = self.partitions.get(partition, 0) + count

    def _count(self, outage: Outage, step: int) -> None:
        _add(self.causes, outage.cause[0], step)
        _add(self.partitions, (outage.topic, outage.partition), step)


def _add(counts: dict[T, int], key: T, step: int) -> None:
    counts[key] = counts.get(key, 0) + step
    if not counts[key]:
        del counts[key]


class Groups(Struct):
    """The incidents that may still grow."""

    growing: list[Group] = field(default_factory=list)

    def begin(self, key: Hashable, outage: Outage) -> list[Group]:
        """An outage begins, unless one of this key lasts.

        Returns:
            The incidents that are complete, because they ended before this moment.
        """
        complete = self.take_ended(outage.since.timestamp)
        if any(key in group.lasting for group in self.growing):
            return complete
        matching = sorted((one for one in self.growing if one.overlaps(outage)), key=lambda one: -len(one.outages))
        group = matching[0] if matching else Group([], {}, {}, {}, [], outage.since.timestamp)
        for other in matching[1:]:
            group.take_in(other)
        group.put(key, outage)
        self.growing = [*(one for one in self.growing if all(one is not other for other in matching)), group]
        return complete

    def end(self, key: Hashable, when: When, end_cause: str) -> None:
        """The outage of this key ends, if one lasts."""
        for group in self.growing:
            place = group.lasting.pop(key, None)
            if place is not None:
                before = group.outages[place]
                group.end(place, replace(before, until=when, end_cause=end_cause), when.timestamp)
                return

    def end_all(self, when: When, end_cause: str) -> list[Group]:
        """Every outage ends, and every incident is complete."""
        for group in self.growing:
            for key in list(group.lasting):
                self.end(key, when, end_cause)
        return self.take_all()

    def take_all(self) -> list[Group]:
        """All incidents, also those that last."""
        groups, self.growing = self.growing, []
        return groups

    def take_ended(self, now_ms: int) -> list[Group]:
        """The incidents that ended before this moment, and grow no more."""
        ended = [group for group in self.growing if not group.lasting and group.end_ms < now_ms]
        if ended:
            self.growing = [group for group in self.growing if group.lasting or group.end_ms >= now_ms]
        return ended


class Incidents:
    """Writes each incident as a row when it is complete."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._wanted = "incidents" in sink.wanted
        self._groups = Groups()

    def __bool__(self) -> bool:
        return bool(self._groups.growing)

    def begin(self, key: Hashable, topic: str, partition: int, kind: str, when: When, cause: CauseRow) -> None:
        """A partition is unavailable from here on."""
        if self._wanted:
            self._write(self._groups.begin(key, Outage(topic, partition, kind, when, cause)), when)

    def on_time(self, when: When) -> None:
        """A batch has this timestamp."""
        if self._groups.growing:
            self._write(self._groups.take_ended(when.timestamp), when)

    def end(self, key: Hashable, when: When, end_cause: str) -> None:
        """The partition is available again, or deleted."""
        self._groups.end(key, when, end_cause)

    def lose_sight(self, when: When) -> None:
        """End every incident: the following history is unknown."""
        self._write(self._groups.end_all(when, LOST_SIGHT), when)

    def finish(self, now: When) -> None:
        """Write all incidents, also those that last."""
        self._write(self._groups.take_all(), now)

    def _write(self, groups: Iterable[Group], now: When) -> None:
        for group in groups:
            self._sink.emit("incidents", incident_row(group.outages, now))


def incident_row(outages: Iterable[Outage], now: When) -> Row:
    """The row of one incident without its first column.

    Args:
        outages: The outages of the incident.
        now: The last known moment, for outages that last.

    Returns:
        The values in the order of the columns of `incidents`.
    """
    members = sorted(outages, key=lambda one: (one.since.timestamp, one.since.offset, one.topic, one.partition))
    first = members[0]
    # The reason for a missing leader says more than the reason for a small ISR.
    told = next((one for one in members if one.kind == LEADERLESS), first).cause
    ends = [one for one in members if one.until is not None]
    lasts = len(ends) < len(members)
    last = max(ends, key=lambda one: _moment(one.until)) if ends and not lasts else None
    until = now if last is None or last.until is None else last.until
    leaderless = [one for one in members if one.kind == LEADERLESS]
    below = [one for one in members if one.kind == BELOW_MIN_ISR]
    return (
        f"{first.since.offset}/{first.topic}-{first.partition}",
        tuple(dict.fromkeys(one.cause[0] for one in members)),
        tuple(sorted({one.cause[3] for one in members if one.cause[3] is not None})),
        tuple(sorted({one.cause[2] for one in members if one.cause[2] is not None})),
        tuple(sorted({one.topic for one in members})),
        _names(leaderless),
        _names(below),
        _seconds(leaderless, now),
        _seconds(below, now),
        (until.timestamp - first.since.timestamp) / 1000,
        first.since.offset,
        first.since.timestamp,
        *((None, None, None) if last is None else (until.offset, until.timestamp, last.end_cause)),
        first.since.epoch,
        *told,
    )


def _moment(when: When | None) -> tuple[int, int]:
    return (-1, -1) if when is None else (when.timestamp, when.offset)


def _names(outages: Iterable[Outage]) -> tuple[str, ...]:
    """The partitions, such as `orders-3`, in order of topic and number."""
    return tuple(f"{topic}-{number}" for topic, number in sorted({(one.topic, one.partition) for one in outages}))


def _seconds(outages: Iterable[Outage], now: When) -> float:
    return sum((one.until or now).timestamp - one.since.timestamp for one in outages) / 1000
