"""Batches in files: read in chunks, sought after damage, and found by their offset."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from google_crc32c import value as crc32c

from metadata_log.disk import File
from metadata_log.errors import CorruptBatch, IncompleteBatch
from metadata_log.log import log as log_module
from metadata_log.log import recovery
from metadata_log.log import segment as segment_module
from metadata_log.log.log import MetadataLog
from metadata_log.log.segment import Segment, next_sound_batch, parse_file_name, scan_file, scan_headers
from metadata_log.log.torn_write import SECTOR_BYTES, _has_hole
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.batch import HEADER_BYTES, scan
from metadata_log.records.batch_builder import build_batch

SIZES = (30, 400, 10, 90, 1000, 20)


def file_of(*pieces: bytes) -> tuple[MemoryDisk, File]:
    disk = MemoryDisk()
    file = disk.open("f", create=True)
    for piece in pieces:
        file.append(piece)
    return disk, file


def batches() -> list[bytes]:
    return [build_batch(offset, 3, 5, [b"x" * size]) for offset, size in enumerate(SIZES)]


@pytest.mark.parametrize("chunk_bytes", [61, 62, 100, 110, 500, 1 << 20])
def test_a_batch_may_be_larger_than_the_pieces_in_which_a_file_is_read(chunk_bytes: int) -> None:
    _, file = file_of(*batches())
    assert [batch.data for batch in scan_file(file, chunk_bytes=chunk_bytes)] == batches()


@pytest.mark.parametrize("chunk_bytes", [61, 100, 1 << 20])
@pytest.mark.parametrize("missing", [1, 20, 60, 80])
def test_a_file_that_ends_inside_a_batch_yields_the_batches_before(missing: int, chunk_bytes: int) -> None:
    content = b"".join(batches())
    _, file = file_of(content[:-missing])
    scan = scan_file(file, chunk_bytes=chunk_bytes)
    assert [next(scan).data for _ in SIZES[:-1]] == batches()[:-1]
    with pytest.raises(IncompleteBatch) as ended:
        next(scan)
    assert ended.value.position == len(content) - len(batches()[-1])


@pytest.mark.parametrize("scan", [scan_file, scan_headers])
@pytest.mark.parametrize("first", range(len(SIZES)))
def test_a_scan_yields_the_batches_between_two_positions(scan: Callable[..., Any], first: int) -> None:
    content = batches()
    _, file = file_of(*content)
    starts = [sum(map(len, content[:count])) for count in range(len(content) + 1)]
    for last in range(first, len(content) + 1):
        found = [batch.base_offset for batch in scan(file, starts[first], end=starts[last])]
        assert found == list(range(first, last))


def test_the_stored_batches_begin_with_the_one_that_holds_the_offset() -> None:
    disk = MemoryDisk()
    log = MetadataLog.open(disk, "d", segment_bytes=500, index_interval_bytes=200)
    for offset in range(0, 60, 3):
        log.append(build_batch(offset, 1, 5, [b"x" * 10] * 3))
    for offset in range(60):
        found = [(batch.base_offset, path) for batch, path in log.stored_batches(offset)]
        assert [base for base, _ in found] == list(range(offset // 3 * 3, 60, 3))
        assert found[-1][1] == max(f"d/{name}" for name in disk.list("d") if name.endswith(".log"))
    assert list(log.stored_batches(60)) == []


def test_a_log_has_in_memory_what_was_appended_since_the_start() -> None:
    disk = MemoryDisk()
    log = MetadataLog.open(disk, "d")
    for offset in (0, 3):
        log.append(build_batch(offset, 1, 5, [b"x"] * 3))
    log.close()
    log = MetadataLog.open(disk, "d")
    assert [log.batch_in_memory(offset) for offset in (0, 5, 6)] == [None, None, None]
    for offset in (6, 9):
        log.append(build_batch(offset, 1, 5, [b"x"] * 3))
    found = [log.batch_in_memory(offset) for offset in range(13)]
    assert [None if batch is None else batch.base_offset for batch in found] == [None] * 6 + [6] * 3 + [9] * 3 + [None]


def test_a_batch_one_byte_behind_damage_is_found() -> None:
    """One byte between two batches, and the second one is whole: no torn write leaves that."""
    disk = MemoryDisk()
    log = MetadataLog.open(disk, "d")
    log.append(build_batch(0, 1, 5, [b"first"]))
    log.close()
    file = disk.open("d/00000000000000000000.log", create=False)
    file.append(b"!" + build_batch(2, 1, 5, [b"third"]))
    file.fsync()
    file.close()
    with pytest.raises(CorruptBatch, match="the batch of offset 2 at byte"):
        MetadataLog.open(disk, "d")


# Memory


def test_the_newest_batches_stay_in_memory_up_to_a_limit_and_half_of_it_after_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    content = [build_batch(offset, 1, 5, [b"x" * (10 + 37 * offset % 50)]) for offset in range(60)]
    for limit in (11 * len(content[0]), 1001, 1500):
        monkeypatch.setattr(log_module, "TAIL_BYTES", limit)
        log = MetadataLog.open(MemoryDisk(), "d")
        kept: list[bytes] = []
        for offset, data in enumerate(content):
            log.append(data)
            kept.append(data)
            if sum(map(len, kept)) > limit:
                while sum(map(len, kept)) > limit // 2:
                    del kept[0]
            in_memory = [log.batch_in_memory(one) for one in range(offset + 1)]
            assert [batch.data for batch in in_memory if batch is not None] == kept
        assert log.batch_in_memory(0) is None
        assert log.read(0, 1) == content[0]


def test_a_log_of_equal_batches_keeps_exactly_as_many_as_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(build_batch(0, 1, 5, [b"x" * 10]))
    monkeypatch.setattr(log_module, "TAIL_BYTES", 10 * size)
    log = MetadataLog.open(MemoryDisk(), "d")
    in_memory = []
    for offset in range(17):
        log.append(build_batch(offset, 1, 5, [b"x" * 10]))
        in_memory.append(sum(log.batch_in_memory(one) is not None for one in range(offset + 1)))
    assert in_memory == [*range(1, 11), *range(5, 11), 5]


def test_a_log_that_begins_anew_at_a_snapshot_has_nothing_of_the_former_one() -> None:
    disk = MemoryDisk()
    log = MetadataLog.open(disk, "d")
    for offset in range(10):
        log.append(build_batch(offset, 1, 5, [b"x"]))
    handle = log.flush_handle()
    log.reset_to(4)
    log.append(build_batch(4, 2, 5, [b"y"]))
    assert [log.batch_in_memory(offset) is None for offset in (3, 4, 5)] == [True, False, True]
    handle.run()
    log.flush_done()
    assert log._retired == []
    assert (log.flushed_offset, log.end_offset) == (4, 5), "the flush was one of the former log"
    log.close()
    assert disk._open == {}


def test_a_flush_that_another_thread_has_failed_meanwhile_fails() -> None:
    """The kernel reports the error of the file to one of two fsyncs only."""
    disk = MemoryDisk()
    log = MetadataLog.open(disk, "d")
    log.append(build_batch(0, 1, 5, [b"x"]))
    failed = OSError("in the other thread")

    def fail_elsewhere(operation: str, path: str) -> None:
        log._failure.error = failed

    disk.on_operation = fail_elsewhere
    with pytest.raises(OSError, match="in the other thread"):
        log.flush()
    assert log.flushed_offset == 0


# Segments


def test_a_segment_is_not_truncated_behind_its_end() -> None:
    disk = MemoryDisk()
    disk.mkdir("d")
    segment = Segment.create(disk, "d", 0, index_interval_bytes=100)
    content = batches()
    for batch in scan_file(file_of(*content)[1]):
        segment.append(batch.data, [batch])
    segment.truncate(len(SIZES), is_dense=True)
    assert (segment.end_offset, segment.size_bytes) == (len(SIZES), sum(map(len, content)))
    segment.truncate(2, is_dense=True)
    assert (segment.end_offset, segment.size_bytes) == (2, sum(map(len, content[:2])))


def test_a_search_by_time_reads_no_batch_before_its_first_offset() -> None:
    """The batch before may be damaged."""
    disk = MemoryDisk()
    log = MetadataLog.open(disk, "d")
    first = build_batch(0, 1, 50, [b"x"])
    log.append(first)
    log.append(build_batch(1, 1, 60, [b"y"]))
    log.flush()
    log.raise_start(1)
    disk.overwrite("d/00000000000000000000.log", len(first) - 2, b"!")
    found = log.find_time(10)
    assert found is not None
    assert (found.offset, found.value) == (1, b"y")


# Damage


def plausible(length: int) -> bytes:
    """A header of a batch of this length, without the batch."""
    header = bytearray(build_batch(5, 3, 5, [b"x"])[:HEADER_BYTES])
    header[8:12] = (length - 12).to_bytes(4, "big")
    return bytes(header)


def test_a_search_for_sound_batches_gives_up_after_so_many_bytes_of_headers_without_batches() -> None:
    junk = plausible(400) + plausible(300) + bytes(400)
    _, file = file_of(junk, batches()[0])
    size = file.size()
    found = next_sound_batch(file, 0, end=size)
    assert found is not None
    assert found.position == len(junk)
    cost = 400 + 300 + len(batches()[0])
    assert next_sound_batch(file, 0, end=size, budget=cost - 1) is None
    again = next_sound_batch(file, 0, end=size, budget=cost)
    assert again is not None
    assert again.position == len(junk)


def test_a_batch_with_a_negative_offset_is_no_sound_batch() -> None:
    """No checksum covers the offset."""
    batch = batches()[1]
    for base_offset, is_found in ((0, True), (2**63 - 10, True), (-1, False), (-(2**63), False)):
        _, file = file_of(b"junk", base_offset.to_bytes(8, "big", signed=True), batch[8:])
        assert (next_sound_batch(file, 0, end=file.size()) is not None) == is_found


@pytest.mark.parametrize(
    ("start", "zeros", "is_hole"),
    [
        (0, SECTOR_BYTES, True),
        (0, SECTOR_BYTES - 1, False),
        (SECTOR_BYTES - 12, SECTOR_BYTES, True),
        (SECTOR_BYTES - 11, SECTOR_BYTES, False),
        (SECTOR_BYTES - 11, 2 * SECTOR_BYTES, True),
        (1, 2 * SECTOR_BYTES - 1, True),
    ],
)
def test_a_hole_ends_with_a_sector_and_has_at_least_the_front_of_a_batch(start: int, zeros: int, is_hole: bool) -> None:
    content = bytearray(b"x" * (3 * SECTOR_BYTES))
    content[start:zeros] = bytes(zeros - start)
    _, file = file_of(bytes(content))
    assert _has_hole(file, start, 3 * SECTOR_BYTES) is is_hole
    assert _has_hole(file, start, zeros) is is_hole
    assert not _has_hole(file, start, zeros - 1) or zeros > SECTOR_BYTES


@pytest.mark.parametrize("chunk_bytes", [100, 130, 1 << 20])
def test_a_sound_batch_is_found_in_any_piece_of_a_file(chunk_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_module, "_CHUNK_BYTES", chunk_bytes)
    batch = batches()[0]
    sizes = []
    read = type(file_of()[1]).pread

    def noted(self: Any, size: int, position: int) -> bytes:
        sizes.append(size)
        return read(self, size, position)

    monkeypatch.setattr(type(file_of()[1]), "pread", noted)
    for junk in range(1, 400, 7):
        _, file = file_of(b"\2" * junk, batch)
        found = next_sound_batch(file, 0, end=file.size())
        assert found is not None
        assert found.position == junk
        assert next_sound_batch(file, 0, end=file.size() - 1) is None, "the batch ends behind the end"
    assert max(sizes) <= chunk_bytes + HEADER_BYTES


def test_a_batch_without_records_is_a_sound_batch() -> None:
    """A cleaned log of Kafka may hold such a batch."""
    empty = bytearray(batches()[0][:HEADER_BYTES])
    empty[8:12] = (HEADER_BYTES - 12).to_bytes(4, "big")
    empty[57:61] = bytes(4)
    empty[17:21] = crc32c(bytes(empty[21:])).to_bytes(4, "big")
    _, file = file_of(b"junk", bytes(empty))
    found = next_sound_batch(file, 0, end=file.size())
    assert found is not None
    assert (found.position, found.record_count) == (4, 0)
    _, file = file_of(bytes(empty))
    alone = next_sound_batch(file, 0, end=HEADER_BYTES)
    assert alone is not None, "nothing is behind the header"


def test_a_batch_of_many_megabytes_is_a_sound_batch() -> None:
    batch = build_batch(0, 1, 5, [bytes(9 << 20)])
    _, file = file_of(b"junk", batch)
    found = next_sound_batch(file, 0, end=file.size())
    assert found is not None
    assert (found.position, found.size_bytes) == (4, len(batch))


# Ends and beginnings


def test_a_truncation_at_the_end_of_a_log_makes_nothing_durable() -> None:
    log = MetadataLog.open(MemoryDisk(), "d")
    for offset in range(3):
        log.append(build_batch(offset, 1, 5, [b"x"]))
    assert log.truncate(3) == 3
    assert (log.flushed_offset, log.end_offset) == (0, 3)
    assert log.truncate(2) == 2
    assert (log.flushed_offset, log.end_offset) == (2, 2)


def test_a_segment_that_ends_where_the_log_begins_is_removed_and_closed() -> None:
    disk = MemoryDisk()
    log = MetadataLog.open(disk, "d", segment_bytes=200)
    for offset in range(9):
        log.append(build_batch(offset, 1, 5, [b"x" * 10]))
    log.flush()
    bases = [int(name[:20]) for name in disk.list("d") if name.endswith(".log")]
    log.raise_start(bases[1] - 1)
    assert sum(name.endswith(".log") for name in disk.list("d")) == len(bases)
    log.raise_start(bases[1])
    assert [int(name[:20]) for name in disk.list("d") if name.endswith(".log")] == bases[1:]
    log.close()
    assert disk._open == {}


def test_a_log_far_from_offset_0_has_segments_of_the_usual_size() -> None:
    disk = MemoryDisk()
    log = MetadataLog.open(disk, "d")
    log.reset_to(2**33)
    for offset in range(2**33, 2**33 + 3):
        log.append(build_batch(offset, 1, 5, [b"x"]))
    assert sum(name.endswith(".log") for name in disk.list("d")) == 1


def test_index_entries_are_counted_anew_behind_a_cut() -> None:
    content = [build_batch(offset, 1, 5, [b"x" * 10]) for offset in range(7)]
    size = len(content[0])
    disk = MemoryDisk()
    disk.mkdir("d")
    segment = Segment.create(disk, "d", 0, index_interval_bytes=size)
    parsed = list(scan_file(file_of(*content)[1]))
    entries = []
    for batch in parsed[:3]:
        segment.append(batch.data, [batch])
        entries.append(segment.index_entries[0])
    segment.truncate(2, is_dense=True)
    for batch in parsed[2:6]:
        segment.append(batch.data, [batch])
        entries.append(segment.index_entries[0])
    assert entries == [0, 0, 1, 0, 0, 1, 1]


def test_a_segment_with_index_files_is_as_old_as_its_first_batch() -> None:
    disk = MemoryDisk()
    disk.mkdir("d")
    written = Segment.create(disk, "d", 0, index_interval_bytes=0)
    for batch in scan_file(file_of(*[build_batch(at, 1, 50 + at, [b"x"]) for at in range(3)])[1]):
        written.append(batch.data, [batch])
    written.write_indexes()
    loaded = Segment.open(disk, "d", 0, index_interval_bytes=0)
    loaded.load_indexes()
    assert (loaded.first_timestamp, loaded.max_timestamp, loaded.end_offset) == (50, 52, 3)
    assert loaded.size_bytes == written.size_bytes


def test_a_recovery_pauses_after_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = MemoryDisk()
    log = MetadataLog.open(disk, "d")
    for offset in range(9):
        log.append(build_batch(offset, 1, 5, [b"x" * 10]))
    cost = log.size_bytes // 9 + recovery._BYTES_PER_BATCH
    log.close()
    pauses = []
    for step_bytes in (2 * cost, 2 * cost + 1, 3 * cost + 1):
        monkeypatch.setattr(recovery, "_BYTES_PER_STEP", step_bytes)
        pauses.append(len(list(MetadataLog.opening(disk, "d"))))
    assert pauses == [4 + 1, 3 + 1, 2 + 1], "and one before the indexes are written"


def test_a_header_at_the_edge_of_a_piece_is_examined_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_module, "_CHUNK_BYTES", 100)
    batch = batches()[0]
    for edge in (95, 99, 101, 102, 107):
        _, file = file_of(b"x" * edge, plausible(200), b"x" * 200, batch)
        cost = 200 + len(batch)
        assert next_sound_batch(file, 0, end=file.size(), budget=cost) is not None
        assert next_sound_batch(file, 0, end=file.size(), budget=cost - 1) is None


def test_headers_are_read_in_small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log of a gigabyte must not come into memory for its headers."""
    _, file = file_of(*[build_batch(offset, 1, 5, [bytes(20_000)]) for offset in range(20)])
    sizes = []
    read = type(file).pread

    def noted(self: Any, size: int, position: int) -> bytes:
        sizes.append(size)
        return read(self, size, position)

    monkeypatch.setattr(type(file), "pread", noted)
    assert len(list(scan_headers(file))) == 20
    assert max(sizes) <= segment_module._LOOK_BYTES


@pytest.mark.parametrize(
    ("name", "base_offset"),
    [
        ("00000000000000000000.log", 0),
        ("09223372036854775807.log", 2**63 - 1),
        ("09223372036854775808.log", None),
        ("18446744073709551615.log", None),
        ("0000000000000000000.log", None),
        ("0000000000000000000x.log", None),
        ("00000000000000000000.index", None),
    ],
)
def test_the_name_of_a_segment_is_an_offset(name: str, base_offset: int | None) -> None:
    assert parse_file_name(name) == base_offset


# Recovery


def test_a_log_may_begin_with_epoch_0() -> None:
    disk = MemoryDisk()
    log = MetadataLog.open(disk, "d")
    log.append(build_batch(0, 0, 5, [b"x"]))
    log.close()
    again = MetadataLog.open(disk, "d")
    assert (again.end_offset, again.last_epoch) == (1, 0)


def test_a_removed_index_stays_removed_after_a_crash() -> None:
    disk = MemoryDisk()
    log = MetadataLog.open(disk, "d")
    log.append(build_batch(0, 1, 5, [b"x"]))
    log.close()
    orphan = "00000000000000000007.index"
    disk.open(f"d/{orphan}", create=True).fsync()
    disk.fsync_dir("d")
    log = MetadataLog.open(disk, "d")
    assert log.recovered == (f"removed d/{orphan}, an index without its segment",)
    disk.crash()
    assert orphan not in disk.list("d")


def test_index_entries_are_counted_anew_after_a_recovery() -> None:
    content = [build_batch(offset, 1, 5, [b"x" * 10]) for offset in range(6)]
    disk = MemoryDisk()
    disk.mkdir("d")
    segment = Segment.create(disk, "d", 0, index_interval_bytes=len(content[0]))
    parsed = list(scan_file(file_of(*content)[1]))
    for batch in parsed[:2]:
        segment.append(batch.data, [batch])
    segment.end_recovery()
    entries = []
    for batch in parsed[2:]:
        segment.append(batch.data, [batch])
        entries.append(segment.index_entries[0])
    assert entries == [0, 0, 1, 1]


def test_a_start_after_a_failed_flush_reads_the_disk_and_not_the_page_cache() -> None:
    """Only the process has ended: the page cache still holds what the disk has refused."""
    disk = MemoryDisk()
    log = MetadataLog.open(disk, "d")
    log.append(build_batch(0, 1, 5, [b"durable"]))
    log.flush()
    log.append(build_batch(1, 1, 5, [b"refused"]))

    def fail(operation: str, path: str) -> None:
        if operation == "fsync":
            raise OSError(5, "Input/output error", path)

    disk.on_operation = fail
    with pytest.raises(OSError, match="Input/output"):
        log.flush()
    disk.on_operation = None
    assert MetadataLog.open(disk, "d").end_offset == 1


class Written:
    """A segment, and its batches as (base offset, bytes)."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.disk = MemoryDisk()
        self.disk.mkdir("d")
        self.segment = Segment.create(self.disk, "d", 100, index_interval_bytes=rng.choice((0, 150, 400, 1 << 20)))
        self.batches: list[tuple[int, bytes]] = []
        self.end = 100

    def append(self) -> None:
        base = self.end + self.rng.choice((0, 0, 0, 3))
        values = [b"x" * self.rng.randrange(60) for _ in range(self.rng.randrange(1, 4))]
        data = build_batch(base, 1, 0, values)
        self.segment.append(data, list(scan(data)))
        self.batches.append((base, data))
        self.end = base + len(values)

    def cut(self) -> None:
        offset = self.rng.randrange(100, self.end + 1)
        self.segment.truncate(offset, is_dense=False)
        self.batches = [(base, data) for base, data in self.batches if next(scan(data)).next_offset <= offset]
        self.end = next(scan(self.batches[-1][1])).next_offset if self.batches else 100

    def load(self) -> None:
        self.segment.write_indexes()
        self.segment.file.close()
        self.segment = Segment.open(self.disk, "d", 100, index_interval_bytes=200)
        self.segment.load_indexes()

    def expected(self, offset: int, max_bytes: int, end_offset: int) -> bytes:
        held = [next(scan(data)) for _, data in self.batches]
        found = b""
        for batch in held:
            if batch.next_offset <= offset:
                continue
            if batch.next_offset > end_offset or (found and len(found) + batch.size_bytes > max_bytes):
                break
            found += batch.data
        return found


@pytest.mark.parametrize("seed", range(40))
def test_reads_find_each_offset_whatever_is_remembered_of_places(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through appends with holes, truncations and loads; readers go on, begin anew, and read to some offset."""
    monkeypatch.setattr(segment_module, "_MOST_RECENT", 6)
    monkeypatch.setattr(segment_module, "_KEPT_ENDS", 3)
    written = Written(Random(seed))
    rng = written.rng
    for _ in range(60):
        rng.choice([written.append] * 6 + [written.cut, written.load])()
        for _ in range(4):
            offset, end_offset = sorted((rng.randrange(95, written.end + 4), rng.randrange(95, written.end + 4)))
            most = rng.choice((0, 1, 100, 300, 1 << 20))
            assert written.segment.read(offset, most, end_offset) == written.expected(offset, most, end_offset)
            place, size = written.segment.place_of(offset)
            behind = [data for _, data in written.batches if next(scan(data)).next_offset > offset]
            assert (place, size) == (
                written.segment.size_bytes - sum(map(len, behind)),
                len(behind[0]) if behind else 0,
            )


def test_a_reader_at_the_end_and_one_that_goes_on_look_at_no_other_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    """As followers and consumers do; the index leads to some batches before."""
    disk = MemoryDisk()
    disk.mkdir("d")
    segment = Segment.create(disk, "d", 0, index_interval_bytes=4096)
    for offset in range(200):
        data = build_batch(offset, 1, 0, [b"x" * 20])
        segment.append(data, list(scan(data)))
    reads: list[tuple[int, int]] = []
    pread = segment.file.pread

    def counted(size: int, position: int) -> bytes:
        reads.append((size, position))
        return pread(size, position)

    monkeypatch.setattr(segment.file, "pread", counted)
    size = len(data)
    assert len(segment.read(198, 1 << 20, 200)) == 2 * size
    assert reads == [(2 * size, 198 * size)]
    segment.read(20, 1, 200)
    reads.clear()
    segment.read(21, 1, 200)
    assert [position for _, position in reads] == [21 * size, 21 * size]
