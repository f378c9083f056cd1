"""Reports of clusters and fleets: pages, incidents, the index, and the numbers behind the plots."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec import Struct

from metadata_log.cluster_names import cluster_names_of
from metadata_log.disk import OsDisk
from metadata_log.history import VIEWS
from metadata_log.history.engine import rows as history_rows
from metadata_log.reading.timeline import read_timeline
from metadata_log.report import FLEET_VIEWS, HISTORY_VIEWS, figures, render_diff, render_fleet, render_history
from metadata_log.report.cluster_index import index_section
from metadata_log.report.figures import Curves, Lanes
from metadata_log.report.headline import headline
from metadata_log.report.incidents import Incident, incidents_of, intervals_of
from metadata_log.report.looks import FENCED, NO_LEADER
from metadata_log.report.report_data import TABLE_ROWS, ReportData, Span
from report_rows import (
    HOSTILE,
    NOON,
    cluster_id,
    fencing,
    fleet_rows,
    large_rows,
    outage,
    real_rows,
    recorded_fleet,
    report_of,
    row,
)
from support.metadata_log.browser import PHONE_WIDTH, WIDTH, look
from support.real_data import unpack

MOST_BYTES = 2_000_000
LIGHT, DARK = "rgb(244, 245, 247)", "rgb(20, 23, 28)"


class Difference(Struct, frozen=True):
    kind: str
    name: str
    field: str
    before: object
    after: object


def check_page(page: Path, filters: tuple[str, ...] = ()) -> dict[str, dict[str, Any]]:
    """Check a page on a desktop and on a phone; returns what was measured."""
    text = page.read_text()
    assert len(text.encode()) < MOST_BYTES
    assert not re.search(r"\bsrc=|\bhref=(?!\"#)|@import|url\(|https?://", text)
    found = look(page, filters=filters)
    for facts, width, background in ((found["desktop"], WIDTH, LIGHT), (found["phone"], PHONE_WIDTH, DARK)):
        assert facts["errors"] == []
        assert facts["requests"] == []
        assert facts["width"] <= width
        assert facts["background"] == background
        assert facts["smallest"] >= 11
        assert (facts["blocks"], facts["parts"], facts["silent"]) == ([], [], [])
        for plot in facts["plots"]:
            assert plot["marks"] > 0, f"{plot['id']} is empty"
            assert plot["overlaps"] == [], plot["id"]
            assert plot["outside"] == [], plot["id"]
            assert plot["track"] >= 150, plot["id"]
        colours = [entry["colour"] for entry in facts["legend"]]
        meanings = [entry["meaning"] for entry in facts["legend"]]
        assert len(set(colours)) == len(set(meanings)) == len(facts["legend"]), "a colour with two meanings"
        assert {word for entry in facts["legend"] for word in entry["look"].split() if word[:2] == "k-"} == set(
            facts["looks"]
        ), "a colour without a meaning"
        said = [name for name, _ in facts["themes"]]
        assert said == ["Colours: dark", "Colours: light", "Colours: system"]
        assert [colour for _, colour in facts["themes"]] == [DARK, LIGHT, background]
        assert facts["after"] == facts["before"], "an empty filter hides rows"
        for words, result in facts["filtered"].items():
            assert 0 < result["shown"] < facts["before"], words
            assert result["said"] == f"{result['shown']} of {facts['before']} rows and lanes"
            assert result["wrong"] == 0, words
    return found


@pytest.mark.parametrize(
    ("cluster", "node"), [("failover", "c3"), pytest.param("static3", "c1", marks=pytest.mark.soak)]
)
def test_the_history_of_a_real_cluster(cluster: str, node: str, tmp_path: Path) -> None:
    page = tmp_path / "history.html"
    render_history(real_rows(cluster, node, HISTORY_VIEWS, tmp_path), page, title=f"History of {cluster}")
    found = check_page(page, filters=("broker 101", "orders-11") if cluster == "failover" else ())
    facts = found["desktop"]
    drawn = {plot["id"] for plot in facts["plots"]}
    wanted = {"brokers-1", "leaders-1", "causes-1", "topics-1", "skew-1", "isr-1", "controllers-1"}
    assert wanted <= drawn
    assert facts["cut"] == []
    assert facts["title"] == f"History of {cluster}"
    if cluster == "failover":
        assert "outages-1" in drawn
        assert "broker 101 was fenced: its session timed out" in page.read_text()
        picked = facts["picked"]
        assert picked["rows"]
        assert all(row.startswith(picked["value"]) for row in picked["rows"])
        meanings = [entry["meaning"] for entry in facts["legend"]]
        assert meanings[:3] == ["active", "in controlled shutdown", "fenced"]
        assert meanings[-3:] == [f"broker {broker} as leader" for broker in (101, 102, 103)]


def test_the_first_sentence_of_a_real_failover_names_the_worst_outage_and_its_cause(tmp_path: Path) -> None:
    page = tmp_path / "history.html"
    render_history(real_rows("failover", "c3", HISTORY_VIEWS, tmp_path), page, title="A night")
    text = page.read_text()
    said = re.findall(r'<p class="(?:headline" id="headline|finding)">(.*?)</p>', text)
    assert said == [
        "31 partitions had no leader for 5.6 s after the sessions of brokers 101 and 102 timed out "
        "(2026-11-21 08:23:12.076 UTC).",
        "In the same incident, 111 partitions refused writes with acks=all for up to 6.1 s.",
        "31 unclean elections chose leaders that may lack acknowledged records.",
        "Once, no controller was active for a second or more; the longest such time was 3.8 s.",
    ]
    outages = text[text.index('<section id="outages">') :].partition("</section>")[0]
    listed = re.findall(
        r'<tr id="outage-[^"]+"><td class="name">(\S+)</td><td class="number">(\d+)</td><td class="time">', outages
    )
    assert len(listed) == 111, "an outage is listed twice, or not at all"
    assert len(set(listed)) == 111


def test_a_fleet_of_many_clusters(tmp_path: Path) -> None:
    page = tmp_path / "fleet.html"
    commands = {"moves": "kraft fleet history '/backup/*' --view leadership_changes --json"}
    render_fleet(fleet_rows(60, 150), page, title=f"Fleet {HOSTILE}", notes=[f"A note {HOSTILE}"], commands=commands)
    facts = check_page(page, filters=("region-017",))["desktop"]
    assert facts["title"] == f"Fleet {HOSTILE}"
    plots = {"outages-1", "controllers-1", "causes-1", "causes-2", "causes-3", "churn-1", "churn-2"}
    assert plots == {plot["id"] for plot in facts["plots"]}
    text = page.read_text()
    assert "The table has the latest 200 of 9,000. All of them: <code>kraft fleet history &#39;/backup/*&#39;" in text
    assert re.search(r"The table has the longest 200 of [\d,]+\.", text)


def test_the_incidents_of_a_real_fleet_fit_the_screen(tmp_path: Path) -> None:
    page = tmp_path / "fleet.html"
    rows = [*real_rows("failover", "c3", FLEET_VIEWS, tmp_path), *real_rows("static3", "c1", FLEET_VIEWS, tmp_path)]
    render_fleet(rows, page, title="Fleet")
    assert "outages" not in look(page)["desktop"]["cut"], "a column of the incidents is out of sight"


def test_a_difference(tmp_path: Path) -> None:
    differences = [
        *(Difference("topics", f"orders-{at}", "leader", 101 + at % 3, 101 + (at + 1) % 3) for at in range(300)),
        Difference("configs", "topic orders", "retention.ms", None, HOSTILE),
        Difference("brokers", "broker 104", "registered", "yes", None),
        Difference("topics", "orders-3", "isr", (1, 2, 3), (1,)),
    ]
    page = tmp_path / "diff.html"
    commands = {"topics": "kraft diff c1@17 @99 --only topics"}
    render_diff(differences, page, before="offset 17", after="offset 99", title="A night", commands=commands)
    facts = check_page(page, filters=("orders-17",))["desktop"]
    assert facts["sections"] == ["overview", "brokers", "configs", "topics"]
    assert facts["title"] == "A night"
    text = page.read_text()
    assert "The table has the first 200 of 301. All of them: <code>kraft diff c1@17 @99 --only topics</code>" in text
    assert (
        "302 objects differ: 1 of brokers, 1 of configs and 300 of topics; 300 partitions have another leader." in text
    )


@pytest.mark.parametrize("page", ["history", "fleet", "diff"])
def test_a_report_without_data_has_a_sentence_for_each_plot(page: str, tmp_path: Path) -> None:
    """Every plot without data is a sentence."""
    out = tmp_path / "empty.html"
    if page == "diff":
        render_diff([], out, before="a", after="b")
    else:
        (render_history if page == "history" else render_fleet)([], out, title="Nothing")
    text = out.read_text()
    assert '<figure class="plot' not in text
    assert text.count('<p class="none">') == text.count("<section ")


def test_a_page_says_nothing_about_views_that_were_not_read(tmp_path: Path) -> None:
    """The page of one topic does not state that no broker was fenced."""
    out = tmp_path / "topic.html"
    read = ("leader_history", "isr_history")
    render_history(real_rows("failover", "c3", read, tmp_path), out, title="One topic", read=read)
    text = out.read_text()
    assert re.findall(r'<section id="(\w+)"', text) == ["leaders", "skew", "isr"]
    assert re.findall(r'class="card">.*<span>(.*)</span>', text) == ["partitions seen"]
    assert "enough in-sync replicas all the time" not in text
    assert "the log of this part shows no outage" in text


def test_the_views_exist() -> None:
    assert set(HISTORY_VIEWS) | set(FLEET_VIEWS) <= set(VIEWS)


def test_a_page_with_the_most_content_stays_below_two_megabytes(tmp_path: Path) -> None:
    """Every list and plot is at its limit."""
    page = tmp_path / "large.html"
    render_history(large_rows(6000), page, title="Large")
    assert page.stat().st_size < MOST_BYTES
    text = page.read_text()
    assert text.count("<tr>") <= 12 * TABLE_ROWS
    assert "Busy lanes show the worst state in each" in text


@pytest.mark.soak
def test_the_page_of_the_biggest_recorded_log_stays_below_two_megabytes(tmp_path: Path) -> None:
    """A log of 650,000 records."""
    unpack("big", "", tmp_path / "big")
    page = tmp_path / "big.html"
    rows = history_rows(read_timeline(OsDisk(), str(tmp_path / "big")), HISTORY_VIEWS, cluster="big")
    render_history(rows, page, title="Big")
    assert page.stat().st_size < MOST_BYTES
    check_page(page)


# Outages are listed once, grouped into incidents, and the first sentence names the worst one with its cause.


Row = tuple[str, tuple[Any, ...]]


def told(rows: list[Row]) -> list[str]:
    """The headline of these rows."""
    report = report_of(rows)
    return headline(report, incidents(report), HISTORY_VIEWS)


def incidents(report: ReportData) -> list[Incident]:
    return incidents_of(report, intervals_of(report))


def test_a_leaderless_partition_below_min_isr_is_one_interval() -> None:
    report = report_of(
        [
            outage(1000, 6000, cause_text="no replica can lead"),
            outage(500, 9000, kind="below-min-isr", cause="isr-shrink"),
            outage(9500, 9600),
        ]
    )
    first, second = intervals_of(report)
    assert (first.begin - NOON, first.end, first.leaderless, first.below_min_isr) == (500, NOON + 9000, 5.0, 8.5)
    assert (second.begin - NOON, second.leaderless, second.below_min_isr) == (9500, 0.1, 0.0)


@pytest.mark.parametrize("seed", range(20))
def test_intervals_hold_every_outage_once(seed: int) -> None:
    """No second of either kind is lost, and the intervals of a partition do not overlap."""
    rng = Random(seed)
    print("seed", seed)
    rows = []
    for partition in range(6):
        for kind in ("leaderless", "below-min-isr"):
            at = 0
            for _ in range(rng.randrange(8)):
                at += rng.randrange(1, 3000)
                begin, at = at, at + rng.randrange(1, 5000)
                rows.append(outage(begin, at, kind=kind, partition=partition))
    rng.shuffle(rows)
    report = report_of(rows)
    intervals = intervals_of(report)
    for kind, total in (
        ("leaderless", sum(each.leaderless for each in intervals)),
        ("below-min-isr", sum(each.below_min_isr for each in intervals)),
    ):
        assert total == pytest.approx(report.total(f"{kind} partition seconds"))
    for each in intervals:
        for other in intervals:
            is_same = other is each or other.partition != each.partition
            assert is_same or each.end is None or other.begin > each.end or other.end is None or each.begin > other.end
    grouped = [interval for incident in incidents(report) for interval in incident.intervals]
    assert sorted(each.begin for each in grouped) == [each.begin for each in intervals]


def test_the_first_sentence_names_partitions_duration_and_brokers() -> None:
    """Broker 102 was the last of two to die; both are the cause."""
    rows = [
        fencing(103, 1000, 60_000),
        fencing(102, 5000, 17_000),
        fencing(104, 0, 2000, cause="controlled-shutdown"),
        *(outage(5000, 17_000, partition=partition) for partition in range(26)),
        *(outage(5000, 17_000, partition=partition, kind="below-min-isr") for partition in range(26)),
    ]
    assert told(rows) == [
        "26 partitions had no leader for 12.0 s after the sessions of brokers 102 and 103 timed out "
        "(2026-11-21 12:00:05.000 UTC)."
    ]


def test_the_worst_incident_is_the_first_sentence_and_the_others_are_counted() -> None:
    rows = [
        outage(0, 1000),
        *(outage(50_000, 59_000, partition=partition, cause_broker=7) for partition in range(3)),
        outage(90_000, 99_000, kind="below-min-isr"),
    ]
    first, second = told(rows)
    assert first.startswith("3 partitions had no leader for 9.0 s after the session of broker 7 timed out")
    assert second == ("There were 2 more incidents: 1 with leaderless partitions, 1 only below min.insync.replicas.")


def test_clusters_have_incidents_of_their_own() -> None:
    rows = [outage(0, 4000, cluster="a"), outage(0, 5000, cluster="b"), fencing(9, 0, 9000, cluster="a")]
    report = report_of(rows)
    assert [(each.cluster, each.after) for each in incidents(report)] == [
        ("b", "the session of broker 102 timed out"),
        ("a", "the sessions of brokers 9 and 102 timed out"),
    ]
    first, second = told(rows)
    assert " in cluster b after " in first
    assert "1 more incident; all incidents were in 2 clusters" in second


def test_a_history_without_outages_is_called_sound_as_far_as_it_is_known() -> None:
    quiet = row("topic_history", topic="t", valid_from=NOON)
    sentence = "very partition had a leader and enough in-sync replicas all the time."
    assert told([quiet]) == [f"E{sentence}"]
    known, more = told([quiet, row("retention", kind="damage", known=False, from_time=NOON)])
    assert known == f"In the known part of this history, e{sentence}"
    assert more == "1 range of the log is unknown: more may have happened there."
    assert told([]) == ["The log holds no event of the requested kind."]
    report = report_of([quiet])
    assert "all the time" not in " ".join(headline(report, [], ("topic_history",)))


# The index of a fleet: in the order of what is wrong now, with names, and with the incidents of the view.


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


# The numbers behind the plots of the reports, without a browser.


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
    report = report_of(rows)
    figure = figures.leader_skew(report)
    assert isinstance(figure, Curves)
    assert {curve.name: curve.peak for curve in figure.curves} == {"broker 1": 3, "broker 2": 2}
    led = {id: [span for spans in report.leaders.values() for span in spans if span.what == id] for id in (1, 2)}
    points = {id: list(zip(*figures.steps(report, spans), strict=True)) for id, spans in led.items()}
    assert points[1][1:-1] == [(NOON, 3), (NOON + 100, 2), (NOON + 200, 1)]
    assert points[2][1:-1] == [(NOON + 100, 1), (NOON + 200, 2), (NOON + 300, 1)]
    (path,) = [curve.path for curve in figure.curves if curve.name == "broker 2"]
    assert path == "M0 100V100H100V66.7H200V33.3H300V66.7H1000V66.7H1000V100Z"


def test_curves_of_many_events_keep_their_peaks() -> None:
    """A spike of a millisecond among a hundred thousand changes is still seen."""
    report = report_of([row("topic_history", valid_from=NOON, valid_to=NOON + 10_000_000)])
    spans = [Span(NOON + at * 100, NOON + at * 100 + 50, None) for at in range(100_000)]
    spans += [Span(NOON + 5_000_020, NOON + 5_000_021, None)] * 7
    xs, ys = figures.steps(report, spans)
    assert len(xs) <= figures.STEPS + 1
    assert (max(ys), sorted(ys)[-2]) == (8, 1)


def test_busy_lanes_keep_the_worst_state_of_each_piece() -> None:
    """A broker that is fenced for a millisecond among thousands of restarts is drawn as fenced there."""
    rows = [
        row("broker_history", broker=1, in_controlled_shutdown=at % 2 == 1 and at != 2501, fenced=at == 2501,
            valid_from=NOON + 10 * at, valid_to=NOON + 10 * at + 10)
        for at in range(5000)
    ]  # fmt: skip
    figure = figures.broker_timeline(report_of(rows))
    assert isinstance(figure, Lanes)
    (lane,) = figure.lanes
    assert len(lane.marks) <= figures.MARKS
    (fenced,) = [mark for mark in lane.marks if mark.look is FENCED]
    assert fenced.x <= 100 * 2501 / 5000 <= fenced.x + fenced.width
    assert "worst state" in figure.caption
    assert all(left.x + left.width <= right.x + 0.02 for left, right in pairwise(lane.marks))


def seconds_in(figure: Lanes) -> float:
    """The sum of all cells, as their titles say them."""
    found = [re.search(r": ([\d.]+) (s|min|h),", mark.title) for lane in figure.lanes for mark in lane.marks]
    units = {"s": 1, "min": 60, "h": 3600}
    return sum(float(each[1]) * units[each[2]] for each in found if each is not None)


def test_outages_are_divided_among_the_cells_of_the_heat_map() -> None:
    """No second is lost or counted twice, whatever cells an outage spans."""
    rng = Random(11)
    rows = []
    for partition in range(40):
        begin = rng.randrange(1_000_000)
        rows.append(outage(begin, begin + rng.randrange(1, 300_000), topic=f"t{partition}", partition=partition))
    report = report_of(rows)
    figure = figures.outage_map(report, intervals_of(report))
    assert figure is not None
    assert {mark.look for lane in figure.lanes for mark in lane.marks} == {NO_LEADER}
    cells = sum(len(lane.marks) for lane in figure.lanes)
    assert seconds_in(figure) == pytest.approx(report.total("leaderless partition seconds"), abs=0.05 * cells)


def test_bars_end_where_the_log_of_their_cluster_ends() -> None:
    """Of two clusters one was read until noon, the other until an hour later."""
    rows = [
        row("quorum_epochs", cluster="early", leader_id=1, valid_from=NOON),
        outage(4000, None, cluster="early"),
        row("fencing", cluster="early", valid_from=NOON + 5000, valid_to=NOON + 6000),
        row("quorum_epochs", cluster="late", leader_id=1, valid_from=NOON, valid_to=NOON + 3_600_000),
    ]
    report = report_of(rows)
    timeline = figures.controller_timeline(report)
    assert isinstance(timeline, Lanes)
    widths = {lane.name: [mark.width for mark in lane.marks] for lane in timeline.lanes}
    assert widths == {"early": [pytest.approx(100 * 6000 / 3_600_000, abs=0.01)], "late": [100]}
    outages = figures.outage_map(report, intervals_of(report), by_cluster=True)
    assert outages is not None
    assert seconds_in(outages) == pytest.approx(2.0)
