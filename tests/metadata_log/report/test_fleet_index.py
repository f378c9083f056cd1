"""The index of a fleet: in the order of what is wrong now, with names, and with the incidents of the view."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from metadata_log.cluster_names import cluster_names_of
from metadata_log.history import VIEWS
from metadata_log.report import render_fleet
from metadata_log.report.cluster_index import index_section
from metadata_log.report.incidents import incidents_of, intervals_of
from metadata_log.report.report_data import ReportData
from support.metadata_log.report_rows import (
    NOON,
    cluster_id,
    fencing,
    outage,
    recorded_fleet,
    report_of,
    row,
)


def index_of(rows: list[tuple[str, tuple[Any, ...]]], names: dict[str, str]) -> list[list[str]]:
    report = ReportData(
        cluster_names_of([{"cluster": one, "name": name, "environment": "x"} for one, name in names.items()], where="")
    )
    report.take_all(rows)
    incidents = incidents_of(report, intervals_of(report))
    return [[cell.text for cell in row] for row in index_section(report, incidents).tables[-1].rows]


def test_a_cluster_that_is_down_at_the_end_comes_before_one_that_was_down_for_longer() -> None:
    rows = [
        row("quorum_epochs", cluster="quiet", leader_id=1, valid_from=NOON),
        outage(0, 50_000, cluster="was-down"),
        outage(0, None, cluster="is-small", kind="below-min-isr"),
        outage(40_000, None, cluster="is-down"),
        row("retention", cluster="damaged", kind="damage", known=False),
    ]
    found = index_of(rows, {"is-down": "orders"})
    assert [row[0] for row in found] == ["orders", "is-small", "was-down", "damaged", "quiet"]
    assert [row[1] for row in found] == ["x", *["no environment"] * 4]
    at_end = ["no leader: 1", "below min ISR: 1", "sound", "history incomplete", "sound"]
    assert [row[2] for row in found] == at_end


def test_names_stand_everywhere_in_place_of_ids(tmp_path: Path) -> None:
    page = tmp_path / "fleet.html"
    rows = [outage(0, 4000, cluster=cluster_id(0)), fencing(102, 0, 4000, cluster=cluster_id(0))]
    rows.append(row("quorum_epochs", cluster=cluster_id(1), leader_id=1, valid_from=NOON))
    names = cluster_names_of([{"cluster": cluster_id(0), "name": "orders-eu"}], where="names")
    render_fleet(rows, page, title="Fleet", names=names)
    text = page.read_text()
    assert text.count(cluster_id(0)) == text.count(f'title="{cluster_id(0)}"') == 1, "the id stands once, as a hint"
    assert text.count("orders-eu") >= 4
    assert cluster_id(1) in text, "a cluster without a name keeps its id"


def test_incidents_of_the_report_are_those_of_the_view(tmp_path: Path) -> None:
    """The page groups intervals, the view groups rows while the log is read: both come to the same."""
    rows = list(recorded_fleet(12, tmp_path))
    report = report_of(rows)
    told = [
        (each.cluster, each.begin, each.end, tuple(sorted({one.name for one in each.leaderless})))
        for each in incidents_of(report, intervals_of(report))
    ]
    wanted = []
    for view, values in recorded_fleet(12, tmp_path, ("incidents",)):
        found = dict(zip(VIEWS[view].names, values, strict=True))
        leaderless = tuple(sorted(found["leaderless_partitions"]))
        wanted.append((found["cluster"], found["valid_from"], found["valid_to"], leaderless))
    assert sorted(told, key=str) == sorted(wanted, key=str)
    assert len(told) > 9
