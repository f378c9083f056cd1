"""Archives and Apache Kafka: taken from its running controllers, read by its own dump tool and by our readers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from dumps import read_by_kafka, read_by_us
from real_data import unpack
from real_kafka import (
    KafkaInstallation,
    Nodes,
    eventually,
    kafka_controller,
    kafka_format,
    layout_in,
    running,
)

import metadata_log
from kraft.archive import open_archive, open_source, verify_archive
from metadata_log.arrow import read_records, read_view
from metadata_log.disk import OsDisk
from metadata_log.history import VIEWS, rows
from metadata_log.image.diff import differences
from metadata_log.timeline import read_timeline

TOLD = ("leader_history", "broker_history", "config_history", "quorum_epochs")


@pytest.fixture
def busy(kafka: KafkaInstallation, tmp_path: Path) -> Iterator[Nodes]:
    """Controllers of Kafka that write a NoOp every half second."""
    layout = layout_in(tmp_path, ())
    kafka_format(kafka, layout)
    with running(layout, kafka_controller(kafka, layout), name="busy") as nodes:
        nodes.wait_until_listening()
        yield nodes


@pytest.mark.kafka
def test_a_running_quorum(kafka: KafkaInstallation, busy: Nodes, tmp_path: Path) -> None:
    """Its controllers go on while their logs are kept, and Kafka reads what was kept."""
    disk, to = OsDisk(), tmp_path / "kept"
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


def test_every_reader_of_ours_reads_an_archive(tmp_path: Path) -> None:
    """Image, histories and Arrow are those of the controller with the longest log, as far as that goes back."""
    kept, node = merged(tmp_path), tmp_path / "nodes" / "c3"
    image = metadata_log.replay(str(kept))
    assert list(differences(image, metadata_log.replay(str(node)))) == []
    at = 3000
    of_first = metadata_log.replay(str(tmp_path / "nodes" / "c1"), at=at)
    assert list(differences(metadata_log.replay(str(kept), at=at), of_first)) == []
    told = [
        list(rows(read_timeline(OsDisk(), str(path)), TOLD, cluster="c")) for path in (kept, tmp_path / "nodes" / "c1")
    ]
    ends = {view: VIEWS[view].names.index("valid_to_offset") for view in TOLD}
    early = [[(view, row) for view, row in each if (row[ends[view]] or at) < at] for each in told]
    assert early[0]
    assert sorted(early[0], key=repr) == sorted(early[1], key=repr)
    assert pa.Table.from_batches(read_records(str(kept))).num_rows == 5319
    partitions = sum(len(image.topics[name].partitions) for name in image.topics)
    assert pa.Table.from_batches(read_view(str(kept), "partitions_state")).num_rows == partitions
