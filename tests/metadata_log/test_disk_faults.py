"""Faults of the disk in memory beyond the loss of unsynced writes: failures, a full disk, bit rot and lost files."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from random import Random

import pytest

from metadata_log.disk import OsFile, make_directory, replace_file
from metadata_log.errors import MetadataLogError
from metadata_log.log.log import MetadataLog
from metadata_log.memory_disk import MemoryDisk, MemoryFile
from metadata_log.records.batch import read_batch
from metadata_log.records.batch_builder import build_batch


def new_disk(content: bytes = b"") -> MemoryDisk:
    """A disk with one directory, and one file in it if it is to have content."""
    disk = MemoryDisk()
    make_directory(disk, "/d")
    if content:
        replace_file(disk, "/d", "f", content)
    return disk


def fails(wanted: str) -> Callable[[str, str], None]:
    def hook(operation: str, path: str) -> None:
        if operation == wanted:
            raise OSError(errno.EIO, "input/output error", path)

    return hook


def with_failed_fsync() -> tuple[MemoryDisk, MemoryFile]:
    """A file whose last append was not made durable: its fsync failed, as the next one would not."""
    disk = new_disk(b"durable")
    file = disk.open("/d/f")
    file.append(b" and not")
    disk.on_operation = fails("fsync")
    with pytest.raises(OSError, match="input/output"):
        file.fsync()
    disk.on_operation = None
    return disk, file


def test_a_second_fsync_does_not_recover_the_first() -> None:
    """The second fsync succeeds, as on Linux, and a power failure takes the records of the first."""
    disk, file = with_failed_fsync()
    file.fsync()
    assert disk.read("/d/f") == b"durable and not"
    disk.crash()
    assert disk.read("/d/f") == b"durable"


def test_a_second_directory_fsync_does_not_recover_the_first() -> None:
    disk = new_disk()
    disk.open("/d/f", create=True).fsync()
    disk.on_operation = fails("fsync_dir")
    with pytest.raises(OSError, match="input/output"):
        disk.fsync_dir("/d")
    disk.on_operation = None
    disk.fsync_dir("/d")
    assert disk.exists("/d/f")
    disk.crash()
    assert not disk.exists("/d/f")
    disk.open("/d/f", create=True).fsync()
    disk.fsync_dir("/d")
    disk.crash()
    assert disk.exists("/d/f"), "after a crash the directory is as good as new"


def test_a_full_disk_accepts_a_partial_write_and_then_none() -> None:
    disk = new_disk(b"0123")
    disk.free_bytes = 5
    file = disk.open("/d/f")
    file.append(b"456")
    with pytest.raises(OSError, match="no space left") as full:
        file.append(b"789")
    assert full.value.errno == errno.ENOSPC
    assert disk.read("/d/f") == b"012345678"
    for attempt in (lambda: disk.open("/d/new", create=True), lambda: disk.mkdir("/e"), lambda: file.append(b"x")):
        with pytest.raises(OSError, match="no space left"):
            attempt()
    disk.remove("/d/f")
    disk.free_bytes = None
    disk.open("/d/new", create=True).append(b"x")


def test_a_real_full_device_raises_the_same_error() -> None:
    file = OsFile("/dev/full", os.open("/dev/full", os.O_RDWR))
    with pytest.raises(OSError, match=r"[Nn]o space left") as full:
        file.append(b"x")
    assert full.value.errno == errno.ENOSPC


def test_overwritten_bytes_are_durable() -> None:
    disk = new_disk(b"0123456789")
    fork, before = disk.fork(), disk.fingerprint()
    disk.overwrite("/d/f", 3, b"xy")
    assert disk.fingerprint() != before
    disk.crash()
    assert disk.read("/d/f") == b"012xy56789"
    assert fork.read("/d/f") == b"0123456789"


def test_a_bad_sector_is_unreadable_until_truncated() -> None:
    disk = new_disk(b"0123456789")
    file = disk.open("/d/f")
    disk.spoil("/d/f", 7)
    assert file.pread(7, 0) == b"0123456"
    for size, position in ((1, 7), (10, 0)):
        with pytest.raises(OSError, match="sector"):
            file.pread(size, position)
    disk.crash()
    with pytest.raises(OSError, match="sector"):
        disk.read("/d/f")
    disk.open("/d/f").truncate(7)
    assert disk.read("/d/f") == b"0123456"


def test_a_lost_file_name_stays_lost() -> None:
    """An open handle of the file still works."""
    disk = new_disk(b"data")
    file = disk.open("/d/f")
    disk.rename("/d/f", "/d/g")
    disk.lose_name("/d/g")
    assert not disk.exists("/d/g")
    assert file.pread(4, 0) == b"data"
    disk.fsync_dir("/d")
    disk.crash()
    assert disk.list("/d") == []
    with pytest.raises(FileNotFoundError):
        disk.lose_name("/d/g")


def test_a_killed_process_leaves_what_it_wrote_and_nothing_durable() -> None:
    disk = new_disk(b"durable")
    lock, file = disk.lock("/d/.lock"), disk.open("/d/f")
    file.append(b" and not")
    disk.rename("/d/f", "/d/g")
    disk.kill()
    assert disk.read("/d/g") == b"durable and not"
    with pytest.raises(OSError, match="before a crash"):
        file.append(b"x")
    disk.lock("/d/.lock")
    lock.release()
    with pytest.raises(BlockingIOError):
        disk.lock("/d/.lock")
    disk.crash()
    assert disk.read("/d/f") == b"durable"


def test_a_failed_fsync_is_visible_once_the_cache_is_dropped() -> None:
    """The pages are clean after the failure: reads and another fsync say that all is well until they are dropped."""
    disk, _ = with_failed_fsync()
    disk.kill()
    again = disk.open("/d/f")
    again.fsync()
    assert again.pread(100, 0) == b"durable and not"
    again.drop_cache()
    assert again.pread(100, 0) == b"durable"
    again.append(b" now")
    again.fsync()
    disk.crash()
    assert disk.read("/d/f") == b"durable now"


def open_log(disk: MemoryDisk) -> MetadataLog:
    return MetadataLog.open(disk, "/d/p", segment_bytes=600, segment_ms=10**12)


def batches_of(log: MetadataLog) -> Iterator[bytes]:
    """Every batch, in order, as a reader gets it."""
    offset = log.start_offset
    while offset < log.end_offset:
        batch = read_batch(log.read(offset, 1))
        assert batch.base_offset == offset
        yield bytes(batch.data)
        offset = batch.next_offset


def damage(disk: MemoryDisk, rng: Random) -> str:
    """Do something to one of the files of the log; says what."""
    path = rng.choice([path for path in disk.files() if disk.read(path)])
    content = disk.read(path)
    position = rng.randrange(len(content))
    match rng.randrange(4):
        case 0:
            disk.overwrite(path, position, bytes([content[position] ^ 1 << rng.randrange(8)]))
        case 1:
            source = disk.read(rng.choice([other for other in disk.files() if disk.read(other)]))
            start = rng.randrange(len(source))
            disk.overwrite(path, position, source[start : start + rng.randrange(1, 200)][: len(content) - position])
        case 2:
            disk.spoil(path, position)
        case _:
            disk.lose_name(path)
    return f"{path} at {position}"


def test_a_damaged_log_is_cut_or_refused_and_never_read_wrongly() -> None:
    """Whatever rots: opening refuses with a named error, or vouches for batches as they were written, without gaps."""
    kept = refused = 0
    for seed in range(300):
        disk, written = new_disk(), []
        log = open_log(disk)
        for epoch in (1, 2, 5):
            for _ in range(5):
                batch = build_batch(log.end_offset, epoch, 0, [b"%030d" % log.end_offset] * 2)
                written.append(batch)
                log.append(batch)
        log.close()
        what = damage(disk, Random(seed))
        disk.crash()
        try:
            log = open_log(disk)
        except (MetadataLogError, OSError):
            refused += 1
            continue
        kept += 1
        for batch in batches_of(log):
            assert batch in written, f"seed {seed}: {what}"
    assert kept > 50
    assert refused > 10


def test_one_directory_may_be_full_while_the_rest_of_the_disk_has_room() -> None:
    disk = MemoryDisk()
    for directory in ("/a", "/ab"):
        disk.mkdir(directory)
    full, other = disk.open("/a/f", create=True), disk.open("/ab/f", create=True)
    disk.full_below = "/a"
    for fails in (lambda: full.append(b"x"), lambda: disk.open("/a/g", create=True)):
        with pytest.raises(OSError, match="no space left"):
            fails()
    other.append(b"x")
    assert (full.size(), other.size()) == (0, 1)
    disk.full_below = ""
    full.append(b"x")
    assert full.size() == 1
