"""The HTML reports: right numbers, legible in a real browser at 1280 pixels, and no need for a network."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from browser import WIDTH, look
from msgspec import Struct
from plotly.graph_objects import Figure as CheckedFigure
from plotly.offline import get_plotlyjs
from real_data import unpack

from metadata_log.disk import OsDisk
from metadata_log.history import VIEWS
from metadata_log.history.engine import rows as history_rows
from metadata_log.reading.timeline import read_timeline
from metadata_log.report import FLEET_VIEWS, HISTORY_VIEWS, figures, render_diff, render_fleet, render_history
from metadata_log.report.report_data import TABLE_ROWS, ReportData, Span

NOON = 1_795_262_400_000
HOSTILE = "</script><script>document.title='taken over'</script><b>&amp;"


class Difference(Struct, frozen=True):
    kind: str
    name: str
    field: str
    before: object
    after: object


def row(view: str, **values: Any) -> tuple[str, tuple[Any, ...]]:
    """A row of a view; what is not said is empty."""
    empty = {"int32[]": (), "string[]": (), "uuid[]": (), "string": "", "bool": False, "map<string,string>": {}}
    defaults = {column.name: None if column.nullable else empty.get(column.type, 0) for column in VIEWS[view].columns}
    assert values.keys() <= defaults.keys(), values.keys() - defaults.keys()
    return view, tuple((defaults | {"cluster": "c1"} | values).values())


def story_of(rows: Iterable[tuple[str, tuple[Any, ...]]]) -> ReportData:
    report = ReportData()
    report.take_all(rows)
    return report


def real_rows(cluster: str, node: str, views: tuple[str, ...], folder: Path) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """What the engine tells of a real node's directory."""
    name, prefix = ("static3", "nodes") if cluster == "static3" else ("clusters", f"{cluster}/nodes")
    path = unpack(name, f"{prefix}/{node}", folder / cluster)
    return history_rows(read_timeline(OsDisk(), str(path)), views, cluster=cluster)


def check_page(page: Path) -> dict[str, Any]:
    """What must hold of every page; returns what was measured."""
    text = page.read_text()
    assert len(text) < 10_000_000
    without_library = text.replace(get_plotlyjs(), "")
    assert not re.search(r"\bsrc=|\bhref=(?!\"#)|@import|url\(|https?://", without_library)
    facts = look(page)
    assert facts["errors"] == []
    assert facts["requests"] == []
    assert facts["width"] <= WIDTH
    assert (facts["blocks"], facts["parts"], facts["silent"]) == ([], [], [])
    assert facts["drawn"] == str(len(facts["plots"]))
    for plot in facts["plots"]:
        assert plot["marks"] > 0, f"{plot['id']} is empty"
        assert plot["texts"] > 2, plot["id"]
        assert plot["smallest"] >= 11, plot["id"]
        assert plot["overlaps"] == [], plot["id"]
        assert plot["outside"] == [], plot["id"]
        assert abs(plot["drawn"] - plot["height"]) <= 1, plot["id"]
    for name, figure in figures_of(text).items():
        CheckedFigure(figure)  # raises for a property that Plotly does not know
        lanes = figure["layout"]["yaxis"].get("categoryarray", [])
        shown = {lane for trace in figure["data"] for lane in trace["y"]} if lanes else set()
        assert sorted(shown) == sorted(lanes), f"{name} has an empty lane, or two things in one"
    return facts


def figures_of(text: str) -> dict[str, Any]:
    found = re.search(r"^const FIGURES = (.*);$", text, re.MULTILINE)
    assert found is not None
    parsed: dict[str, Any] = json.loads(found[1])
    return parsed


# ----------------------------------------------------------------------------------------------------- in a browser


@pytest.mark.parametrize(
    ("cluster", "node"), [("failover", "c3"), pytest.param("static3", "c1", marks=pytest.mark.soak)]
)
def test_the_history_of_a_real_cluster(cluster: str, node: str, tmp_path: Path) -> None:
    page = tmp_path / "history.html"
    render_history(real_rows(cluster, node, HISTORY_VIEWS, tmp_path), page, title=f"History of {cluster}")
    facts = check_page(page)
    drawn = {plot["id"] for plot in facts["plots"]}
    wanted = {"brokers-1", "leaders-1", "causes-1", "topics-1", "skew-1", "isr-1", "leaderless-1", "controllers-1"}
    assert wanted <= drawn
    assert facts["cut"] == []
    assert facts["title"] == f"History of {cluster}"
    if cluster == "failover":
        assert "broker 101 was fenced: its session timed out" in page.read_text()


def fleet_rows(clusters: int, events: int) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Many clusters with long names and many events, and texts that would break out of the page."""
    rng = Random(7)
    causes = ("session-timeout", "controlled-shutdown", "preferred-election", "unclean-election", "broker-unfenced")
    for number in range(clusters):
        cluster = f"production-region-{number:03d}-of-a-company-with-a-long-name"
        at = NOON
        for count in range(events):
            at += rng.randrange(1, 60_000)
            topic, cause = f"team-{rng.randrange(50)}.very-long-topic-name.v{rng.randrange(9)}", rng.choice(causes)
            yield row("leadership_changes", cluster=cluster, topic=topic, partition=count % 7, to_leader=2,
                      timestamp=at, cause=cause, cause_text=f"because of {cause} {HOSTILE}")  # fmt: skip
            yield row("unavailability", cluster=cluster, topic=topic, kind=rng.choice(("leaderless", "below-min-isr")),
                      valid_from=at, valid_to=at + 4000, seconds=4.0, cause_text="no replica can lead")  # fmt: skip
            yield row("churn", cluster=cluster, kind="topic", name=topic, hour=at, partition_changes=3)
            yield row("churn", cluster=cluster, kind="broker", name=str(count % 5), hour=at, partition_changes=1)
        yield row("quorum_epochs", cluster=cluster, leader_id=1, valid_from=NOON, valid_to=NOON + 90_000)
        yield row("quorum_epochs", cluster=cluster, leader_id=2, valid_from=NOON + 90_000)
        yield row("controller_gaps", cluster=cluster, kind="election", seconds=6.5, valid_from=NOON + 83_500,
                  valid_to=NOON + 90_000)  # fmt: skip
        yield row("fencing", cluster=cluster, broker=number, valid_from=NOON, valid_to=NOON + 9000, seconds=9.0)
        yield row("acl_audit", cluster=cluster, principal="User:*", operation="ALL", permission="ALLOW", effective=True,
                  valid_from=NOON, resource_name=HOSTILE)  # fmt: skip


def test_a_fleet_of_many_clusters(tmp_path: Path) -> None:
    page = tmp_path / "fleet.html"
    render_fleet(fleet_rows(60, 150), page, title=f"Fleet {HOSTILE}", notes=[f"A note {HOSTILE}"])
    facts = check_page(page)
    assert facts["title"] == f"Fleet {HOSTILE}"
    assert {
        "leaderless-1",
        "min-isr-1",
        "controllers-1",
        "controllers-2",
        "causes-1",
        "causes-2",
        "churn-1",
        "churn-2",
    } <= {plot["id"] for plot in facts["plots"]}
    assert "The table has the latest 200 of 9,000." in page.read_text()
    assert "The table has the longest 200 of 9,000." in page.read_text()


def test_a_difference(tmp_path: Path) -> None:
    differences = [
        *(Difference("topics", f"orders-{at}", "leader", 101 + at % 3, 101 + (at + 1) % 3) for at in range(300)),
        Difference("configs", "topic orders", "retention.ms", None, HOSTILE),
        Difference("brokers", "broker 104", "registered", "yes", None),
        Difference("topics", "orders-3", "isr", (1, 2, 3), (1,)),
    ]
    page = tmp_path / "diff.html"
    render_diff(differences, page, before="offset 17", after="2026-11-21T12:00:00Z")
    facts = check_page(page)
    assert facts["sections"] == ["overview", "brokers", "configs", "topics"]
    text = page.read_text()
    assert "301 differences; the first 200 are shown." in text
    assert "<td>1, 2, 3</td><td>1</td>" not in text.split("the first 200")[0]


@pytest.mark.parametrize("page", ["history", "fleet", "diff"])
def test_a_report_without_data_has_a_sentence_for_each_plot(page: str, tmp_path: Path) -> None:
    """Every plot without data is a sentence."""
    out = tmp_path / "empty.html"
    if page == "diff":
        render_diff([], out, before="a", after="b")
    else:
        (render_history if page == "history" else render_fleet)([], out, title="Nothing")
    text = out.read_text()
    assert figures_of(text) == {}
    assert text.count('<p class="none">') == text.count("<section ")


# ------------------------------------------------------------------------------------------------- without a browser


def test_the_views_exist() -> None:
    assert set(HISTORY_VIEWS) | set(FLEET_VIEWS) <= set(VIEWS)


def test_leader_skew_counts_partitions() -> None:
    """Three partitions; broker 2 takes over two of them, then one has no leader."""
    rows = [
        row("leader_history", topic="t", partition=0, leader=1, valid_from=NOON, valid_to=NOON + 100),
        row("leader_history", topic="t", partition=0, leader=2, valid_from=NOON + 100),
        row("leader_history", topic="t", partition=1, leader=1, valid_from=NOON, valid_to=NOON + 200),
        row("leader_history", topic="t", partition=1, leader=2, valid_from=NOON + 200, valid_to=NOON + 300),
        row("leader_history", topic="t", partition=1, leader=-1, valid_from=NOON + 300),
        row("leader_history", topic="t", partition=2, leader=1, valid_from=NOON),
    ]
    figure = figures.leader_skew(story_of(rows))
    assert figure is not None
    lines = {trace["name"]: list(zip(trace["x"], trace["y"], strict=True)) for trace in figure["data"]}
    assert lines["broker 1"][1:-1] == [(NOON, 3), (NOON + 100, 2), (NOON + 200, 1)]
    assert lines["broker 2"][1:-1] == [(NOON + 100, 1), (NOON + 200, 2), (NOON + 300, 1)]


def test_lines_of_many_events_keep_their_peaks() -> None:
    """A spike of a millisecond among a hundred thousand changes is still seen."""
    report = story_of([row("topic_history", valid_from=NOON, valid_to=NOON + 10_000_000)])
    spans = [Span(NOON + at * 100, NOON + at * 100 + 50, None) for at in range(100_000)]
    spans += [Span(NOON + 5_000_020, NOON + 5_000_021, None)] * 7
    xs, ys = figures._steps(report, spans)
    assert len(xs) <= figures.STEPS + 1
    assert (max(ys), sorted(ys)[-2]) == (8, 1)


def test_outages_are_divided_among_the_cells_of_the_heat_map() -> None:
    """No second is lost or counted twice, whatever cells an outage spans."""
    rng = Random(11)
    rows = []
    for _ in range(200):
        begin = NOON + rng.randrange(1_000_000)
        end = begin + rng.randrange(1, 300_000)
        rows.append(row("unavailability", topic=f"t{rng.randrange(5)}", kind="leaderless", valid_from=begin,
                        valid_to=end, seconds=(end - begin) / 1000))  # fmt: skip
    report = story_of(rows)
    figure = figures.outage_map(report, "leaderless")
    assert figure is not None
    drawn = sum(value or 0 for line in figure["data"][0]["z"] for value in line)
    assert drawn == pytest.approx(report.total("leaderless partition seconds"), abs=0.5)


def test_bars_end_where_the_log_of_their_cluster_ends() -> None:
    """Of two clusters one was read until noon, the other until an hour later."""
    rows = [
        row("quorum_epochs", cluster="early", leader_id=1, valid_from=NOON),
        row("unavailability", cluster="early", topic="t", kind="leaderless", valid_from=NOON + 4000, seconds=0.0),
        row("fencing", cluster="early", valid_from=NOON + 5000, valid_to=NOON + 6000),
        row("quorum_epochs", cluster="late", leader_id=1, valid_from=NOON, valid_to=NOON + 3_600_000),
    ]
    report = story_of(rows)
    timeline = figures.controller_timeline(report)
    assert timeline is not None
    (bars,) = timeline["data"]
    assert dict(zip(bars["y"], bars["x"], strict=True)) == {"early": 6000, "late": 3_600_000}
    outages = figures.outage_map(report, "leaderless", by_cluster=True)
    assert outages is not None
    assert sum(value or 0 for value in outages["data"][0]["z"][0]) == pytest.approx(2.0)


def test_the_longest_outages_are_shown_whenever_they_were() -> None:
    rng = Random(5)
    seconds = [rng.random() * 1000 for _ in range(3 * TABLE_ROWS)]
    report = story_of(
        row("unavailability", topic="t", kind="leaderless", valid_from=NOON + at, valid_to=NOON + at, seconds=value)
        for at, value in enumerate(seconds)
    )
    table = report.tables["outages"]
    assert [shown[table.columns.index("seconds")] for shown in table.rows()] == sorted(seconds, reverse=True)[
        :TABLE_ROWS
    ]


def test_rows_that_continue_each_other_are_one_bar() -> None:
    """A new leader epoch under the same leader is no change of leadership."""
    rows = [
        row(
            "leader_history",
            topic="t",
            leader=1,
            leader_epoch=epoch,
            valid_from=NOON + epoch,
            valid_to=NOON + epoch + 1,
        )
        for epoch in range(5)
    ]
    assert story_of(rows).leaders == {("t", 0): [Span(NOON, NOON + 5, 1)]}
    assert figures.leader_timeline(story_of(rows)) is None


def test_only_the_most_active_partitions_are_drawn_beyond_the_limit() -> None:
    rows = [
        row("leader_history", topic=f"topic-{number:04d}", leader=at % 2, valid_from=NOON + at, valid_to=NOON + at + 1)
        for number in range(300)
        for at in range(2 + (number == 77))
    ]
    shown = figures.moved_partitions(story_of(rows))
    assert len(shown) == figures.LANES
    assert ("topic-0077", 0) in shown


def test_a_large_history_stays_small(tmp_path: Path) -> None:
    rows = (
        each
        for number in range(20_000)
        for each in (
            row(
                "leader_history",
                topic=f"t{number % 500}",
                partition=number % 40,
                leader=number % 90,
                valid_from=NOON + number,
                valid_to=NOON + number + 500,
            ),
            row("leadership_changes", topic=f"t{number % 500}", timestamp=NOON + number, cause="session-timeout"),
        )
    )
    page = tmp_path / "large.html"
    render_history(rows, page, title="Large")
    assert page.stat().st_size < 10_000_000
    assert page.read_text().count("<tr>") < 4 * TABLE_ROWS


def test_long_names_are_shortened_and_stay_distinct() -> None:
    """A lane of a plot is one thing: two names never look the same."""
    names = [
        "short",
        "a-very-long-topic-name-of-some-team-number-12",
        *(f"production-region-{at:03d}-of-a-company-with-a-long-name" for at in range(30)),
        *(f"{'same' * 9}{at}{'-'.join(['again'] * 20)}" for at in range(12)),
    ]
    shown = figures.short_names([*names, *names])
    assert list(shown) == names
    assert len(set(shown.values())) == len(names)
    assert max(map(len, shown.values())) <= figures.NAME_LENGTH + 5
    assert shown["short"] == "short"
    assert shown[names[1]] == "a-very-long-t…team-number-12"
    assert "017" in shown["production-region-017-of-a-company-with-a-long-name"]
