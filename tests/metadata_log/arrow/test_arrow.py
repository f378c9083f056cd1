"""Arrow: the views say what the reader says of every file that Kafka wrote, in whatever ranges, and name all damage."""

from __future__ import annotations

import json
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.arrow import ArrowFSWrapper
from fsspec.implementations.memory import MemoryFileSystem
from msgspec.structs import replace
from pyarrow.fs import LocalFileSystem

from arrow_rows import DECODERS, disk_of, plain, read_whole, shown
from metadata_log.arrow import (
    RECORDS,
    Decoder,
    Filters,
    Mode,
    plan_splits,
    read_records,
    read_split,
    read_splits,
    read_typed,
    read_view,
    schema_of,
    write_parquet,
)
from metadata_log.arrow.views import history_batches
from metadata_log.compression import Compression
from metadata_log.disk import OsDisk
from metadata_log.errors import MetadataLogError
from metadata_log.history import VIEWS, Options, rows
from metadata_log.history.engine import HistoryPass, steps
from metadata_log.history.partition_rows import CELL_VIEWS
from metadata_log.memory_disk import MemoryDisk
from metadata_log.reading.damage import Damage, DamagedFile
from metadata_log.reading.entries import Entry
from metadata_log.reading.timeline import At, read_timeline
from metadata_log.records import encode_record
from metadata_log.records.batch import read_batch
from metadata_log.records.batch_builder import build_batch, rebuild_batch
from metadata_log.records.metadata import ConfigRecord, NoOpRecord, PartitionChangeRecord, UserScramCredentialRecord
from metadata_log.records.record import records
from metadata_log.spark.storage import RemoteDisk, disk_at
from support.metadata_log.tampering import resealed
from support.real_data import archive, real_files, unpack

PLACE = ("cluster", "directory", "segment", "position", "offset", "epoch", "timestamp", "version")
FIRST = "d/00000000000000000000.log"
CASES = {
    case["case"]: [path for path in case["changed_files"] if path.endswith((".log", ".checkpoint"))]
    for case in json.loads(archive("damaged")["cases.json"])
}
DAMAGED = {f"{case}: {path}": f"cases/{case}/{path}" for case, paths in CASES.items() for path in paths}


def node(tmp_path: Path, name: str = "c1") -> str:
    return str(unpack("static3", f"nodes/{name}", tmp_path / name))


def test_records_of_a_real_directory_are_read(tmp_path: Path) -> None:
    """The first thing a user does."""
    reader = read_records(node(tmp_path))
    assert reader.schema == schema_of(RECORDS)
    table = reader.read_all()
    assert table["offset"].to_pylist() == list(range(table.num_rows))
    assert set(table["cluster"].to_pylist()) == {"c92P2-zHd3OC2pYwL82DeQ"}
    assert table["damage"].null_count == table.num_rows
    topics = read_typed(node(tmp_path), "TopicRecord").read_all()
    assert topics.schema == schema_of("TopicRecord")
    assert topics["offset"].to_pylist() == [
        row["offset"] for row in table.select(["offset", "type"]).to_pylist() if row["type"] == "TopicRecord"
    ]


@pytest.mark.parametrize("decoder", DECODERS)
def test_arrow_rows_equal_the_entries_of_the_reader(decoder: Decoder) -> None:
    """Raw and typed, of every segment and snapshot of the real clusters, Kafka 3.9 and 4.3."""
    seen: dict[str, int] = {}
    columns = ["offset", "timestamp", "epoch", "is_control", "type_id", "version", "type", "key", "value", "damage"]
    for path, content, _ in real_files():
        name = f"d/{path.rpartition('/')[2]}"
        disk = disk_of({name: content})
        entries = [entry for entry in read_whole(disk, name) if isinstance(entry, Entry)]
        table = read_records(name, columns=columns, show_secrets=True, decoder=decoder, disk=disk).read_all()
        milliseconds = pc.divide(table["timestamp"].cast(pa.int64()), 1000)
        for row, entry in zip(table.set_column(1, "timestamp", milliseconds).to_pylist(), entries, strict=True):
            wanted = (entry.offset, entry.timestamp, entry.epoch, entry.is_control, entry.type, entry.version)
            assert tuple(row.values()) == (*wanted, entry.name, entry.key, entry.value, None)
        for kind in {entry.name for entry in entries}:
            typed = read_typed(name, kind, show_secrets=True, decoder=decoder, disk=disk).read_all().to_pylist()
            records = [entry.record for entry in entries if entry.name == kind]
            for row, record in zip(typed, records, strict=True):
                assert record is not None
                names = [name for name in record.__struct_fields__ if name != "unknown_tagged"]
                fields = [row[column] for column in row if column not in {*PLACE, "damage", "undecoded"}]
                assert fields == [*(plain(getattr(record, name)) for name in names), None]
            seen[kind] = seen.get(kind, 0) + len(records)
    assert len(seen) > 20


# ------------------------------------------------------------------------------------------------------------ damage


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("path", DAMAGED.values(), ids=DAMAGED)
def test_damage_fails_or_is_reported_or_dropped_by_mode(path: str, decoder: Decoder) -> None:
    """Every damaged file, read as a whole and in ranges of a batch each."""
    name = f"d/{path.rpartition('/')[2]}"
    disk = disk_of({name: archive("damaged")[path]})
    items = [item for item in read_whole(disk, name) if isinstance(item, Entry) or not item.unfinished]
    columns = ["position", "offset", "type", "value", "payload", "damage"]
    table = read_records(
        name, columns=columns, mode=Mode.PERMISSIVE, show_secrets=True, decoder=decoder, disk=disk
    ).read_all()
    found = table.to_pylist()
    assert [shown(item) for item in items] == [
        (row["offset"], row["damage"]) if row["damage"] else (row["offset"], row["type"], row["value"]) for row in found
    ]
    splits = plan_splits(name, min_bytes=1, disk=disk)
    in_ranges = [
        batch
        for split in splits
        for batch in read_split(
            split, columns=columns, mode=Mode.PERMISSIVE, show_secrets=True, decoder=decoder, disk=disk
        )
    ]
    assert pa.Table.from_batches(in_ranges, schema_of(RECORDS, columns)).to_pylist() == found
    sound = read_records(
        name, columns=columns, mode=Mode.DROPMALFORMED, show_secrets=True, decoder=decoder, disk=disk
    ).read_all()
    assert sound.to_pylist() == [row for row in found if row["damage"] is None]
    damages = [item for item in items if isinstance(item, Damage)]
    strict = read_records(name, columns=columns, show_secrets=True, decoder=decoder, disk=disk)
    if not damages:
        assert strict.read_all().num_rows == len(found)
        return
    with pytest.raises(DamagedFile) as caught:
        strict.read_all()
    assert (caught.value.damage.what, caught.value.damage.where) == (damages[0].what, name)
    assert caught.value.damage.offset == damages[0].offset


@pytest.mark.parametrize("decoder", DECODERS)
def test_unknown_record_types_and_versions_keep_their_bytes(decoder: Decoder) -> None:
    """Types and versions that are not known are no damage: their bytes are there, in the raw view and in the typed."""
    change = encode_record(PartitionChangeRecord(partition_id=1, leader=3), 0)
    newer, unreadable = change[:2] + b"\x09" + change[3:], change[:2] + b"\x09" + change[3:-1]
    values = [change, b"\x01\x63\x02new", newer, unreadable, b"\x01\xff\x01\x00\x00"]
    disk = disk_of({FIRST: build_batch(0, 1, 5, values)})
    table = read_records(FIRST, columns=["type", "type_id", "version", "value"], decoder=decoder, disk=disk).read_all()
    name = "PartitionChangeRecord"
    assert [tuple(row.values()) for row in table.to_pylist()] == [
        (name, 5, 0, change),
        ("record type 99", 99, 2, values[1]),
        (name, 5, 9, newer),
        (name, 5, 9, unreadable),
        ("record type 255", 255, 0, values[4]),
    ]
    columns = ["offset", "version", "leader", "undecoded"]
    typed = read_typed(FIRST, name, columns=columns, decoder=decoder, disk=disk).read_all()
    assert [tuple(row.values()) for row in typed.to_pylist()] == [
        (0, 0, 3, None),
        (2, 9, 3, None),
        (3, 9, None, unreadable),
    ]
    wanted = Filters(types=("record type 255", "record type 99"))
    only = read_records(FIRST, columns=["offset"], filters=wanted, decoder=decoder, disk=disk).read_all()
    assert only["offset"].to_pylist() == [1, 4]


def test_a_damaged_record_of_a_typed_view() -> None:
    change = encode_record(PartitionChangeRecord(partition_id=1, leader=3), 0)
    disk = disk_of({FIRST: build_batch(0, 1, 5, [change, change + b"\0", change])})
    table = read_typed(FIRST, "PartitionChangeRecord", mode=Mode.PERMISSIVE, disk=disk).read_all()
    assert table["leader"].to_pylist() == [3, None, 3]
    assert table["undecoded"].to_pylist() == [None, change + b"\0", None]
    assert table["damage"][1].as_py() == (
        "the record cannot be decoded: trailing bytes behind PartitionChangeRecord version 0: 1"
    )


def test_a_gap_between_segments_is_a_row_of_damage() -> None:
    noop = encode_record(NoOpRecord(), 0)
    later = "d/00000000000000000009.log"
    disk = disk_of({FIRST: build_batch(0, 1, 5, [noop]), later: build_batch(9, 1, 6, [noop])})
    found = read_records("d", columns=["segment", "offset", "damage"], mode=Mode.PERMISSIVE, disk=disk).read_all()
    assert [tuple(row.values()) for row in found.to_pylist()] == [
        (FIRST[2:], 0, None),
        (later[2:], 1, "the segment begins at offset 9 where 1 comes next"),
        (later[2:], 9, None),
    ]


@pytest.mark.parametrize("decoder", DECODERS)
def test_impossible_offsets_and_counts_are_damage(decoder: Decoder) -> None:
    """The offset of a batch is not under its CRC; the number of its records may be a lie with a good one.

    Offsets beyond 64 bits wrap, as Kafka's tool prints them.
    """
    whole = build_batch(0, 1, 5, [encode_record(NoOpRecord(), 0)] * 3)
    last = disk_of({FIRST: ((1 << 63) - 2).to_bytes(8, "big") + whole[8:]})
    table = read_records(FIRST, mode=Mode.PERMISSIVE, decoder=decoder, disk=last).read_all()
    assert table["offset"].to_pylist()[1:] == [(1 << 63) - 2, (1 << 63) - 1, -(1 << 63)]
    for count in (-1, 0, (1 << 31) - 1):
        lie = resealed(whole[:8] + (49).to_bytes(4, "big") + whole[12:57] + count.to_bytes(4, "big", signed=True))
        table = read_records(FIRST, mode=Mode.PERMISSIVE, decoder=decoder, disk=disk_of({FIRST: lie + lie})).read_all()
        assert table["value"].null_count == table.num_rows
        assert table["damage"].null_count == 0


@pytest.mark.parametrize("time", [-1, (1 << 63) - 1, -(1 << 63)])
def test_an_absent_timestamp_is_null(time: int) -> None:
    disk = disk_of({FIRST: build_batch(0, 1, time, [encode_record(NoOpRecord(), 0)])})
    assert read_records(FIRST, disk=disk).read_all()["timestamp"].to_pylist() == [None]


# ------------------------------------------------------------------------------------------- ranges, filters, columns


@pytest.mark.parametrize("min_bytes", [1, 5_000, 1 << 20])
def test_ranges_together_give_all_rows(tmp_path: Path, min_bytes: int) -> None:
    """Each is sent to another process, as it were, and none reads what another does."""
    whole = read_records(node(tmp_path), snapshots=True).read_all()
    splits = plan_splits(node(tmp_path), snapshots=True, min_bytes=min_bytes)
    batches = [batch for split in splits for batch in read_split(pickle.loads(pickle.dumps(split)))]
    assert pa.Table.from_batches(batches).equals(whole)
    assert all(split.end - split.start >= min_bytes or split.is_last for split in splits)
    assert (len(splits) > len({split.path for split in splits})) == (min_bytes < 1 << 20)


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("view", [RECORDS, "PartitionChangeRecord"])
def test_ranges_of_several_clusters_share_batches_of_rows(decoder: Decoder, view: str, tmp_path: Path) -> None:
    """Damage, compressed and control batches lie in between."""
    values = [encode_record(NoOpRecord(), 0)] * 3
    plain_batch = read_batch(build_batch(6, 1, 5, values))
    packed = rebuild_batch(replace(plain_batch, attributes=Compression.GZIP), records(plain_batch))
    sound = build_batch(0, 1, 5, values) + build_batch(3, 1, 5, values) + packed
    (tmp_path / "small" / "x").mkdir(parents=True)
    Path(tmp_path, "small", "x", "00000000000000000000.log").write_bytes(
        sound + build_batch(9, 1, 5, values)[:-1] + b"!"
    )
    paths = [node(tmp_path), node(tmp_path, "c2"), f"{tmp_path}/small/x", node(tmp_path, "c3")]
    splits = [split for path in paths for split in plan_splits(path)]
    filters = Filters(from_offset=4)
    of: dict[str, Any] = {"view": view, "filters": filters, "mode": Mode.PERMISSIVE, "decoder": decoder}
    together = list(read_splits(splits, **of))
    alone = [batch for split in splits for batch in read_split(split, **of)]
    assert pa.Table.from_batches(together).equals(pa.Table.from_batches(alone))
    assert len(together) < 6 < len(alone)
    with pytest.raises(DamagedFile, match=re.escape(f"{tmp_path}/small/x/00000000000000000000.log")):
        list(read_splits(splits, **{**of, "mode": Mode.FAILFAST}))


def test_files_below_the_first_wanted_offset_are_not_opened(tmp_path: Path) -> None:
    log = node(tmp_path)
    for file in sorted(Path(log).rglob("*.log"))[:2]:
        file.write_bytes(b"unreadable")
    splits = plan_splits(log, from_offset=2000)
    assert [split.expected_offset for split in splits] == [1893, 2908, 4072, 4847]
    found = read_records(log, filters=Filters(from_offset=2000)).read_all()["offset"].to_pylist()
    assert found[0] == 2000
    with pytest.raises(DamagedFile):
        read_records(log).read_all()


def test_filters_are_conditions_on_columns(tmp_path: Path) -> None:
    whole = read_records(node(tmp_path)).read_all()
    time = whole["timestamp"][2000]
    time_ms = pc.divide(whole["timestamp"].cast(pa.int64()), 1000)[2000].as_py()
    for filters, condition in [
        (Filters(from_offset=3000), pc.field("offset") >= 3000),
        (Filters(until_offset=700), pc.field("offset") < 700),
        (Filters(from_offset=700, until_offset=710), (pc.field("offset") >= 700) & (pc.field("offset") < 710)),
        (Filters(from_timestamp_ms=time_ms), pc.field("timestamp") >= time),
        (Filters(until_timestamp_ms=time_ms), pc.field("timestamp") < time),
        (Filters(types=("TopicRecord", "LeaderChangeMessage")), pc.field("type_id") == 2),
        (Filters(types=("LeaderChangeMessage",)), (pc.field("type_id") == 2) & pc.field("is_control")),
        (Filters(types=("AbortTransactionRecord",)), pc.field("offset") < 0),
    ]:
        wanted = whole.filter(condition)
        assert read_records(node(tmp_path), filters=filters).read_all().equals(wanted), filters
        assert wanted.num_rows or filters.types == ("AbortTransactionRecord",)
    early = Filters(until_offset=200)
    assert read_typed(node(tmp_path), "TopicRecord", filters=early).read_all()["offset"].to_pylist()[-1] < 200
    other = Filters(types=("ConfigRecord",))
    assert read_typed(node(tmp_path), "TopicRecord", filters=other).read_all().num_rows == 0
    assert len(plan_splits(node(tmp_path), from_offset=4847)) == 1


def test_columns_are_chosen_and_ordered(tmp_path: Path) -> None:
    table = read_typed(node(tmp_path), "TopicRecord", columns=["name", "offset"]).read_all()
    assert table.column_names == ["name", "offset"]
    assert table.num_rows > 50
    counted = sum(batch.num_rows for batch in read_records(node(tmp_path), columns=[]))
    assert counted == read_records(node(tmp_path)).read_all().num_rows
    fence = schema_of("FenceBrokerRecord").names
    assert (fence.count("epoch"), fence.count("record_epoch")) == (1, 1)


def test_payload_is_kafkas_json() -> None:
    secret = UserScramCredentialRecord(name="alice", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v")
    password = ConfigRecord(resource_type=4, name="listener.name.x.ssl.keystore.password", value="hush")
    disk = disk_of({FIRST: build_batch(0, 1, 5, [encode_record(record, 0) for record in (secret, password)])})
    hidden = read_records(FIRST, columns=["payload"], disk=disk).read_all()["payload"].to_pylist()
    assert [json.loads(text)[name] for text, name in zip(hidden, ("salt", "value"), strict=True)] == ["(redacted)"] * 2
    full = read_records(FIRST, columns=["payload"], show_secrets=True, disk=disk).read_all()["payload"].to_pylist()
    assert json.loads(full[1])["value"] == "hush"


def test_missing_paths_are_errors(tmp_path: Path) -> None:
    for read in (
        read_records,
        lambda path: read_typed(path, "TopicRecord"),
        lambda path: read_view(path, "topic_history").read_all(),
    ):
        with pytest.raises(FileNotFoundError, match=r"there is no such directory or file: .*nothing"):
            read(str(tmp_path / "nothing"))
    with pytest.raises(MetadataLogError, match="no metadata log in this directory"):
        read_records(str(tmp_path))
    with pytest.raises(ValueError, match="there is no view 'TopicRecords'; there are records, RegisterBrokerRecord"):
        read_typed(node(tmp_path), "TopicRecords")
    with pytest.raises(ValueError, match="the view records has no column 'topic'; it has cluster, directory"):
        read_records(node(tmp_path), columns=["topic"])
    with pytest.raises(ValueError, match="it is read with read_view"):
        read_typed(node(tmp_path), "topic_history")
    with pytest.raises(ValueError, match="is not replayed"):
        read_view(node(tmp_path), "TopicRecord")
    with pytest.raises(ValueError, match="neither an offset"):
        read_view(node(tmp_path), "topic_history", "yesterday")


# -------------------------------------------------------------------------------------------------- a running node


def test_files_that_change_after_planning_are_read_consistently() -> None:
    """Retention removes a segment, in two steps; the last one grows, or loses its end to a new leader."""
    noop = encode_record(NoOpRecord(), 0)
    batches = [build_batch(offset, 1, 5, [noop]) for offset in range(4)]

    def offsets(disk: MemoryDisk, mode: Mode = Mode.FAILFAST) -> list[int | str]:
        columns = ["offset", "damage"]
        found = [row for split in splits for batch in read_split(split, columns=columns, mode=mode, disk=disk)
                 for row in batch.to_pylist()]  # fmt: skip
        return [row["damage"] or row["offset"] for row in found]

    last = "d/00000000000000000002.log"
    disk = disk_of({FIRST: batches[0] + batches[1], last: batches[2] + batches[3][:20]})
    splits = plan_splits("d", disk=disk)
    disk.open(last).append(batches[3][20:])
    assert offsets(disk) == [0, 1, 2]
    disk.rename(FIRST, f"{FIRST}.deleted")
    assert offsets(disk) == [0, 1, 2]
    disk.remove(f"{FIRST}.deleted")
    gone = "the file is gone: it was removed after its ranges were planned"
    assert offsets(disk, Mode.PERMISSIVE) == [gone, 2]
    with pytest.raises(DamagedFile, match="the file is gone"):
        offsets(disk)
    disk.open("d/00000000000000000002-0000000001.checkpoint", create=True)
    splits = plan_splits("d", disk=disk)
    disk.open(last).truncate(len(batches[2]))
    assert offsets(disk, Mode.PERMISSIVE)[0] == 2
    assert "was truncated" in str(offsets(disk, Mode.PERMISSIVE)[1])


def test_reading_writes_and_locks_nothing(tmp_path: Path) -> None:
    path = Path(node(tmp_path))
    before = {file: (file.stat().st_mtime_ns, file.stat().st_size) for file in sorted(path.rglob("*"))}
    for file in path.rglob("*"):
        file.chmod(0o555 if file.is_dir() else 0o444)
    assert read_records(str(path), snapshots=True).read_all().num_rows > 1000
    assert {file: (file.stat().st_mtime_ns, file.stat().st_size) for file in sorted(path.rglob("*"))} == before


def test_a_directory_that_fsspec_opens(tmp_path: Path) -> None:
    """As an object store, without one; and a file system of pyarrow."""
    local = Path(node(tmp_path))
    store = MemoryFileSystem()
    for file in local.rglob("*"):
        if file.is_file():
            store.pipe_file(f"/arrow-c1/{file.relative_to(local)}", file.read_bytes())
    whole = read_records(str(local)).read_all()
    remote = read_records("memory://arrow-c1", disk=disk_at("memory://arrow-c1")).read_all()
    assert remote.drop_columns("directory").equals(whole.drop_columns("directory"))
    assert set(remote["directory"].to_pylist()) == {"memory://arrow-c1/__cluster_metadata-0"}
    mounted = RemoteDisk(ArrowFSWrapper(LocalFileSystem()))
    assert read_records(str(local), disk=mounted).read_all().equals(whole)


# ------------------------------------------------------------------------------------------- replayed views, Parquet


def test_replayed_views_are_the_engines_rows(tmp_path: Path) -> None:
    directory = node(tmp_path)
    for at, views in ((None, VIEWS.keys()), (At(offset=3000), {"partition_history", "brokers_state", "churn"})):
        items = read_timeline(OsDisk(), directory, until=at)
        told: dict[str, list[tuple[object, ...]]] = {name: [] for name in views}
        for name, row in rows(items, views, cluster="c92P2-zHd3OC2pYwL82DeQ", at=at):
            told[name].append(row)
        for name in views:
            table = read_view(directory, name, at).read_all()
            table.validate(full=True)
            assert table.schema == schema_of(name)
            times = [column.name for column in VIEWS[name].columns if column.type == "timestamp"]
            for time in times:
                milliseconds = pc.divide(table[time].cast(pa.int64()), 1000)
                table = table.set_column(table.column_names.index(time), time, milliseconds)
            # States come in the order of the image, some rows of histories in the order in which they end.
            found = [tuple(map(_hashable, row.values())) for row in table.to_pylist()]
            assert sorted(found, key=str) == sorted((tuple(map(_hashable, row)) for row in told[name]), key=str), name


def _hashable(cell: object) -> object:
    match cell:
        case dict():
            return sorted(cell.items())
        case list() | tuple():
            return list(cell)
        case _:
            return cell


@pytest.mark.parametrize("view", CELL_VIEWS)
def test_histories_of_copies_share_batches_and_keep_their_clusters(tmp_path: Path, view: str) -> None:
    """Rows of a copied cluster, whose topics have the same ids, would be told of another cluster."""
    path = str(unpack("static3", "nodes/c1", tmp_path))
    names = ["original", "copy"]
    stories = [HistoryPass(name, frozenset({view}), Options()) for name in names]
    passes = [(story, steps(story, read_timeline(OsDisk(), path))) for story in stories]
    batches = list(history_batches(passes, view, schema_of(view).names))
    expected = [row for name in names for row in read_view(path, view, cluster=name).read_all().to_pylist()]
    assert pa.Table.from_batches(batches).to_pylist() == expected
    assert {row["cluster"] for row in expected} == set(names)


def test_texts_as_dictionaries(tmp_path: Path) -> None:
    table = read_view(node(tmp_path), "leader_history", 3000, dictionaries=True).read_all()
    assert table.schema.field("topic").type == pa.dictionary(pa.int32(), pa.string())
    assert table.cast(schema_of("leader_history")).equals(read_view(node(tmp_path), "leader_history", 3000).read_all())


@pytest.mark.parametrize("view", [RECORDS, "RegisterBrokerRecord", "broker_history"])
def test_parquet(tmp_path: Path, view: str) -> None:
    def reader() -> pa.RecordBatchReader:
        if view in VIEWS:
            return read_view(node(tmp_path), view)
        return read_records(node(tmp_path)) if view == RECORDS else read_typed(node(tmp_path), view)

    target = tmp_path / "out.parquet"
    written = write_parquet(reader(), str(target))
    assert pq.read_table(target).equals(reader().read_all())
    assert written == pq.read_metadata(target).num_rows > 0


def test_a_parquet_file_is_written_completely_or_not_at_all(tmp_path: Path) -> None:
    content = archive("static3")["nodes/c1/__cluster_metadata-0/00000000000000000000.log"]
    disk = disk_of({FIRST: content[:5000] + b"\xff" + content[5001:]})
    with pytest.raises(DamagedFile):
        write_parquet(read_records(FIRST, disk=disk), str(tmp_path / "out.parquet"))
    assert list(tmp_path.iterdir()) == []


def test_the_programs_of_the_page(tmp_path: Path) -> None:
    """docs/howto/arrow.md: each says what the page says that it says."""
    page = (Path(__file__).parents[3] / "docs" / "howto" / "arrow.md").read_text()
    (line,) = re.findall(r"^\$ python3 -m tarfile -e tests/data/(.*)\.tar\.xz (.*)$", page, re.MULTILINE)
    unpack(line[0], "nodes/c1", tmp_path / line[1] / "nodes" / "c1")
    programs = re.findall(r"^```python\n# (\S+\.py)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    for name, code in programs:
        (tmp_path / name).write_text(code)
    shown = re.findall(r"^\$ python (.*)\n((?:.+\n)+?)```$", page, re.MULTILINE)
    assert [command.split()[0] for command, _ in shown] == [name for name, _ in programs]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    for command, output in shown:
        done = subprocess.run(
            [sys.executable, *command.split()],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.stdout, done.stderr) == (output, "")


# ------------------------------------------------------------------------------------------------------------ memory

MEMORY = """
import sys
from pathlib import Path
from typing import Any
import pyarrow as pa
from metadata_log.arrow import read_records, read_typed
pa.array(["what loads once"])
path, view, decoder = sys.argv[1:]
def of_process(name):
    return next(int(line.split()[1]) for line in Path("/proc/self/status").open() if line.startswith(name)) >> 10
Path("/proc/self/clear_refs").write_text("5")  # the peak is that of now
before, rows = of_process("VmRSS"), 0
reader = read_records(path, decoder=decoder) if view == "records" else read_typed(path, view, decoder=decoder)
for batch in reader:
    rows += batch.num_rows
print(rows, of_process("VmHWM") - before)
"""
MOST_MB = 200


def write_segment(path: Path, size: int) -> int:
    """A segment of about `size` bytes out of the batches of the large log, over and over; how many records it has."""
    content = archive("big")["00000000000000122186.log"]
    sizes, at = [], 0
    while at < len(content):
        length = 12 + int.from_bytes(content[at + 8 : at + 12], "big")
        sizes.append((at, length, int.from_bytes(content[at + 23 : at + 27], "big") + 1))
        at += length
    offset = 0
    with path.open("wb") as file:
        while file.tell() < size:
            for start, length, count in sizes:
                file.write(offset.to_bytes(8, "big"))  # not under the CRC
                file.write(content[start + 8 : start + length])
                offset += count
    return offset


def memory_of(segment: Path, view: str, decoder: Decoder) -> tuple[int, int]:
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, str(segment), view, decoder], capture_output=True, text=True, check=True
    )
    count, grown = done.stdout.split()
    return int(count), int(grown)


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux tells the peak of a while")
@pytest.mark.parametrize(("view", "decoder"), [(RECORDS, "python"), ("PartitionChangeRecord", "numpy")])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, view: str, decoder: Decoder) -> None:
    count = write_segment(tmp_path / FIRST[2:], 24 << 20)
    found, grown = memory_of(tmp_path / FIRST[2:], view, decoder)
    assert found == count or view != RECORDS
    assert grown < MOST_MB


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux tells the peak of a while")
def test_memory_of_the_batch_with_most_records(tmp_path: Path) -> None:
    """8 MB, which is the most that Kafka writes, of the smallest records there are."""
    segment = tmp_path / FIRST[2:]
    segment.write_bytes(build_batch(0, 1, 5, [encode_record(NoOpRecord(), 0)] * 650_000))
    found, grown = memory_of(segment, "NoOpRecord", "numpy")
    assert found == 650_000
    assert grown < MOST_MB


@pytest.mark.soak
@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("view", [RECORDS, "PartitionChangeRecord"])
def test_a_segment_of_a_gibibyte(tmp_path: Path, view: str, decoder: Decoder) -> None:
    write_segment(tmp_path / FIRST[2:], 1 << 30)
    _, grown = memory_of(tmp_path / FIRST[2:], view, decoder)
    print(f"{view}, {decoder}: {grown} MB")
    assert grown < MOST_MB
