"""The outages of a history, each once: intervals of partitions, and incidents of intervals that belong together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

from msgspec import Struct

from metadata_log.history.incidents import Groups
from metadata_log.history.incidents import Outage as GroupedOutage
from metadata_log.history.open_rows import When
from metadata_log.report.report_data import Fencing, Outage, ReportData

_BROKER_EVENTS: Final = {
    "session-timeout": ("the session of {} timed out", "the sessions of {} timed out"),
    "controlled-shutdown": ("{} shut down", "{} shut down"),
    "broker-fenced": ("{} was fenced", "{} were fenced"),
    "broker-restarted": ("{} restarted", "{} restarted"),
    "broker-unregistered": ("{} was unregistered", "{} were unregistered"),
    "directory-failed": ("a log directory of {} failed", "log directories of {} failed"),
}
"""By cause: what happened to one broker, and to several."""
_OTHER_EVENTS: Final = {
    "isr-shrink": "leaders removed replicas from the ISR",
    "min-isr-changed": "min.insync.replicas was changed",
    "reassignment-started": "a reassignment began",
    "reassignment-changed": "a reassignment was changed",
    "reassignment-completed": "a reassignment ended",
    "reassignment-cancelled": "a reassignment was cancelled",
    "partitions-added": "partitions were added",
    "topic-created": "topics were created",
}


class Interval(Struct, frozen=True):
    """A time in which one partition was unavailable: without a leader, below min.insync.replicas, or both.

    Times are in milliseconds; `end` is None if the partition still was unavailable at the end of the log.
    """

    cluster: str
    topic: str
    partition: int
    begin: int
    end: int | None
    leaderless: float
    """Seconds without a leader."""
    below_min_isr: float
    """Seconds below min.insync.replicas."""
    cause: str
    broker: int | None
    why: str
    pieces: tuple[Outage, ...] = ()
    """The outages of either kind that the interval joins."""

    @property
    def name(self) -> str:
        """The partition, such as `orders-3`."""
        return f"{self.topic}-{self.partition}"


class Incident(Struct, frozen=True):
    """Intervals of one cluster that belong together, as those of a row of the view `incidents`.

    They overlap in time, and have a cause or a partition in common.
    """

    cluster: str
    begin: int
    end: int | None
    intervals: tuple[Interval, ...]
    after: str
    """The causes as the end of a sentence, such as `the session of broker 102 timed out`."""
    fencings: tuple[Fencing, ...] = ()
    """The fencings of the brokers that the causes name, at the beginning or later."""

    @property
    def seconds_lost(self) -> tuple[float, float]:
        """The partition seconds without a leader, and below min.insync.replicas."""
        return sum(each.leaderless for each in self.intervals), sum(each.below_min_isr for each in self.intervals)

    @property
    def leaderless(self) -> list[Interval]:
        """The intervals in which a partition had no leader."""
        return [each for each in self.intervals if each.leaderless > 0]


def intervals_of(report: ReportData) -> list[Interval]:
    """The unavailable intervals of every partition, in order of time; overlapping kinds are one interval."""
    pieces = [(kind, outage) for kind, outages in report.outages.items() for outage in outages]
    pieces.sort(key=lambda piece: (piece[1].cluster, piece[1].topic, piece[1].partition, piece[1].begin, piece[0]))
    intervals: list[Interval] = []
    for _, group in groupby(pieces, key=lambda piece: piece[1][:3]):
        joined: list[tuple[str, Outage]] = []
        until = 0
        for kind, outage in group:
            if joined and outage.begin > until:
                intervals.append(_interval(report, joined))
                joined = []
            until = max(until, _end(report, outage)) if joined else _end(report, outage)
            joined.append((kind, outage))
        intervals.append(_interval(report, joined))
    return sorted(intervals, key=lambda each: (each.begin, each.cluster, each.topic, each.partition))


def _end(report: ReportData, outage: Outage) -> int:
    return report.ends[outage.cluster] if outage.end is None else outage.end


def _interval(report: ReportData, pieces: Sequence[tuple[str, Outage]]) -> Interval:
    seconds = {"leaderless": 0.0, "below-min-isr": 0.0}
    for kind, outage in pieces:
        seconds[kind] += max(_end(report, outage) - outage.begin, 0) / 1000
    begin = min(outage.begin for _, outage in pieces)
    ends = [outage.end for _, outage in pieces]
    # The reason for the missing leader says more than the reason for the small ISR at the same moment.
    first = min(pieces, key=lambda piece: (piece[1].begin, piece[0] != "leaderless"))[1]
    return Interval(
        cluster=first.cluster,
        topic=first.topic,
        partition=first.partition,
        begin=begin,
        end=None if None in ends else max(end for end in ends if end is not None),
        leaderless=seconds["leaderless"],
        below_min_isr=seconds["below-min-isr"],
        cause=first.cause,
        broker=first.broker,
        why=first.why,
        pieces=tuple(outage for _, outage in pieces),
    )


def incidents_of(report: ReportData, intervals: Iterable[Interval]) -> list[Incident]:
    """The incidents of a history.

    Args:
        report: The collected data, for the fenced brokers and the end of each log.
        intervals: The intervals, as `intervals_of` returns them.

    Returns:
        The incidents; the one with the most partition seconds without a leader, then below min.insync.replicas, first.
    """
    incidents: list[Incident] = []
    by_cluster = sorted(intervals, key=lambda each: (each.cluster, each.begin))
    for cluster, group in groupby(by_cluster, key=lambda each: each.cluster):
        fencings = [each for each in report.fencings if each.cluster == cluster]
        incidents += [_incident(joined, fencings) for joined in _together(list(group))]
    return sorted(incidents, key=lambda each: (*(-lost for lost in each.seconds_lost), each.begin, each.cluster))


def _together(intervals: Sequence[Interval]) -> Iterator[list[Interval]]:
    """The intervals of one cluster that belong together, by the rule of the view `incidents`."""
    events = []
    for at, each in enumerate(intervals):
        for number, piece in enumerate(each.pieces):
            events.append((piece.begin, 0, at, number))
            if piece.end is not None:
                events.append((piece.end, 1, at, number))
    groups, finished = Groups(), []
    for time, ends, at, number in sorted(events):
        when = When(at, time, 0)
        if ends:
            groups.end((at, number), when, "")
            continue
        piece = intervals[at].pieces[number]
        # The offset of the beginning names the interval here.
        outage = GroupedOutage(piece.topic, piece.partition, "", when, (piece.cause, None, None, None, ""))
        finished += groups.begin((at, number), outage)
    for group in [*finished, *groups.take_all()]:
        yield [intervals[at] for at in sorted({one.since.offset for one in group.outages})]


def _incident(intervals: list[Interval], fencings: Sequence[Fencing]) -> Incident:
    begin = min(each.begin for each in intervals)
    ends = [each.end for each in intervals]
    end = None if None in ends else max(end for end in ends if end is not None)
    worst = [each for each in intervals if each.leaderless > 0] or intervals
    brokers = {piece.broker for each in intervals for piece in each.pieces}
    related = tuple(
        each
        for each in fencings
        if (each.begin <= begin and (each.end is None or each.end > begin))
        or (each.broker in brokers and each.begin >= begin and (end is None or each.begin <= end))
    )
    return Incident(intervals[0].cluster, begin, end, tuple(intervals), _causes(worst, fencings), related)


def _causes(intervals: Sequence[Interval], fencings: Sequence[Fencing]) -> str:
    """Name the causes of the worst intervals, as the end of a sentence."""
    brokers: dict[int, str] = {}
    others: Counter[str] = Counter()
    for each in intervals:
        if each.cause in _BROKER_EVENTS and each.broker is not None:
            brokers[each.broker] = each.cause
        else:
            others[each.cause] += 1
    if brokers:
        # The last of several dead brokers makes the partition unavailable; the earlier ones belong to the cause.
        first = min(each.begin for each in intervals)
        for fencing in fencings:
            if fencing.begin <= first and (fencing.end is None or fencing.end > first):
                brokers.setdefault(fencing.broker, fencing.cause)
    events = []
    for cause in dict.fromkeys(cause for _, cause in sorted(brokers.items())):
        one, several = _BROKER_EVENTS.get(cause, ("{} was fenced", "{} were fenced"))
        ids = sorted(broker for broker, why in brokers.items() if why == cause)
        named = f"broker {ids[0]}" if len(ids) == 1 else f"brokers {listed([str(broker) for broker in ids])}"
        events.append((one if len(ids) == 1 else several).format(named))
    events += [_OTHER_EVENTS.get(cause, f"an event of the kind {cause}") for cause, _ in others.most_common(3)]
    return listed(events)


def listed(names: Sequence[str], most: int = 6) -> str:
    """Names as an enumeration: `1, 2 and 3`; of more than `most` names, the first ones and the number of the others."""
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
