"""The numbers behind the plots of the reports, without a browser."""

from __future__ import annotations

import re
from itertools import pairwise
from random import Random

import pytest

from metadata_log.report import figures
from metadata_log.report.figures import Curves, Lanes
from metadata_log.report.incidents import intervals_of
from metadata_log.report.looks import FENCED, LOOKS, NO_LEADER, OTHER_BROKER, broker_looks
from metadata_log.report.page import Section, legend_of
from metadata_log.report.report_data import ReportData, Span
from metadata_log.report.ticks import ticks_of
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


def test_rows_that_continue_each_other_are_one_bar() -> None:
    """A new leader epoch under the same leader is no change of leadership."""
    rows = [
        row("leader_history", topic="t", leader=1, leader_epoch=at, valid_from=NOON + at, valid_to=NOON + at + 1)
        for at in range(5)
    ]
    assert report_of(rows).leaders == {("t", 0): [Span(NOON, NOON + 5, 1)]}
    assert figures.leader_timeline(report_of(rows)) is None


def moves_of(partitions: int) -> ReportData:
    """Partitions with two leaders each; number 77 has three."""
    return report_of(
        row("leader_history", topic=f"topic-{number:04d}", leader=at % 2, valid_from=NOON + at, valid_to=NOON + at + 1)
        for number in range(partitions)
        for at in range(2 + (number == 77))
    )


def test_only_the_most_active_partitions_are_drawn_beyond_the_limit() -> None:
    shown = figures.moved_partitions(moves_of(300))
    assert len(shown) == figures.LANES
    assert ("topic-0077", 0) in shown
    figure = figures.leader_timeline(moves_of(300))
    assert figure is not None
    assert figure.caption.startswith("40 of 300 partitions with another leader are drawn")


def test_each_colour_has_one_meaning() -> None:
    """Also among the states: every pair differs in the colour of both modes, and states of one lane in the pattern."""
    brokers = broker_looks([leader for leader in range(9) for _ in range(leader + 1)])
    looks = list(dict.fromkeys([*LOOKS, *brokers.values()]))
    for of in ("id", "meaning", "light", "dark"):
        assert len({getattr(look, of) for look in looks}) == len(looks), of
    assert len({look.pattern for look in LOOKS[:3]}) == 3
    assert [broker for broker, look in brokers.items() if look is OTHER_BROKER] == [2, 1, 0]
    figure = figures.leader_timeline(moves_of(3))
    assert figure is not None
    assert [look.meaning for look in legend_of([Section("a", "A", "", (figure,))])] == [
        "broker 0 as leader",
        "broker 1 as leader",
    ]


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


@pytest.mark.parametrize("span", [1000, 3333, 90_000, 3_600_000, 86_400_000, 40 * 86_400_000, 9 * 366 * 86_400_000])
def test_an_axis_has_a_few_round_times_in_order(span: int) -> None:
    ticks = ticks_of(NOON + 17, NOON + 17 + span)
    assert 2 <= len(ticks) <= 8
    assert [tick.x for tick in ticks] == sorted(tick.x for tick in ticks)
    assert all(2 <= tick.x <= 96 for tick in ticks)
    assert ticks[0].day
    assert len({tick.x for tick in ticks}) == len(ticks)
