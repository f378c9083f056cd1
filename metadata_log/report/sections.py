"""The parts that the page of one directory and the page of a fleet have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from metadata_log.report import figures
from metadata_log.report.figures import Figure
from metadata_log.report.page import Section, make_section
from metadata_log.report.report_data import ReportData
from metadata_log.report.tables import Table, duration_text, make_table, time_text


def range_text(report: ReportData) -> str:
    """The clusters and the range of time that the rows cover."""
    if report.begin is None or report.end is None:
        return "Nothing happened."
    names = ", ".join(report.clusters) if len(report.clusters) < 4 else f"{len(report.clusters)} clusters"
    duration = duration_text((report.end - report.begin) / 1000)
    return f"{names}: {time_text(report.begin)} to {time_text(report.end)} ({duration})"


def common_cards(report: ReportData) -> list[tuple[str, str]]:
    """The key figures of every page."""
    return [
        ("leadership changes", f"{report.total('leadership changes'):,.0f}"),
        ("without a leader, sum over partitions", duration_text(report.total("leaderless partition seconds"))),
        ("below min ISR, sum over partitions", duration_text(report.total("below-min-isr partition seconds"))),
        ("without a controller", duration_text(report.total("seconds without a controller"))),
        ("unclean elections", f"{report.total('unclean elections'):,.0f}"),
    ]


def outage_sections(report: ReportData, *, by_cluster: bool) -> list[Section]:
    """The sections about unavailable partitions, summed by cluster or by topic."""
    what = "cluster" if by_cluster else "topic"
    return [
        make_section(
            "leaderless",
            "Partitions without a leader",
            f"Seconds that partitions of a {what} could be neither written nor read, summed over its partitions.",
            [figures.outage_map(report, "leaderless", by_cluster=by_cluster)],
            "No partition was without a leader.",
        ),
        make_section(
            "min-isr",
            "Partitions below min ISR",
            f"Seconds that partitions of a {what} refused writes with acks=all, summed over its partitions.",
            [figures.outage_map(report, "below-min-isr", by_cluster=by_cluster)],
            "No partition had fewer in-sync replicas than min.insync.replicas.",
        ),
        make_section(
            "outages",
            "Unavailable partitions",
            "The beginning, the duration and the cause of each interval.",
            [],
            "No partition was unavailable.",
            [view_table(report, "outages")],
        ),
    ]


def controller_section(report: ReportData, drawn: Sequence[Figure | None]) -> Section:
    """The section about the leaders of the quorum."""
    return make_section(
        "controllers",
        "Controllers",
        "The active controllers, and gaps without one: the active controller writes a record every half second.",
        drawn,
        "No leader of the quorum was elected in this history.",
        [view_table(report, "gaps"), view_table(report, "terms")],
    )


def retention_section(report: ReportData) -> Section:
    """The section about the known and the unknown ranges."""
    return make_section(
        "retention",
        "Known and unknown ranges of this history",
        "The beginning, the snapshots, and the unknown ranges.",
        [],
        "There is no information about the history itself.",
        [view_table(report, "retention")],
    )


def view_table(report: ReportData, name: str) -> tuple[str, Table] | None:
    """A table of the latest or longest rows of a kind, and a sentence if more rows exist."""
    kept = report.tables.get(name)
    if kept is None:
        return None
    several = len(report.clusters) > 1
    columns = [column for column in kept.columns if several or column != "cluster"]
    places = [kept.columns.index(column) for column in columns]
    rows = [[row[place] for place in places] for row in kept.rows()]
    which = "longest" if kept.longest else "latest"
    more = f"The table has the {which} {len(rows)} of {kept.seen:,}." if kept.seen > len(rows) else ""
    return more, make_table(columns, rows)


def cause_table(report: ReportData) -> Table | None:
    """The causes of leader changes with their number and an example; None without leader changes."""
    counts: Counter[str] = Counter()
    for (_, cause), count in report.causes.items():
        counts[cause] += count
    rows = [(cause, count, report.examples[cause]) for cause, count in counts.most_common()]
    return make_table(("cause", "times", "for example"), rows) if rows else None
