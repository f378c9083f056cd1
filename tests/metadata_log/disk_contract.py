"""The contract of every `Disk`. A test module for one disk calls `check_disk` in a directory of that disk."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from metadata_log.disk import DirectoryDisk, Disk, is_directory, make_directory, remove_tree, replace_file

Check = Callable[[DirectoryDisk, str], None]


def appending_and_reading(disk: Disk, root: str) -> None:
    """Writing is at the end, reading anywhere, and short only at the end of the file."""
    file = disk.open(f"{root}/a", create=True)
    file.append(b"0123")
    file.append(b"456789")
    assert file.path == f"{root}/a"
    assert file.size() == 10
    assert file.pread(4, 3) == b"3456"
    assert file.pread(100, 8) == b"89"
    assert file.pread(5, 10) == b""
    file.fsync()
    file.close()
    assert disk.read(f"{root}/a") == b"0123456789"


def renaming_a_directory(disk: DirectoryDisk, root: str) -> None:
    """Files that are open stay open; the names below the directory follow."""
    disk.mkdir(f"{root}/old/below")
    file = disk.open(f"{root}/old/a", create=True)
    file.append(b"x")
    disk.rename_directory(f"{root}/old", f"{root}/new")
    file.append(b"y")
    file.close()
    assert disk.read(f"{root}/new/a") == b"xy"
    assert disk.list(f"{root}/new") == ["a", "below"]
    assert not disk.exists(f"{root}/old")
    with pytest.raises(FileNotFoundError):
        disk.rename_directory(f"{root}/old", f"{root}/other")


def removing_a_directory(disk: DirectoryDisk, root: str) -> None:
    """Only an empty one goes."""
    disk.mkdir(f"{root}/full")
    disk.open(f"{root}/full/a", create=True).close()
    with pytest.raises(OSError, match=r"(?i)not empty"):
        disk.remove_directory(f"{root}/full")
    disk.remove(f"{root}/full/a")
    disk.remove_directory(f"{root}/full")
    assert not disk.exists(f"{root}/full")
    with pytest.raises(FileNotFoundError):
        disk.remove_directory(f"{root}/full")


def files_and_directories(disk: DirectoryDisk, root: str) -> None:
    """Each refuses what is for the other."""
    disk.mkdir(f"{root}/directory")
    disk.open(f"{root}/file", create=True).close()
    assert [is_directory(disk, f"{root}/{name}") for name in ("directory", "file", "nothing")] == [True, False, False]
    with pytest.raises(NotADirectoryError):
        disk.list(f"{root}/file")
    with pytest.raises(IsADirectoryError):
        disk.remove(f"{root}/directory")


def removing_a_tree(disk: DirectoryDisk, root: str) -> None:
    disk.mkdir(f"{root}/tree/below/further")
    disk.mkdir(f"{root}/tree/empty")
    for name in ("a", "below/b", "below/further/c"):
        disk.open(f"{root}/tree/{name}", create=True).close()
    remove_tree(disk, f"{root}/tree")
    assert not disk.exists(f"{root}/tree")
    with pytest.raises(FileNotFoundError):
        remove_tree(disk, f"{root}/tree")


def large_appends(disk: Disk, root: str) -> None:
    data = bytes(range(256)) * 20_000
    file = disk.open(f"{root}/large", create=True)
    file.append(data)
    assert file.pread(len(data), 0) == data
    file.close()


def truncating(disk: Disk, root: str) -> None:
    """After a cut the next append begins at the cut."""
    file = disk.open(f"{root}/a", create=True)
    file.append(b"0123456789")
    file.truncate(4)
    assert file.size() == 4
    file.append(b"ab")
    assert file.pread(10, 0) == b"0123ab"
    file.close()


def reading_without_the_cache(disk: Disk, root: str) -> None:
    """What was fsynced is the same, in memory or not, and so is what was not: a disk drops what it has written only."""
    file = disk.open(f"{root}/a", create=True)
    file.append(b"x" * 9000)
    file.fsync()
    file.append(b"later")
    file.drop_cache()
    assert file.pread(10_000, 0) == b"x" * 9000 + b"later"
    file.close()


def opening_again(disk: Disk, root: str) -> None:
    """A file that exists is not emptied by `create`, and is appended to at its end."""
    disk.open(f"{root}/a", create=True).append(b"one")
    disk.open(f"{root}/a", create=True).append(b"two")
    reader = disk.open(f"{root}/a", writable=False)
    assert reader.pread(10, 0) == b"onetwo"
    with pytest.raises(OSError, match=r"\w"):
        reader.append(b"x")


def missing_things(disk: Disk, root: str) -> None:
    for attempt in (
        lambda: disk.open(f"{root}/none"),
        lambda: disk.read(f"{root}/none"),
        lambda: disk.remove(f"{root}/none"),
        lambda: disk.rename(f"{root}/none", f"{root}/other"),
        lambda: disk.list(f"{root}/none"),
        lambda: disk.open(f"{root}/none/file", create=True),
        lambda: disk.fsync_dir(f"{root}/none"),
    ):
        with pytest.raises(FileNotFoundError):
            attempt()
    assert not disk.exists(f"{root}/none")


def names(disk: Disk, root: str) -> None:
    """Directories list their own names only, sorted; making one twice is fine."""
    disk.mkdir(f"{root}/dir/deep")
    disk.mkdir(f"{root}/dir/deep")
    for name in ("b", "a", "dir/x", "dir/deep/y"):
        disk.open(f"{root}/{name}", create=True).close()
    assert disk.list(root) == ["a", "b", "dir"]
    assert disk.list(f"{root}/dir") == ["deep", "x"]
    assert disk.exists(f"{root}/dir/deep")
    disk.remove(f"{root}/a")
    assert disk.list(root) == ["b", "dir"]
    make_directory(disk, f"{root}/made/inside")
    assert disk.list(f"{root}/made") == ["inside"]
    disk.fsync_dir(root)


def renaming(disk: Disk, root: str) -> None:
    """A rename replaces what had the name; a handle follows its file, not the name."""
    old = disk.open(f"{root}/a", create=True)
    old.append(b"old")
    new = disk.open(f"{root}/b", create=True)
    new.append(b"new")
    disk.rename(f"{root}/b", f"{root}/a")
    assert disk.list(root) == ["a"]
    assert disk.read(f"{root}/a") == b"new"
    assert old.pread(10, 0) == b"old"
    new.append(b"er")
    assert disk.read(f"{root}/a") == b"newer"


def read_only_files(disk: Disk, root: str) -> None:
    """Read-only files can be read, renamed and removed."""
    disk.open(f"{root}/a", create=True).append(b"content")
    disk.make_read_only(f"{root}/a")
    disk.rename(f"{root}/a", f"{root}/b")
    assert disk.read(f"{root}/b") == b"content"
    disk.remove(f"{root}/b")
    with pytest.raises(FileNotFoundError):
        disk.make_read_only(f"{root}/b")


def removing_an_open_file(disk: Disk, root: str) -> None:
    file = disk.open(f"{root}/a", create=True)
    file.append(b"data")
    disk.remove(f"{root}/a")
    file.append(b"more")
    assert file.pread(10, 0) == b"datamore"
    file.fsync()
    file.close()
    assert not disk.exists(f"{root}/a")


def replacing(disk: Disk, root: str) -> None:
    """`replace_file` leaves nothing else behind, and takes a leftover of an earlier attempt in its stride."""
    disk.open(f"{root}/f.tmp", create=True).append(b"leftover")
    replace_file(disk, root, "f", b"one")
    replace_file(disk, root, "f", b"two")
    assert disk.read(f"{root}/f") == b"two"
    assert disk.list(root) == ["f"]


def locking(disk: Disk, root: str) -> None:
    """One holder at a time, also in one process; a failed attempt does not loosen the lock."""
    lock = disk.lock(f"{root}/.lock")
    for _ in range(2):
        with pytest.raises(BlockingIOError):
            disk.lock(f"{root}/.lock")
    lock.release()
    lock.release()
    again = disk.lock(f"{root}/.lock")
    with pytest.raises(BlockingIOError):
        disk.lock(f"{root}/.lock")
    again.release()


def closing_twice(disk: Disk, root: str) -> None:
    file = disk.open(f"{root}/a", create=True)
    file.close()
    file.close()
    with pytest.raises(OSError, match=r"\w"):
        file.append(b"x")


CHECKS: tuple[Check, ...] = (
    appending_and_reading,
    large_appends,
    truncating,
    reading_without_the_cache,
    opening_again,
    missing_things,
    names,
    renaming,
    renaming_a_directory,
    removing_a_directory,
    files_and_directories,
    removing_a_tree,
    read_only_files,
    removing_an_open_file,
    replacing,
    locking,
    closing_twice,
)
