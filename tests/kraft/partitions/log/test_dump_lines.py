"""The lines of partition files are those of Kafka's own tool, for every different file of the brokers."""

from __future__ import annotations

import hashlib
import json
from functools import cache

import pytest

from kraft.partitions.log.dump_lines import batch_line, index_lines, producer_lines, record_lines, transaction_lines
from kraft.partitions.log.transaction_index import decode_transactions
from metadata_log.log.indexes import parse_offset_index, parse_time_index
from metadata_log.log.producer_snapshot import decode_producer_snapshot
from metadata_log.records.batch import scan
from support.real_data import archive


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
