"""The log: real directories opened as Kafka opens them, reading and cutting at any offset, rolling, and damage."""

from __future__ import annotations

import errno
import json
from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kraft.sim.state.forking import forked
from metadata_log.disk import OsDisk
from metadata_log.errors import CorruptBatch, UnsupportedVersion
from metadata_log.log.epochs import parse_epochs
from metadata_log.log.indexes import TIME_ENTRY_BYTES
from metadata_log.log.log import TAIL_BYTES, MetadataLog
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records import batch as batch_module
from metadata_log.records.batch import HEADER_BYTES, scan
from metadata_log.records.batch_builder import build_batch, build_control_batch
from support.real_data import archive, unpack

REAL_NODES = [
    ("static3", "nodes/c1", 0, 5317, 13),
    ("static3", "nodes/c2", 5210, 5318, 14),
    ("static3", "nodes/c3", 4847, 5319, 15),
    ("clusters", "dynamic3/nodes/c1", 369, 985, 6),
    ("clusters", "failover/nodes/c1", 0, 3660, 3),
    ("clusters", "old39/nodes/c1", 0, 634, 5),
]
PARTITION = "__cluster_metadata-0"


def read_all(log: MetadataLog, max_bytes: int = 5000) -> bytes:
    out = b""
    offset = log.start_offset
    while data := log.read(offset, max_bytes):
        out += data
        *_, last = scan(data)
        offset = last.next_offset
    assert offset == log.end_offset
    return out


@pytest.mark.parametrize(("name", "node", "start", "end", "epoch"), REAL_NODES)
def test_real_directory(name: str, node: str, start: int, end: int, epoch: int, tmp_path: Path) -> None:
    """Opening a directory of a real node finds Kafka's offsets and epochs, cuts nothing, and reads back every byte."""
    files = {path.name: path.read_bytes() for path in unpack(name, f"{node}/{PARTITION}", tmp_path).iterdir()}
    log = MetadataLog.open(OsDisk(), str(tmp_path))
    assert (log.start_offset, log.end_offset, log.last_epoch) == (start, end, epoch)
    assert log.flushed_offset == end
    assert log.recovered == ()
    assert read_all(log) == b"".join(files[name] for name in sorted(files) if name.endswith(".log"))
    assert log.size_bytes == sum(len(files[name]) for name in files if name.endswith(".log"))
    theirs = parse_epochs(files["leader-epoch-checkpoint"]).truncate_start(start)
    assert log.epochs.entries[-len(theirs.entries) + 1 :] == theirs.entries[1:]
    log.close()
    for path in tmp_path.iterdir():
        if path.suffix in {".log", ".checkpoint"} or path.name in {"quorum-state", "partition.metadata"}:
            assert path.read_bytes() == files[path.name]


RESTARTED_AT = {
    "static3/nodes/c1/4847": 5264,
    "clusters/dynamic3/nodes/c1/369": 442,
    "clusters/dynamic3/nodes/c3/843": 966,
    "clusters/failover/nodes/c2/0": 1605,
    "clusters/failover/nodes/b101/0": 2654,
    "clusters/failover/nodes/b102/0": 3023,
    "clusters/failover/nodes/b103/0": 3385,
    "clusters/old39/nodes/c1/0": 617,
    "clusters/old39/nodes/c2/0": 202,
    "clusters/old39/nodes/c3/0": 213,
    "clusters/old39/nodes/b101/0": 257,
    "clusters/old39/nodes/b102/0": 448,
}
"""Where a segment of the corpus ended when its node, Kafka, started for the last time and wrote on."""

KILLED = {"clusters/dynamic3/nodes/b101", "clusters/dynamic3/nodes/b102", "clusters/dynamic3/nodes/b103"}
KILLED |= {"clusters/old39/nodes/b101", "clusters/old39/nodes/b102"}
"""Nodes that never closed their last segment, so that the entry is missing that ends its time index."""


def index_pairs() -> Iterator[tuple[str, int, bytes, bytes, bytes]]:
    """Every segment of the corpus that has indexes: node, base offset, log, offset index, time index."""
    for name in ("static3", "clusters"):
        files = archive(name)
        for path in sorted(files):
            if path.endswith(".index"):
                stem = path.removesuffix(".index")
                node, _, base = stem.rpartition(f"/{PARTITION}/")
                yield f"{name}/{node}", int(base), files[f"{stem}.log"], files[path], files[f"{stem}.timeindex"]


def rebuilt(content: bytes, base: int, restarted_at: int | None) -> tuple[bytes, bytes]:
    """Both indexes of a log into which its batches were written, with a restart before that of one offset."""
    disk = MemoryDisk()
    log = MetadataLog.open(disk, "d")
    log.reset_to(base)
    for batch in scan(content):
        if batch.base_offset == restarted_at:
            log.close()
            log = MetadataLog.open(disk, "d")
        log.append(batch.data)
    log.close()
    return disk.read(f"d/{base:020d}.index"), disk.read(f"d/{base:020d}.timeindex")


def test_indexes_as_kafka_builds_them() -> None:
    """Every index file of the corpus, byte for byte, given where its node was restarted in the middle of it."""
    count = 0
    for node, base, content, offsets, times in index_pairs():
        found = rebuilt(content, base, RESTARTED_AT.get(f"{node}/{base}"))
        end = -TIME_ENTRY_BYTES if node in KILLED else None
        assert (found[0], found[1][:end]) == (offsets, times), (node, base)
        count += 1
    assert count >= 23


# ------------------------------------------------------------------------------------------------------ a small log


def new_log(disk: MemoryDisk | None = None, **options: Any) -> MetadataLog:
    arguments = {"segment_bytes": 1 << 30, "segment_ms": 10**12, "index_interval_bytes": 300} | options
    return MetadataLog.open(disk or MemoryDisk(), "d", **arguments)


def add(log: MetadataLog, count: int = 3, epoch: int = 1, timestamp: int = 0) -> bytes:
    """Append a batch of `count` records."""
    data = build_batch(log.end_offset, epoch, timestamp, [b"%d" % (log.end_offset + index) for index in range(count)])
    log.append(data)
    return data


def test_empty_log() -> None:
    log = new_log()
    assert (log.start_offset, log.end_offset, log.last_epoch, log.size_bytes) == (0, 0, None, 0)
    assert log.read(0, 1000) == b""
    assert log.truncate(0) == 0


def test_reading() -> None:
    """Whole batches from the one that holds the offset: at least one, as many as fit, none past the end asked for."""
    disk = MemoryDisk()
    log = new_log(disk)
    batches = [add(log) for _ in range(20)]
    log.close()
    for reader in (log, new_log(disk)):
        for offset in range(60):
            first = offset // 3
            assert reader.read(offset, 0) == batches[first]
            assert reader.read(offset, len(batches[first]) * 3 + 5).startswith(batches[first])
            assert reader.read(offset, 1 << 20) == b"".join(batches[first:])
        two = len(batches[0]) + len(batches[1])
        assert reader.read(0, two) == batches[0] + batches[1]
        assert reader.read(0, two - 1) == batches[0]
        assert reader.read(0, 1 << 20, end_offset=6) == batches[0] + batches[1]
        assert reader.read(0, 1 << 20, end_offset=5) == batches[0]
        assert reader.read(0, 1 << 20, end_offset=2) == b""
        assert reader.read(60, 1 << 20) == b""
        for offset, most, end in ((0, 0, 60), (1, two, 60), (4, 1 << 20, 5), (4, 1 << 20, 12), (60, 1, 60)):
            found = reader.read_batches(offset, most, end_offset=end)
            assert b"".join(batch.data for batch in found) == reader.read(offset, most, end_offset=end)
        with pytest.raises(AssertionError):
            reader.read(61, 1)
        log = reader


def test_a_read_examines_few_of_many_small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at each of 50,000 headers kept a leader from its quorum for 90 ms per answer."""
    disk = MemoryDisk()
    log = new_log(disk, index_interval_bytes=4096)
    batches = [add(log) for _ in range(5000)]
    log.close()
    log = new_log(disk, index_interval_bytes=4096)
    looks, layout = 0, batch_module._HEADER

    class Counting:
        def unpack_from(self, data: bytes, at: int) -> tuple[Any, ...]:
            nonlocal looks
            looks += 1
            return layout.unpack_from(data, at)

    monkeypatch.setattr(batch_module, "_HEADER", Counting())
    rng, per_interval = Random(3), 4096 // len(batches[0]) + 2
    starts = [0, *accumulate(len(batch) for batch in batches)]
    for _ in range(300):
        first = rng.randrange(5000)
        most, end = rng.choice((0, 300, 10_000, 1 << 20)), rng.choice((15_000, rng.randrange(first * 3 + 1, 15_001)))
        looks = 0
        found = log.read(first * 3 + rng.randrange(3), most, end_offset=max(end, first * 3 + 3))
        last = min(max(bisect_right(starts, starts[first] + most) - 1, first + 1), max(end // 3, first + 1))
        assert found == b"".join(batches[first:last])
        assert looks <= 2 * per_interval


def test_many_batches_in_one_append() -> None:
    """A follower appends what a fetch brought: several batches, perhaps of several epochs."""
    disk = MemoryDisk()
    log = new_log(disk)
    data = (
        build_batch(0, 1, 0, [b"a", b"b"])
        + build_control_batch(2, 4, 0, [(2, b"leader")])
        + build_batch(3, 4, 0, [b"c"])
    )
    log.append(data)
    assert log.end_offset == 4
    assert [(entry.epoch, entry.offset) for entry in log.epochs.entries] == [(1, 0), (4, 2)]
    assert disk.read("d/leader-epoch-checkpoint") == b"0\n2\n1 0\n4 2\n"
    assert log.read(0, 1 << 20) == data


def test_rolling_by_size_and_time() -> None:
    disk = MemoryDisk()
    size = len(build_batch(0, 1, 0, [b"0", b"1", b"2"]))
    log = new_log(disk, segment_bytes=size * 2 + 10, segment_ms=1000)
    written = [add(log, timestamp=timestamp) for timestamp in (0, 0, 0, 1000, 1001, 1001, 2002)]
    names = [name for name in disk.list("d") if name.endswith(".log")]
    assert names == [f"{base:020d}.log" for base in (0, 6, 12, 18)]
    assert read_all(log) == b"".join(written)
    assert disk.exists("d/00000000000000000006.index")
    assert not disk.exists("d/00000000000000000018.index")
    assert log.flushed_offset == 18
    log.close()
    assert disk.exists("d/00000000000000000018.timeindex")
    again = new_log(disk)
    assert read_all(again) == b"".join(written)
    assert not disk.exists("d/00000000000000000018.timeindex")


def test_segments_roll_before_relative_offsets_overflow() -> None:
    """Indexes hold 32-bit distances: a segment ends before they overflow."""
    disk = MemoryDisk()
    log = new_log(disk)
    log.append(build_batch(0, 1, 0, [b"x"]))
    log.end_offset = 2**31 - 1
    log.append(build_batch(2**31 - 1, 1, 0, [b"x"]))
    log.append(build_batch(2**31, 1, 0, [b"x"]))
    assert [name for name in disk.list("d") if name.endswith(".log")] == [f"{0:020d}.log", f"{2**31:020d}.log"]


@pytest.mark.parametrize("cut", range(60))
def test_a_log_can_be_truncated_at_any_offset(cut: int) -> None:
    """Within, between and across segments; inside a batch all of it goes. A restart finds the same end."""
    disk = MemoryDisk()
    size = len(build_batch(0, 1, 0, [b"0", b"1", b"2"]))
    log = new_log(disk, segment_bytes=size * 6)
    written = [add(log, epoch=1 + index // 4, timestamp=index) for index in range(20)]
    assert log.truncate(cut) == cut - cut % 3
    kept = written[: cut // 3]
    assert log.end_offset == log.flushed_offset == 3 * len(kept)
    assert read_all(log) == b"".join(kept)
    assert log.last_epoch == (1 + (len(kept) - 1) // 4 if kept else None)
    disk.crash()
    reopened = new_log(disk, segment_bytes=size * 6)
    assert (reopened.end_offset, reopened.epochs, reopened.recovered) == (log.end_offset, log.epochs, ())
    kept.append(add(reopened, epoch=99))
    reopened.close()
    written_on = sorted(name for name in disk.list("d") if name.endswith("index"))[-2:]
    truncated_indexes = {
        name: disk.read(f"d/{name}") for name in disk.list("d") if name.endswith("index") and name not in written_on
    }
    for name in (*truncated_indexes, *written_on):
        disk.remove(f"d/{name}")
    last = new_log(disk, segment_bytes=size * 6)
    assert read_all(last) == b"".join(kept)
    last.close()
    assert {name: disk.read(f"d/{name}") for name in truncated_indexes} == truncated_indexes


@pytest.mark.parametrize("cut", range(3, 18, 3))
def test_a_damaged_header_never_moves_the_cut_of_a_truncation(cut: int) -> None:
    """No CRC covers the offset at which a batch begins. Each byte of each header is changed in turn."""
    content = [build_batch(offset, 1, 0, [b"0", b"1", b"2"]) for offset in range(0, 21, 3)]
    size, path = len(content[0]), f"d/{0:020d}.log"
    outcomes, places = set[str](), set[tuple[str | None, bool]]()
    for at in (batch * size + byte for batch in range(len(content)) for byte in range(HEADER_BYTES)):
        disk = MemoryDisk()
        log = new_log(disk, index_interval_bytes=size)
        for one in content:
            log.append(one)
        whole = disk.read(path)
        disk.overwrite(path, at, bytes([whole[at] ^ 1]))
        damaged = disk.read(path)
        try:
            assert log.truncate(cut) == cut
            outcomes.add("cut")
            assert disk.read(path) == damaged[: cut // 3 * size]
        except (CorruptBatch, UnsupportedVersion) as bad:
            outcomes.add("refused")
            assert disk.read(path) == damaged
            places.add((bad.where, bad.position is None))
    assert places == {(path, False)}
    assert outcomes == {"cut", "refused"}


def test_a_truncation_removes_its_epochs_from_the_checkpoint() -> None:
    """Kafka reads leader-epoch-checkpoint; the next start here builds the file again."""
    disk = MemoryDisk()
    log = new_log(disk)
    for epoch in (1, 2, 3):
        add(log, epoch=epoch)
    log.truncate(3)
    assert parse_epochs(disk.read("d/leader-epoch-checkpoint")) == log.epochs
    assert log.last_epoch == 1


def test_reset_to_a_snapshot() -> None:
    disk = MemoryDisk()
    log = new_log(disk, segment_bytes=300)
    for _ in range(10):
        add(log)
    log.reset_to(77)
    assert (log.start_offset, log.end_offset, log.flushed_offset, log.last_epoch) == (77, 77, 77, None)
    assert [name for name in disk.list("d") if name.endswith(".log")] == ["00000000000000000077.log"]
    data = add(log, epoch=5)
    assert log.read(77, 1000) == data
    log.close()
    again = new_log(disk)
    assert (again.start_offset, again.end_offset) == (77, 80)
    assert [(entry.epoch, entry.offset) for entry in again.epochs.entries] == [(5, 77)]


def test_the_tail_in_memory_is_bounded() -> None:
    """The newest batches are served without the disk, older ones from it, and neither loses a byte."""
    disk = MemoryDisk()
    log = new_log(disk)
    batch = [b"x" * 1000] * 100
    written = []
    while log.end_offset < 3 * TAIL_BYTES // 1000:
        written.append(build_batch(log.end_offset, 1, 0, batch))
        log.append(written[-1])
        assert log._tail_bytes <= TAIL_BYTES
    assert 0 < log._tail_offsets[0] < log.end_offset - 100
    assert read_all(log, 1 << 20) == b"".join(written)


# ---------------------------------------------------------------------------------------------- flushing in a thread


def test_flush_in_the_background() -> None:
    """A batch that was appended after the handle was made is not on the disk when the handle is done."""
    disk = MemoryDisk()
    log = new_log(disk)
    add(log)
    handle = log.flush_handle()
    with pytest.raises(AssertionError):
        log.flush_handle()
    add(log)
    handle.run()
    assert log.flushed_offset == 0
    log.flush_done()
    assert (handle.offset, log.flushed_offset, log.end_offset) == (3, 3, 6)


def test_flush_outlived_by_a_truncation() -> None:
    """The offsets that it flushed may mean other records now."""
    log = new_log()
    for _ in range(5):
        add(log)
    handle = log.flush_handle()
    log.truncate(6)
    add(log, epoch=2)
    handle.run()
    log.flush_done()
    assert log.flushed_offset == 6


def test_flush_of_a_deleted_segment() -> None:
    """The file stays open until the other thread is done with it."""
    log = new_log(segment_bytes=300)
    for _ in range(10):
        add(log)
    handle = log.flush_handle()
    log.reset_to(100)
    log.reset_to(200)
    handle.run()
    log.flush_done()
    assert log.flushed_offset == 200
    log.flush_handle().run()
    log.flush_done()


@pytest.mark.parametrize("second", ["flush", "close", "truncate", "roll", "handle"])
def test_a_failed_fsync_is_never_repeated(second: str) -> None:
    """Another one would succeed (Linux drops what it could not write), and say that records are on the disk."""
    disk, fsyncs = MemoryDisk(), []

    def fail(operation: str, path: str) -> None:
        if operation == "fsync" and path.endswith(".log"):
            fsyncs.append(path)
            raise OSError(errno.EIO, "Input/output error", path)

    log = new_log(disk)
    add(log)
    handle = log.flush_handle()
    disk.on_operation = fail
    with pytest.raises(OSError, match="Input/output"):
        handle.run()
    disk.on_operation = lambda operation, path: fsyncs.append(path)
    repeat = {"flush": log.flush, "close": log.close, "truncate": lambda: log.truncate(0), "roll": log.roll}
    with pytest.raises(OSError, match="Input/output"):
        repeat.get(second, handle.run)()
    assert fsyncs == [f"d/{0:020d}.log"]
    assert log.flushed_offset == 0


def test_closing_a_log_after_a_failed_fsync_closes_its_files() -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    add(log)
    disk.on_operation = fails_once("fsync")
    with pytest.raises(OSError, match="fsync"):
        log.close()
    assert disk._open == {}
    assert [name for name in disk.list("d") if name.endswith("index")] == []


def fails_once(wanted: str) -> Callable[[str, str], None]:
    left = 1

    def fail(operation: str, path: str) -> None:
        nonlocal left
        if operation == wanted and left:
            left -= 1
            raise OSError(errno.EIO, f"{operation} failed", path)

    return fail


def test_flush_overtaken_by_a_roll() -> None:
    log = new_log(segment_bytes=300)
    add(log)
    handle = log.flush_handle()
    for _ in range(6):
        add(log)
    rolled = log.flushed_offset
    assert rolled > 3
    handle.run()
    log.flush_done()
    assert log.flushed_offset == rolled


def test_fork() -> None:
    """A fork goes its own way, also with a flush under way."""
    disk = MemoryDisk()
    log = new_log(disk)
    add(log)
    log.flush_handle()
    other = forked(log)
    add(log)
    other.truncate(0)
    data = add(other, epoch=9)
    assert other.flushing is not None
    other.flushing.run()
    other.flush_done()
    assert (log.end_offset, other.end_offset, log.last_epoch, other.last_epoch) == (6, 3, 1, 9)
    assert read_all(other) == data
    assert len(list(scan(read_all(log)))) == 2


# ------------------------------------------------------------------------------------------------------------ damage

DAMAGED = archive("damaged")
CASES = {case["case"]: case for case in json.loads(DAMAGED["cases.json"])}
CUT = {
    "truncated-last-batch": 5316,
    "truncated-last-header": 5316,
    "bitflip-last-batch": 5316,
    "zero-tail": 5317,
    "torn-write": 5316,
    "wrong-magic-0": 5316,
    "wrong-magic-1": 5316,
    "negative-length": 5316,
    "huge-length": 5316,
}
REFUSED = {
    "bitflip-middle-batch": "no torn write has left it: the batch of offset 5272 at byte 32239 is whole",
    "bitflip-old-segment": "no torn write has left it: a segment is on the disk before the next one begins",
    "wrong-magic-3": "unknown batch format 3",
    "offset-gap": "begins at offset 5272 where 5271 comes next",
    "offset-overlap": "begins at offset 5271 where 5272 comes next",
    "epoch-backwards": "a batch of epoch 1 follows one of epoch 13",
    "segment-missing": "the log has no records from offset 2908 to 4072",
}
KEPT = [
    "control",
    "index-missing",
    "index-garbage",
    "leader-epoch-checkpoint-missing",
    "leader-epoch-checkpoint-garbage",
]


def damaged(case: str, target: Path) -> Path:
    directory = unpack("static3", "nodes/c1", target)
    unpack("damaged", f"cases/{case}", target)
    for name in CASES[case]["removed_files"]:
        (target / name).unlink()
    return directory / PARTITION


@pytest.mark.parametrize("case", CUT)
def test_a_torn_write_is_truncated_where_kafka_truncates(case: str, tmp_path: Path) -> None:
    """A possible torn write is cut, and we say so; as a real start on these files did."""
    directory = damaged(case, tmp_path)
    log = MetadataLog.open(OsDisk(), str(directory))
    assert (log.start_offset, log.end_offset) == (0, CUT[case])
    assert f"truncated the log at offset {CUT[case]}" in log.recovered[0]
    theirs = [line for line in CASES[case]["observed"]["messages"] if "truncating to offset" in line]
    assert [line.rpartition(" ")[2] for line in theirs] == [str(CUT[case])]
    assert log.epochs.entries[-1].offset < CUT[case]
    assert len(log.recovered) == 1
    assert len(list(directory.glob("*.log"))) == 6
    log.append(build_batch(log.end_offset, 20, 0, [b"on it goes"]))
    log.close()
    again = MetadataLog.open(OsDisk(), str(directory))
    assert (again.end_offset, again.recovered) == (CUT[case] + 1, ())


@pytest.mark.parametrize("case", REFUSED)
def test_damage_that_truncation_cannot_repair_is_refused(case: str, tmp_path: Path) -> None:
    """Records in a wrong order, of an unknown format, or lost by the disk: refused with file and byte."""
    directory = damaged(case, tmp_path)
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    with pytest.raises(CorruptBatch, match=REFUSED[case]) as caught:
        MetadataLog.open(OsDisk(), str(directory))
    assert str(directory) in (caught.value.where or "")
    assert caught.value.position is not None or case == "segment-missing"
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before


@pytest.mark.parametrize("case", KEPT)
def test_indexes_and_epoch_checkpoint_are_rebuilt(case: str, tmp_path: Path) -> None:
    """Indexes and the epoch checkpoint follow from the log; wrong or missing ones harm nothing."""
    log = MetadataLog.open(OsDisk(), str(damaged(case, tmp_path)))
    assert (log.start_offset, log.end_offset, len(log.epochs.entries)) == (0, 5317, 13)
    assert parse_epochs((tmp_path / PARTITION / "leader-epoch-checkpoint").read_bytes()) == log.epochs


@pytest.mark.parametrize("byte", range(0, 80, 3))
def test_a_damaged_byte_of_the_last_batch_loses_only_that_batch(byte: int) -> None:
    """Whatever byte of the last batch turns, the batches before it stay, and nothing wrong passes for right."""
    disk = MemoryDisk()
    log = new_log(disk)
    good = add(log) + add(log)
    position = log.size_bytes
    add(log, count=6)
    log.close()
    path = f"d/{0:020d}.log"
    content = bytearray(disk.read(path))
    content[position + byte] ^= 0x5A
    file = disk.open(path)
    file.truncate(0)
    file.append(bytes(content))
    try:
        again = new_log(disk)
    except CorruptBatch:
        assert byte < 17, "a CRC would have shown it"
        return
    assert read_all(again)[:position] == good
    assert again.end_offset == 6 or 12 <= byte < 16, "only an epoch may change unnoticed"
