"""Directories that we write, opened by Apache Kafka: controllers start on them, a broker follows, quorums form."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest

from metadata_log.disk import OsDisk
from metadata_log.log.log import MetadataLog
from metadata_log.log.log_dir import format_directory, parse_meta_properties
from metadata_log.log.quorum_state_file import StoredElection, write_quorum_state
from metadata_log.log.retention import Retention, clean, remove_files
from metadata_log.log.snapshot import list_snapshots, read_snapshot, read_snapshot_start, snapshot_name
from metadata_log.log.snapshot_writer import SnapshotWriter
from metadata_log.records.batch import RecordBatch, scan
from metadata_log.records.batch_builder import rebuild_batch
from metadata_log.records.frame import decode_record, encode_record
from metadata_log.records.record import records
from support.interop.dumps import read_by_kafka
from support.interop.our_nodes import told
from support.interop.real_kafka import (
    QUIET,
    QUORUM_TOOL,
    KafkaInstallation,
    Process,
    QuorumLayout,
    eventually,
    free_ports,
    kafka_controller,
    running,
)
from support.real_data import archive, unpack

pytestmark = pytest.mark.kafka

NODE = "nodes/c1"
PARTITION = "__cluster_metadata-0"
SMALL_SEGMENTS = 40_000
BROKER = 150
TERMINATED = 143
"""The exit code of a Java process that was asked to end, and did."""
TOKENS = "delegation.token.secret.key=secret"
"""There are delegation tokens in the real log, which Kafka cannot load without."""
SLOW = "org.apache.kafka.controller.EventPerformanceMonitor"
COMPLAINT = re.compile(rf" ERROR (?!(?:kafka\.server\.ControllerApis|{re.escape(SLOW)}) )|(?i:corrupt|found invalid)")
"""Not those about requests that come while a leader takes over, as with Kafka alone, or about a busy machine."""
DIRECTORY_IDS = ("pg3mKBxfeN4_YYsakj8Duw", "N2hHLurexGMow8wSI56ecQ", "ICEA-N8BNcY39fsq3ypKUA")


def rewritten(batch: RecordBatch) -> bytes:
    """The batch again from its records, data records taken apart into their fields and put together from those."""
    found = list(records(batch))
    if not batch.is_control:
        for record in found:
            frame = decode_record(record.value or b"")
            assert frame.record is not None
            assert encode_record(frame.record, frame.version) == record.value
    return rebuild_batch(batch, found)


def write_node(layout: QuorumLayout, node: int, real: Path) -> None:
    """Write the log and the snapshots of a real node anew, without what a small retention would have let go of."""
    disk = OsDisk()
    rng = Random(node)
    path = layout.log_dir(node)
    format_directory(disk, str(path), node_id=node, cluster_id=layout.cluster_id, rng=rng, now_ms=0, release="4.3")
    partition = str(layout.partition(node))
    log = MetadataLog.open(disk, partition, segment_bytes=SMALL_SEGMENTS, index_interval_bytes=1000)
    for segment in sorted(real.glob("*.log")):
        for batch in scan(segment.read_bytes()):
            log.append(rewritten(batch))
    log.flush()
    for snapshot in list_snapshots(disk, str(real)):
        source = str(real / snapshot_name(snapshot))
        first, *data, last = read_snapshot(disk, source)
        time = read_snapshot_start(disk, source).header.last_contained_log_timestamp
        writer = SnapshotWriter(
            disk, partition, snapshot, timestamp_ms=first.base_timestamp, last_contained_log_timestamp=time
        )
        for batch in data:
            writer.append([record.value or b"" for record in records(batch)], batch.base_timestamp)
        writer.freeze(last.base_timestamp)
    oldest_kept = list_snapshots(disk, str(real))[-2]
    now = read_snapshot_start(disk, str(real / snapshot_name(oldest_kept))).header.last_contained_log_timestamp
    cleaned = clean(log, disk, Retention(max_ms=0), now)
    assert cleaned.snapshots
    remove_files(disk, partition, cleaned.files)
    assert log.start_offset == oldest_kept.offset
    last_epoch = log.last_epoch
    assert last_epoch is not None
    log.close()
    write_quorum_state(disk, partition, StoredElection(leader_epoch=last_epoch, leader_id=-1, current_voters=(1, 2, 3)))


@pytest.fixture
def layout(tmp_path: Path) -> QuorumLayout:
    meta = parse_meta_properties(archive("static3")[f"{NODE}/meta.properties"])
    return QuorumLayout(tmp_path, meta.cluster_id, dict(zip((1, 2, 3), free_ports(3), strict=True)), (*QUIET, TOKENS))


def broker_properties(layout: QuorumLayout, *, quorum: str) -> Path:
    """The configuration of a broker beside the controllers."""
    [port] = free_ports(1)
    path = layout.root / "broker.properties"
    lines = [
        "process.roles=broker",
        f"node.id={BROKER}",
        f"log.dirs={layout.root / 'broker'}",
        "controller.listener.names=CONTROLLER",
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        f"listeners=PLAINTEXT://127.0.0.1:{port}",
        TOKENS,
        quorum,
    ]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def test_controllers_start_and_a_broker_follows(kafka: KafkaInstallation, layout: QuorumLayout) -> None:
    """On logs that begin late, with many segments and snapshots, all ours: nothing is lost, the broker gets it all."""
    real = unpack("static3", f"{NODE}/{PARTITION}", layout.root / "real")
    for node in layout.ports:
        write_node(layout, node, real)
    written = {node: content(layout.partition(node)) for node in layout.ports}
    ends = {node: len(each) for node, each in written.items()}
    assert len(set(ends.values())) == 1
    properties = broker_properties(layout, quorum=f"controller.quorum.voters={layout.voters}")
    told("format", "-c", str(properties), "-t", layout.cluster_id)
    with running(layout, kafka_controller(kafka, layout), name="kafka") as controllers, ExitStack() as stack:
        status = describe_when(kafka, layout, r"HighWatermark:\s+\d+")
        assert int(re.findall(r"HighWatermark:\s+(\d+)", status)[0]) >= max(written[1])
        broker = Process(kafka.command("kafka.Kafka", str(properties), log="info"), layout.root / "broker.log")
        stack.callback(broker.kill)
        broker.wait_for("Transition from STARTING to STARTED")
        assert broker.stop(timeout=180) == TERMINATED
        for process in controllers.processes.values():
            complaints = [line for line in process.text.splitlines() if COMPLAINT.search(line)]
            assert not complaints, complaints
        assert set(controllers.stop().values()) == {TERMINATED}
    for node in layout.ports:
        assert layout_begins(layout.partition(node), written[node]), f"node {node} changed what was there"
    followed = layout.root / "broker" / PARTITION
    snapshots = list_snapshots(OsDisk(), str(followed))
    newest = list_snapshots(OsDisk(), str(layout.partition(1)))[-1]
    assert newest in snapshots
    assert (followed / snapshot_name(newest)).read_bytes() == (layout.partition(1) / snapshot_name(newest)).read_bytes()
    theirs = content(followed)
    ours = written[1]
    assert theirs
    shared = [offset for offset in theirs if offset in ours]
    assert max(shared) == max(ours)
    assert all(theirs[offset] == ours[offset] for offset in shared)
    read_by_kafka(kafka, *sorted(followed.glob("*.log")))


def content(partition: Path) -> dict[int, bytes]:
    """The batches of a log by base offset."""
    return {
        batch.base_offset: batch.data for path in sorted(partition.glob("*.log")) for batch in scan(path.read_bytes())
    }


def layout_begins(partition: Path, written: dict[int, bytes]) -> bool:
    """Whether the log still holds what was written, byte for byte."""
    found = content(partition)
    return all(found.get(offset) == data for offset, data in written.items())


def test_a_quorum_of_three_initial_controllers(kafka: KafkaInstallation, tmp_path: Path) -> None:
    """Each node formatted with the same list: they elect a leader, with the features asked for."""
    ports = dict(zip((1, 2, 3), free_ports(3), strict=True))
    layout = QuorumLayout(tmp_path, "MkU3OEVBNTcwNTJENDM2Qg", ports, QUIET)
    configs = {node: dynamic_properties(layout, node) for node in ports}
    voters = ",".join(
        f"{node}@127.0.0.1:{port}:{directory_id}"
        for (node, port), directory_id in zip(ports.items(), DIRECTORY_IDS, strict=True)
    )
    for config in configs.values():
        words = ("--initial-controllers", voters, "--release-version", "4.1", "--feature", "group.version=0")
        told("format", "-c", str(config), "-t", layout.cluster_id, *words)
    with running(layout, dynamic_controller(kafka, configs), name="kafka"):
        described = describe_when(kafka, layout, r"LeaderId:\s+[123]")
        for directory_id in DIRECTORY_IDS:
            assert f'"directoryId": "{directory_id}"' in described
        where = ("--bootstrap-controller", layout.bootstrap)
        features = kafka.tool("org.apache.kafka.tools.FeatureCommand", *where, "describe")
        levels = dict(re.findall(r"Feature: (\S+)\s.*FinalizedVersionLevel: (\S+)", features))
        assert levels["metadata.version"] == "4.1-IV1"
        assert levels["kraft.version"] == "1"
        assert levels["group.version"] == "0"


def dynamic_properties(layout: QuorumLayout, node: int) -> Path:
    """The configuration of a controller in a dynamic quorum."""
    path = layout.properties(node)
    lines = [line for line in path.read_text().splitlines() if not line.startswith("controller.quorum.voters=")]
    path = layout.root / f"dynamic{node}.properties"
    path.write_text("\n".join([*lines, f"controller.quorum.bootstrap.servers={layout.bootstrap}", ""]))
    return path


def dynamic_controller(kafka: KafkaInstallation, configs: dict[int, Path]) -> Callable[[int], list[str]]:
    return lambda node: kafka.command("kafka.Kafka", str(configs[node]), log="info")


def describe_when(kafka: KafkaInstallation, layout: QuorumLayout, pattern: str) -> str:
    """The status of the quorum, once it matches."""
    where = ("--bootstrap-controller", f"127.0.0.1:{layout.ports[1]}")
    last = ""

    def matches() -> bool:
        nonlocal last
        last = kafka.run(QUORUM_TOOL, *where, "describe", "--status").stdout
        return re.search(pattern, last) is not None

    eventually(matches, f"the status says {pattern}")
    return last
