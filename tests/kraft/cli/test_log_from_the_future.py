"""A log with records that a later release writes: readers say which and go on, a node ends and says what to run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import run

from metadata_log.disk import OsDisk
from metadata_log.errors import UnsupportedVersion
from metadata_log.image import MetadataDelta, MetadataImage
from metadata_log.log.log import MetadataLog
from metadata_log.reading.replay_log import replay_batch
from metadata_log.records.batch import scan
from metadata_log.records.batch_builder import build_batch
from metadata_log.records.frame import encode_record
from metadata_log.records.metadata import ConfigRecord, FeatureLevelRecord

BEYOND = b"\x01\x63\x00" + b"what it says"
"""A record of type 99 in version 0."""


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """Level 99 is finalised at offset 1, unknown records are at 2 and 3, and a known one comes behind them."""
    directory = tmp_path / "__cluster_metadata-0"
    directory.mkdir()
    values = [
        encode_record(FeatureLevelRecord(name="metadata.version", feature_level=30), 0),
        encode_record(FeatureLevelRecord(name="metadata.version", feature_level=99), 0),
        BEYOND,
        BEYOND,
        encode_record(ConfigRecord(resource_type=4, resource_name="", name="a", value="b"), 0),
    ]
    log = MetadataLog.open(OsDisk(), str(directory), segment_bytes=1 << 20)
    data = build_batch(0, 1, 1_700_000_000_000, values)
    log.append(data, list(scan(data)))
    log.flush()
    log.close()
    return directory


SAID = (
    "a record of type 99 in version 0 is not known, nor what it changes: "
    "metadata.version 99 brought it, and this software knows 7 to 33"
)


def test_replay_goes_on_and_names_offset_and_level(capsys: pytest.CaptureFixture[str], partition: Path) -> None:
    done = run(capsys, "replay", str(partition), "--json")
    found = json.loads(done.out)
    assert (done.code, found["offset"]) == (1, 4)
    assert [one["damage"] for one in found["damage"]] == [SAID]
    assert [one["offset"] for one in found["damage"]] == [2]
    assert len(found["configs"]) == 1, "the known record behind them is there"
    strict = run(capsys, "replay", str(partition), "--on-damage", "strict")
    assert (strict.code, strict.out, "type 99" in strict.err) == (1, "", True), strict.err


def test_history_goes_on_too(capsys: pytest.CaptureFixture[str], partition: Path) -> None:
    done = run(capsys, "history", str(partition))
    assert (done.code, done.err.count(SAID)) == (1, 1)
    assert "broker <default>: a = (redacted)" in done.out


def test_dump_keeps_the_bytes(capsys: pytest.CaptureFixture[str], partition: Path) -> None:
    done = run(capsys, "dump", "--records", str(partition))
    assert (done.code, done.out.count(BEYOND[3:].hex())) == (0, 2), done.out


def test_doctor_says_the_same(capsys: pytest.CaptureFixture[str], partition: Path) -> None:
    done = run(capsys, "doctor", "--offline", str(partition.parent))
    assert done.out.count(f"found: {SAID.capitalize()} (offset 2, 3)\n") == 1, done.out


def test_a_client_that_reads_the_leaders_log_says_the_same(partition: Path) -> None:
    delta = MetadataDelta(MetadataImage())
    [batch] = scan((partition / f"{0:020d}.log").read_bytes())
    with pytest.raises(UnsupportedVersion) as caught:
        replay_batch(delta, batch, where="the leader")
    assert caught.value.what == f"{SAID} (offset 2)"
    assert caught.value.hint == "The cluster runs a newer release than this command knows."
