"""The reader: every file of real nodes without a complaint, every damage with its place, and on from there."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata_log.disk import OsDisk
from metadata_log.errors import IncompleteBatch
from metadata_log.log.segment import scan_file
from metadata_log.memory_disk import MemoryDisk
from metadata_log.reading.annotate import annotate
from metadata_log.reading.annotate_file import annotate_file
from metadata_log.reading.damage import Damage, DamagedFile, OnDamage
from metadata_log.reading.entries import Entry, read_entries
from metadata_log.reading.file_kinds import FileKind, files_in, kind_of
from metadata_log.reading.reader import read_file, read_log
from metadata_log.reading.verify import verify_file
from metadata_log.records.batch import RecordBatch, scan
from metadata_log.records.batch_builder import build_batch
from metadata_log.serde import to_json
from support.real_data import archive, real_files, unpack

DAMAGED = archive("damaged")
SEGMENT = "__cluster_metadata-0/00000000000000004847.log"


def memory_file(content: bytes, path: str = "d/some.log") -> MemoryDisk:
    disk = MemoryDisk()
    disk.mkdir("d")
    disk.open(path, create=True).append(content)
    return disk


def everything_wrong(disk: MemoryDisk | OsDisk, path: str) -> list[Damage]:
    found = []
    for item in read_file(disk, path):
        if isinstance(item, Damage):
            found.append(item)
        else:
            found += [entry for entry in read_entries(item, path) if isinstance(entry, Damage)]
    return found


def test_records_of_real_clusters() -> None:
    """Every record of every log and snapshot of four clusters: type, version and JSON as Kafka itself reads them."""
    count = 0
    for path, content, expected in real_files():
        disk = memory_file(content, f"d/{path.rpartition('/')[2]}")
        for batch, wanted in zip(read_file(disk, f"d/{path.rpartition('/')[2]}"), expected, strict=True):
            assert isinstance(batch, RecordBatch), batch
            for entry, record in zip(read_entries(batch, path), wanted["records"], strict=True):
                assert isinstance(entry, Entry), entry
                assert (entry.offset, entry.timestamp) == (record["offset"], record["timestamp"])
                assert entry.record is not None
                assert to_json(entry.record, 0 if entry.is_control else entry.version) == record["json"]
                if not entry.is_control:
                    assert (entry.name, entry.type, entry.version) == (
                        record["name"],
                        record["api_key"],
                        record["version"],
                    )
                count += 1
    assert count == 29_803


def test_all_files_of_real_nodes_verify(tmp_path: Path) -> None:
    """Not one complaint about anything that Kafka wrote, down to the entries of indexes."""
    kinds = set()
    unpack("static3", "nodes", tmp_path / "static3")
    for cluster in ("dynamic3", "failover", "old39", "format"):
        unpack("clusters", f"{cluster}/nodes", tmp_path / cluster)
    disk = OsDisk()
    for node in sorted(tmp_path.glob("*/*")):
        for path in files_in(disk, str(node)):
            kind = kind_of(disk, path)
            kinds.add(kind)
            assert verify_file(disk, path, kind).damages == (), path
    assert kinds == set(FileKind) - {FileKind.OTHER}


def test_file_kinds_are_recognized_by_content(tmp_path: Path) -> None:
    """A copy under any name is still known for what it is."""
    node = unpack("static3", "nodes/c1", tmp_path / "node")
    disk = OsDisk()
    for name, kind in (
        ("quorum-state", FileKind.QUORUM_STATE),
        ("00000000000000000736.log", FileKind.SEGMENT),
        ("leader-epoch-checkpoint", FileKind.EPOCHS),
        ("partition.metadata", FileKind.PARTITION_METADATA),
        ("../meta.properties", FileKind.META_PROPERTIES),
    ):
        copy = tmp_path / "copy"
        copy.write_bytes((node / "__cluster_metadata-0" / name).read_bytes())
        assert kind_of(disk, str(copy)) is kind
    copy.write_bytes(b"nothing known")
    assert kind_of(disk, str(copy)) is FileKind.OTHER


def test_paths(tmp_path: Path) -> None:
    """A log directory stands for its files and its partition's; a file for itself; nothing for nothing."""
    unpack("static3", "nodes/c2", tmp_path)
    (tmp_path / ".lock").touch()
    disk = OsDisk()
    found = files_in(disk, f"{tmp_path}/")
    assert found[:2] == [f"{tmp_path}/bootstrap.checkpoint", f"{tmp_path}/meta.properties"]
    assert found[2:] == files_in(disk, f"{tmp_path}/__cluster_metadata-0")
    assert files_in(disk, found[0]) == [found[0]]
    with pytest.raises(FileNotFoundError):
        files_in(disk, f"{tmp_path}/none")


DAMAGE = {
    "truncated-last-batch": (36123, 5316, "a batch of 72 bytes ends after 52"),
    "truncated-last-header": (36123, 5316, "a batch of 72 bytes ends after 30"),
    "bitflip-last-batch": (36123, 5316, "give CRC 0xdd80a327 where 0x435e073d is stored"),
    "bitflip-middle-batch": (32167, 5271, "give CRC 0xc2051cd5 where 0xd1a784a2 is stored"),
    "zero-tail": (36195, 5317, "no batch has a length of 0; 4096 bytes cannot be read"),
    "torn-write": (36123, 5316, "CRC"),
    "wrong-magic-0": (36123, 5316, "old format 0"),
    "wrong-magic-3": (36123, 5316, "unknown batch format 3"),
    "negative-length": (36123, 5316, "no batch has a length of -1"),
    "huge-length": (36123, 5316, "a batch of 2147483659 bytes ends after 72"),
    "offset-gap": (32167, 5272, "begins at offset 5272 where 5271 comes next"),
    "offset-overlap": (32239, 5271, "begins at offset 5271 where 5272 comes next"),
    "epoch-backwards": (36123, 5316, "a batch of epoch 1 follows one of epoch 13"),
    "bad-frame-version": (36262, 5317, "record frame version 2"),
    "record-trailing-garbage": (36266, 5317, "trailing bytes"),
    "unknown-record-type": None,
    "unknown-record-version": None,
}


@pytest.mark.parametrize("case", DAMAGE)
def test_damage_of_segments(case: str) -> None:
    """Each damage is reported once with file, byte and offset; what this software does not know yet is not damage."""
    path = f"d/{SEGMENT.rpartition('/')[2]}"
    disk = memory_file(DAMAGED[f"cases/{case}/{SEGMENT}"], path)
    found = everything_wrong(disk, path)
    wanted = DAMAGE[case]
    if wanted is None:
        assert found == []
        return
    [damage] = found
    position, offset, words = wanted
    assert (damage.where, damage.position, damage.offset) == (path, position, offset)
    assert words in damage.what
    assert damage.unfinished == case.startswith("truncated")


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("snapshot-footer-missing", "without its footer"),
        ("snapshot-header-missing", "does not begin with its header"),
        ("snapshot-empty", "empty"),
        ("snapshot-bitflip", "CRC"),
        ("snapshot-truncated", "ends after"),
    ],
)
def test_damage_of_snapshots(case: str, words: str) -> None:
    path = "00000000000000005210-0000000008.checkpoint"
    disk = memory_file(DAMAGED[f"cases/{case}/__cluster_metadata-0/{path}"], f"d/{path}")
    [damage] = everything_wrong(disk, f"d/{path}")
    assert words in damage.what


def test_every_damage_is_found() -> None:
    """Reading goes on after damage, so that one dump shows all of it and loses no good batch."""
    batches = [build_batch(index, 1, 0, [b"\x02" * 50]) for index in range(10)]
    content = bytearray(b"".join(batches))
    size = len(batches[0])
    content[2 * size + 70] ^= 1
    content[5 * size + 11] ^= 0x40
    content[6 * size : 6 * size] = b"\x02" * 500
    disk = memory_file(bytes(content))
    found = list(read_file(disk, "d/some.log"))
    damages = [item for item in found if isinstance(item, Damage)]
    assert [(damage.position, damage.offset) for damage in damages] == [(2 * size, 2), (5 * size, 5)]
    good = [item.base_offset for item in found if isinstance(item, RecordBatch)]
    assert good == [0, 1, 3, 4, 6, 7, 8, 9]


def test_log_of_several_segments() -> None:
    """Batches from an offset on, across segments, of a log that is still open."""
    files = archive("static3")
    disk = MemoryDisk()
    disk.mkdir("d")
    whole = b""
    for name in sorted(files):
        if name.startswith("nodes/c1/") and name.endswith(".log"):
            disk.open(f"d/{name.rpartition('/')[2]}", create=True).append(files[name])
            whole += files[name]
    assert b"".join(batch.data for batch in read_log(disk, "d") if isinstance(batch, RecordBatch)) == whole
    first, *_ = found = list(read_log(disk, "d", 4100))
    assert isinstance(first, RecordBatch)
    assert first.base_offset <= 4100 < first.next_offset
    assert isinstance(found[-1], RecordBatch)
    assert found[-1].next_offset == 5317


@given(st.binary(max_size=400))
def test_garbage_is_damage(content: bytes) -> None:
    """Any content at all is read to its end, as batches or as damage."""
    disk = memory_file(content)
    for item in read_file(disk, "d/some.log"):
        assert item.position is not None
    assert isinstance(kind_of(disk, "d/some.log"), FileKind)


def test_every_byte_has_a_field() -> None:
    """The annotation of a real batch covers each byte once, in order, and names the fields of its records."""
    seen = set()
    for path, content, _ in real_files():
        if not path.startswith(("old39/", "dynamic3/")) or not path.endswith(".log"):
            continue
        for batch in scan(content):
            position = 0
            for span in annotate(batch):
                assert span.position == position
                assert not span.field.startswith("not decoded")
                position += len(span.data)
                seen.add(span.field)
            assert position == batch.size_bytes
    assert {"base offset", "record 0 LeaderChangeMessage leaderId", "record 0 NoOpRecord tagged fields"} <= seen


@given(st.data())
def test_annotation_of_damaged_records(data: st.DataObject) -> None:
    """Also where a batch's records are nonsense every byte is shown once."""
    batch = next(scan(build_batch(0, 1, 0, [b"\x01\x02\x00\x05abcd", b"\x01\x14\x00\x00"])))
    content = bytearray(batch.data)
    for _ in range(3):
        content[data.draw(st.integers(61, len(content) - 1))] = data.draw(st.integers(0, 255))
    [hostile] = scan(bytes(content), verify=False)
    assert b"".join(span.data for span in annotate(hostile)) == bytes(content)


def test_verify_notices_a_wrong_index(tmp_path: Path) -> None:
    directory = unpack("static3", "nodes/c1", tmp_path) / "__cluster_metadata-0"
    disk = OsDisk()
    for suffix in (".index", ".timeindex"):
        path = directory / f"00000000000000000736{suffix}"
        content = bytearray(path.read_bytes())
        content[7] += 1
        path.write_bytes(bytes(content))
        verdict = verify_file(disk, str(path), kind_of(disk, str(path)))
        assert "entry 0: no batch" in verdict.damages[0].what


def test_every_byte_of_every_file_has_a_field(tmp_path: Path) -> None:
    """Indexes and small files, too: each byte once, in order, under a name; of Kafka's own none is unknown."""
    disk, fields = OsDisk(), set()
    unpack("static3", "nodes", tmp_path / "static3")
    unpack("clusters", "dynamic3/nodes", tmp_path / "dynamic3")
    for node in sorted(tmp_path.glob("*/*")):
        for path in files_in(disk, str(node)):
            kind = kind_of(disk, path)
            if kind in {FileKind.SEGMENT, FileKind.SNAPSHOT}:
                continue
            position = 0
            for span in annotate_file(kind, disk.read(path)):
                assert (span.position, span.field in {"not known", "behind the last whole entry"}) == (position, False)
                position += len(span.data)
                fields.add((kind, span.field))
            assert position == len(disk.read(path))
    assert {
        (FileKind.OFFSET_INDEX, "entry 0 relative offset"),
        (FileKind.TIME_INDEX, "entry 1 timestamp"),
        (FileKind.QUORUM_STATE, "leaderEpoch"),
        (FileKind.QUORUM_STATE, "votedDirectoryId: name"),
        (FileKind.META_PROPERTIES, "cluster.id"),
        (FileKind.EPOCHS, "entry 0 start offset"),
        (FileKind.PARTITION_METADATA, "topic_id"),
        (FileKind.PRODUCER_SNAPSHOT, "CRC-32C of what follows"),
    } <= fields


@given(
    kind=st.sampled_from(FileKind),
    content=st.binary(max_size=60) | st.text('{}[]",:a1\n ', max_size=40).map(str.encode),
)
def test_annotation_of_damaged_files(kind: FileKind, content: bytes) -> None:
    assert b"".join(span.data for span in annotate_file(kind, content)) == content


def batches_of(values: list[list[bytes]], *, damaged: int) -> MemoryDisk:
    content, offset = b"", 0
    for index, group in enumerate(values):
        batch = bytearray(build_batch(offset, 1, 0, group))
        batch[-1] ^= index == damaged
        content, offset = content + bytes(batch), offset + len(group)
    return memory_file(content)


def test_modes_of_reading() -> None:
    """Spark's PERMISSIVE, a stop, and FAILFAST: on, up to, or not past the first damage."""
    disk = batches_of([[b"\x01\x14\x00\x00"]] * 4, damaged=2)

    def shown(mode: OnDamage) -> list[str]:
        found = read_file(disk, "d/some.log", on_damage=mode)
        words = (f"damage at {one.offset}" if isinstance(one, Damage) else str(one.base_offset) for one in found)
        seen: list[str] = []
        try:
            seen.extend(words)
        except DamagedFile as bad:
            seen.append(f"error at {bad.damage.offset}")
        return seen

    assert shown(OnDamage.SKIP) == ["0", "1", "damage at 2", "3"]
    assert shown(OnDamage.STOP) == ["0", "1", "damage at 2"]
    assert shown(OnDamage.STRICT) == ["0", "1", "error at 2"]


def test_modes_of_reading_records() -> None:
    """The same within a batch: the records before the damage, and in one mode those after it."""
    [batch] = scan(
        build_batch(0, 1, 0, [b"\x01\x14\x00\x00", b"\x02\x14\x00\x00", b"\x01\x63\x00", b"\x01\x14\x00\x00"])
    )
    shown = [one.offset for one in read_entries(batch, "here")]
    assert shown == [0, 1, 2, 3]
    assert [one.offset for one in read_entries(batch, "here", on_damage=OnDamage.STOP)] == [0, 1]
    with pytest.raises(DamagedFile, match="frame version 2") as caught:
        list(read_entries(batch, "here", on_damage=OnDamage.STRICT))
    [damage] = [one for one in read_entries(batch, "here") if isinstance(one, Damage)]
    assert caught.value.damage == damage
    assert damage.position is not None
    assert batch.data[damage.position : damage.position + 1] == b"\x02"


@pytest.mark.parametrize("left", [0, 30, 700])
def test_a_file_that_is_cut_while_it_is_read(left: int) -> None:
    """A node that follows another leader truncates its log under its readers: the reading ends, as at a torn batch."""
    disk = MemoryDisk()
    writer = disk.open("00000000000000000000.log", create=True)
    writer.append(b"".join(build_batch(offset, 1, 0, [b"x" * 900]) for offset in range(10)))
    reader = disk.open("00000000000000000000.log", writable=False)
    read = scan_file(reader, end=writer.size(), chunk_bytes=1000)
    next(read)
    writer.truncate(left)
    with pytest.raises(IncompleteBatch):
        list(read)
