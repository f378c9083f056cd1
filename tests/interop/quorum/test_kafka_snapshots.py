"""Snapshots between the makes: Apache Kafka's controllers take ours, and ours take Kafka's (KIP-630)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from metadata_log import replay
from metadata_log.disk import OsDisk
from metadata_log.image import MetadataDelta, MetadataImage
from metadata_log.image.diff import differences
from metadata_log.image.records import records as image_records
from metadata_log.log.snapshot import list_snapshots, read_snapshot
from metadata_log.log.snapshot_writer import SnapshotWriter
from metadata_log.reading.damage import DamagedFile
from metadata_log.records.frame import decode_record, encode_record
from metadata_log.records.record import records
from metadata_log.types import OffsetAndEpoch
from support.interop.dumps import read_by_kafka, read_by_us
from support.interop.kafka_or_skip import found_or_skipped
from support.interop.one_controller import single
from support.interop.our_nodes import our_controller, our_format
from support.interop.real_kafka import (
    KafkaInstallation,
    QuorumLayout,
    eventually,
    kafka_controller,
    kafka_format,
    layout_in,
    running,
)
from support.kafka_jars import KAFKA_VERSION, OLDER_VERSION
from support.real_data import unpack
from support.wire import active_controller, leader_of, set_client_metrics
from transport.protocol.errors import Error

pytestmark = pytest.mark.kafka

SNAPSHOTS = (
    "controller.quorum.append.linger.ms=0",
    "metadata.log.max.record.bytes.between.snapshots=4000",
    "controller.quorum.fetch.snapshot.max.bytes=2000",
)


def write(layout: QuorumLayout, first: int, count: int) -> None:
    """Write that many configs at the active controller."""

    def is_written(name: str) -> bool:
        leader = active_controller(layout.ports[1])
        return leader in layout.ports and set_client_metrics(layout.ports[leader], name, metrics="m") is Error.NONE

    for number in range(first, first + count):
        eventually(lambda number=number: is_written(f"name-{number}"), f"name-{number} is written")


def snapshots_of(layout: QuorumLayout, node: int) -> list[Path]:
    return sorted(layout.partition(node).glob("*.checkpoint"))


def has_written(layout: QuorumLayout, node: int, number: int) -> bool:
    """Whether this config is in a node's directory.

    A node that installs a snapshot has it for a moment before the log begins after it: the log is damaged then.
    """
    try:
        image = replay(str(layout.log_dir(node)))
    except DamagedFile:
        return False
    return any(name == f"name-{number}" for _, name in image.configs.by_resource)


@pytest.mark.parametrize(
    ("of_kafka", "version", "release"),
    [
        pytest.param((3,), KAFKA_VERSION, None, id="kafka-takes-ours"),
        pytest.param((1, 2), KAFKA_VERSION, None, id="ours-takes-kafkas", marks=pytest.mark.soak),
        pytest.param((3,), OLDER_VERSION, "3.9-IV0", id="older-takes-ours", marks=pytest.mark.soak),
        pytest.param((1, 2), OLDER_VERSION, "3.9-IV0", id="ours-takes-older", marks=pytest.mark.soak),
    ],
)
def test_an_empty_node_fetches_the_snapshot_of_a_leader_of_the_other_make(
    kafka: KafkaInstallation, tmp_path: Path, of_kafka: tuple[int, ...], version: str, release: str | None
) -> None:
    """Node 3 loses its disk while nodes 1 and 2, of the other make, go on; one of them leads, as they have the log."""
    layout = layout_in(tmp_path, SNAPSHOTS)
    our_format(layout, release=release)
    ours, theirs = our_controller(layout), kafka_controller(found_or_skipped(version), layout)
    with running(layout, lambda node: (theirs if node in of_kafka else ours)(node), name="mixed") as nodes:
        leader_of(layout)
        write(layout, 0, 10)
        nodes.processes[3].kill()
        eventually(lambda: active_controller(layout.ports[1]) in (1, 2), "node 1 or 2 leads")
        write(layout, 10, 120)
        eventually(lambda: all(snapshots_of(layout, node) for node in (1, 2)), "there are snapshots")
        shutil.rmtree(layout.log_dir(3))
        our_format(layout, 3, release=release)
        nodes.start(3)
        eventually(lambda: bool(snapshots_of(layout, 3)), "node 3 has a snapshot")
        eventually(lambda: has_written(layout, 3, 129), "node 3 has everything")
        write(layout, 130, 5)
        eventually(lambda: has_written(layout, 3, 134), "node 3 follows")
        nodes.stop()
    taken = snapshots_of(layout, 3)[0]
    senders = [path for node in (1, 2) for path in snapshots_of(layout, node) if path.name == taken.name]
    assert senders
    assert taken.read_bytes() in [path.read_bytes() for path in senders]
    assert not list(layout.partition(3).glob("*.part"))
    assert list_snapshots(OsDisk(), str(layout.partition(3)))[0].offset > 0
    images = {node: replay(str(layout.log_dir(node))) for node in layout.ports}
    ends = {image.end.offset for image in images.values()}
    shown = {node: replay(str(layout.log_dir(node)), at=min(ends) - 1) for node in layout.ports}
    assert list(differences(shown[1], shown[3])) == []
    files = [path for node in layout.ports for path in snapshots_of(layout, node)]
    assert read_by_kafka(kafka, *files) == read_by_us(*files)


def image_in(path: Path) -> MetadataImage:
    """The image in a snapshot file."""
    delta = MetadataDelta(MetadataImage(), is_snapshot=True)
    for batch in read_snapshot(OsDisk(), str(path)):
        if not batch.is_control:
            for record in records(batch):
                found = decode_record(record.value or b"").record
                assert found is not None
                delta.replay(found, record.offset)
    return delta.apply(OffsetAndEpoch(epoch=0, offset=0))


@pytest.mark.parametrize(
    ("archive", "prefix"),
    [
        pytest.param("static3", "", id="static3"),
        pytest.param("clusters", "failover", id="failover", marks=pytest.mark.soak),
        pytest.param("clusters", "old39", id="old39", marks=pytest.mark.soak),
    ],
)
def test_kafka_loads_our_snapshot_of_a_real_cluster_and_writes_the_same_one(
    kafka: KafkaInstallation, tmp_path: Path, archive: str, prefix: str
) -> None:
    """All that one of Kafka's controllers has at its start is a snapshot that we made of another cluster's log."""
    layout = single(tmp_path / "kafka", "metadata.log.max.record.bytes.between.snapshots=1")
    kafka_format(kafka, layout)
    image = replay(str(unpack(archive, f"{prefix}/nodes/c1".lstrip("/"), tmp_path / "old")))
    partition = layout.partition(1)
    partition.mkdir()
    writer = SnapshotWriter(
        OsDisk(), str(partition), image.end, timestamp_ms=0, last_contained_log_timestamp=1_700_000_000_000
    )
    for record, version in image_records(image):
        writer.append((encode_record(record, version),), 0)
    writer.freeze(0)
    (ours,) = snapshots_of(layout, 1)
    with running(layout, kafka_controller(kafka, layout), name="kafka"):
        eventually(lambda: active_controller(layout.ports[1]) == 1, "it is active")
        eventually(lambda: len(snapshots_of(layout, 1)) > 1, "it makes a snapshot")
        theirs = snapshots_of(layout, 1)[1]
        found = differences(image_in(ours), image_in(theirs))
        assert [one for one in found if one.kind != "controllers"] == []
        assert len(image.topics) > 5
