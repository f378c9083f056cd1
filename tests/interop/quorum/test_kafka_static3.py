"""A real cluster of Apache Kafka goes on under our controllers, and then under its own again."""

from __future__ import annotations

from pathlib import Path

import pytest

from metadata_log.records.batch import scan
from support.interop.dumps import logs_of, read_by_kafka, read_by_us
from support.interop.our_nodes import our_controller, told
from support.interop.real_kafka import (
    QUORUM_TOOL,
    KafkaInstallation,
    QuorumLayout,
    eventually,
    free_ports,
    kafka_controller,
    running,
)
from support.real_data import archive, unpack
from support.wire import leader_of, set_client_metrics
from transport.protocol.errors import Error

pytestmark = pytest.mark.kafka

NODES = (1, 2, 3)
OWN_LINES = ("process.roles", "node.id", "log.dirs", "controller.", "listener", "metadata.log.max.snapshot")


def unpacked(root: Path) -> QuorumLayout:
    """Copies of the three controllers' directories, with their settings, on ports of our own."""
    for node in NODES:
        unpack("static3", f"nodes/c{node}", root / f"c{node}")
    meta = archive("static3")["nodes/c1/meta.properties"].decode()
    cluster_id = next(line.partition("=")[2] for line in meta.splitlines() if line.startswith("cluster.id="))
    settings = archive("static3")["nodes/c1/node.properties"].decode().splitlines()
    kept = tuple(line for line in settings if line and not line.startswith(OWN_LINES))
    extra = (*kept, "controller.quorum.append.linger.ms=0", "metadata.log.max.snapshot.interval.ms=2000")
    return QuorumLayout(root, cluster_id, dict(zip(NODES, free_ports(3), strict=True)), extra)


def batches_in(partition: Path) -> dict[int, bytes]:
    """Every batch of a node's log by its first offset."""
    return {
        batch.base_offset: bytes(batch.data)
        for file in sorted(partition.glob("*.log"))
        for batch in scan(file.read_bytes())
    }


def held_by_majority(layout: QuorumLayout) -> dict[int, bytes]:
    """The batches that two of the three hold, byte for byte."""
    logs = [batches_in(layout.partition(node)) for node in NODES]
    return {
        offset: data
        for log in logs
        for offset, data in log.items()
        if sum(other.get(offset) == data for other in logs) >= 2
    }


def assert_kept(layout: QuorumLayout, held: dict[int, bytes]) -> None:
    """Every node still has, from the start of its log, what a majority held."""
    for node in NODES:
        log = batches_in(layout.partition(node))
        changed = [offset for offset, data in held.items() if offset >= min(log) and log.get(offset) != data]
        assert not changed, f"node {node}: batches at {changed[:5]} are lost or changed"


def epoch_of(layout: QuorumLayout) -> int:
    status = told("quorum", "status", "--bootstrap-controller", layout.bootstrap)
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("LeaderEpoch:")))


def write(layout: QuorumLayout, leader: int, name: str, count: int) -> None:
    for number in range(count):
        assert set_client_metrics(layout.ports[leader], name, metrics=f"value-{number}") is Error.NONE


def value_of(files: list[Path], name: str) -> list[str]:
    """The values of a client-metrics resource in these files, in order."""
    found = []
    for records in read_by_us(*files).values():
        found += [each.content["value"] for each in records if each.content.get("resourceName") == name]
    return found


def test_logs_of_kafkas_quorum_continue_under_our_nodes_and_under_kafkas_again(
    kafka: KafkaInstallation, tmp_path: Path
) -> None:
    """Elect in a higher epoch, keep what a majority held, commit more; then Kafka does the same with ours."""
    layout = unpacked(tmp_path)
    held = held_by_majority(layout)
    assert len(held) > 90
    epochs = {batch.epoch for data in held.values() for batch in scan(data)}
    where = ("--bootstrap-controller", layout.bootstrap)

    with running(layout, our_controller(layout), name="ours") as nodes:
        leader = leader_of(layout)
        write(layout, leader, "ours", 20)
        our_epoch = epoch_of(layout)
        assert our_epoch > max(epochs)
        status = kafka.tool(QUORUM_TOOL, *where, "describe", "--status")
        assert f"ClusterId:              {layout.cluster_id}\n" in status
        assert f"LeaderId:               {leader}\n" in status
        assert f"LeaderEpoch:            {our_epoch}\n" in status
        assert set(nodes.stop().values()) == {0}
    assert_kept(layout, held)
    logs = logs_of(layout.partition(node) for node in NODES)
    assert read_by_kafka(kafka, *logs) == read_by_us(*logs)
    held |= held_by_majority(layout)

    with running(layout, kafka_controller(kafka, layout), name="kafka") as nodes:
        leader = leader_of(layout)
        assert epoch_of(layout) > our_epoch
        # Its controller has replayed our record: what it knows already it does not write again.
        assert set_client_metrics(layout.ports[leader], "ours", metrics="value-19") is Error.NONE
        write(layout, leader, "theirs", 5)
        known = set(tmp_path.glob("c*/__cluster_metadata-0/*.checkpoint"))

        def new_snapshots() -> list[Path]:
            return sorted(set(layout.partition(leader).glob("*.checkpoint")) - known)

        eventually(lambda: bool(new_snapshots()), "Kafka writes a snapshot")
        assert value_of(new_snapshots()[:1], "ours") == ["value-19"]
        nodes.stop()
    assert_kept(layout, held)
    for node in NODES:
        assert value_of(logs_of([layout.partition(node)]), "ours") == [f"value-{number}" for number in range(20)]
        assert value_of(logs_of([layout.partition(node)]), "theirs") == [f"value-{number}" for number in range(5)]
