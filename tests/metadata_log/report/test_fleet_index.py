"""The index of a fleet in a browser: ordered, sorted, grouped, filtered, linked, and within the width of a phone."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
from test_report import check_page

from metadata_log.cluster_names import cluster_names_of
from metadata_log.history import VIEWS
from metadata_log.report import render_fleet
from metadata_log.report.cluster_index import index_section
from metadata_log.report.incidents import incidents_of, intervals_of
from metadata_log.report.report_data import ReportData
from support.metadata_log.browser import look
from support.metadata_log.report_rows import (
    NOON,
    cluster_id,
    fencing,
    outage,
    recorded_fleet,
    recorded_names,
    report_of,
    row,
)

MEASURE: Final = """
<script>
addEventListener("load", () => setTimeout(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const index = document.querySelector(".index:not(.environments) table");
  const rows = () => all("tbody tr:not(.group)", index).filter(row => !row.hidden);
  const column = at => rows().map(row => row.cells[at].dataset.v ?? row.cells[at].textContent);
  const heads = [...index.tHead.rows[0].cells];
  const place = name => heads.findIndex(head => head.textContent === name);
  const box = element => element.getBoundingClientRect();
  const found = {errors: window.failures, width: document.documentElement.scrollWidth};
  const fits = each => each.scrollWidth <= each.clientWidth + 1;
  found.indexFits = all(".index").every(fits);
  found.height = box(rows()[0]).height;
  found.names = column(0);
  found.broken = all("a[href^='#']").filter(link => !document.getElementById(link.hash.slice(1)))
    .map(link => link.hash);
  found.links = Object.fromEntries(["outage", "fencing", "move", "incident"].map(kind =>
    [kind, all(`td a[href^='#${kind}-']`).length]));
  found.twice = all("[id]").length - new Set(all("[id]").map(each => each.id)).size;
  heads[place("brokers fenced")].querySelector("button").click();
  found.falling = column(place("brokers fenced")).map(Number);
  heads[place("brokers fenced")].querySelector("button").click();
  found.rising = column(place("brokers fenced")).map(Number);
  const order = document.querySelector("select.order");
  const choose = value => { order.value = value; order.dispatchEvent(new Event("change")); };
  choose(0);
  found.byName = column(0);
  choose(-1);
  found.again = column(0);
  const group = document.querySelector("input.group");
  if (group) {
    group.click();
    found.groups = all("tr.group", index).map(row => row.textContent);
    found.environments = column(1);
    const pick = [...index.closest("section").querySelectorAll(".picks select")]
      .find(select => select.parentElement.textContent.startsWith("environment"));
    pick.value = "staging";
    pick.dispatchEvent(new Event("change"));
    found.picked = [column(1), all("tr.group", index).filter(row => !row.hidden).map(row => row.textContent)];
    found.groupsFit = all(".index").every(fits);
  }
  parent.postMessage([name, found], "*");
}, 300));
</script>
"""


def fleet_page(clusters: int, tmp_path: Path) -> Path:
    page = tmp_path / "fleet.html"
    names = recorded_names(clusters) if clusters > 4 else None
    render_fleet(recorded_fleet(clusters, tmp_path / "logs"), page, title="Fleet", names=names)
    return page


def check_index(clusters: int, tmp_path: Path) -> None:
    page = fleet_page(clusters, tmp_path)
    check_page(page, filters=("broker 102",))
    found = look(page, measure=MEASURE)
    for facts in found.values():
        assert (facts["errors"], facts["broken"], facts["twice"]) == ([], [], 0)
        assert facts["indexFits"], "the index has a horizontal scroll bar"
        assert len(facts["names"]) == clusters
        assert facts["falling"] == sorted(facts["falling"], reverse=True)
        assert facts["rising"] == sorted(facts["rising"])
        assert facts["byName"] == sorted(facts["names"])
        assert facts["again"] == facts["names"], "the first order is not restored"
        assert all(facts["links"].values()), facts["links"]
    assert found["desktop"]["height"] < 40, "a row of the index takes more than a line"
    if clusters > 4:
        facts = found["phone"]
        counts = {name: number.split()[0] for name, _, number in (group.partition(": ") for group in facts["groups"])}
        assert sum(map(int, counts.values())) == clusters
        assert set(counts) == {"production", "staging", "test", "no environment"}
        assert facts["environments"] == [each for name in counts for each in [name] * int(counts[name])]
        assert set(facts["picked"][0]) == {"staging"}
        assert facts["picked"][1] == [f"staging: {counts['staging']} clusters"]
        assert facts["groupsFit"]


@pytest.mark.parametrize("clusters", [4, 50])
def test_the_index_of_a_fleet_of_recorded_logs(clusters: int, tmp_path: Path) -> None:
    check_index(clusters, tmp_path)


@pytest.mark.soak
def test_the_index_of_500_clusters(tmp_path: Path) -> None:
    check_index(500, tmp_path)


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
