"""The changes of names that a directory of a `MemoryDisk` has not made durable yet, and its errors."""

from __future__ import annotations

import errno

from msgspec import Struct


class Link(Struct, frozen=True):
    """A new name for a file."""

    path: str
    inode: int


class Unlink(Struct, frozen=True):
    """A removed name."""

    path: str


class Rename(Struct, frozen=True):
    """An atomic rename."""

    source: str
    target: str


class MakeDirectory(Struct, frozen=True):
    """A new directory."""

    path: str


NameChange = Link | Unlink | Rename | MakeDirectory
"""A change of one name."""


def missing(path: str) -> FileNotFoundError:
    """The error for a name that is not there."""
    return FileNotFoundError(errno.ENOENT, "no such file or directory", path)


def full(path: str) -> OSError:
    """The error of a full disk."""
    return OSError(errno.ENOSPC, "no space left on device", path)
