"""`kraft dump --verify` compares the files of a partition with one another."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from kraft.partitions.log.verify_partition import verify_partition
from metadata_log.memory_disk import MemoryDisk
from support.broker.broker_logs import KILLED, LIVE, NODES, files_below, partition_directories, put
from support.kraft.command_line import run

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
