"""Samples become rows: rates, elections, lags, the order of rows; and figures come out of a scraped text."""

from __future__ import annotations

import json
import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.operate.top.model import Model, Sort, View, facts
from kraft.operate.top.samples import Election, Fsyncs, NodeFigures, Sample, figures_of
from top_samples import HEALTHY, METADATA, NOW_MS, SILENT, quorum, replica, sample


def view_of(*samples: Sample, sort: Sort = Sort.ID) -> View:
    model = Model()
    for one in samples:
        model.take(one)
    view = model.view(sort)
    assert view is not None
    return view


def test_the_commit_rate_is_that_of_the_last_two_answers_of_a_leader() -> None:
    assert view_of(sample()).records_per_s is None
    later = quorum(*HEALTHY.replicas, high_watermark=5_313 + 30)
    assert view_of(sample(), sample(2.0, later)).records_per_s == 15.0
    assert view_of(sample(), sample(1.0, SILENT)).records_per_s is None
    assert view_of(sample(), sample(1.0, SILENT), sample(3.0, later)).records_per_s == 10.0


def test_elections_before_the_start_are_not_counted_and_the_log_knows_their_time() -> None:
    old = Election(epoch=13, leader_id=1, at_ms=NOW_MS - 9_000, offset=1)
    assert view_of(sample(elections=(old,))).elections == ()
    moved = quorum(*HEALTHY.replicas, leader=2, epoch=15)
    answered = view_of(sample(), sample(1.0, moved)).elections
    assert answered == (Election(epoch=15, leader_id=2, at_ms=NOW_MS + 1_000),)
    between = Election(epoch=14, leader_id=3, at_ms=NOW_MS + 200, offset=5_400)
    exact = Election(epoch=15, leader_id=2, at_ms=NOW_MS + 700, offset=5_401)
    both = view_of(sample(), sample(1.0, moved), sample(2.0, moved, elections=(old, between, exact))).elections
    assert both == (between, exact)


def test_without_a_leader_the_last_known_facts_stay() -> None:
    view = view_of(sample(), sample(1.0, SILENT), sample(5.5, SILENT, metadata_at_ms=NOW_MS))
    assert (view.leader_id, view.last_leader_id, view.epoch, view.voters) == (None, 1, 14, 3)
    assert view.without_leader_ms == 5_500
    assert (view.metadata, view.metadata_age_ms) == (METADATA, 5_500)
    assert [one.broker.id for one in view.brokers] == [101, 102]
    assert (view.replicas, [one.id for one in view.answers]) == ((), [1, 2, None])
    assert view_of(sample(0, SILENT), sample(2.0, SILENT)).without_leader_ms == 2_000


def test_lags_and_ages_are_measured_at_the_leaders_clock() -> None:
    """The clock of this host is seconds apart from the leader's."""
    found = view_of(
        sample(-40.0, quorum(replica(1, ago_ms=0), replica(2, behind=7, ago_ms=900), replica(3, ago_ms=-1)))
    )
    leader, behind, silent = found.replicas
    assert (leader.role, leader.lag, leader.fetched_ms) == ("leader", 0, None)
    assert (behind.lag, behind.fetched_ms, behind.caught_up_ms, behind.epoch) == (7, 900, 900, 13)
    assert (silent.lag, silent.fetched_ms, silent.end_offset, silent.epoch) == (None, None, None, None)


def test_brokers_take_the_facts_of_their_replica_and_leave_the_list_of_replicas() -> None:
    view = view_of(sample())
    assert [one.id for one in view.replicas] == [1, 2, 3]
    assert [(one.broker.id, one.lag, one.fetched_ms) for one in view.brokers] == [(101, 0, 300), (102, None, None)]
    unread = view_of(sample(metadata=None))
    assert [one.id for one in unread.replicas] == [1, 2, 3, 101]


def test_figures_belong_to_the_node_that_names_itself() -> None:
    figures = NodeFigures(address="h:1", node_id=2, epoch=12, fsync_s=0.0015, longest_turn_s=0.02)
    rows = view_of(sample(figures=(figures, NodeFigures(address="h:2", problem="no")))).replicas
    assert [(one.fsync_ms, one.turn_ms, one.epoch) for one in rows] == [
        (None, None, 13),
        (1.5, 20.0, 12),
        (None, None, 13),
    ]


TEXT = """\
# TYPE kraft_fsync_seconds histogram
kraft_fsync_seconds_bucket{file="log",le="+Inf"} %d
kraft_fsync_seconds_count{file="log"} %d
kraft_fsync_seconds_sum{file="log"} %f
kraft_fsync_seconds_count{file="quorum-state"} 99
kraft_fsync_seconds_sum{file="quorum-state"} 99.0
# TYPE kraft_fsync_oldest_seconds gauge
kraft_fsync_oldest_seconds %f
# TYPE kraft_node_info gauge
kraft_node_info{node_id="2"} 1.0
# TYPE kafka_server_raft_metrics_current_epoch gauge
kafka_server_raft_metrics_current_epoch 7.0
# TYPE kraft_event_loop_longest_turn_seconds gauge
kraft_event_loop_longest_turn_seconds 0.25
# TYPE kraft_no_leader_reason_info gauge
kraft_no_leader_reason_info{reason="leader-silent"} 1.0
"""


def test_fsyncs_are_those_of_the_log_since_the_scrape_before() -> None:
    first, seen = figures_of("h:1", TEXT % (4, 4, 0.2, 0.0), None)
    assert first == NodeFigures(
        address="h:1", node_id=2, epoch=7, fsync_s=0.05, longest_turn_s=0.25, no_leader_reason="leader-silent"
    )
    assert seen == Fsyncs(4, 0.2)
    assert figures_of("h:1", TEXT % (6, 6, 0.22, 0.0), seen)[0].fsync_s == pytest.approx(0.01)
    assert figures_of("h:1", TEXT % (4, 4, 0.2, 0.0), seen)[0].fsync_s == pytest.approx(0.05), "no fsync since"
    assert figures_of("h:1", TEXT % (1, 1, 0.3, 0.0), seen)[0].fsync_s == pytest.approx(0.3), (
        "the node has started again"
    )
    assert figures_of("h:1", TEXT % (6, 6, 0.22, 12.5), seen)[0].fsync_s == 12.5, "one does not return"


def test_a_listener_of_other_software_is_named_as_such() -> None:
    figures, _ = figures_of("h:1", "# TYPE up gauge\nup 1.0\n", None)
    assert figures.problem is not None
    assert "kraft_node_info is absent" in figures.problem
    with pytest.raises(ValueError, match="not in the text format of Prometheus"):
        figures_of("h:1", "{", None)


@pytest.mark.parametrize("value", ["+Inf", "-Inf", "NaN", "1e300", "-1", "9" * 400])
def test_a_listener_may_claim_any_number(value: str) -> None:
    """The answer `+Inf` for an epoch ended the screen."""
    text = re.sub(r" [0-9.]+$", f" {value}", TEXT % (4, 4, 0.2, 0.0), flags=re.MULTILINE)
    text = text.replace('kraft_node_info{node_id="2"} ' + value, 'kraft_node_info{node_id="2"} 1.0')
    figures, seen = figures_of("h:1", text, Fsyncs(2, 0.1))
    assert (figures.node_id, figures.problem, seen) == (2, None, Fsyncs())
    assert (figures.epoch, figures.fsync_s, figures.longest_turn_s) == (None, None, None)
    shown = view_of(sample(figures=(figures,)))
    assert shown.replicas[1].epoch == 13
    json.dumps(facts(shown), allow_nan=False)


@given(st.text(alphabet='{}"=,#\\n ab1.+eInfN\t\\\\', max_size=60))
def test_no_text_of_a_listener_is_anything_but_figures_or_a_problem(text: str) -> None:
    with suppress(ValueError):
        figures_of("h:1", text, None)


def test_the_json_object_has_every_row() -> None:
    found = facts(view_of(sample()))
    assert [one["id"] for one in found["replicas"]] == [1, 2, 3]
    assert [one["state"] for one in found["brokers"]] == ["active", "fenced"]
    assert found["partitions"]["leaderless"] == 1
    assert [one["trouble"] for one in found["partitions"]["troubled"]] == ["no leader", "below min ISR"]
    silent = facts(view_of(sample(0, SILENT, metadata=None)))
    assert (silent["leaderId"], silent["brokers"], silent["partitions"]) == (None, None, None)
    assert [one["failure"] for one in silent["answers"]] == ["Connection refused", None, None]
