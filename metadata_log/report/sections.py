"""The parts that the page of one directory and the page of a fleet have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from metadata_log.report import figures
from metadata_log.report.figures import Figure
from metadata_log.report.incidents import Incident, Interval
from metadata_log.report.outage_tables import outage_tables
from metadata_log.report.page import Commands, Section, make_section
from metadata_log.report.report_data import ReportData
from metadata_log.report.tables import Table, anchor, duration_text, left_out, make_table, time_text


def range_text(report: ReportData) -> str:
    """The clusters and the range of time that the rows cover."""
    if report.begin is None or report.end is None:
        return "The page covers no event."
    names = ", ".join(report.clusters) if len(report.clusters) < 4 else f"{len(report.clusters)} clusters"
    duration = duration_text((report.end - report.begin) / 1000)
    return f"{names}: {time_text(report.begin)} to {time_text(report.end)} UTC ({duration})"


def common_cards(report: ReportData, read: Collection[str]) -> list[tuple[str, str]]:
    """The key figures of every page, as far as the views behind them were read."""
    leaderless, below = report.total("leaderless partition seconds"), report.total("below-min-isr partition seconds")
    cards = (
        ("leadership_changes", "leadership changes", f"{report.total('leadership changes'):,.0f}"),
        ("unavailability", "without a leader, sum over partitions", duration_text(leaderless)),
        ("unavailability", "below min ISR, sum over partitions", duration_text(below)),
        ("controller_gaps", "without a controller", duration_text(report.total("seconds without a controller"))),
        ("unclean_elections", "unclean elections", f"{report.total('unclean elections'):,.0f}"),
    )
    return [(label, figure) for view, label, figure in cards if view in read]


def outage_section(
    report: ReportData,
    intervals: Sequence[Interval],
    incidents: Sequence[Incident],
    commands: Commands,
    *,
    by_cluster: bool,
) -> Section:
    """The section about unavailable partitions; each incident and each interval is listed once.

    Args:
        report: The collected data.
        intervals: The intervals, as `intervals_of` returns them.
        incidents: The incidents, as `incidents_of` returns them.
        commands: The command that lists every interval, as `outages`.
        by_cluster: One lane of the plot for each cluster, not for each topic.

    Returns:
        The section.
    """
    what = "clusters" if by_cluster else "topics"
    return make_section(
        "outages",
        "Unavailable partitions",
        f"The {what} with partitions that had no leader or refused writes with acks=all; then the incidents, the worst "
        "first; then the interval of each partition, the longest without a leader first. Outages of one incident "
        "overlap in time, and have a cause or a partition in common.",
        [figures.outage_map(report, intervals, by_cluster=by_cluster)],
        "Every partition had a leader and enough in-sync replicas all the time.",
        list(outage_tables(report, intervals, incidents, commands)),
    )


def controller_section(report: ReportData, drawn: Sequence[Figure | None], commands: Commands) -> Section:
    """The section about the leaders of the quorum."""
    return make_section(
        "controllers",
        "Controllers",
        "The active controllers, and gaps without one: the active controller writes a record every half second.",
        drawn,
        "No leader of the quorum was elected in this history.",
        [view_table(report, "gaps", commands), view_table(report, "terms", commands)],
    )


def retention_section(report: ReportData, commands: Commands) -> Section:
    """The section about the known and the unknown ranges."""
    return make_section(
        "retention",
        "Known and unknown ranges of this history",
        "The beginning, the snapshots, and the unknown ranges.",
        [],
        "There is no information about the history itself.",
        [view_table(report, "retention", commands)],
    )


_ANCHORED: Final[dict[str, Callable[[dict[str, Any]], tuple[object, ...]]]] = {
    "fencing": lambda row: ("fencing", row["cluster"], row["broker"], row["valid_from"]),
    "moves": lambda row: ("move", row["cluster"], row["offset"]),
}
"""By table: what names a row for the links of the incidents."""


def view_table(report: ReportData, name: str, commands: Commands) -> Table | None:
    """A table of the latest rows of a kind, and a sentence if more rows exist."""
    kept = report.tables.get(name)
    if kept is None:
        return None
    several = len(report.clusters) > 1
    columns = [column for column in kept.columns if several or column != "cluster"]
    places = [kept.columns.index(column) for column in columns]
    rows = [[row[place] for place in places] for row in kept.rows()]
    table = make_table(columns, rows)
    if name in _ANCHORED:
        anchors = [anchor(*_ANCHORED[name](dict(zip(kept.columns, row, strict=True)))) for row in kept.rows()]
        table = table._replace(
            rows=[[row[0]._replace(anchor=at), *row[1:]] for row, at in zip(table.rows, anchors, strict=True)]
        )
    return left_out(table, "latest", kept.seen, commands.get(name, ""))


def cause_table(report: ReportData) -> Table | None:
    """The causes of leader changes with their number and an example; None without leader changes."""
    counts: Counter[str] = Counter()
    for (_, cause), count in report.causes.items():
        counts[cause] += count
    rows = [(cause, count, report.examples[cause]) for cause, count in counts.most_common()]
    return make_table(("cause", "times", "for example"), rows) if rows else None
