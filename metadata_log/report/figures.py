"""Plots as plain data: lanes with marks along the time, curves, and bars. The page draws them with HTML and CSS alone.

Places and widths are percentages of the plot, so a plot fits every screen and its texts keep their size. A function
returns None without data; the page then has a sentence instead.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import count as count_up
from itertools import groupby
from typing import Final

from msgspec import Struct

from metadata_log.report.incidents import Interval
from metadata_log.report.looks import (
    ACTIVE,
    AMOUNT,
    BELOW_MIN_ISR,
    FENCED,
    NO_CONTROLLER,
    NO_LEADER,
    OUT_OF_SYNC,
    SHUTTING_DOWN,
    Look,
    broker_looks,
)
from metadata_log.report.report_data import Outage, ReportData, Span
from metadata_log.report.tables import duration_text, time_text
from metadata_log.report.ticks import Tick, ticks_of

BINS: Final = 60
"""Columns of a heat map."""
STEPS: Final = 300
"""Points of a curve."""
LANES: Final = 40
"""The most lanes of a plot."""
MARKS: Final = 2_000
"""The most marks of a plot."""
NAME_LENGTH: Final = 28
WRITTEN: Final = 3.5
"""The width in percent from which a mark has its text inside."""
STATES: Final = {"active": ACTIVE, "shutting down": SHUTTING_DOWN, "fenced": FENCED}


class Mark(Struct, frozen=True):
    """A coloured part of a lane; `x` and `width` are percentages."""

    x: float
    width: float
    look: Look
    title: str
    text: str = ""
    strength: float = 1.0
    """The opacity."""


class Lane(Struct, frozen=True):
    """A row of a plot. `shown` is the short form of its name."""

    name: str
    shown: str
    marks: tuple[Mark, ...]


class Lanes(Struct, frozen=True):
    """Lanes along the time."""

    lanes: tuple[Lane, ...]
    ticks: tuple[Tick, ...]
    caption: str = ""
    kind: str = "lanes"


class Curve(Struct, frozen=True):
    """A number over time, as points of a step line: `x` in tenths of a percent, `y` downwards from 0 to 100."""

    name: str
    look: Look
    path: str
    peak: int


class Curves(Struct, frozen=True):
    """Curves with one scale, each in a lane of its own."""

    curves: tuple[Curve, ...]
    ticks: tuple[Tick, ...]
    caption: str = ""
    kind: str = "curves"


class Bar(Struct, frozen=True):
    """A number as a bar; `width` is a percentage."""

    name: str
    shown: str
    value: int
    width: float


class Bars(Struct, frozen=True):
    """Bars from the left, the longest first."""

    bars: tuple[Bar, ...]
    look: Look
    caption: str = ""
    kind: str = "bars"


Figure = Lanes | Curves | Bars


def looks_in(figure: Figure) -> list[Look]:
    """The looks of a plot, each once."""
    match figure:
        case Lanes():
            return list(dict.fromkeys(mark.look for lane in figure.lanes for mark in lane.marks))
        case Curves():
            return list(dict.fromkeys(curve.look for curve in figure.curves))
        case Bars():
            return [figure.look]


def short_names(names: Iterable[str]) -> dict[str, str]:
    """A short and unique form of each name, for the space beside a plot; long names keep the part that differs."""
    short: dict[str, str] = {}
    alike: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        alike.setdefault(name if len(name) <= NAME_LENGTH else f"{name[:13]}…{name[-14:]}", []).append(name)
    taken: set[str] = set()
    for form, group in alike.items():
        differ = next((at for at, letters in enumerate(zip(*group, strict=False)) if len(set(letters)) > 1), 0)
        start = max(differ - 6, 0)
        for name in group:
            shown = form
            if len(group) > 1:
                shown = ("…" if start else "") + name[start : start + NAME_LENGTH - 2]
                shown += "…" if len(name) > start + NAME_LENGTH - 2 else ""
            if shown in taken:
                shown = next(each for at in count_up(2) if (each := f"{shown} ({at})") not in taken)
            taken.add(shown)
            short[name] = shown
    return short


# ---------------------------------------------------------------------------------------------------------- timelines


def _place(report: ReportData, begin: int, end: int) -> tuple[float, float]:
    """The place and the width of an interval, in percent."""
    first, last = report.span()
    left = 100 * (min(max(begin, first), last) - first) / (last - first)
    right = 100 * (min(max(end, first), last) - first) / (last - first)
    return round(left, 2), round(max(right - left, 0.05), 2)


def _cut(report: ReportData, spans: Sequence[Span], limit: int) -> list[Span]:
    """The spans of a lane, or its worst state in each of `limit` pieces of the time."""
    if len(spans) <= limit:
        return list(spans)
    first, last = report.span()
    worst: dict[int, Look] = {}
    for span in spans:
        at = (span.begin - first) * limit // (last - first)
        until = ((last if span.end is None else span.end) - first) * limit // (last - first)
        for piece in range(min(at, limit - 1), min(until, limit - 1) + 1):
            if piece not in worst or worst[piece].severity < span.what.severity:
                worst[piece] = span.what
    edge = [first + (last - first) * at // limit for at in range(limit + 1)]
    parts = []
    for look, pieces in groupby(sorted(worst), key=lambda piece: worst[piece]):
        places = list(pieces)
        for _, run in groupby(enumerate(places), key=lambda pair: pair[1] - pair[0]):
            held = [piece for _, piece in run]
            parts.append(Span(edge[held[0]], edge[held[-1] + 1], look))
    return parts


def _timeline(report: ReportData, lanes: Sequence[tuple[str, Sequence[Span]]], caption: str = "") -> Lanes | None:
    """Marks along the time, one lane for each name; `what` of a span is its look."""
    if not lanes:
        return None
    limit = max(MARKS // len(lanes), 8)
    shown = short_names(name for name, _ in lanes)
    drawn = []
    for name, spans in lanes:
        kept = _cut(report, spans, limit)
        marks = tuple(_mark(report, span) for span in kept)
        drawn.append(Lane(name, shown[name], marks))
        if len(kept) < len(spans) and "worst" not in caption:
            piece = duration_text((report.span()[1] - report.span()[0]) / 1000 / limit)
            caption = f"{caption} Busy lanes show the worst state in each {piece}.".strip()
    return Lanes(tuple(drawn), ticks_of(*report.span()), caption)


def _mark(report: ReportData, span: Span) -> Mark:
    last = report.span()[1]
    end = last if span.end is None else span.end
    x, width = _place(report, span.begin, end)
    look: Look = span.what
    broker = look.id.removeprefix("broker-")
    text = broker if broker.isdecimal() and width >= WRITTEN else ""
    how_long = f"for {duration_text((end - span.begin) / 1000)}" + (", still" if span.end is None else "")
    return Mark(x, width, look, f"{look.meaning} from {time_text(span.begin)} {how_long}", text)


def _of(shown: int, total: int, what: str, which: str) -> str:
    """A caption if a plot leaves lanes out."""
    return f"{shown:,} of {total:,} {what} are drawn: those with the most {which}." if shown < total else ""


def broker_timeline(report: ReportData) -> Figure | None:
    """The states of each broker over time: active, shutting down, fenced; of many brokers those with most changes."""
    chosen = sorted(report.brokers, key=lambda broker: (-len(report.brokers[broker]), broker))[:LANES]
    lanes = [
        (f"broker {broker}", [Span(span.begin, span.end, STATES[span.what]) for span in report.brokers[broker]])
        for broker in sorted(chosen)
    ]
    return _timeline(report, lanes, _of(len(chosen), len(report.brokers), "brokers", "changes of state"))


def moved_partitions(report: ReportData) -> list[tuple[str, int]]:
    """The partitions with most changes of leadership, up to the limit of the plot, in order of name."""
    moved = [key for key, spans in report.leaders.items() if len(spans) > 1]
    return sorted(sorted(moved, key=lambda key: (-len(report.leaders[key]), key))[:LANES])


def leader_timeline(report: ReportData) -> Figure | None:
    """The leaders of the partitions with most changes of leadership."""
    keys = moved_partitions(report)
    looks = broker_looks(span.what for key in keys for span in report.leaders[key])

    def seen(spans: Iterable[Span]) -> list[Span]:
        return [Span(begin, end, looks.get(leader, NO_LEADER)) for begin, end, leader in spans]

    lanes = [(f"{topic}-{partition}", seen(report.leaders[topic, partition])) for topic, partition in keys]
    moved = sum(len(spans) > 1 for spans in report.leaders.values())
    return _timeline(report, lanes, _of(len(keys), moved, "partitions with another leader", "changes"))


def controller_timeline(report: ReportData) -> Figure | None:
    """The active controllers, and gaps without one: a lane for each controller, or for each cluster of several."""
    if not report.terms:
        return None
    several = len(report.clusters) > 1
    lanes: dict[str, list[Span]] = {}
    silent_from = {(cluster, gap.end): gap.begin for cluster, gap, _ in report.gaps}
    for cluster, term in report.terms:
        name = cluster if several else f"controller {term.what}"
        # A term lasts until the next election, or until the gap of a leader that stopped writing.
        end = report.ends[cluster] if term.end is None else silent_from.get((cluster, term.end), term.end)
        lanes.setdefault(name, []).append(Span(term.begin, max(end, term.begin), ACTIVE))
    for cluster, gap, _ in report.gaps:
        name = cluster if several else "no controller"
        lanes.setdefault(name, []).append(Span(gap.begin, gap.end, NO_CONTROLLER))
    lost = Counter[str]()
    for cluster, gap, _ in report.gaps:
        lost[cluster if several else "no controller"] += round(gap.what * 1000)
    chosen = sorted(lanes, key=lambda name: (-lost[name], -len(lanes[name]), name))[:LANES]
    what = "clusters" if several else "controllers"
    caption = _of(len(chosen), len(lanes), what, "time without an active controller")
    return _timeline(report, [(name, sorted(lanes[name], key=_begin)) for name in sorted(chosen)], caption)


def _begin(span: Span) -> int:
    return span.begin


# -------------------------------------------------------------------------------------------------------------- curves


def steps(report: ReportData, spans: Iterable[Span]) -> tuple[list[int], list[int]]:
    """The number of spans over time: points of a step line, the highest of each of `STEPS` pieces of the time."""
    begin, last = report.span()
    changes: Counter[int] = Counter()
    for span in spans:
        changes[span.begin] += 1
        if span.end is not None:
            changes[span.end] -= 1
    times = sorted(changes)
    if not times:
        return [], []
    level, levels = 0, []
    for time in times:
        level += changes[time]
        levels.append(level)
    if len(times) <= STEPS:
        return [begin, *times, last], [0, *levels, level]
    xs, ys, at, before = [], [], 0, 0
    for piece in range(STEPS):
        until = begin + (last - begin) * (piece + 1) // STEPS
        stop = bisect_left(times, until + 1, at)
        xs.append(begin + (last - begin) * piece // STEPS)
        ys.append(max([before, *levels[at:stop]]))
        before = levels[stop - 1] if stop else 0
        at = stop
    return [*xs, last], [*ys, before]


def _curves(report: ReportData, wanted: Sequence[tuple[str, Look, Sequence[Span]]], caption: str) -> Figure | None:
    counted = [(name, look, *steps(report, spans)) for name, look, spans in wanted]
    drawn = [each for each in counted if any(each[3])]
    if not drawn:
        return None
    top = max(max(ys) for _, _, _, ys in drawn)
    curves = tuple(Curve(name, look, _path(report, xs, ys, top), max(ys)) for name, look, xs, ys in drawn)
    scale = f"Every lane has the same scale, up to {top:,}. The number beside a lane is its highest value."
    return Curves(curves, ticks_of(*report.span()), f"{caption} {scale}".strip())


def _path(report: ReportData, xs: Sequence[int], ys: Sequence[int], top: int) -> str:
    """The area under a step line, as the path of an SVG of 1000 by 100."""
    first, last = report.span()
    places = [round(1000 * (x - first) / (last - first), 1) for x in xs]
    heights = [round(100 - 100 * y / top, 1) for y in ys]
    line = [f"M{places[0]:g} 100V{heights[0]:g}"]
    line += [f"H{x:g}V{y:g}" for x, y in zip(places[1:], heights[1:], strict=True)]
    return "".join((*line, f"H{places[-1]:g}V100Z"))


def leader_skew(report: ReportData) -> Figure | None:
    """The number of partitions that each broker led."""
    spans: dict[int, list[Span]] = {}
    for led in report.leaders.values():
        for span in led:
            spans.setdefault(span.what, []).append(span)
    brokers = [id for id in spans if id >= 0]
    most = sorted(brokers, key=lambda id: (-len(spans[id]), id))[:LANES]
    caption = _of(len(most), len(brokers), "brokers", "leaderships")
    return _curves(report, [(f"broker {id}", AMOUNT, spans[id]) for id in sorted(most)], caption)


def isr_bands(report: ReportData) -> Figure | None:
    """The number of partitions without a replica, below min ISR, and without a leader: each lane a worse state."""
    wanted = (
        (OUT_OF_SYNC.meaning, OUT_OF_SYNC, report.under_replicated),
        (BELOW_MIN_ISR.meaning, BELOW_MIN_ISR, _spans(report.outages["below-min-isr"])),
        (NO_LEADER.meaning, NO_LEADER, _spans(report.outages["leaderless"])),
    )
    return _curves(report, wanted, "")


def _spans(outages: Iterable[Outage]) -> list[Span]:
    return [Span(outage.begin, outage.end, None) for outage in outages]


# ---------------------------------------------------------------------------------------------------------- heat maps


def edges_of(report: ReportData) -> list[int]:
    """The limits of the columns of a heat map."""
    begin, end = report.span()
    return [begin + (end - begin) * at // BINS for at in range(BINS + 1)]


def _heat_map(
    report: ReportData,
    cells: dict[str, list[float]],
    look_at: Callable[[str, int], Look],
    say: Callable[[float], str],
    what: str,
    which: str,
) -> Lanes | None:
    """Lanes of cells; the strength of a cell is its share of the highest. Of many lanes those with the largest sums."""
    named = [name for name in cells if any(cells[name])]
    chosen = sorted(sorted(named, key=lambda name: (-sum(cells[name]), name))[:LANES])
    if not chosen:
        return None
    shown, edges = short_names(chosen), edges_of(report)
    top = max(max(cells[name]) for name in chosen)
    lanes = []
    for name in chosen:
        marks = []
        for at, value in enumerate(cells[name]):
            if value:
                x, width = _place(report, edges[at], edges[at + 1])
                look, strength = look_at(name, at), round(0.35 + 0.65 * (value / top) ** 0.5, 2)
                title = f"{look.meaning}: {say(value)} in the {duration_text((edges[1] - edges[0]) / 1000)} from "
                marks.append(Mark(x, width, look, title + time_text(edges[at]), strength=strength))
        lanes.append(Lane(name, shown[name], tuple(marks)))
    caption = f"The strongest cell has {say(top)}. {_of(len(chosen), len(named), what, which)}".strip()
    return Lanes(tuple(lanes), ticks_of(*report.span()), caption)


def outage_map(report: ReportData, intervals: Iterable[Interval], *, by_cluster: bool = False) -> Lanes | None:
    """The seconds in which partitions were unavailable, by topic, or by cluster, and time; each interval once.

    Args:
        report: The collected data.
        intervals: The intervals, as `intervals_of` returns them.
        by_cluster: One lane for each cluster, not for each topic.

    Returns:
        The plot. A cell with a leaderless partition has the look of that state, any other that of a small ISR.
    """
    edges = edges_of(report)
    cells: dict[str, list[float]] = {}
    leaderless: set[tuple[str, int]] = set()
    for each in intervals:
        name = each.cluster if by_cluster else each.topic
        row = cells.setdefault(name, [0.0] * BINS)
        end = report.ends[each.cluster] if each.end is None else each.end
        at = max(bisect_left(edges, each.begin + 1) - 1, 0)
        while at < BINS and edges[at] < end:
            row[at] += (min(end, edges[at + 1]) - max(each.begin, edges[at])) / 1000
            if each.leaderless > 0:
                leaderless.add((name, at))
            at += 1
    return _heat_map(
        report,
        cells,
        lambda name, at: NO_LEADER if (name, at) in leaderless else BELOW_MIN_ISR,
        lambda seconds: f"{duration_text(seconds)}, summed over partitions",
        "clusters" if by_cluster else "topics",
        "seconds",
    )


def move_map(report: ReportData, *, by_cluster: bool = False) -> Lanes | None:
    """The number of partitions with a change of leader, by topic, or by cluster, and time."""
    edges = edges_of(report)
    cells: dict[str, list[float]] = {}
    for cluster, topic, when in report.moves:
        row = cells.setdefault(cluster if by_cluster else topic, [0.0] * BINS)
        row[min(max(bisect_left(edges, when + 1) - 1, 0), BINS - 1)] += 1
    return _heat_map(
        report,
        cells,
        lambda name, at: AMOUNT,
        lambda count: f"{count:,.0f} changes of leader",
        "clusters" if by_cluster else "topics",
        "changes",
    )


# ---------------------------------------------------------------------------------------------------------------- bars


def cause_bars(report: ReportData, *, by_cluster: bool = False) -> Figure | None:
    """Changes of leadership by cause, or by cluster."""
    sums: Counter[str] = Counter()
    for (cluster, cause), count in report.causes.items():
        sums[cluster if by_cluster else cause] += count
    return bars(sums.most_common(), "changes of leadership")


def churn_bars(report: ReportData, kind: str) -> Figure | None:
    """The topics, or the brokers, with the most changes of partitions."""
    sums = Counter({(cluster, name): count for (cluster, each, name), count in report.churn.items() if each == kind})
    several = len(report.clusters) > 1
    prefix = "broker " if kind == "broker" else ""
    named = [
        (f"{prefix}{name} of {cluster}" if several else f"{prefix}{name}", count)
        for (cluster, name), count in sums.most_common()
    ]
    return bars(named, f"changes of partitions by {kind}")


def bars(counts: Sequence[tuple[str, int]], title: str) -> Figure | None:
    """A bar for each name; of many names the first ones."""
    named = [item for item in counts if item[1]]
    chosen = named[: LANES // 2]
    if not chosen:
        return None
    shown, top = short_names(name for name, _ in chosen), max(count for _, count in chosen)
    drawn = tuple(Bar(name, shown[name], count, round(100 * count / top, 2)) for name, count in chosen)
    more = f" {len(chosen)} of {len(named):,} are drawn: the highest." if len(chosen) < len(named) else ""
    return Bars(drawn, AMOUNT, f"{title[:1].upper()}{title[1:]}.{more}")
