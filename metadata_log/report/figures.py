"""Plots as plain data for Plotly. A function returns None without data; the page then has a sentence instead."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import count as count_up
from itertools import pairwise
from typing import Any, Final

from metadata_log.report.report_data import Outage, ReportData, Span

Figure = dict[str, Any]

BINS: Final = 120
"""Columns of a heat map."""
STEPS: Final = 600
"""Points of a line."""
LANES: Final = 40
"""Rows of a timeline or a heat map."""
BARS: Final = 20_000
"""Bars of a timeline."""
NAME_LENGTH: Final = 28

PALETTE: Final = (
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#d55e00",
    "#8c6bb1",
    "#b2a100",
    "#6d6d6d",
    "#117733",
)
"""Colours for colour-blind readers (Okabe and Ito), and some more."""
NO_LEADER: Final = "#c1121f"
STATES: Final = {"active": "#009e73", "shutting down": "#e69f00", "fenced": NO_LEADER}


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


def _layout(report: ReportData, height: int, **more: Any) -> dict[str, Any]:
    begin, end = report.span()
    room = max((end - begin) // 100, 1)
    return {
        "height": height,
        "margin": {"l": 60, "r": 20, "t": 10, "b": 40},
        "xaxis": {"type": "date", "range": [begin - room, end + room], "automargin": True, "gridcolor": "#e8e8e8"},
        "yaxis": {"automargin": True, "gridcolor": "#e8e8e8"},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        "hovermode": "closest",
        "bargap": 0.25,
        "plot_bgcolor": "#fff",
        "paper_bgcolor": "#fff",
        "font": {"size": 13, "color": "#222"},
        **more,
    }


def _lanes(names: Sequence[str]) -> dict[str, Any]:
    """A vertical axis with one lane for each name, the first one on top."""
    return {
        "type": "category",
        "categoryorder": "array",
        "categoryarray": list(reversed(names)),
        "range": [-0.6, len(names) - 0.4],
        "automargin": True,
        "dtick": 1,
        "showgrid": False,
    }


def lane_height(count: int) -> int:
    """The height in pixels of a plot with this number of lanes."""
    return 130 + 22 * max(count, 2)


def _timeline(
    report: ReportData, lanes: Iterable[tuple[str, Iterable[Span]]], colours: dict[str, str]
) -> Figure | None:
    """Bars along the time, one lane for each name; `what` of a span is a key of `colours`."""
    _, last = report.span()
    wanted = list(lanes)
    shown = short_names(name for name, _ in wanted)
    by_state: dict[str, tuple[list[str], list[int], list[int]]] = {state: ([], [], []) for state in colours}
    for name, spans in wanted:
        for span in spans:
            lane, begins, durations = by_state[span.what]
            lane.append(shown[name])
            begins.append(span.begin)
            durations.append(max((last if span.end is None else span.end) - span.begin, 1))
    if not wanted:
        return None
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "name": state,
            "y": lane,
            "base": begins,
            "x": durations,
            "marker": {"color": colours[state], "line": {"width": 0}},
            "hovertemplate": f"%{{y}}: {state}<br>from %{{base|%Y-%m-%d %H:%M:%S.%L}}<extra></extra>",
        }
        for state, (lane, begins, durations) in by_state.items()
        if lane
    ]
    names = list(shown.values())
    layout = _layout(report, lane_height(len(names)), barmode="overlay", yaxis=_lanes(names), showlegend=True)
    return {"data": data, "layout": layout}


def broker_timeline(report: ReportData) -> Figure | None:
    """The states of each broker over time: active, shutting down, fenced; of many brokers those with most changes."""
    chosen = sorted(report.brokers, key=lambda broker: (-len(report.brokers[broker]), broker))[:LANES]
    return _timeline(report, ((f"broker {broker}", report.brokers[broker]) for broker in sorted(chosen)), STATES)


def moved_partitions(report: ReportData) -> list[tuple[str, int]]:
    """The partitions with most changes of leadership, up to the limit of the plot, in order of name."""
    moved = {key: spans for key, spans in report.leaders.items() if len(spans) > 1}
    chosen: list[tuple[str, int]] = []
    count = 0
    for key in sorted(moved, key=lambda key: (-len(moved[key]), key))[:LANES]:
        count += len(moved[key])
        if chosen and count > BARS:
            break
        chosen.append(key)
    return sorted(chosen)


def leader_colours(leaders: Iterable[int]) -> dict[str, str]:
    """A colour for each broker that led; beyond the palette a wheel of hues, and red for no leader."""
    ids = sorted({leader for leader in leaders if leader >= 0})
    colours = {
        f"broker {id}": PALETTE[at] if len(ids) <= len(PALETTE) else f"hsl({at * 360 // len(ids)},60%,50%)"
        for at, id in enumerate(ids)
    }
    return {**colours, "no leader": NO_LEADER}


def leader_timeline(report: ReportData) -> Figure | None:
    """The leaders of the partitions with most changes of leadership."""
    keys = moved_partitions(report)
    if not keys:
        return None
    colours = leader_colours(span.what for key in keys for span in report.leaders[key])

    def named(spans: Iterable[Span]) -> list[Span]:
        return [Span(begin, end, f"broker {leader}" if leader >= 0 else "no leader") for begin, end, leader in spans]

    lanes = ((f"{topic}-{partition}", named(report.leaders[topic, partition])) for topic, partition in keys)
    return _timeline(report, lanes, colours)


def _steps(report: ReportData, spans: Iterable[Span]) -> tuple[list[int], list[int]]:
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


def leader_skew(report: ReportData) -> Figure | None:
    """The number of partitions that each broker led."""
    spans: dict[int, list[Span]] = {}
    for led in report.leaders.values():
        for span in led:
            spans.setdefault(span.what, []).append(span)
    colours = leader_colours(spans)
    most = sorted((id for id in spans if id >= 0), key=lambda id: (-len(spans[id]), id))[:LANES]
    if not most:
        return None
    data = []
    for id in sorted(most):
        xs, ys = _steps(report, spans[id])
        line = {"shape": "hv", "width": 1.6, "color": colours[f"broker {id}"]}
        data.append({"type": "scatter", "mode": "lines", "name": f"broker {id}", "x": xs, "y": ys, "line": line})
    layout = _layout(report, 360, showlegend=True)
    layout["yaxis"] |= {"title": {"text": "partitions led", "font": {"size": 13}}, "rangemode": "tozero"}
    return {"data": data, "layout": layout}


def isr_bands(report: ReportData) -> Figure | None:
    """The number of partitions without a replica, below min ISR, and without a leader: each band a worse state."""
    bands = (
        ("a replica not in sync", report.under_replicated, "#f6d68a", "#b8860b"),
        ("below min.insync.replicas", _spans(report.outages["below-min-isr"]), "#f0a27a", "#d55e00"),
        ("no leader", _spans(report.outages["leaderless"]), "#e08a92", NO_LEADER),
    )
    data = []
    for name, spans, fill, colour in bands:
        xs, ys = _steps(report, spans)
        if any(ys):
            line = {"shape": "hv", "width": 1.2, "color": colour}
            common = {"type": "scatter", "mode": "lines", "fill": "tozeroy", "fillcolor": fill}
            data.append({**common, "name": name, "x": xs, "y": ys, "line": line})
    if not data:
        return None
    layout = _layout(report, 360, showlegend=True)
    layout["yaxis"] |= {"title": {"text": "partitions", "font": {"size": 13}}, "rangemode": "tozero"}
    return {"data": data, "layout": layout}


def _spans(outages: Iterable[Outage]) -> list[Span]:
    return [Span(outage.begin, outage.end, None) for outage in outages]


def _edges(report: ReportData) -> list[int]:
    begin, end = report.span()
    return [begin + (end - begin) * at // BINS for at in range(BINS + 1)]


def _heat_map(report: ReportData, cells: dict[str, list[float]], unit: str, scale: tuple[str, str]) -> Figure | None:
    """Rows by name, columns by time; of many rows those with the largest sums."""
    chosen = sorted((name for name in cells if any(cells[name])), key=lambda name: (-sum(cells[name]), name))[:LANES]
    if not chosen:
        return None
    names = sorted(chosen)
    shown = list(short_names(names).values())
    edges = _edges(report)
    data = [
        {
            "type": "heatmap",
            "x": [(left + right) // 2 for left, right in pairwise(edges)],
            "y": shown,
            "z": [[round(value, 3) or None for value in cells[name]] for name in names],
            "colorscale": [[0, scale[0]], [1, scale[1]]],
            "zmin": 0,
            "zmax": max(max(cells[name]) for name in names),
            "hoverongaps": False,
            "xgap": 0,
            "ygap": 2,
            "colorbar": {"title": {"text": unit, "side": "right", "font": {"size": 13}}, "thickness": 14, "len": 1},
            "hovertemplate": f"%{{y}}<br>%{{x|%Y-%m-%d %H:%M:%S}}<br>%{{z}} {unit}<extra></extra>",
        }
    ]
    return {
        "data": data,
        "layout": _layout(report, lane_height(len(names)), yaxis=_lanes(shown)),
    }


def outage_map(report: ReportData, kind: str, *, by_cluster: bool = False) -> Figure | None:
    """The seconds in which partitions were unavailable, by topic, or by cluster, and time."""
    edges = _edges(report)
    cells: dict[str, list[float]] = {}
    for outage in report.outages.get(kind, ()):
        row = cells.setdefault(outage.cluster if by_cluster else outage.topic, [0.0] * BINS)
        end = report.ends[outage.cluster] if outage.end is None else outage.end
        at = max(bisect_left(edges, outage.begin + 1) - 1, 0)
        while at < BINS and edges[at] < end:
            row[at] += (min(end, edges[at + 1]) - max(outage.begin, edges[at])) / 1000
            at += 1
    return _heat_map(report, cells, "seconds", ("#fdd9c4", "#8b0000"))


def move_map(report: ReportData, *, by_cluster: bool = False) -> Figure | None:
    """The number of partitions with a change of leader, by topic, or by cluster, and time."""
    edges = _edges(report)
    cells: dict[str, list[float]] = {}
    for cluster, topic, when in report.moves:
        row = cells.setdefault(cluster if by_cluster else topic, [0.0] * BINS)
        row[min(max(bisect_left(edges, when + 1) - 1, 0), BINS - 1)] += 1
    return _heat_map(report, cells, "changes", ("#d3e4f5", "#08306b"))


def controller_timeline(report: ReportData) -> Figure | None:
    """The active controllers, and gaps without one: a lane for each controller, or for each cluster of several."""
    if not report.terms:
        return None
    several = len(report.clusters) > 1
    lanes: dict[str, list[Span]] = {}
    colours = {"active": STATES["active"], "no active controller": NO_LEADER}
    silent_from = {(cluster, gap.end): gap.begin for cluster, gap, _ in report.gaps}
    for cluster, term in report.terms:
        name = cluster if several else f"controller {term.what}"
        # A term lasts until the next election, or until the gap of a leader that stopped writing.
        end = report.ends[cluster] if term.end is None else silent_from.get((cluster, term.end), term.end)
        lanes.setdefault(name, []).append(Span(term.begin, max(end, term.begin), "active"))
    for cluster, gap, _ in report.gaps:
        name = cluster if several else "no controller"
        lanes.setdefault(name, []).append(Span(gap.begin, gap.end, "no active controller"))
    return _timeline(report, sorted(lanes.items())[: 2 * LANES], colours)


def gap_timeline(report: ReportData) -> Figure | None:
    """The gaps of each cluster without an active controller: a mark for each gap, with its duration as the size."""
    if not report.gaps:
        return None
    chosen = Counter(cluster for cluster, _, _ in report.gaps)
    names = sorted(name for name, _ in chosen.most_common(LANES))
    shown = short_names(names)
    kept = [(cluster, span) for cluster, span, _ in report.gaps if cluster in shown]
    longest = max(span.what for _, span in kept) or 1
    sizes = [6 + 16 * (span.what / longest) ** 0.5 for _, span in kept]
    data = [
        {
            "type": "scatter",
            "mode": "markers",
            "x": [span.begin for _, span in kept],
            "y": [shown[cluster] for cluster, _ in kept],
            "text": [f"{span.what:.1f} s" for _, span in kept],
            "marker": {"color": NO_LEADER, "opacity": 0.7, "size": sizes},
            "hovertemplate": "%{y}<br>%{x|%Y-%m-%d %H:%M:%S}: %{text}<extra></extra>",
        }
    ]
    layout = _layout(report, lane_height(len(names)), yaxis=_lanes(list(shown.values())), showlegend=False)
    return {"data": data, "layout": layout}


def cause_bars(report: ReportData, *, by_cluster: bool = False) -> Figure | None:
    """Changes of leadership by cause; for a fleet a bar for each cluster."""
    if not report.causes:
        return None
    sums: Counter[str] = Counter()
    for (cluster, cause), count in report.causes.items():
        sums[cluster if by_cluster else cause] += count
    lanes = [name for name, _ in sums.most_common(LANES)]
    shown = list(short_names(lanes).values())
    causes = sorted({cause for _, cause in report.causes}) if by_cluster else [""]
    data = []
    for number, cause in enumerate(causes):
        values = [report.causes[name, cause] if by_cluster else sums[name] for name in lanes]
        trace = {"type": "bar", "orientation": "h", "name": cause, "y": shown, "x": values}
        data.append({**trace, "marker": {"color": PALETTE[number % len(PALETTE)]}})
    return _counts(data, shown, "changes of leadership", legend=by_cluster)


def churn_bars(report: ReportData, kind: str) -> Figure | None:
    """The topics, or the brokers, with the most changes of partitions."""
    sums = Counter({(cluster, name): count for (cluster, each, name), count in report.churn.items() if each == kind})
    chosen = [item for item in sums.most_common(LANES // 2) if item[1]]
    if not chosen:
        return None
    several = len(report.clusters) > 1
    lanes = list(short_names(f"{name} of {cluster}" if several else name for (cluster, name), _ in chosen).values())
    bars = {"type": "bar", "orientation": "h", "y": lanes, "x": [count for _, count in chosen]}
    return _counts([{**bars, "marker": {"color": PALETTE[0]}}], lanes, "changes of partitions", legend=False)


def bars(counts: Sequence[tuple[str, int]], title: str) -> Figure | None:
    """A bar for each name."""
    chosen = [item for item in counts if item[1]][:LANES]
    if not chosen:
        return None
    lanes = list(short_names(name for name, _ in chosen).values())
    trace = {"type": "bar", "orientation": "h", "y": lanes, "x": [count for _, count in chosen]}
    return _counts([{**trace, "marker": {"color": PALETTE[0]}}], lanes, title, legend=False)


def _counts(data: list[dict[str, Any]], lanes: Sequence[str], title: str, *, legend: bool) -> Figure:
    layout = {
        "height": lane_height(len(lanes)),
        "margin": {"l": 60, "r": 20, "t": 10, "b": 50},
        "barmode": "stack",
        "xaxis": {
            "title": {"text": title, "font": {"size": 13}},
            "automargin": True,
            "gridcolor": "#e8e8e8",
            "rangemode": "tozero",
        },
        "yaxis": _lanes(lanes),
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        "showlegend": legend,
        "plot_bgcolor": "#fff",
        "paper_bgcolor": "#fff",
        "font": {"size": 13, "color": "#222"},
    }
    return {"data": data, "layout": layout}
