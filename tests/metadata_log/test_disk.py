"""The disk of this machine and the disk in memory keep one contract; the second also knows what a crash loses."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from disk_contract import CHECKS, Check

import metadata_log.disk
from metadata_log.disk import OsDisk, make_directory, replace_file
from metadata_log.memory_disk import MemoryDisk, MemoryFile
from support.power import failing_after


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_os_disk(check: Check, tmp_path: Path) -> None:
    check(OsDisk(), str(tmp_path))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_memory_disk(check: Check) -> None:
    disk = MemoryDisk()
    disk.mkdir("/some/root")
    check(disk, "/some/root")


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_memory_disk_fork(check: Check) -> None:
    """A fork is a whole disk, and nothing that happens to it is seen by the other side."""
    disk = MemoryDisk()
    disk.mkdir("root")
    disk.open("root/other", create=True).append(b"data")
    before = disk.fingerprint()
    fork = disk.fork()
    fork.remove("root/other")
    check(fork, "root")
    assert disk.fingerprint() == before


def test_a_real_disk_has_a_size_and_a_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    total, usable = OsDisk().space(str(tmp_path)) or (0, 0)
    assert total >= usable > 0
    with pytest.raises(FileNotFoundError):
        OsDisk().space(str(tmp_path / "nowhere"))
    monkeypatch.chdir(tmp_path)
    assert OsDisk().absolute("data/../d/") == str(tmp_path / "d")
    assert (MemoryDisk().space("d"), MemoryDisk().absolute("d")) == (None, "d")


def test_lock_excludes_another_process(tmp_path: Path) -> None:
    """The lock is the kind that Java's `FileChannel.tryLock` takes: a POSIX record lock."""
    lock = OsDisk().lock(str(tmp_path / ".lock"))
    attempt = (
        "import fcntl, sys\n"
        "file = open(sys.argv[1], 'r+')\n"
        "try: fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "except BlockingIOError: sys.exit(3)\n"
    )
    command = [sys.executable, "-c", attempt, str(tmp_path / ".lock")]
    assert subprocess.run(command, check=False).returncode == 3
    lock.release()
    assert subprocess.run(command, check=False).returncode == 0


def test_a_fork_neither_keeps_nor_releases_a_lock(tmp_path: Path) -> None:
    """Worker processes of a server are forks, which may outlive a node of the process that began them."""
    path = str(tmp_path / ".lock")
    lock = OsDisk().lock(path)
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        lock.release()
        os.write(writer, b"1")
        os._exit(0)
    os.read(reader, 1)
    os.waitpid(child, 0)
    with pytest.raises(BlockingIOError):
        OsDisk().lock(path)
    child = os.fork()
    if not child:
        # It has the lock file open until the pipe is closed at the other end.
        os.close(writer)
        os.read(reader, 1)
        os._exit(0)
    lock.release()
    try:
        OsDisk().lock(path).release()
    finally:
        os.close(writer)
        os.close(reader)
        os.waitpid(child, 0)


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may write less than it was given."""
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, position: real(fd, data[:3], position))
    file = OsDisk().open(str(tmp_path / "a"), create=True)
    file.append(b"0123456789")
    file.append(b"ab")
    assert file.pread(20, 0) == b"0123456789ab"


def test_a_failed_fsync_is_raised_again_and_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel reports the failure once; the next fsync, from any thread, would succeed."""
    asked: list[int] = []

    def fail_once(fd: int) -> None:
        asked.append(fd)
        if len(asked) == 1:
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(metadata_log.disk, "_fdatasync", fail_once)
    file = OsDisk().open(str(tmp_path / "a"), create=True)
    file.append(b"lost")
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output error"):
            file.fsync()
    assert len(asked) == 1


# ------------------------------------------------------------------------------------------------- crashes in memory


def new_disk() -> MemoryDisk:
    disk = MemoryDisk()
    make_directory(disk, "/d")
    return disk


def test_crash_loses_what_was_not_fsynced() -> None:
    disk = new_disk()
    file = disk.open("/d/f", create=True)
    file.append(b"durable")
    file.fsync()
    disk.fsync_dir("/d")
    file.append(b" and not")
    disk.open("/d/unnamed", create=True).fsync()
    disk.crash()
    assert disk.list("/d") == ["f"]
    assert disk.read("/d/f") == b"durable"
    with pytest.raises(OSError, match="before a crash"):
        file.append(b"x")


def test_crash_undoes_the_rename_and_the_removal_of_directories() -> None:
    disk = new_disk()
    for name in ("old", "gone"):
        disk.mkdir(f"/d/{name}")
        disk.fsync_dir(f"/d/{name}")
    disk.open("/d/old/f", create=True).fsync()
    disk.fsync_dir("/d/old")
    disk.fsync_dir("/d")
    for is_durable in (False, True):
        disk.rename_directory("/d/old", "/d/new")
        disk.remove_directory("/d/gone")
        assert disk.files() == ("/d/new/f",)
        if is_durable:
            disk.fsync_dir("/d")
        disk.crash()
        assert disk.list("/d") == (["new"] if is_durable else ["gone", "old"])
        assert disk.list("/d/new" if is_durable else "/d/old") == ["f"]


def test_crash_loses_a_name_without_its_directory() -> None:
    disk = MemoryDisk()
    disk.mkdir("/a/b")
    disk.open("/a/b/f", create=True).fsync()
    disk.fsync_dir("/a/b")
    disk.crash()
    assert not disk.exists("/a")
    make_directory(disk, "/a/b")
    disk.crash()
    assert disk.list("/a") == ["b"]


def test_crash_keeps_a_name_but_not_its_content() -> None:
    """The classic: renamed without fsync, and after the power came back the file is empty."""
    disk = new_disk()
    disk.open("/d/f.tmp", create=True).append(b"content")
    disk.rename("/d/f.tmp", "/d/f")
    disk.fsync_dir("/d")
    disk.crash()
    assert disk.read("/d/f") == b""


def test_crash_undoes_removing_renaming_and_truncating() -> None:
    disk = new_disk()
    for name in ("removed", "renamed", "cut"):
        file = disk.open(f"/d/{name}", create=True)
        file.append(b"0123456789")
        file.fsync()
    disk.fsync_dir("/d")
    disk.remove("/d/removed")
    disk.rename("/d/renamed", "/d/other")
    file.truncate(4)
    file.append(b"new")
    assert disk.list("/d") == ["cut", "other"]
    disk.crash()
    assert disk.list("/d") == ["cut", "removed", "renamed"]
    assert disk.read("/d/cut") == b"0123456789"


def test_replaced_file_is_old_or_new_after_a_crash_anywhere() -> None:
    """`replace_file` holds its promise between each pair of disk operations, whatever else the crash lets through."""
    steps = 0
    while True:
        for seed in range(20):
            disk = new_disk()
            replace_file(disk, "/d", "f", b"old")
            with failing_after(disk, steps) as power:
                replace_file(disk, "/d", "f", b"new")
            disk.crash(Random(seed) if power.failed else None)
            assert disk.read("/d/f") in ({b"old", b"new"} if power.failed else {b"new"}), (steps, seed)
            finished = not power.failed
        if finished:
            break
        steps += 1
    assert steps == 5


def _began(*, cut_to: int | None = None) -> tuple[MemoryDisk, MemoryFile, MemoryFile]:
    """A disk and a file with an fsync that began after 6 bytes; since then the owner has written more."""
    disk = new_disk()
    file = disk.open("/d/f", create=True)
    disk.fsync_dir("/d")
    file.append(b"before")
    begun = file.begin_fsync()
    if cut_to is not None:
        file.truncate(cut_to)
    file.append(b" while")
    return disk, file, begun


def test_an_fsync_does_not_cover_what_is_written_while_it_runs() -> None:
    """As on Linux: a page that becomes dirty after the fsync has begun waits for the next one."""
    disk, _, begun = _began()
    begun.fsync()
    disk.crash()
    assert disk.read("/d/f") == b"before"


def test_bytes_written_during_an_fsync_may_survive_a_crash() -> None:
    left = set()
    for seed in range(50):
        disk, _, begun = _began()
        begun.fsync()
        disk.crash(Random(seed))
        left.add(disk.read("/d/f"))
    assert {b"before", b"before while"} < left
    assert all(one.startswith(b"before") for one in left)


def test_an_fsync_that_has_not_returned_promises_nothing() -> None:
    left = set()
    for seed in range(50):
        disk, _, begun = _began()
        disk.crash(Random(seed))
        left.add(disk.read("/d/f"))
        with pytest.raises(OSError, match="before a crash"):
            begun.fsync()
    assert {b"", b"before while"} < left


def test_an_fsync_may_write_long_before_it_returns() -> None:
    disk, _, begun = _began()
    begun.write_back()
    disk.crash()
    assert disk.read("/d/f") == b"before"


def test_an_fsync_does_not_cover_what_replaces_truncated_bytes() -> None:
    """The new bytes are at positions that the fsync covers, and are written after it began."""
    disk, _, begun = _began(cut_to=3)
    begun.fsync()
    disk.crash()
    assert disk.read("/d/f") == b"bef"


def test_another_fsync_covers_everything_while_one_runs() -> None:
    disk, file, begun = _began()
    file.fsync()
    begun.fsync()
    disk.crash()
    assert disk.read("/d/f") == b"before while"


def test_an_fsync_that_fails_at_its_end_has_lost_what_it_covers() -> None:
    disk, file, begun = _began()

    def fail(operation: str, path: str) -> None:
        raise OSError(errno.EIO, operation, path)

    disk.on_operation = fail
    with pytest.raises(OSError, match="fsync"):
        begun.fsync()
    disk.on_operation = None
    file.fsync()
    disk.crash()
    assert disk.read("/d/f") == b""


def test_torn_appends_keep_a_prefix() -> None:
    """An append that was not fsynced may survive in part, or with a hole of zeros; what was fsynced is whole."""
    seen = set()
    for seed in range(200):
        disk = new_disk()
        file = disk.open("/d/f", create=True)
        file.append(b"durable")
        file.fsync()
        disk.fsync_dir("/d")
        file.append(b"12345678")
        disk.crash(Random(seed))
        left = disk.read("/d/f")
        assert left.startswith(b"durable")
        tail = left[7:]
        assert all(byte in {0, wanted} for byte, wanted in zip(tail, b"12345678", strict=False)), (seed, tail)
        seen.add(tail)
    assert {b"", b"12345678"} < seen
    assert any(b"\x00" in tail for tail in seen)


def test_crash_releases_locks() -> None:
    disk = new_disk()
    lock = disk.lock("/d/.lock")
    disk.crash()
    make_directory(disk, "/d")
    again = disk.lock("/d/.lock")
    lock.release()
    with pytest.raises(BlockingIOError):
        disk.lock("/d/.lock")
    again.release()


def test_fingerprints_distinguish_disks() -> None:
    """Equal histories give equal fingerprints; content, durability and pending names each make a difference."""
    disk = new_disk()
    seen = {disk.fingerprint()}

    def differs() -> None:
        found = disk.fingerprint()
        assert found == disk.fork().fingerprint()
        assert found not in seen
        seen.add(found)

    file = disk.open("/d/f", create=True)
    differs()
    file.append(b"x")
    differs()
    file.fsync()
    differs()
    disk.fsync_dir("/d")
    differs()
    file.append(b"y")
    differs()
    file.truncate(0)
    differs()
    disk.remove("/d/f")
    differs()


def test_fingerprint_ignores_removed_files() -> None:
    """A file that came and went, durably, leaves no trace: else equal states would not be found equal."""
    plain, busy = new_disk(), new_disk()
    for _ in range(3):
        replace_file(busy, "/d", "f", b"other")
    for disk in (plain, busy):
        replace_file(disk, "/d", "f", b"content")
    assert plain.fingerprint() == busy.fingerprint()
