"""The history of many clusters as a page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from metadata_log.report import figures
from metadata_log.report.headline import headline
from metadata_log.report.incidents import Incident, Interval, incidents_of, intervals_of
from metadata_log.report.page import Commands, Page, Section, make_section, write_page
from metadata_log.report.report_data import TABLE_ROWS, ReportData, Row
from metadata_log.report.sections import (
    cause_table,
    common_cards,
    controller_section,
    outage_section,
    range_text,
    retention_section,
    view_table,
)
from metadata_log.report.tables import Table, make_table

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


def render_fleet(
    rows: Iterable[tuple[str, Row]],
    out: Path,
    *,
    title: str,
    notes: Sequence[str] = (),
    commands: Commands = MappingProxyType({}),
) -> None:
    """Write the history of many clusters as a page.

    Args:
        rows: Pairs of a view's name and a row, as `metadata_log.history` yields them for `FLEET_VIEWS`.
        out: The path of the page.
        title: The name of the fleet.
        notes: Sentences for the top of the page: the range, damage, omissions.
        commands: By table: the command that prints all rows, for a table that leaves rows out.

    Raises:
        OSError: The page could not be written.
    """
    report = ReportData()
    report.take_all(rows)
    intervals = intervals_of(report)
    incidents = incidents_of(report, intervals)
    write_page(
        out,
        Page(
            title=title,
            headline=headline(report, incidents, FLEET_VIEWS),
            range=range_text(report),
            notes=notes,
            cards=_fleet_cards(report),
            sections=_fleet_sections(report, intervals, incidents, commands),
        ),
    )


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


def _fleet_sections(
    report: ReportData, intervals: Sequence[Interval], incidents: Sequence[Incident], commands: Commands
) -> list[Section]:
    def table(name: str) -> Table | None:
        return view_table(report, name, commands)

    ranked = sorted(report.clusters, key=lambda name: tuple(-_total(report, name, each) for each in _OVERVIEW[1:]))
    overview = [(name, *(round(_total(report, name, each), 1) for each in _OVERVIEW)) for name in ranked[:TABLE_ROWS]]
    return [
        make_section(
            "overview",
            "Clusters",
            "The clusters with the longest outages first."
            + f" The table has the first {TABLE_ROWS} of {len(ranked):,}." * (len(ranked) > TABLE_ROWS),
            [],
            "No cluster was found.",
            [make_table(("cluster", *_OVERVIEW), overview) if overview else None],
        ),
        outage_section(report, intervals, incidents, commands, by_cluster=True),
        controller_section(report, [figures.controller_timeline(report)], commands),
        make_section(
            "causes",
            "Causes of leader changes",
            "Changes of leadership by cause, by cluster, and by cluster and time.",
            [
                figures.cause_bars(report),
                figures.cause_bars(report, by_cluster=True),
                figures.move_map(report, by_cluster=True),
            ],
            "No partition changed its leader.",
            [cause_table(report), table("moves")],
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
            [table("fencing")],
        ),
        make_section(
            "unclean",
            "Unclean elections",
            "Elections of a replica that may lack acknowledged records.",
            [],
            "No leader was elected uncleanly.",
            [table("unclean")],
        ),
        make_section(
            "access",
            "Wide access rules",
            "Rules that allow every principal, or every operation.",
            [],
            "No rule allows every principal or every operation.",
            [table("wide rules")],
        ),
        retention_section(report, commands),
    ]


def _total(report: ReportData, cluster: str, name: str) -> float:
    return report.totals.get(cluster, {}).get(name, 0)
