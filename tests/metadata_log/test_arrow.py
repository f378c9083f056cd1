"""Arrow: the views say what the reader says, of every file that Kafka wrote and of damaged ones, by both decoders."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from real_data import real_files, unpack

from metadata_log.arrow import (
    Decoder,
    read_records,
    read_typed,
    schema_of,
)
from metadata_log.memory_disk import MemoryDisk
from metadata_log.reader import Damage, Entry, read_entries, read_file
from metadata_log.serde.fields import Message
from metadata_log.types import Uuid

DECODERS: tuple[Decoder, ...] = ("numpy", "python")
PLACE = ("cluster", "directory", "segment", "position", "offset", "epoch", "timestamp", "version")


def disk_of(files: dict[str, bytes]) -> MemoryDisk:
    disk = MemoryDisk()
    for path, content in files.items():
        disk.mkdir(path.rpartition("/")[0])
        disk.open(path, create=True).append(content)
    return disk


def read_whole(disk: MemoryDisk, path: str) -> Iterator[Entry | Damage]:
    for item in read_file(disk, path):
        if isinstance(item, Damage):
            yield item
        else:
            yield from read_entries(item, path)


def plain(value: object) -> object:
    """A value of a record as Arrow gives it back."""
    match value:
        case Uuid():
            return str(value)
        case tuple() | list():
            return [plain(each) for each in value]
        case Message():
            return {name: plain(getattr(value, name)) for name in value.__struct_fields__ if name != "unknown_tagged"}
        case _:
            return value


def test_a_real_directory(tmp_path: Path) -> None:
    """The first thing a user does."""
    node = unpack("static3", "nodes/c1", tmp_path / "c1")
    reader = read_records(str(node))
    assert reader.schema == schema_of("records")
    table = reader.read_all()
    assert table["offset"].to_pylist() == list(range(table.num_rows))
    assert set(table["cluster"].to_pylist()) == {"c92P2-zHd3OC2pYwL82DeQ"}
    assert table["damage"].null_count == table.num_rows
    topics = read_typed(str(node), "TopicRecord").read_all()
    assert topics.schema == schema_of("TopicRecord")
    assert topics["offset"].to_pylist() == [
        row["offset"] for row in table.select(["offset", "type"]).to_pylist() if row["type"] == "TopicRecord"
    ]


@pytest.mark.parametrize("decoder", DECODERS)
def test_rows_are_what_the_reader_reads(decoder: Decoder) -> None:
    """Raw and typed, of every segment and snapshot of the real clusters, Kafka 3.9 and 4.3."""
    seen: dict[str, int] = {}
    for path, content, _ in real_files():
        name = f"d/{path.rpartition('/')[2]}"
        disk = disk_of({name: content})
        entries = [entry for entry in read_whole(disk, name) if isinstance(entry, Entry)]
        columns = ["offset", "timestamp", "epoch", "is_control", "type_id", "version", "type", "key", "value"]
        rows = read_records(name, columns=[*columns, "damage"], decoder=decoder, disk=disk).read_all()
        assert rows["damage"].null_count == rows.num_rows
        milliseconds = pa.compute.cast(rows["timestamp"], pa.int64()).to_pylist()
        rows = rows.set_column(1, "timestamp", pa.array([time // 1000 for time in milliseconds]))
        for row, entry in zip(rows.drop_columns("damage").to_pylist(), entries, strict=True):
            wanted = (entry.offset, entry.timestamp, entry.epoch, entry.is_control, entry.type, entry.version)
            assert tuple(row.values()) == (*wanted, entry.name, entry.key, entry.value)
        for kind in {entry.name for entry in entries}:
            typed = read_typed(name, kind, decoder=decoder, disk=disk).read_all().to_pylist()
            records = [entry.record for entry in entries if entry.name == kind]
            for row, record in zip(typed, records, strict=True):
                fields = [row[column] for column in row if column not in {*PLACE, "damage", "undecoded"}]
                assert fields == [
                    *(plain(getattr(record, field)) for field in record.__struct_fields__ if field != "unknown_tagged"),
                    None,
                ]
            seen[kind] = seen.get(kind, 0) + len(records)
    assert len(seen) > 20
