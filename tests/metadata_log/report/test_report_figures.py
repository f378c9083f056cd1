"""The numbers behind the plots of the reports, without a browser."""

from __future__ import annotations

import re
from itertools import pairwise
from random import Random

import pytest

from metadata_log.report import figures
from metadata_log.report.figures import Curves, Lanes
from metadata_log.report.incidents import intervals_of
from metadata_log.report.looks import FENCED, NO_LEADER
from metadata_log.report.report_data import Span
from support.metadata_log.report_rows import NOON, outage, report_of, row


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
