"""`kraft dump` shows the partitions of topics in the lines of Kafka's own tool, damaged ones too."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path

import pytest

from kraft.partitions.log.dump_lines import batch_line, index_lines, producer_lines, record_lines, transaction_lines
from kraft.partitions.log.transaction_index import decode_transactions
from metadata_log.log.indexes import parse_offset_index, parse_time_index
from metadata_log.log.producer_snapshot import decode_producer_snapshot
from metadata_log.records.batch import scan
from support.broker.broker_logs import files_below
from support.kraft.command_line import run
from support.real_data import archive


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


# The lines of partition files are those of Kafka's own tool, for every different file of the brokers.


@cache
def dumps() -> dict[str, list[tuple[str, bytes, str]]]:
    """Name, content and Kafka's text of each different file, by suffix."""
    texts = {}
    for line in archive("partitions")["expected/dump.jsonl"].splitlines():
        entry = json.loads(line)
        texts[entry["file"]] = entry["text"]
    found: dict[str, list[tuple[str, bytes, str]]] = {}
    for path, content in archive("partitions").items():
        name = path.rpartition("/")[2]
        text = texts.pop(f"{hashlib.sha256(content).hexdigest()[:12]}-{name}", None)
        # Kafka's tool prints nothing for an index beside a damaged segment, and ends at a damaged batch.
        if text is not None and not path.startswith("recovery/"):
            found.setdefault(name.rpartition(".")[2], []).append((path, content, text))
    return found


def lines_of(suffix: str, path: str, content: bytes) -> list[str]:
    base = int(path.rpartition("/")[2].partition(".")[0])
    match suffix:
        case "index":
            return list(index_lines(parse_offset_index(content, base), is_time=False))
        case "timeindex":
            return list(index_lines(parse_time_index(content, base), is_time=True))
        case "txnindex":
            return list(transaction_lines(decode_transactions(content, base_offset=base, where=path)))
        case "snapshot":
            return list(producer_lines(decode_producer_snapshot(content, path)))
        case _:
            lines = [f"Log starting offset: {base}"]
            for batch in scan(content, verify=False):
                lines += [batch_line(batch), *record_lines(batch)]
            return lines


@pytest.mark.parametrize(
    ("suffix", "files"), [("log", 75), ("index", 44), ("timeindex", 81), ("txnindex", 3), ("snapshot", 77)]
)
def test_the_lines_of_a_file_are_those_of_kafkas_tool(suffix: str, files: int) -> None:
    found = dumps()[suffix]
    assert len(found) == files
    for path, content, text in found:
        lines = lines_of(suffix, path, content)
        # The line of a producer without a batch ends in a blank, which the corpus has not kept.
        assert [line.rstrip() for line in "\n".join(lines).split("\n")] == [
            line.rstrip() for line in text.rstrip().split("\n")
        ], path
