"""Archives and Apache Kafka: taken from its running controllers, read by its own dump tool and by our readers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from metadata_log.archive import open_archive, open_source, verify_archive
from metadata_log.disk import OsDisk
from metadata_log.reading.reader import read_log
from metadata_log.records.batch import RecordBatch
from support.interop.dumps import read_by_kafka, read_by_us
from support.interop.our_nodes import told, told_json_lines
from support.interop.real_kafka import (
    KafkaInstallation,
    Nodes,
    eventually,
    kafka_controller,
    kafka_format,
    layout_in,
    running,
)
from support.real_data import unpack
from support.wire import leader_of


@pytest.fixture
def busy(kafka: KafkaInstallation, tmp_path: Path) -> Iterator[Nodes]:
    """Controllers of Kafka that write a NoOp every half second."""
    layout = layout_in(tmp_path, ())
    kafka_format(kafka, layout)
    with running(layout, kafka_controller(kafka, layout), name="busy") as nodes:
        nodes.wait_until_listening()
        yield nodes


@pytest.mark.kafka
def test_logs_of_a_running_quorum_are_archived_and_read_by_kafka(
    kafka: KafkaInstallation, busy: Nodes, tmp_path: Path
) -> None:
    """The controllers go on while their logs are archived, and Kafka reads the archive."""
    disk, to = OsDisk(), tmp_path / "kept"
    partitions = [busy.layout.partition(node) for node in (1, 2, 3)]
    # A first leader may be deposed before any follower has its first record, which the archive then sets aside.
    eventually(
        lambda: bool(first_batch(partitions[0])) and len(set(map(first_batch, partitions))) == 1, "one beginning"
    )
    archive = open_archive(disk, str(to))
    sources = [open_source(disk, str(busy.layout.log_dir(node))) for node in (1, 2, 3)]
    first = [archive.add(source, now_ms=0) for source in sources]
    grown = max(added.end_offset for added in first) + 4
    eventually(lambda: max(archive.add(source, now_ms=0).end_offset for source in sources) > grown, "the log grows")
    archive.close()
    found = verify_archive(disk, str(to))
    assert (found.damages, found.start_offset, found.superseded) == ((), 0, ())
    files = sorted([*to.glob("*.log"), *to.glob("*.checkpoint")])
    assert read_by_kafka(kafka, *files) == read_by_us(*files)
    assert busy.layout.log_dir(1).joinpath("meta.properties").read_bytes() == (to / "meta.properties").read_bytes()
    check_followed(busy, tmp_path)


def check_followed(busy: Nodes, folder: Path) -> None:
    """The same over the network: the archive and the watched lines equal the leader's log."""
    live = str(folder / "live")
    where = ("--bootstrap-controller", busy.layout.bootstrap)
    for _ in range(2):
        told("archive", "--from", busy.layout.bootstrap, "--to", live, "--for", "0", "--verify")
    partition = busy.layout.partition(leader_of(busy.layout))
    kept = logged(Path(live))
    assert kept
    assert kept == logged(partition)[: len(kept)]
    lines = told_json_lines("watch", *where, "--since", "beginning", "--noop", "--count", "12")
    assert lines == dumped(partition)[:12]
    check_top(busy)


def check_top(busy: Nodes) -> None:
    """One screen of `kraft top` on Kafka's controllers: the quorum from its leader, the rest from the log."""
    (found,) = told_json_lines("top", "--bootstrap-controller", busy.layout.bootstrap, "--json")
    roles = {one["id"]: one["role"] for one in found["replicas"]}
    assert roles == {one: "leader" if one == found["leaderId"] else "follower" for one in (1, 2, 3)}
    followers = [one for one in found["replicas"] if one["role"] == "follower"]
    assert all(one["lastFetchMsAgo"] is not None and one["epoch"] == found["leaderEpoch"] for one in followers)
    assert (found["voters"], found["brokers"], found["metadataNote"]) == (3, [], None)
    assert found["partitions"]["offset"] > 0
    assert found["highWatermark"] > 0


def logged(partition: Path) -> bytes:
    """The bytes of all batches in a directory, whole segments or not."""
    return b"".join(item.data for item in read_log(OsDisk(), str(partition)) if isinstance(item, RecordBatch))


def first_batch(partition: Path) -> bytes:
    """The batch that a log begins with; nothing while it is empty."""
    items = read_log(OsDisk(), str(partition))
    return next((item.data for item in items if isinstance(item, RecordBatch)), b"")


def dumped(partition: Path) -> list[dict[str, object]]:
    """The records of a log as `kraft dump` prints them, without their places."""
    found = told_json_lines("dump", "--records", "--json", "--noop", *map(str, sorted(partition.glob("*.log"))))
    return [{key: value for key, value in line.items() if key not in {"file", "position"}} for line in found]


@pytest.mark.kafka
def test_kafka_reads_an_archive(kafka: KafkaInstallation, tmp_path: Path) -> None:
    """Segments and checkpoints of three controllers, merged: not a word of complaint."""
    to = merged(tmp_path)
    files = sorted([*to.glob("*.log"), *to.glob("*.checkpoint")])
    assert len(files) == 16
    assert read_by_kafka(kafka, *files) == read_by_us(*files)


def merged(folder: Path) -> Path:
    nodes = unpack("static3", "nodes", folder / "nodes")
    archive = open_archive(OsDisk(), str(folder / "kept"))
    for node in ("c1", "c2", "c3"):
        archive.add(open_source(OsDisk(), str(nodes / node)), now_ms=0)
    archive.close()
    return folder / "kept"
