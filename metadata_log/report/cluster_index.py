"""The index of a fleet: a row for each cluster, the worst first, and a row for each environment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from metadata_log.report.incidents import Incident
from metadata_log.report.page import Section
from metadata_log.report.report_data import ReportData
from metadata_log.report.tables import Cell, Table, counted, duration_text, time_text

INDEX_ROWS: Final = 2_000
"""The most clusters of the index."""
_NO_ENVIRONMENT: Final = "no environment"
_SOUND: Final = "sound"
_NOTHING: Final = "—"

_LEADERLESS: Final = "leaderless partition seconds"
_BELOW: Final = "below-min-isr partition seconds"
_SILENT: Final = "seconds without a controller"
_DURATIONS: Final = ((_LEADERLESS, "without a leader"), (_BELOW, "below min ISR"), (_SILENT, "without a controller"))
_COUNTS: Final = (
    ("unclean elections", "unclean elections"),
    ("fencings", "brokers fenced"),
    ("leadership changes", "leader changes"),
)
_RANKED: Final = (_LEADERLESS, _BELOW, _SILENT, "unclean elections", "fencings", "partition changes")


def index_section(report: ReportData, incidents: Sequence[Incident]) -> Section:
    """The section with the environments, if any are known, and the clusters.

    Args:
        report: The collected data.
        incidents: The incidents of all clusters.

    Returns:
        The section.
    """
    if not report.clusters:
        return Section("overview", "Clusters", "", none="No cluster was found.")
    at_end = _at_end(report)
    ranked = sorted(report.clusters, key=lambda name: (-at_end[name][0], *_ranks(report, name), name))
    shown = ranked[:INDEX_ROWS]
    environments = any(report.environments.get(name) for name in ranked)
    number = Counter(each.cluster for each in incidents)
    rows = [_row(report, name, number[name], at_end[name][1], environments=environments) for name in shown]
    titles = [
        *(("cluster", "environment") if environments else ("cluster",)),
        "at the end",
        "incidents",
        *(title for _, title in (*_DURATIONS, *_COUNTS)),
        "last record",
    ]
    columns = [Cell(title, rows[0][at].kind.removesuffix(" zero")) for at, title in enumerate(titles)]
    picks = {at for at, title in enumerate(titles) if title in ("environment", "at the end") and _differ(rows, at)}
    more = f"The table has the worst {len(shown):,} of {len(ranked):,} clusters." if len(shown) < len(ranked) else ""
    clusters = Table(columns, rows, picks, more, kind="index", group_by=1 if environments else None)
    tables = [_environments(report, ranked, number), clusters] if environments else [clusters]
    lead = "The clusters with the worst outages first. A duration is a sum over partitions."
    return Section("overview", "Clusters", lead, (), tables)


def _row(report: ReportData, name: str, incidents: int, at_end: str, *, environments: bool) -> list[Cell]:
    named = Cell(name, "name", title=report.ids.get(name, ""))
    environment = report.environments.get(name) or _NO_ENVIRONMENT
    ended = report.ends.get(name)
    return [
        named,
        *([Cell(environment, "name")] if environments else []),
        Cell(at_end, "zero" if at_end == _SOUND else "bad"),
        _number(incidents, "{:,.0f}".format),
        *(_number(_total(report, name, each), duration_text) for each, _ in _DURATIONS),
        *(_number(_total(report, name, each), "{:,.0f}".format) for each, _ in _COUNTS),
        Cell(_NOTHING if ended is None else time_text(ended, to_the="minutes"), "time"),
    ]


def _number(value: float, shown: Callable[[float], str]) -> Cell:
    """A number, with the value by which a reader sorts; a dash for zero, so that the other numbers stand out."""
    return Cell(shown(value) if value else _NOTHING, "number" if value else "number zero", sort=round(value, 3))


def _at_end(report: ReportData) -> dict[str, tuple[int, str]]:
    """By cluster: how bad its state is at the end of its log, for the order; and that state as text."""
    open_now: dict[str, Counter[str]] = {name: Counter() for name in report.clusters}
    for kind, outages in report.outages.items():
        for outage in outages:
            if outage.end is None:
                open_now[outage.cluster][kind] += 1
    states = {}
    for name, kinds in open_now.items():
        leaderless, below = kinds["leaderless"], kinds["below-min-isr"]
        if leaderless:
            states[name] = (2, f"no leader: {leaderless:,}")
        elif below:
            states[name] = (1, f"below min ISR: {below:,}")
        else:
            unknown = _total(report, name, "unknown ranges")
            states[name] = (0, "history incomplete" if unknown else _SOUND)
    return states


def _environments(report: ReportData, names: Sequence[str], incidents: Counter[str]) -> Table:
    """A row for each environment, the one with the longest outages first."""
    of: dict[str, list[str]] = {}
    for name in names:
        of.setdefault(report.environments.get(name) or _NO_ENVIRONMENT, []).append(name)
    rows = []
    for environment, members in of.items():
        sums = {each: sum(_total(report, name, each) for name in members) for each in (*_RANKED, "leadership changes")}
        hit = sum(bool(_total(report, name, _LEADERLESS) or _total(report, name, _BELOW)) for name in members)
        rows.append(
            [
                Cell(environment, "name"),
                _number(len(members), "{:,.0f}".format),
                _number(hit, "{:,.0f}".format),
                _number(sum(incidents[name] for name in members), "{:,.0f}".format),
                *(_number(sums[each], duration_text) for each, _ in _DURATIONS),
                _number(sums["unclean elections"], "{:,.0f}".format),
            ]
        )
    rows.sort(key=lambda row: tuple(-(cell.sort or 0) for cell in row[4:7]))
    titles = (
        *("environment", "clusters", "clusters with outages", "incidents"),
        *(title for _, title in _DURATIONS),
        "unclean elections",
    )
    columns = [Cell(title, "number" if at else "") for at, title in enumerate(titles)]
    return Table(columns, rows, kind="index environments", name=counted(len(rows), "environment"))


def _differ(rows: Sequence[Sequence[Cell]], at: int) -> bool:
    return 1 < len({row[at].text for row in rows}) <= 40


def _ranks(report: ReportData, name: str) -> tuple[float, ...]:
    return tuple(-_total(report, name, each) for each in _RANKED)


def _total(report: ReportData, cluster: str, name: str) -> float:
    return report.totals.get(cluster, {}).get(name, 0)
