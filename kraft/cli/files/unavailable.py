"""`kraft history --unavailable`: when partitions had no leader or too few replicas in sync, the cause, and totals."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from msgspec import Struct

from kraft.cli.files.history_lines import Facts, Filter, Row, by_name, partition_name
from kraft.cli.text import count, table
from metadata_log.history.events import UNREGISTERED
from metadata_log.history.incidents import BELOW_MIN_ISR, LEADERLESS
from metadata_log.history.views import View
from metadata_log.image.topics import NO_LEADER
from metadata_log.times import iso_time

UNAVAILABILITY: Final = "unavailability"
FENCING: Final = "fencing"
_LEADERS: Final = "leader_history"
_ISR: Final = "isr_history"
VIEWS_READ: Final = (UNAVAILABILITY, FENCING, _LEADERS, _ISR)
_KINDS: Final = {LEADERLESS: "no leader", BELOW_MIN_ISR: "below min ISR"}


class Lost(Struct, frozen=True, kw_only=True):
    """A replica's broker that was fenced, shut down or unregistered when a partition became unavailable."""

    broker: int
    since_ms: int
    offset: int
    cause: str

    def facts(self) -> Facts:
        """As JSON fields."""
        since = iso_time(self.since_ms)
        return {"broker": self.broker, "since": since, "offset": self.offset, "cause": self.cause}

    def text(self, now_ms: int) -> str:
        """The broker, the code of the cause, and how long before."""
        before = (now_ms - self.since_ms) / 1000
        return f"{self.broker} ({self.cause}{f', {before:.1f} s before' if before > 0 else ''})"


class Interval(Struct, frozen=True, kw_only=True):
    """A row of `unavailability`, with the lost brokers among the replicas of the partition."""

    row: Facts
    lost: tuple[Lost, ...]

    def cells(self) -> tuple[object, ...]:
        """The cells of its line."""
        row = self.row
        return (
            iso_time(row["valid_from"]),
            iso_time(row["valid_to"]) or "still",
            f"{row['seconds']:.3f}",
            row["valid_from_offset"],
            partition_name(row),
            _KINDS[row["kind"]],
            ", ".join(one.text(row["valid_from"]) for one in self.lost) or "-",
            row["cause_text"],
        )

    @property
    def cause(self) -> str:
        """The codes of the causes with their brokers: those of the losses, and that of the first change."""
        brokers: dict[str, list[int]] = {}
        for one in self.lost:
            brokers.setdefault(one.cause, []).append(one.broker)
        trigger, broker = self.row["cause"], self.row["cause_broker"]
        if broker is None or broker not in {one.broker for one in self.lost}:
            brokers.setdefault(trigger, []).extend([] if broker is None else [broker])
        return ", ".join(
            f"{cause} of {' and '.join(map(str, sorted(of)))}" if of else cause for cause, of in brokers.items()
        )


class Total(Struct):
    """The times of some intervals, by kind."""

    seconds: dict[str, list[float]]
    partitions: set[tuple[str, int]]

    @classmethod
    def of(cls, intervals: Iterable[Interval]) -> Total:
        """The total of these intervals."""
        total = cls({kind: [] for kind in _KINDS}, set())
        for one in intervals:
            total.seconds[one.row["kind"]].append(one.row["seconds"])
            total.partitions.add((one.row["topic_id"], one.row["partition"]))
        return total

    def order(self) -> tuple[float, ...]:
        """A key for sorting: the longest time without a leader comes first."""
        return tuple(-sum(self.seconds[kind]) for kind in _KINDS)

    def cells(self) -> Iterator[object]:
        """The number of partitions; then times, seconds and the longest of each kind."""
        yield len(self.partitions)
        for some in self.seconds.values():
            yield from (len(some), f"{sum(some):.1f}", f"{max(some, default=0.0):.1f}")

    def facts(self) -> Facts:
        """As JSON fields."""
        return {
            "partitions": len(self.partitions),
            **{
                kind: {
                    "times": len(some),
                    "seconds": round(sum(some), 3),
                    "longest_seconds": round(max(some, default=0.0), 3),
                }
                for kind, some in self.seconds.items()
            },
        }


def intervals(rows: Iterable[tuple[View, Row]], wanted: Filter, still_held: Callable[[Facts], bool]) -> list[Interval]:
    """The selected intervals in the order of their beginnings, from the rows of `VIEWS_READ`.

    `still_held` says whether a row reaches into the requested period.
    """
    kept: list[Facts] = []
    fenced: dict[int, list[tuple[int, int, Facts]]] = {}
    replicas: dict[tuple[str, int], list[Facts]] = {}
    for view, row in rows:
        if view.name not in VIEWS_READ or not wanted.may_take(view, row):
            continue
        facts = by_name(view, row)
        if view.name == FENCING:
            insort(fenced.setdefault(facts["broker"], []), (facts["valid_from"], facts["valid_from_offset"], facts))
        elif view.name != UNAVAILABILITY:
            is_short = len(facts["isr"]) < len(facts["replicas"])
            if is_short or (view.name == _LEADERS and facts["leader"] == NO_LEADER):
                replicas.setdefault((facts["topic_id"], facts["partition"]), []).append(facts)
        elif Filter(topic=wanted.topic).takes(facts, None) and still_held(facts):
            kept.append(facts)
    result = []
    for facts in kept:
        held = replicas.get((facts["topic_id"], facts["partition"]), ())
        of_partition = next((one["replicas"] for one in held if _holds_at(one, facts["valid_from_offset"])), ())
        lost = [lost_at(fenced.get(broker, ()), facts["valid_from"]) for broker in of_partition]
        known = sorted((one for one in lost if one is not None), key=lambda one: (one.since_ms, one.offset))
        interval = Interval(row=facts, lost=tuple(known))
        if wanted.broker is None or wanted.broker in {facts["cause_broker"], *(one.broker for one in interval.lost)}:
            result.append(interval)
    return sorted(result, key=lambda one: (one.row["valid_from_offset"], partition_name(one.row), one.row["kind"]))


def _holds_at(row: Facts, offset: int) -> bool:
    end = row["valid_to_offset"]
    return bool(row["valid_from_offset"] <= offset and (end is None or offset < end))


def lost_at(fenced: Iterable[tuple[int, int, Facts]], time_ms: int) -> Lost | None:
    """The state of a broker at a time: None for an unfenced one. A fence follows the changes in the same batch."""
    latest = None
    for since, _, facts in fenced:
        if since <= time_ms:
            latest = facts
    if latest is None:
        return None
    end, cause = latest["valid_to"], latest["cause"]
    if end is not None and end <= time_ms:
        if latest["end_cause"] != UNREGISTERED:
            return None
        return Lost(broker=latest["broker"], since_ms=end, offset=latest["valid_to_offset"], cause=UNREGISTERED)
    since, offset = latest["valid_from"], latest["valid_from_offset"]
    return Lost(broker=latest["broker"], since_ms=since, offset=offset, cause=cause)


def _by(some: Iterable[Interval], key: Callable[[Interval], str]) -> list[tuple[str, Total]]:
    groups: dict[str, list[Interval]] = {}
    for one in some:
        groups.setdefault(key(one), []).append(one)
    totals = [(name, Total.of(of_name)) for name, of_name in groups.items()]
    return sorted(totals, key=lambda one: (one[1].order(), one[0]))


def totals(some: Iterable[Interval]) -> dict[str, list[tuple[str, Total]]]:
    """The totals by topic and by cause, the worst first."""
    outages = list(some)
    return {"topic": _by(outages, lambda one: one.row["topic"]), "cause": _by(outages, lambda one: one.cause)}


def text_lines(some: list[Interval]) -> Iterator[str]:
    """The intervals, the totals by topic and by cause, and one sentence."""
    names = ("from", "to", "seconds", "offset", "partition", "kind", "lost brokers", "why")
    yield from table(names, (one.cells() for one in some))
    times = ("partitions", "no leader", "seconds", "longest", "below min ISR", "seconds", "longest")
    for what, groups in totals(some).items():
        yield ""
        yield from table((what, *times), ((name, *total.cells()) for name, total in groups))
    whole = Total.of(some).seconds
    yield ""
    leaderless, below = whole[LEADERLESS], whole[BELOW_MIN_ISR]
    yield (
        f"{count(len(leaderless), 'time')} without a leader, {sum(leaderless):.1f} s over all partitions; "
        f"{count(len(below), 'time')} below min.insync.replicas, {sum(below):.1f} s"
    )
