"""`kraft dump` shows the partitions of topics, damaged ones too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.broker.broker_logs import files_below
from support.kraft.command_line import run


def directory_of(path: str, target: Path) -> Path:
    """A partition directory of the archive, on disk."""
    directory = target / path.rpartition("/")[2]
    directory.mkdir()
    for name, content in files_below(path).items():
        (directory / name).write_bytes(content)
    return directory


def test_a_partition_is_shown_in_the_lines_of_kafkas_tool(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    directory = directory_of("nodes/b101/alerts-txn-0", tmp_path)
    done = run(capsys, "dump", "--records", str(directory))
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert f"Dumping {directory}/00000000000000000000.log" in lines
    assert "Log starting offset: 0" in lines
    assert any("endTxnMarker: ABORT coordinatorEpoch: 0" in line for line in lines)
    assert "version: 0 producerId: 2 firstOffset: 6 lastOffset: 10 lastStableOffset: 11" in lines
    assert any(line.startswith("| offset: 11 ") and "key: b0 payload: b0 seven lazy" in line for line in lines)
    assert any(line.startswith("producerId: 2002 producerEpoch: 6 ") for line in lines)
    assert "epoch: 0 offset: 0" in lines
    plain = run(capsys, "dump", str(directory))
    assert not any(line.startswith("| ") for line in plain.out.splitlines())


def test_records_are_selected_and_shown_as_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    directory = directory_of("nodes/b101/alerts-hdr-0", tmp_path)
    log = str(directory / "00000000000000000000.log")
    done = run(capsys, "dump", "--records", "--json", "--since", "0", "--until", "3", log)
    assert done.code == 0
    found = [json.loads(line) for line in done.out.splitlines()]
    assert [each["offset"] for each in found] == [0, 1, 2, 3]
    assert [header["key"] for header in found[0]["headers"]] == ["h1", "h2", "h1", "", "ünï"]
    assert (found[0]["key"], found[0]["value"], found[1]["key"], found[3]["value"]) == ("a", "v", None, None)
    batches = [json.loads(line) for line in run(capsys, "dump", "--json", log).out.splitlines()]
    assert sum(each["count"] for each in batches) == 8


def test_damage_is_reported_with_its_byte_and_the_next_batch_is_shown(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    directory = directory_of("recovery/clean-before/clean-crc-old-0", tmp_path)
    done = run(capsys, "dump", str(directory))
    assert done.code == 1
    assert "gives CRC" in done.err or "give CRC" in done.err
    assert "00000000000000000000.log, byte " in done.err
    assert "baseOffset: 105 " in done.out
    stopped = run(capsys, "dump", "--on-damage", "strict", str(directory))
    assert stopped.code == 1
    assert "baseOffset: 105 " not in stopped.out


def test_a_cut_batch_at_the_end_is_a_warning(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    directory = directory_of("recovery/clean-before/clean-torn-0", tmp_path)
    done = run(capsys, "dump", str(directory))
    assert (done.code, done.err.count("kraft: warning: ")) == (0, 1)


def test_a_damaged_snapshot_is_reported_with_the_remedy(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    directory = directory_of("recovery/clean-before/clean-bad-snapshot-0", tmp_path)
    done = run(capsys, "dump", str(directory))
    assert done.code == 1
    assert "the producer snapshot does not match its checksum" in done.err
    assert "Remove the file" in done.err


@pytest.mark.parametrize("options", [["--hex"], ["--noop"], ["--type", "TopicRecord"]])
def test_options_of_metadata_logs_refuse_a_topics_directory(
    options: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    directory = directory_of("nodes/b101/alerts-hdr-0", tmp_path)
    done = run(capsys, "dump", *options, str(directory))
    assert (done.code, done.out) == (1, "")
    assert "this is a partition of the topic with id" in done.err
