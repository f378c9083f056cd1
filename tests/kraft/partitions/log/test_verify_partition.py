"""`kraft dump --verify` compares the files of a partition with one another, and those of log directories."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kraft.cli.main import main
from kraft.partitions.log.log_directory import LogDirectory
from kraft.partitions.log.partition_log import PartitionLog
from kraft.partitions.log.verify_partition import verify_partition
from metadata_log.disk import OsDisk
from metadata_log.log.epochs import TOPIC_REMEDY
from metadata_log.log.partition_names import PartitionName
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.batch_builder import write_batch
from metadata_log.records.record import Record
from support.broker.broker_logs import KILLED, LIVE, NODES, NOW_MS, files_below, options_of, partition_directories, put
from support.kraft.command_line import run
from support.real_data import unpack

DAMAGED = "recovery/clean-before"


def damage_of(files: dict[str, bytes], name: str = "d") -> list[str]:
    """The damage of a partition, each as a text."""
    disk = MemoryDisk()
    put(disk, name, files)
    return [str(damage) for each in verify_partition(disk, name) for damage in each.verdict.damages]


@pytest.mark.parametrize("node", [*(f"{LIVE}/{name}" for name in NODES), *KILLED])
def test_each_partition_that_kafka_wrote_is_sound(node: str) -> None:
    checked = 0
    for name in partition_directories(node):
        assert damage_of(files_below(f"{node}/{name}"), name) == [], name
        checked += 1
    assert checked > 0


def test_damage_that_kafka_was_given_is_found() -> None:
    found = {name for name in partition_directories(DAMAGED) if damage_of(files_below(f"{DAMAGED}/{name}"))}
    for kind in ("bad-snapshot", "crc-active", "crc-old", "garbage-tail", "index-ahead", "short-index", "torn"):
        assert f"clean-{kind}-0" in found
    assert damage_of(files_below(f"{DAMAGED}/clean-zero-tail-0")) == [
        "no batch has a length of 0 (d/00000000000000000100.log, byte 908)"
    ]


SAMPLE = "nodes/b101/alerts-txn-0"
UNCHECKED = {"partition.metadata"}
"""A changed topic id is the id of another topic: only the metadata log can tell."""


def header_fields_without_check(log: bytes) -> set[int]:
    """The bytes of base offsets: of a batch that moves up, nothing else in the directory need know."""
    free, at = set[int](), 0
    while at < len(log):
        free |= set(range(at, at + 8))
        at += 12 + int.from_bytes(log[at + 8 : at + 12], "big")
    return free


@pytest.mark.parametrize("name", sorted(set(files_below(SAMPLE)) - UNCHECKED))
def test_each_flipped_byte_is_found(name: str) -> None:
    files = files_below(SAMPLE)
    content = files[name]
    free = header_fields_without_check(content) if name.endswith(".log") else set()
    step = max(1, len(content) // 300)
    missed = []
    for at in range(0, len(content), step):
        if at in free:
            continue
        changed = bytearray(content)
        changed[at] ^= 0x11
        if not damage_of(files | {name: bytes(changed)}):
            missed.append(at)
    assert missed == []


def test_a_segment_that_begins_inside_the_one_before_is_found() -> None:
    files = files_below(SAMPLE)
    files["00000000000000000003.log"] = b""
    assert any("the segment before ends at offset" in text for text in damage_of(files))


def test_an_index_without_its_segment_is_found() -> None:
    files = files_below(SAMPLE)
    files["00000000000000000099.index"] = b""
    assert damage_of(files) == ["the segment of this index is missing (d/00000000000000000099.index)"]


def on_disk(path: str, target: Path) -> Path:
    """A partition directory of the archive, on disk."""
    directory = target / path.rpartition("/")[2]
    directory.mkdir(parents=True)
    for name, content in files_below(path).items():
        (directory / name).write_bytes(content)
    return directory


def test_the_command_prints_a_verdict_for_each_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    directory = on_disk(SAMPLE, tmp_path)
    done = run(capsys, "dump", "--verify", str(directory))
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert len(lines) == len(list(directory.iterdir()))
    assert any(": segment: ok, " in line and "records, offsets 0.." in line for line in lines)
    assert f"{directory}/leader-epoch-checkpoint: leader-epoch-checkpoint: ok" in lines


def test_all_partitions_of_a_log_directory_are_checked(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    sound = on_disk(SAMPLE, tmp_path / "data")
    damaged = on_disk(f"{DAMAGED}/clean-crc-old-0", tmp_path / "data")
    (tmp_path / "data" / "meta.properties").write_text(
        "version=1\ncluster.id=xy_rFBaKSfms5tkOJnLvRw\nnode.id=101\ndirectory.id=R7f2QzrDQQyOMMMpS4Psmw\n"
    )
    done = run(capsys, "dump", "--verify", "--json", str(tmp_path / "data"))
    assert done.code == 1
    verdicts = [each for each in map(json.loads, done.out.splitlines()) if "ok" in each]
    by_directory = {sound.name: set[bool](), damaged.name: set[bool]()}
    for each in verdicts:
        directory = os.path.basename(os.path.dirname(each["file"]))
        if directory in by_directory:
            by_directory[directory].add(each["ok"])
    assert by_directory == {sound.name: {True}, damaged.name: {True, False}}


def test_one_file_of_a_partition_is_checked_with_its_neighbours(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    directory = on_disk(f"{DAMAGED}/clean-index-ahead-0", tmp_path)
    sound = run(capsys, "dump", "--verify", str(directory / "00000000000000000000.log"))
    assert (sound.code, len(sound.out.splitlines())) == (0, 1)
    damaged = run(capsys, "dump", "--verify", str(directory / "00000000000000000050.index"))
    assert damaged.code == 1
    assert "no batch ends at offset 51" in damaged.err


# `kraft dump --verify` recognises partitions by their names.


EPOCHS = "leader-epoch-checkpoint"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A log directory with two partitions."""
    directory = tmp_path / "data"
    for name in ("alerts-txn-0", "alerts-roll-0"):
        (directory / name).mkdir(parents=True)
        for file, content in files_below(f"nodes/b101/{name}").items():
            (directory / name / file).write_bytes(content)
    (directory / "meta.properties").write_text("version=1\ncluster.id=xy_rFBaKSfms5tkOJnLvRw\nnode.id=101\n")
    return directory


def garble(data: Path) -> None:
    (data / "alerts-txn-0" / "partition.metadata").write_bytes(b"\x00\xff")


def empty(data: Path) -> None:
    (data / "alerts-txn-0" / "partition.metadata").write_bytes(b"")


def lose(data: Path) -> None:
    (data / "alerts-txn-0" / "partition.metadata").unlink()


def lose_segments(data: Path) -> None:
    for file in (data / "alerts-txn-0").glob("*.log"):
        file.unlink()


def lose_epochs(data: Path) -> None:
    (data / "alerts-txn-0" / EPOCHS).unlink()


def empty_epochs(data: Path) -> None:
    (data / "alerts-txn-0" / EPOCHS).write_text("")


def no_epochs(data: Path) -> None:
    (data / "alerts-txn-0" / EPOCHS).write_text("0\n0\n")


def late_epochs(data: Path) -> None:
    (data / "log-start-offset-checkpoint").write_text("0\n0\n")
    (data / "alerts-txn-0" / EPOCHS).write_text("0\n1\n0 10\n")


def epochs_beyond_the_end(data: Path) -> None:
    with (data / "alerts-txn-0" / EPOCHS).open() as file:
        lines = file.read().split("\n")
    (data / "alerts-txn-0" / EPOCHS).write_text(
        "\n".join([lines[0], f"{int(lines[1]) + 1}", *lines[2:-1], "99 9999", ""])
    )


def foreign_directory(data: Path) -> None:
    (data / "lost+found").mkdir()


def foreign_file(data: Path) -> None:
    (data / "alerts-txn-0" / "abc.log").write_text("x")


def point_beyond_the_end(data: Path) -> None:
    (data / "recovery-point-offset-checkpoint").write_text("0\n1\nalerts-txn 0 99999\n")


def garbled_points(data: Path) -> None:
    (data / "replication-offset-checkpoint").write_text("garbage\n")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (garble, "a line with the version is missing"),
        (empty, "a line with the version is missing"),
        (lose, "a start makes the directory -stray"),
        (lose_segments, "there is no segment"),
        (lose_epochs, "no start builds it again"),
        (empty_epochs, "offset 0 has no epoch here"),
        (no_epochs, "offset 0 has no epoch here"),
        (late_epochs, "offset 0 has no epoch here"),
        (epochs_beyond_the_end, "epoch 99 begins at offset 9999 here, and the log ends at offset"),
        (foreign_directory, "this directory is no partition"),
        (foreign_file, "this is no file of a partition"),
        (point_beyond_the_end, "the recovery point of alerts-txn-0 is 99999, and its log ends at offset"),
        (garbled_points, "unknown version 'garbage'"),
    ],
)
def test_verify_passes_over_nothing(
    capsys: pytest.CaptureFixture[str], data: Path, damage: Callable[[Path], None], words: str
) -> None:
    sound = run(capsys, "dump", "--verify", str(data))
    assert (sound.code, sound.err) == (0, "")
    damage(data)
    done = run(capsys, "dump", "--verify", str(data))
    assert done.code == 1
    assert words in done.err
    assert "alerts-roll-0" in done.out


def test_epochs_below_the_log_start_may_be_gone(capsys: pytest.CaptureFixture[str], data: Path) -> None:
    (data / "log-start-offset-checkpoint").write_text("0\n1\nalerts-txn 0 10\n")
    (data / "alerts-txn-0" / EPOCHS).write_text("0\n1\n0 10\n")
    done = run(capsys, "dump", "--verify", str(data / "alerts-txn-0"))
    assert "no epoch" not in done.err


def test_a_segment_without_partition_metadata_is_that_of_a_topic(
    capsys: pytest.CaptureFixture[str], data: Path, tmp_path: Path
) -> None:
    lose(data)
    segment = data / "alerts-txn-0" / "00000000000000000000.log"
    assert "baseOffset: 0 " in run(capsys, "dump", str(segment)).out
    other = tmp_path / "backup"
    shutil.copytree(data / "alerts-txn-0", other)
    done = run(capsys, "dump", "--records", str(other))
    assert (done.code, done.err) == (0, "")
    assert "endTxnMarker: ABORT" in done.out


def test_a_metadata_log_without_partition_metadata_stays_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    node = unpack("static3", "nodes/c1", tmp_path / "c1")
    for name in ("copy", "copy-1"):
        (tmp_path / name).mkdir()
        for file in (node / "__cluster_metadata-0").glob("*.log"):
            shutil.copy(file, tmp_path / name)
        done = run(
            capsys, "dump", "--records", "--json", "--until", "30", str(tmp_path / name / "00000000000000000000.log")
        )
        assert done.code == 0
        assert '"name": "FeatureLevelRecord"' in done.out


def test_one_bad_path_spoils_no_other(capsys: pytest.CaptureFixture[str], data: Path, tmp_path: Path) -> None:
    node = unpack("static3", "nodes/c1", tmp_path / "c1")
    (tmp_path / "nothing").mkdir()
    paths = [tmp_path / "nothing", data / "alerts-txn-0", node]
    done = run(capsys, "dump", *map(str, paths))
    assert done.code == 1
    assert done.err == (
        f"kraft: error: this directory is empty ({tmp_path / 'nothing'})\n"
        "hint: Name the log directory of a controller, the __cluster_metadata-0 in it, or one of its files.\n"
    )
    assert f"Dumping {data}/alerts-txn-0/00000000000000000000.log" in done.out
    assert "cluster_id:" in done.out


def written(data: Path, *values: bytes) -> Path:
    """The partition directory of a log with these values."""
    disk = OsDisk()
    logs = LogDirectory.open(disk, str(data), lambda name: options_of(name.topic), now_ms=NOW_MS)
    log = logs.add(PartitionName("raw", 0), options_of("raw"), now_ms=NOW_MS)
    for epoch, value in enumerate(values):
        log.append_as_leader(write_batch([Record(0, NOW_MS, 0, value, value)], epoch=-1), epoch=epoch, now_ms=NOW_MS)
    logs.close(broker_epoch=1)
    return data / "raw-0"


def test_keys_and_values_are_printed_as_they_are(capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> None:
    """As `kafka-dump-log --print-data-log` prints them; `tests/interop/files` compares both."""
    value = b"a\tb\x1b[31m\nc\x00\x7f\xc2\x85\xff"
    directory = written(tmp_path, value)
    with pytest.raises(SystemExit):
        main(["dump", "--records", str(directory / "00000000000000000000.log")])
    shown = value[:-1] + "\ufffd".encode()
    assert b"key: " + shown + b" payload: " + shown + b"\n" in capfdbinary.readouterr().out


def test_the_remedy_for_damaged_epochs_is_true(tmp_path: Path) -> None:
    """After a clean stop a start builds the file again only if it has to read all batches."""
    directory = written(tmp_path, b"one", b"two", b"three")
    disk, name = OsDisk(), PartitionName("raw", 0)
    sound = (directory / EPOCHS).read_bytes()
    assert sound == b"0\n3\n0 0\n1 1\n2 2\n"
    (directory / EPOCHS).write_bytes(b"garbage")
    logs = LogDirectory.open(disk, str(tmp_path), lambda name: options_of(name.topic), now_ms=NOW_MS)
    assert logs.failed[name].hint == TOPIC_REMEDY
    (directory / EPOCHS).unlink()
    (tmp_path / ".kafka_cleanshutdown").touch()
    not_enough = LogDirectory.open(disk, str(tmp_path), lambda name: options_of(name.topic), now_ms=NOW_MS)
    assert not_enough.logs[name].epochs.entries == ()
    not_enough.close(broker_epoch=1)
    (directory / EPOCHS).write_bytes(b"garbage")
    for file in (directory / EPOCHS, tmp_path / "recovery-point-offset-checkpoint"):
        file.unlink()
    (tmp_path / ".kafka_cleanshutdown").unlink(missing_ok=True)
    repaired = LogDirectory.open(disk, str(tmp_path), lambda name: options_of(name.topic), now_ms=NOW_MS)
    assert isinstance(repaired.logs[name], PartitionLog)
    assert (directory / EPOCHS).read_bytes() == sound


def test_a_file_that_cannot_be_read_spoils_no_other_partition(capsys: pytest.CaptureFixture[str], data: Path) -> None:
    segment = next((data / "alerts-roll-0").glob("*.log"))
    segment.unlink()
    segment.mkdir()
    done = run(capsys, "dump", "--verify", str(data))
    assert done.code == 1
    assert f"the file cannot be read: Is a directory ({segment})" in done.err
    assert f"{data}/alerts-txn-0/partition.metadata: partition.metadata: ok" in done.out


def test_a_controller_may_have_other_directories(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    node = unpack("static3", "nodes/c1", tmp_path / "c1")
    (node / "lost+found").mkdir()
    done = run(capsys, "dump", "--verify", str(node))
    assert (done.code, "lost+found" in done.err + done.out) == (0, False)
