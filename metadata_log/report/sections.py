"""The parts that the page of one directory and the page of a fleet have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from heapq import nsmallest

from metadata_log.report import figures
from metadata_log.report.figures import Figure
from metadata_log.report.incidents import Incident, Interval, listed
from metadata_log.report.page import Commands, Section, make_section
from metadata_log.report.report_data import TABLE_ROWS, ReportData
from metadata_log.report.tables import Table, duration_text, make_table, time_text


def range_text(report: ReportData) -> str:
    """The clusters and the range of time that the rows cover."""
    if report.begin is None or report.end is None:
        return "The page covers no event."
    names = ", ".join(report.clusters) if len(report.clusters) < 4 else f"{len(report.clusters)} clusters"
    duration = duration_text((report.end - report.begin) / 1000)
    return f"{names}: {time_text(report.begin)} to {time_text(report.end)} UTC ({duration})"


def common_cards(report: ReportData) -> list[tuple[str, str]]:
    """The key figures of every page."""
    return [
        ("leadership changes", f"{report.total('leadership changes'):,.0f}"),
        ("without a leader, sum over partitions", duration_text(report.total("leaderless partition seconds"))),
        ("below min ISR, sum over partitions", duration_text(report.total("below-min-isr partition seconds"))),
        ("without a controller", duration_text(report.total("seconds without a controller"))),
        ("unclean elections", f"{report.total('unclean elections'):,.0f}"),
    ]


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
        "first; then the interval of each partition, the longest without a leader first.",
        [figures.outage_map(report, intervals, by_cluster=by_cluster)],
        "Every partition had a leader and enough in-sync replicas all the time.",
        [_incident_table(report, incidents, commands), _interval_table(report, intervals, commands)],
    )


def _incident_table(report: ReportData, incidents: Sequence[Incident], commands: Commands) -> Table | None:
    if not incidents:
        return None
    several = len(report.clusters) > 1
    columns = (
        *(("cluster",) if several else ()),
        *("valid_from", "duration", "partitions without a leader", "partitions below min ISR", "topics", "after"),
    )
    rows = [
        (
            *((each.cluster,) if several else ()),
            each.begin,
            _how_long(report, each.cluster, each.begin, each.end),
            len({(one.topic, one.partition) for one in each.leaderless}),
            len({(one.topic, one.partition) for one in each.intervals if one.below_min_isr > 0}),
            listed(sorted({one.topic for one in each.intervals}), 4),
            each.after,
        )
        for each in incidents[:TABLE_ROWS]
    ]
    return _left_out(make_table(columns, rows), "worst", len(incidents), commands.get("outages", ""))


def _interval_table(report: ReportData, intervals: Sequence[Interval], commands: Commands) -> Table | None:
    if not intervals:
        return None
    several = len(report.clusters) > 1
    longest = nsmallest(
        TABLE_ROWS,
        intervals,
        key=lambda each: (-each.leaderless, -each.below_min_isr, each.begin, each.topic, each.partition),
    )
    columns = (
        *(("cluster",) if several else ()),
        *("topic", "partition", "valid_from", "valid_to", "seconds without a leader", "seconds below min ISR"),
        "cause_text",
    )
    rows = [
        (
            *((each.cluster,) if several else ()),
            *(each.topic, each.partition, each.begin, each.end),
            *(each.leaderless or None, each.below_min_isr or None, each.why),
        )
        for each in longest
    ]
    return _left_out(make_table(columns, rows), "longest", len(intervals), commands.get("outages", ""))


def _how_long(report: ReportData, cluster: str, begin: int, end: int | None) -> str:
    text = duration_text(((report.ends[cluster] if end is None else end) - begin) / 1000)
    return f"{text}, still" if end is None else text


def _left_out(table: Table, which: str, total: int, command: str) -> Table:
    """A table with a sentence about the rows that it lacks."""
    if len(table.rows) == total:
        return table
    return table._replace(more=f"The table has the {which} {len(table.rows)} of {total:,}.", command=command)


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


def view_table(report: ReportData, name: str, commands: Commands) -> Table | None:
    """A table of the latest rows of a kind, and a sentence if more rows exist."""
    kept = report.tables.get(name)
    if kept is None:
        return None
    several = len(report.clusters) > 1
    columns = [column for column in kept.columns if several or column != "cluster"]
    places = [kept.columns.index(column) for column in columns]
    rows = [[row[place] for place in places] for row in kept.rows()]
    return _left_out(make_table(columns, rows), "latest", kept.seen, commands.get(name, ""))


def cause_table(report: ReportData) -> Table | None:
    """The causes of leader changes with their number and an example; None without leader changes."""
    counts: Counter[str] = Counter()
    for (_, cause), count in report.causes.items():
        counts[cause] += count
    rows = [(cause, count, report.examples[cause]) for cause, count in counts.most_common()]
    return make_table(("cause", "times", "for example"), rows) if rows else None
