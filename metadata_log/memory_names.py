"""The changes of names that a directory of a `MemoryDisk` has not made durable yet."""

from __future__ import annotations

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


class RenameDirectory(Struct, frozen=True):
    """An atomic rename of a directory with everything below it."""

    source: str
    target: str


class RemoveDirectory(Struct, frozen=True):
    """A removed directory."""

    path: str


NameChange = Link | Unlink | Rename | MakeDirectory | RenameDirectory | RemoveDirectory
"""A change of one name."""
