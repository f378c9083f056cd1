"""The tools of Apache Kafka, pointed at our quorum, say what they would say of their own."""

from __future__ import annotations

import re

import pytest

from metadata_log.records.metadata import ConfigRecord
from support.interop.dumps import logs_of, read_by_kafka, read_by_us, records_named
from support.interop.our_nodes import our_controller, our_format, told
from support.interop.real_kafka import (
    CLUSTER_TOOL,
    CONFIG_TOOL,
    QUORUM_TOOL,
    KafkaInstallation,
    Nodes,
    eventually,
    layout_in,
    running,
)
from support.wire import active_controller, leader_of, set_client_metrics
from transport.protocol.errors import Error

pytestmark = pytest.mark.kafka


@pytest.fixture(params=["ours", "theirs"])
def quorum(request: pytest.FixtureRequest) -> Nodes:
    nodes = request.getfixturevalue(request.param)
    assert isinstance(nodes, Nodes)
    leader = leader_of(nodes.layout)
    assert set_client_metrics(nodes.layout.ports[leader], "before", metrics="first") is Error.NONE
    return nodes


def masked(text: str, *names: str) -> str:
    """Without what moves by itself: the values of these lines."""
    for name in names:
        text = re.sub(rf"(?m)^({name}:\s+)\d+", r"\1…", text)
    return text.strip()


def without_times(table: str) -> list[list[str]]:
    """The cells of a replication table, times left out, which column widths depend on."""
    rows = [[cell.strip() for cell in line.split("\t")] for line in table.strip().splitlines()]
    assert rows[0][4:6] == ["LastFetchTimestamp", "LastCaughtUpTimestamp"]
    assert all(re.fullmatch(r"\d{13}", row[column]) for row in rows[1:] for column in (4, 5))
    return [row[:4] + row[6:] for row in rows]


def test_quorum_status_equals_kafka_metadata_quorums(kafka: KafkaInstallation, quorum: Nodes) -> None:
    """`kraft quorum status` prints the same as kafka-metadata-quorum, to the last blank."""
    where = ("--bootstrap-controller", quorum.layout.bootstrap)
    kafkas = kafka.tool(QUORUM_TOOL, *where, "describe", "--status")
    mine = told("quorum", "status", *where)
    assert masked(mine, "MaxFollowerLagTimeMs") == masked(kafkas, "MaxFollowerLagTimeMs")
    assert f"LeaderId:               {leader_of(quorum.layout)}\n" in kafkas


@pytest.mark.each_release
def test_quorum_replication_equals_kafka_metadata_quorums(kafka: KafkaInstallation, quorum: Nodes) -> None:
    where = ("--bootstrap-controller", quorum.layout.bootstrap)
    kafkas = without_times(kafka.tool(QUORUM_TOOL, *where, "describe", "--replication"))
    mine = without_times(told("quorum", "replication", *where))
    assert mine == kafkas
    assert {row[0] for row in kafkas[1:]} == {"1", "2", "3"}
    assert {row[3] for row in kafkas[1:]} == {"0"}


@pytest.mark.each_release
def test_kafkas_admin_client_writes(kafka: KafkaInstallation, quorum: Nodes) -> None:
    """ConfigCommand finds the active controller through any of them, and what it sets is in every log."""
    layout = quorum.layout
    where = ("--bootstrap-controller", layout.bootstrap)
    what = ("--entity-type", "client-metrics", "--entity-name", "slow")
    told_by_kafka = kafka.tool(
        CONFIG_TOOL, *where, "--alter", *what, "--add-config", "interval.ms=4000,metrics=[org.a,org.b]"
    )
    assert "Completed updating config for client-metric slow" in told_by_kafka
    assert layout.cluster_id in kafka.tool(CLUSTER_TOOL, "cluster-id", *where)
    refused = kafka.run(CONFIG_TOOL, *where, "--alter", *what, "--add-config", "interval.ms=-5")
    assert refused.returncode != 0
    assert "InvalidConfigurationException" in refused.stderr or "InvalidRequestException" in refused.stderr

    def settings_in(node: int) -> dict[str, str | None]:
        found = [each.record for each in records_named("ConfigRecord", layout.partition(node))]
        configs = [each for each in found if isinstance(each, ConfigRecord)]
        assert configs == found
        return {each.name: each.value for each in configs if each.resource_name == "slow"}

    for node in layout.ports:
        eventually(lambda node=node: bool(settings_in(node)), f"the change reaches node {node}")
        assert settings_in(node) == {"interval.ms": "4000", "metrics": "org.a,org.b"}


def test_kafkas_dump_tool_reads_every_node(kafka: KafkaInstallation, tmp_path_factory: pytest.TempPathFactory) -> None:
    """While the nodes write, after a failover and after the end: no complaint, and the records that our dump shows."""
    layout = layout_in(tmp_path_factory.mktemp("dump"), extra=("controller.quorum.append.linger.ms=0",))
    our_format(layout)
    partitions = [layout.partition(node) for node in layout.ports]
    with running(layout, our_controller(layout), name="ours") as nodes:
        first = leader_of(layout)
        for turn in range(20):
            assert set_client_metrics(layout.ports[first], f"resource-{turn}", metrics=f"value-{turn}") is Error.NONE
        during = read_by_kafka(kafka, *logs_of(partitions))
        nodes.processes[first].kill()
        survivor = next(node for node in layout.ports if node != first)
        eventually(lambda: active_controller(layout.ports[survivor]) not in (-1, first), "a new leader")
        nodes.start(first)
        second = leader_of(layout)
        assert set_client_metrics(layout.ports[second], "resource-0", metrics="changed") is Error.NONE
        eventually(lambda: bool(records_named("NoOpRecord", layout.partition(second))), "a leader without work writes")
        assert set(nodes.stop().values()) == {0}
    after = read_by_kafka(kafka, *(file for each in partitions for file in sorted(each.glob("0*"))))
    logs = logs_of(partitions)
    assert read_by_us(*logs) == {file: after[file] for file in logs}
    for file, records in during.items():
        assert after[file][: len(records) - 1] == records[:-1], "what a reader saw while it was written has changed"
    names = {record.name for records in after.values() for record in records}
    assert {"LeaderChangeMessage", "ConfigRecord", "NoOpRecord", "FeatureLevelRecord"} <= names
