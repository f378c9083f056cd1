"""The history of many clusters as a page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from metadata_log.report import figures
from metadata_log.report.page import Section, make_section, write_page
from metadata_log.report.report_data import TABLE_ROWS, ReportData, Row
from metadata_log.report.sections import (
    cause_table,
    common_cards,
    controller_section,
    outage_sections,
    range_text,
    retention_section,
    view_table,
)
from metadata_log.report.tables import make_table

FLEET_VIEWS: Final = (
    "quorum_epochs",
    "controller_gaps",
    "leadership_changes",
    "unavailability",
    "fencing",
    "churn",
    "unclean_elections",
    "acl_audit",
    "retention",
)
"""The views that `render_fleet` uses."""


def render_fleet(rows: Iterable[tuple[str, Row]], out: Path, *, title: str, notes: Sequence[str] = ()) -> None:
    """Write the history of many clusters as a page.

    Args:
        rows: Pairs of a view's name and a row, as `metadata_log.history` yields them for `FLEET_VIEWS`.
        out: The path of the page.
        title: The name of the fleet.
        notes: Sentences for the top of the page: the range, damage, omissions.

    Raises:
        OSError: The page could not be written.
    """
    report = ReportData()
    report.take_all(rows)
    write_page(out, title, notes, range_text(report), _fleet_cards(report), _fleet_sections(report))


def _fleet_cards(report: ReportData) -> list[tuple[str, str]]:
    return [
        ("clusters", f"{len(report.clusters):,}"),
        *common_cards(report),
        ("controller elections", f"{len(report.terms):,}"),
        ("brokers fenced", f"{report.total('fencings'):,.0f}"),
    ]


_OVERVIEW: Final = (
    "leadership changes",
    "leaderless partition seconds",
    "below-min-isr partition seconds",
    "seconds without a controller",
    "unclean elections",
    "fencings",
    "partition changes",
)


def _fleet_sections(report: ReportData) -> list[Section]:
    ranked = sorted(report.clusters, key=lambda name: tuple(-_total(report, name, each) for each in _OVERVIEW[1:]))
    overview = [(name, *(round(_total(report, name, each), 1) for each in _OVERVIEW)) for name in ranked[:TABLE_ROWS]]
    return [
        make_section(
            "overview",
            "Clusters",
            "The clusters with the longest outages first.",
            [],
            "No cluster was found.",
            [make_table(("cluster", *_OVERVIEW), overview) if overview else None],
        ),
        *outage_sections(report, by_cluster=True),
        controller_section(report, [figures.controller_timeline(report), figures.gap_timeline(report)]),
        make_section(
            "causes",
            "Causes of leader changes",
            "Changes of leadership by cluster, cause and time.",
            [figures.cause_bars(report, by_cluster=True), figures.move_map(report, by_cluster=True)],
            "No partition changed its leader.",
            [cause_table(report), view_table(report, "moves")],
        ),
        make_section(
            "churn",
            "Churn",
            "The topics and the brokers with the most changes of partitions.",
            [figures.churn_bars(report, "topic"), figures.churn_bars(report, "broker")],
            "No partition changed.",
        ),
        make_section(
            "fencing",
            "Brokers fenced",
            "The time and cause of each fencing, and the leaderships of the broker.",
            [],
            "No broker was fenced.",
            [view_table(report, "fencing")],
        ),
        make_section(
            "unclean",
            "Unclean elections",
            "Elections of a replica that may lack acknowledged records.",
            [],
            "No leader was elected uncleanly.",
            [view_table(report, "unclean")],
        ),
        make_section(
            "access",
            "Wide access rules",
            "Rules that allow every principal, or every operation.",
            [],
            "No rule allows every principal or every operation.",
            [view_table(report, "wide rules")],
        ),
        retention_section(report),
    ]


def _total(report: ReportData, cluster: str, name: str) -> float:
    return report.totals.get(cluster, {}).get(name, 0)
