"""The door to the disk: a small protocol that the log, the snapshots and quorum-state are written through.

`OsDisk` is the real one; the simulator has another whose crashes lose what was not fsynced. Both pass one contract test.
Paths are plain strings. Every method is synchronous; failures are `OSError`.
"""

from __future__ import annotations

from typing import Protocol


class File(Protocol):
    """One open file. Writing only ever happens at the end."""

    @property
    def path(self) -> str:
        """Where the file was opened."""

    def append(self, data: bytes) -> None:
        """Write all of `data` at the end of the file."""

    def pread(self, size: int, position: int) -> bytes:
        """Read up to `size` bytes at `position`; shorter only at the end of the file."""

    def size(self) -> int:
        """The length of the file in bytes, including what was not yet fsynced."""

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""

    def fsync(self) -> None:
        """Return once everything written so far, and the file's length, is on the disk."""

    def close(self) -> None:
        """Release the file; does not fsync."""


class Lock(Protocol):
    """An exclusive lock on a directory, held until released or the process ends."""

    def release(self) -> None:
        """Let go of the lock."""


class Disk(Protocol):
    """The operations on files and directories that this project's write paths consist of."""

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> File:
        """Open a file; with `create` make it if it does not exist. `FileNotFoundError` otherwise."""

    def read(self, path: str) -> bytes:
        """The whole content of a small file; `FileNotFoundError` if there is none."""

    def exists(self, path: str) -> bool:
        """Whether a file or directory is there."""

    def list(self, path: str) -> list[str]:
        """The names in a directory, sorted; `FileNotFoundError` if there is none."""

    def mkdir(self, path: str) -> None:
        """Make a directory and its parents; fine if it exists."""

    def remove(self, path: str) -> None:
        """Delete a file; `FileNotFoundError` if there is none."""

    def rename(self, source: str, target: str) -> None:
        """Atomically give a file another name in the same directory, replacing what had it."""

    def fsync_dir(self, path: str) -> None:
        """Return once the names in this directory are on the disk."""

    def lock(self, path: str) -> Lock:
        """Take the exclusive lock file at `path` (Kafka's `.lock`); `BlockingIOError` if another process holds it."""


def replace_file(disk: Disk, directory: str, name: str, content: bytes) -> None:
    """Put `content` under `name` so that a crash leaves the old or the new file, and the new one once this returns.

    Order: write `name.tmp`, fsync it, rename it over `name`, fsync the directory (Kafka: `Utils.atomicMoveWithFallback`).
    """
    temporary = f"{directory}/{name}.tmp"
    if disk.exists(temporary):
        disk.remove(temporary)
    file = disk.open(temporary, create=True)
    try:
        file.append(content)
        file.fsync()
    finally:
        file.close()
    disk.rename(temporary, f"{directory}/{name}")
    disk.fsync_dir(directory)
