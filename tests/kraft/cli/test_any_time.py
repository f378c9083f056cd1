"""Each command takes the times that a record may have, which is each int64; a real log held some of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft.cli.cluster.record_lines import formatter, json_line, record_of_json
from kraft.client import ConsumedRecord
from metadata_log.log.segment import file_name
from metadata_log.records.batch_builder import build_batch
from metadata_log.records.frame import encode_record
from metadata_log.records.metadata import FeatureLevelRecord, PartitionChangeRecord, PartitionRecord, TopicRecord
from metadata_log.types import Uuid
from support.kraft.command_line import Done, run

TIMES = (-(2**63), -62_135_596_800_001, -1, 0, 1_795_387_491_636, 253_402_300_799_999, 253_402_300_800_000, 2**63 - 1)
TOPIC = Uuid.parse("abcdefghijklmnopqrstug")


@pytest.fixture(params=TIMES)
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A metadata log with a topic: its leader was lost at the time, and is back."""
    at: int = request.param
    values = (
        FeatureLevelRecord(name="metadata.version", feature_level=30),
        TopicRecord(name="orders", topic_id=TOPIC),
        PartitionRecord(
            partition_id=0, topic_id=TOPIC, replicas=(1, 2), isr=(1, 2), leader=1, directories=(TOPIC, TOPIC)
        ),
    )
    lost = PartitionChangeRecord(partition_id=0, topic_id=TOPIC, leader=-1)
    back = PartitionChangeRecord(partition_id=0, topic_id=TOPIC, leader=2)
    batches = [
        build_batch(0, 1, 1_795_387_491_636, [encode_record(one, 2 if one is values[2] else 0) for one in values]),
        build_batch(3, 1, at, [encode_record(lost, 2)]),
        build_batch(4, 2, at, [encode_record(back, 2)]),
        build_batch(5, 2, at, [encode_record(values[0], 0)]),
    ]
    partition = tmp_path / "log" / "__cluster_metadata-0"
    partition.mkdir(parents=True)
    (partition / file_name(0)).write_bytes(b"".join(batches))
    (partition.parent / "meta.properties").write_text("version=1\ncluster.id=4L6g3nShT-eMCtK--X86sw\nnode.id=1\n")
    return partition.parent


def test_commands_take_the_times_of_a_log(capsys: pytest.CaptureFixture[str], directory: Path, tmp_path: Path) -> None:
    archive, page = str(tmp_path / "archive"), tmp_path / "page.html"
    assert sound(run(capsys, "dump", "--records", str(directory))).count("PartitionChangeRecord") == 2
    assert sound(run(capsys, "dump", "--records", "--json", str(directory)))
    assert sound(run(capsys, "dump", "--verify", str(directory / "__cluster_metadata-0" / file_name(0))))
    for words in ((), ("--json",), ("--elections",), ("--gaps",), ("--unavailable",), ("--topic", "orders")):
        sound(run(capsys, "history", str(directory), *words))
    sound(run(capsys, "history", "--html", str(page), str(directory)))
    assert "orders" in page.read_text()
    sound(run(capsys, "history", "--parquet", str(tmp_path / "rows"), str(directory)))
    assert "6 records" in sound(run(capsys, "archive", "--from", str(directory), "--to", archive, "--verify"))
    assert "orders" in sound(run(capsys, "replay", str(directory)))


def sound(done: Done) -> str:
    """The output of a command that took the files as they are."""
    assert "Error" not in done.err
    assert done.code == 0, done.err
    return done.out


@pytest.mark.parametrize("timestamp_ms", TIMES)
def test_a_copy_of_records_as_json_keeps_their_times(timestamp_ms: int) -> None:
    line = json_line("orders", ConsumedRecord(0, 0, timestamp_ms, False, b"k", b"v", (), 0))
    copied = record_of_json(line, key=None, headers=(), partition=None)
    assert copied.timestamp_ms == timestamp_ms
    assert formatter("{timestamp}")("orders", ConsumedRecord(0, 0, timestamp_ms, False, None, None, (), 0))
