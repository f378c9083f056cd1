"""The history of many clusters as a page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from metadata_log.cluster_names import ClusterNames
from metadata_log.report import figures
from metadata_log.report.cluster_index import index_section
from metadata_log.report.headline import headline
from metadata_log.report.incidents import Incident, Interval, incidents_of, intervals_of
from metadata_log.report.page import Commands, Page, Section, make_section, write_page
from metadata_log.report.report_data import ReportData, Row
from metadata_log.report.sections import (
    cause_table,
    common_cards,
    controller_section,
    outage_section,
    range_text,
    retention_section,
    view_table,
)
from metadata_log.report.tables import Table

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
    names: ClusterNames | None = None,
) -> None:
    """Write the history of many clusters as a page.

    Args:
        rows: Pairs of a view's name and a row, as `metadata_log.history` yields them for `FLEET_VIEWS`.
        out: The path of the page.
        title: The name of the fleet.
        notes: Sentences for the top of the page: the range, damage, omissions.
        commands: By table: the command that prints all rows, for a table that leaves rows out.
        names: The names of the clusters, which stand in place of their ids; None for the ids.

    Raises:
        OSError: The page could not be written.
    """
    report = ReportData(names)
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
            cards=_fleet_cards(report, incidents),
            sections=_fleet_sections(report, intervals, incidents, commands),
        ),
    )


def _fleet_cards(report: ReportData, incidents: Sequence[Incident]) -> list[tuple[str, str]]:
    return [
        ("clusters", f"{len(report.clusters):,}"),
        ("clusters with outages", f"{len({each.cluster for each in incidents}):,}"),
        ("incidents", f"{len(incidents):,}"),
        *common_cards(report, FLEET_VIEWS),
        ("controller elections", f"{len(report.terms):,}"),
        ("brokers fenced", f"{report.total('fencings'):,.0f}"),
    ]


def _fleet_sections(
    report: ReportData, intervals: Sequence[Interval], incidents: Sequence[Incident], commands: Commands
) -> list[Section]:
    def table(name: str) -> Table | None:
        return view_table(report, name, commands)

    return [
        index_section(report, incidents),
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
