"""The metrics listener of served controllers, over HTTP: names, values, probes, and the loss of leader and majority."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from published_queries import DEFAULT_DIALECT, STRIMZI_DIALECT
from scraped_metrics import Scrape, Scraped, get, lacking, three_controllers
from shipped_queries import unanswered
from support.controller_processes import IDS
from support.eventually import eventually

STATE = "kafka_server_raft_metrics_current_state_info"
EPOCH = "kafka_server_raft_metrics_current_epoch"
SEEN = "kafka_controller_kafkacontroller_newactivecontrollerscount"


def has_seen_more(controllers: Scraped, node_id: int, leaders: float) -> bool:
    """Whether a node has seen another active controller: it may be ready before it misses the former one."""
    return controllers.scrape(node_id).value(SEEN) > leaders


def leader_of(controllers: Scraped, *node_ids: int) -> int:
    """The id of the only node that calls itself the leader."""
    (leader,) = [one for one in node_ids if controllers.scrape(one).has(STATE, state="leader")]
    return leader


def test_controllers_serve_kafkas_metrics_and_their_probes_follow_the_quorum(tmp_path: Path) -> None:
    with three_controllers(tmp_path) as controllers:
        for node_id in IDS:
            eventually(partial(controllers.is_ready, node_id), f"{node_id} is ready")
        leader = leader_of(controllers, *IDS)
        followers = [node_id for node_id in IDS if node_id != leader]
        scrapes = [controllers.scrape(node_id) for node_id in IDS]
        assert [query for query in DEFAULT_DIALECT if lacking(query, scrapes)] == []
        in_strimzi = [controllers.scrape(node_id, "?dialect=strimzi-jmx") for node_id in IDS]
        assert [query for query in STRIMZI_DIALECT if lacking(query, in_strimzi)] == []
        assert unanswered(scrapes) == []
        both = controllers.scrape(leader, "?dialect=jmx-exporter,strimzi-jmx")
        assert both.has("kafka_server_raftmetrics_high_watermark")
        assert both.has("kafka_server_raft_metrics_high_watermark")
        check_roles(controllers.scrape(leader), [controllers.scrape(one) for one in followers], leader)
        check_requests(controllers.metrics[leader])

        # The leader dies, and one of the other two leads.
        before = {one: controllers.scrape(one) for one in followers}
        assert controllers.active(*IDS) == 1
        controllers.kill(leader)
        eventually(lambda: controllers.active(*followers) == 1, "one of two controllers is active")
        for one in followers:
            eventually(partial(controllers.is_ready, one), f"{one} is ready again")
            eventually(partial(has_seen_more, controllers, one, before[one].value(SEEN)), f"{one} knows the new leader")
            after = controllers.scrape(one)
            # An election can take more than one epoch, and a machine under load can need a second leader.
            epochs = after.value(EPOCH) - before[one].value(EPOCH)
            assert 1 <= after.value(SEEN) - before[one].value(SEEN) <= epochs

        # The new leader dies, too: the last one has no quorum, and is alive.
        second = leader_of(controllers, *followers)
        (last,) = [one for one in followers if one != second]
        controllers.kill(second)
        eventually(lambda: not controllers.is_ready(last), "the last controller is not ready")
        wedged = controllers.get(last, "/readyz").json
        failing = {check["name"]: check for check in wedged["checks"] if not check["ok"]}
        assert "contact" in failing, wedged
        assert controllers.get(last, "/livez").status == 200
        assert controllers.get(last, "/startupz").status == 200
        assert controllers.get(last, "/readyz?exclude=quorum").status == 200
        scrape = controllers.scrape(last)
        assert scrape.value("kraft_has_quorum") == 0
        assert scrape.value("kraft_ready") == 0
        reasons = ("no-majority-reachable", "leader-silent", "electing")
        assert any(scrape.has("kraft_no_leader_reason_info", reason=one) for one in reasons), scrape.text
        eventually(
            lambda: controllers.scrape(last).has("kraft_no_leader_reason_info", reason="no-majority-reachable"),
            "the reason is that no majority answers",
        )
        assert controllers.active(last) == 0

        # One of the dead comes back.
        controllers.start(leader)
        for one in (last, leader):
            eventually(partial(controllers.is_ready, one), f"{one} is ready")
        assert controllers.active(last, leader) == 1
        assert not controllers.scrape(last).has("kraft_no_leader_reason_info")


def check_roles(of_leader: Scrape, of_followers: list[Scrape], leader: int) -> None:
    """Presence and values by role, as Kafka 4.3.1 shows them."""
    only_on_leader = (
        "kafka_server_raft_metrics_number_of_observers",
        "kafka_server_raft_metrics_uncommitted_voter_change",
        "kraft_voter_lag_records",
        "kraft_voter_last_fetch_age_seconds",
    )
    for name in only_on_leader:
        assert of_leader.has(name), name
        assert not any(one.has(name) for one in of_followers), name
    assert of_leader.value("kafka_server_raft_metrics_current_vote") == leader
    assert of_leader.value("kafka_server_raft_metrics_commit_latency_max") >= 0
    assert len(of_leader.all("kraft_voter_lag_records")) == 3
    assert of_leader.value("kraft_voter_lag_records", voter=str(leader)) == 0
    for one in (of_leader, *of_followers):
        assert one.value("kafka_server_raft_metrics_current_leader") == leader
        assert one.value("kafka_server_metadataloader_currentcontrollerid") == leader
        assert one.value("kafka_server_raft_metrics_number_of_voters") == 3
        assert one.value("kafka_server_metadataloader_finalizedlevel", featureName="metadataVersion") == 30
        assert one.value("kafka_server_node_metrics_maximum_supported_level", feature_name="metadata-version") == 33
        assert one.value("kraft_has_quorum") == 1
        assert one.value("kraft_ready") == 1
        assert one.value("kraft_metrics_dropped_series") == 0
        assert 0 <= one.value("kraft_leader_contact_age_seconds") < 5
        assert one.value("kraft_fsync_seconds_count", file="log") > 0
        assert one.value("kraft_fsync_seconds_count", file="quorum-state") > 0
        end = one.value("kafka_server_raft_metrics_log_end_offset")
        high_watermark = one.value("kafka_server_raft_metrics_high_watermark")
        assert 0 < high_watermark <= end
        assert one.value("kafka_controller_kafkacontroller_lastcommittedrecordoffset") == high_watermark - 1
        assert one.value("kafka_controller_kafkacontroller_lastappliedrecordlagms") >= 0
        assert one.value("kafka_server_raft_channel_metrics_outgoing_byte_total") > 0
    for one in of_followers:
        assert one.has(STATE, state="follower", current_state="follower")
        assert one.value("kafka_server_raft_metrics_commit_latency_avg") != one.value(
            "kafka_server_raft_metrics_commit_latency_avg"
        ), "NaN on a follower"


def check_requests(port: int) -> None:
    """The answers to requests that are not those of probes and scrapers."""
    assert get(port, "/").status == 404
    assert get(port, "/metrics?dialect=none").status == 400
    assert get(port, "/readyz?exclude=disk").status == 400
    assert get(port, "/metrics", method="POST").status == 405
    head = get(port, "/metrics", method="HEAD")
    assert (head.status, head.body) == (200, "")


@pytest.mark.parametrize(
    ("query", "missing"),
    [
        ("sum(kafka_a) by (pod) > 0", []),
        ("sum(kafka_b) by (pod) > 0", ["kafka_b"]),
        ('kafka_a{state="leader"}', []),
        ('kafka_a{state="dead"}', ['kafka_a{state="dead"}']),
        ("max(kafka_a) by (colour)", ["by (colour)"]),
        ("1 + 1", ["no selector in 1 + 1"]),
    ],
)
def test_queries_without_series_are_found(query: str, missing: list[str]) -> None:
    scrape = Scrape('# TYPE kafka_a gauge\nkafka_a{state="leader"} 1\n')
    assert lacking(query, [scrape]) == missing
