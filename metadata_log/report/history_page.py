"""The history of one directory as a page."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from metadata_log.report import figures
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

HISTORY_VIEWS: Final = (
    "leader_history",
    "isr_history",
    "broker_history",
    "topic_history",
    "config_history",
    "acl_history",
    "feature_history",
    "quorum_epochs",
    "controller_gaps",
    "leadership_changes",
    "unavailability",
    "fencing",
    "unclean_elections",
    "reassignments",
    "retention",
)
"""The views that `render_history` uses; rows of others are ignored, and a view without rows becomes a sentence."""


_NEEDED: Final = {
    "brokers": ("broker_history", "fencing"),
    "leaders": ("leader_history",),
    "causes": ("leadership_changes",),
    "topics": ("leadership_changes",),
    "skew": ("leader_history",),
    "isr": ("isr_history", "unavailability"),
    "outages": ("unavailability",),
    "controllers": ("quorum_epochs", "controller_gaps"),
    "unclean": ("unclean_elections",),
    "reassignments": ("reassignments",),
    "changes": ("config_history", "acl_history", "feature_history"),
    "retention": ("retention",),
}
"""By section: the views with its rows. A section is on the page if one of its views was read."""


def render_history(
    rows: Iterable[tuple[str, Row]],
    out: Path,
    *,
    title: str,
    notes: Sequence[str] = (),
    read: Collection[str] = HISTORY_VIEWS,
    commands: Commands = MappingProxyType({}),
) -> None:
    """Write the history of one directory as a page.

    Args:
        rows: Pairs of a view's name and a row, as `metadata_log.history` yields them for `HISTORY_VIEWS`.
        out: The path of the page.
        title: The name of the cluster or directory.
        notes: Sentences for the top of the page: the range, damage, omissions.
        read: The views that were read. The page has no section about other views, and no sentence about their absence.
        commands: By table: the command that prints all rows, for a table that leaves rows out.

    Raises:
        OSError: The page could not be written.
    """
    report = ReportData()
    report.take_all(rows)
    intervals = intervals_of(report)
    incidents = incidents_of(report, intervals)
    sections = [
        section
        for section in _history_sections(report, intervals, incidents, commands)
        if any(view in read for view in _NEEDED[section.id])
    ]
    write_page(
        out,
        Page(
            title=title,
            headline=headline(report, incidents, read),
            range=range_text(report),
            notes=notes,
            cards=_history_cards(report, read),
            sections=sections,
        ),
    )


def _history_cards(report: ReportData, read: Collection[str]) -> list[tuple[str, str]]:
    """The figures whose views were read: a filter that leaves a view out leaves no zero in its place."""
    seen = (
        ("broker_history", "brokers seen", report.brokers),
        ("topic_history", "topics seen", report.topics),
        ("leader_history", "partitions seen", report.leaders),
    )
    counts = [(label, f"{len(found):,}") for view, label, found in seen if view in read]
    return [*counts, *common_cards(report, read)]


def _history_sections(
    report: ReportData, intervals: Sequence[Interval], incidents: Sequence[Incident], commands: Commands
) -> list[Section]:
    def table(name: str) -> Table | None:
        return view_table(report, name, commands)

    return [
        outage_section(report, intervals, incidents, commands, by_cluster=False),
        make_section(
            "brokers",
            "Brokers",
            "When each broker was active, in controlled shutdown or fenced.",
            [figures.broker_timeline(report)],
            "No broker is registered in this history.",
            [table("fencing")],
        ),
        make_section(
            "leaders",
            "Leaders",
            f"The {len(figures.moved_partitions(report))} partitions with the most changes of leader, "
            f"of {len(report.leaders):,}.",
            [figures.leader_timeline(report)],
            "No partition changed its leader.",
        ),
        make_section(
            "causes",
            "Causes of leader changes",
            "Changes of leadership by cause, and the latest of them.",
            [figures.cause_bars(report)],
            "No partition changed its leader.",
            [cause_table(report), table("moves")],
        ),
        make_section(
            "topics",
            "Changes of leadership by topic",
            "Each cell counts the partitions of a topic that got another leader, or none.",
            [figures.move_map(report)],
            "No partition changed its leader.",
        ),
        make_section(
            "skew",
            "Leader skew",
            "The number of partitions that each broker led; equal areas are an even load.",
            [figures.leader_skew(report)],
            "No partition had a leader.",
        ),
        make_section(
            "isr",
            "In-sync replicas",
            "The number of impaired partitions, from a missing replica to no leader at all.",
            [figures.isr_bands(report)],
            "Every replica of every partition was in sync all the time.",
        ),
        controller_section(report, [figures.controller_timeline(report)], commands),
        make_section(
            "unclean",
            "Unclean elections",
            "Elections of a replica that may lack acknowledged records.",
            [],
            "No leader was elected uncleanly.",
            [table("unclean")],
        ),
        make_section(
            "reassignments",
            "Reassignments",
            "Moves of replicas from the request to the end.",
            [],
            "No partition was reassigned.",
            [table("reassignments")],
        ),
        make_section(
            "changes",
            "Configurations, access rules, features",
            "The changes; the log does not record their authors.",
            [],
            "No configuration, access rule or feature was changed.",
            [table("configs"), table("acls"), table("features")],
        ),
        retention_section(report, commands),
    ]
