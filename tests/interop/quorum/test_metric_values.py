"""One quorum of both makes at rest: our `/metrics` and the MBeans of Apache Kafka have the same values.

Each row of the table of Kafka's metrics is in one of the sets below. `docs/howto/metrics-and-health.md` lists what
differs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from agent_processes import AGENTS, agents_running
from kraft.metrics import kafka as rows
from kraft.metrics.names import Mbean
from support.interop.kafka_tools import KafkaTools
from support.interop.mbeans import CONTROLLER_METRICS, Key, same, values_of_kafka, values_of_ours
from support.interop.mixed_quorum import MixedQuorum
from support.interop.our_nodes import our_format, told
from support.interop.real_kafka import QUIET, KafkaInstallation, eventually, free_ports, layout_in
from support.kafka_jars import OLDER_VERSION

pytestmark = pytest.mark.kafka

SCRAPE_SECONDS: Final = 15
"""Prometheus scrapes once in this time by default."""
SETTLED_SECONDS: Final = 60
STEADY: Final = "controller.quorum.fetch.timeout.ms=30000"
"""No pause of a busy machine ends a leadership: Kafka's leader resigns after one and a half of these times."""
PATIENT: Final = ("controller.quorum.election.timeout.ms=30000",)
"""Our voters do not begin an election, so that the node of Kafka's leads first."""
SESSION: Final = "broker.session.timeout.ms=3000"

OF_THE_CLUSTER: Final = frozenset(
    {
        rows.CURRENT_LEADER,
        rows.CURRENT_EPOCH,
        rows.HIGH_WATERMARK,
        rows.LOG_END_OFFSET,
        rows.LOG_END_EPOCH,
        rows.NUMBER_OF_VOTERS,
        rows.UNKNOWN_VOTER_CONNECTIONS,
        rows.ACTIVE_BROKERS,
        rows.FENCED_BROKERS,
        rows.STOPPING_BROKERS,
        rows.BROKER_STATE,
        rows.TOPICS,
        rows.PARTITIONS,
        rows.OFFLINE_PARTITIONS,
        rows.IMBALANCED_PARTITIONS,
        rows.APPLIED_OFFSET,
        rows.COMMITTED_OFFSET,
        rows.APPLIED_TIMESTAMP,
        rows.METADATA_ERRORS,
        rows.IGNORED_STATIC_VOTERS,
        rows.METADATA_VERSION_LEVEL,
        rows.CURRENT_CONTROLLER,
        rows.FINALIZED_LEVEL,
        rows.LOG_START,
        rows.LOG_END,
        rows.LOG_SIZE,
        rows.SNAPSHOTS_LOADED,
        rows.SUPPORTED_MIN,
        rows.SUPPORTED_MAX,
    }
)
"""The same value on every node, whatever its make and its role."""
OF_THE_ROLE: Final = frozenset({rows.CURRENT_STATE, rows.ACTIVE_CONTROLLER_COUNT, rows.UNCOMMITTED_VOTER_CHANGE})
"""The same value on every node of one role; absent in the same roles."""
OF_THE_MOMENT: Final = frozenset(
    {
        rows.CURRENT_VOTE,
        rows.CURRENT_VOTE_DIRECTORY_ID,
        rows.NUMBER_OF_OBSERVERS,
        rows.COMMIT_LATENCY_AVG,
        rows.COMMIT_LATENCY_MAX,
        rows.ELECTION_LATENCY_AVG,
        rows.ELECTION_LATENCY_MAX,
        rows.APPEND_RECORDS_RATE,
        rows.FETCH_RECORDS_RATE,
        rows.POLL_IDLE_RATIO,
        rows.CHANNEL_CONNECTIONS,
        rows.CHANNEL_CREATED,
        rows.CHANNEL_REQUESTS,
        rows.CHANNEL_RESPONSES,
        rows.CHANNEL_OUT,
        rows.CHANNEL_IN,
        rows.CHANNEL_REFUSED,
        rows.SOCKET_SUCCEEDED,
        rows.SOCKET_REFUSED,
        rows.SOCKET_CONNECTIONS,
        rows.SOCKET_CREATED,
        rows.SOCKET_CLOSED,
        rows.NEW_ACTIVE_CONTROLLERS,
        rows.SINCE_HEARTBEAT,
        rows.UNCLEAN_ELECTIONS,
        rows.ELR_ELECTIONS,
        rows.APPLIED_LAG,
        rows.OPERATIONS,
        rows.QUEUE_TIME,
        rows.PROCESSING_TIME,
        rows.CONTROLLER_IDLE,
        rows.FLUSH_TIME,
        rows.ACCEPT_RATE,
        rows.ACCEPT_RATE_OF_ALL,
        rows.ACCEPT_WAIT,
        rows.ADDRESS_WAIT,
    }
)
"""What one process has seen or done. Only the existence in a role is compared, and some values on their own."""
OF_A_SNAPSHOT: Final = frozenset({rows.SNAPSHOT_BYTES, rows.SNAPSHOT_AGE})
"""Before its first snapshot Kafka has size 0 and the age of the process here, and we have none."""
OF_REQUEST_TIMES: Final = frozenset({rows.EXEMPT_TIME})
"""A controller of ours does not bound the time of requests (decision 0137); Kafka's has the metric from the start."""
OF_THE_RELEASE: Final = frozenset(
    Key(rows.SUPPORTED_MAX.type, rows.SUPPORTED_MAX.name, (("feature_name", feature),))
    for feature in ("metadata-version", "share-version")
)
"""What 4.4, whose levels we support, has more than 4.3.1."""
OF_KAFKA: Final = 3


def of(values: Mapping[Key, str], metrics: frozenset[Mbean]) -> dict[Key, str]:
    """The values of these rows."""
    wanted = {(one.type, one.name) for one in metrics}
    return {key: value for key, value in values.items() if (key.type, key.name) in wanted}


def differences(one: Mapping[Key, str], other: Mapping[Key, str]) -> dict[Key, tuple[str | None, str | None]]:
    """The metrics that differ, with both values; None for an absent one."""
    pairs = {key: (one.get(key), other.get(key)) for key in one.keys() | other.keys()}
    return {
        key: pair for key, pair in pairs.items() if pair[0] is None or pair[1] is None or not same(pair[0], pair[1])
    }


class Scraper:
    """Reads all nodes of a quorum."""

    def __init__(self, nodes: MixedQuorum, tools: KafkaTools) -> None:
        self._nodes = nodes
        self._tools = tools

    def values(self) -> dict[int, dict[Key, str]]:
        """The values by node."""
        return {node: self._of_node(node) for node in self._nodes.processes}

    def _of_node(self, node: int) -> dict[Key, str]:
        port = self._nodes.monitors[node]
        return values_of_kafka(self._tools, port) if self._nodes.makes[node] == "kafka" else values_of_ours(port)

    def agreed(self, wanted: frozenset[Mbean]) -> dict[int, dict[Key, str]]:
        """The values by node, once the wanted rows are the same on all; fails after a minute."""
        deadline = time.monotonic() + SETTLED_SECONDS
        while True:
            found = self.values()
            first, *others = (of(values, wanted) for values in found.values())
            unlike = {
                key: pair
                for other in others
                for key, pair in differences(first, other).items()
                if key not in OF_THE_RELEASE
            }
            if not unlike:
                return found
            assert time.monotonic() < deadline, f"still different after {SETTLED_SECONDS} s: {unlike}"


def fill(nodes: MixedQuorum) -> None:
    """Topics with replicas on both brokers, and topics with one replica."""
    told("topics", "create", "orders", "--partitions", "6", "--replication-factor", "2", *nodes.where)
    told("topics", "create", "single", "--partitions", "8", "--replication-factor", "1", *nodes.where)


def test_every_row_of_the_table_is_in_one_set() -> None:
    sets = (OF_THE_CLUSTER, OF_THE_ROLE, OF_THE_MOMENT, OF_A_SNAPSHOT)
    assert sorted(one.name for group in sets for one in group) == sorted(one.name for one in CONTROLLER_METRICS)


@pytest.mark.each_release
@pytest.mark.skipif(os.environ.get("KAFKA_RELEASE") == OLDER_VERSION, reason="Kafka 3.9 has fewer metrics")
def test_metrics_equal_the_mbeans_of_kafka_when_each_make_leads(turn_kafka: KafkaInstallation, tmp_path: Path) -> None:
    kafka = turn_kafka
    layout = layout_in(tmp_path, (*QUIET, SESSION, STEADY))
    our_format(layout)
    monitors = dict(zip(layout.ports, free_ports(len(layout.ports)), strict=True))
    nodes = MixedQuorum(
        kafka, layout, {1: "ours", 2: "ours", 3: "kafka"}, monitors=monitors, settings=dict.fromkeys((1, 2), PATIENT)
    )
    try:
        nodes.start()
        nodes.wait_until_listening()
        assert nodes.leader() == OF_KAFKA
        with KafkaTools(kafka) as tools, agents_running(layout) as agents:
            scraper = Scraper(nodes, tools)
            eventually(lambda: active_brokers(nodes) == len(AGENTS), "the brokers are registered", 120)
            fill(nodes)
            agents.processes[AGENTS[1]].kill()
            eventually(lambda: active_brokers(nodes) == 1, "the dead broker is fenced", 120)
            under_kafka = scraper.agreed(OF_THE_CLUSTER - {rows.APPLIED_TIMESTAMP})
            check_time_of_a_kafka_leader(under_kafka)
            check_observers(nodes, under_kafka[OF_KAFKA])

            nodes.end(OF_KAFKA, "stop")
            nodes.start(OF_KAFKA)
            nodes.wait_until_listening()
            leader = nodes.leader()
            assert nodes.makes[leader] == "ours"
            under_ours = scraper.agreed(OF_THE_CLUSTER - {rows.BROKER_STATE})
            check_states_after_a_restart_of_kafka(under_ours)
            check_observers(nodes, under_ours[leader])
        nodes.end_all()
    finally:
        nodes.kill()
    (follower,) = {1, 2} - {leader}
    for ours, theirs in ((under_ours[leader], under_kafka[OF_KAFKA]), (under_ours[follower], under_ours[OF_KAFKA])):
        print(f"{len(of(ours, OF_THE_CLUSTER))} values of the cluster and {len(of(ours, OF_THE_ROLE))} of the role")
        assert differences(of(ours, OF_THE_ROLE), of(theirs, OF_THE_ROLE)) == {}
        assert names(theirs) - names(ours) == {(one.type, one.name) for one in OF_A_SNAPSHOT | OF_REQUEST_TIMES}
        assert names(ours) - names(theirs) <= {(rows.BROKER_STATE.type, rows.BROKER_STATE.name)}
    assert value(under_ours[leader], rows.CURRENT_VOTE) == leader
    assert value(under_kafka[OF_KAFKA], rows.CURRENT_VOTE) == OF_KAFKA
    check_that_the_cluster_was_no_empty_one(under_ours[leader])


def value(values: Mapping[Key, str], metric: Mbean) -> float:
    """The value of a row without tags."""
    return float(values[Key(metric.type, metric.name)])


def names(values: Mapping[Key, str]) -> set[tuple[str, str]]:
    """The rows that a node has."""
    return {(key.type, key.name) for key in values}


def check_time_of_a_kafka_leader(values: Mapping[int, Mapping[Key, str]]) -> None:
    """An active controller of Kafka's shows the time at which it gave the record to its log, not that of the batch."""
    shown = {node: value(found, rows.APPLIED_TIMESTAMP) for node, found in values.items()}
    assert shown[1] == shown[2]
    assert abs(shown[OF_KAFKA] - shown[1]) < SCRAPE_SECONDS * 1000


def check_states_after_a_restart_of_kafka(values: Mapping[int, Mapping[Key, str]]) -> None:
    """A controller of Kafka's that has loaded its metadata at the start has no states of brokers until they change."""
    states = frozenset({rows.BROKER_STATE})
    assert len(of(values[1], states)) == len(AGENTS)
    assert differences(of(values[1], states), of(values[2], states)) == {}
    assert of(values[OF_KAFKA], states) == {}


def check_observers(nodes: MixedQuorum, leader: Mapping[Key, str]) -> None:
    """The leader counts the observers that it describes."""
    assert value(leader, rows.NUMBER_OF_OBSERVERS) == len(nodes.quorum().observers) > 0


def check_that_the_cluster_was_no_empty_one(leader: Mapping[Key, str]) -> None:
    """The compared counts are others than zero."""
    for metric in (rows.FENCED_BROKERS, rows.ACTIVE_BROKERS, rows.OFFLINE_PARTITIONS, rows.IMBALANCED_PARTITIONS):
        assert value(leader, metric) > 0, metric.name
    assert (value(leader, rows.TOPICS), value(leader, rows.PARTITIONS)) == (2, 14)


def active_brokers(nodes: MixedQuorum) -> float:
    """The number of brokers that are not fenced, as node 1 of ours says."""
    return value(values_of_ours(nodes.monitors[1]), rows.ACTIVE_BROKERS)
