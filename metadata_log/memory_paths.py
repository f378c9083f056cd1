"""The paths of a `MemoryDisk`, its durable names, and its errors."""

from __future__ import annotations

import errno
from functools import lru_cache
from typing import Final

from metadata_log.memory_names import Link, MakeDirectory, NameChange, RemoveDirectory, Rename, RenameDirectory, Unlink

PATHS: Final = 1024
"""How many normalized paths are cached."""


def missing(path: str) -> FileNotFoundError:
    """The error for a name that is not there."""
    return FileNotFoundError(errno.ENOENT, "no such file or directory", path)


def full(path: str) -> OSError:
    """The error of a full disk."""
    return OSError(errno.ENOSPC, "no space left on device", path)


def not_empty(path: str) -> OSError:
    """The error for a directory that still has names."""
    return OSError(errno.ENOTEMPTY, "directory not empty", path)


def moved(name: str, source: str, target: str) -> str:
    """The name of a file or directory after the rename of a directory."""
    return target + name[len(source) :] if name == source or name.startswith(f"{source}/") else name


def make_durable(change: NameChange, names: dict[str, int], directories: dict[str, None]) -> None:
    """Carry out a change in the durable names and directories."""
    match change:
        case Link(path, inode):
            names[path] = inode
        case Unlink(path):
            names.pop(path, None)
        case Rename(source, target):
            names[target] = names.pop(source)
        case MakeDirectory(path):
            directories[path] = None
        case RenameDirectory(source, target):
            for path in [one for one in names if moved(one, source, target) != one]:
                names[moved(path, source, target)] = names.pop(path)
            for path in [one for one in directories if moved(one, source, target) != one]:
                directories[moved(path, source, target)] = directories.pop(path)
        case RemoveDirectory(path):
            directories.pop(path, None)


def survives(directory: str, directories: dict[str, None]) -> bool:
    """Whether a directory and all its parents are durable."""
    while directory:
        if directory not in directories:
            return False
        directory = parent(directory)
    return True


@lru_cache(PATHS)
def normal(path: str) -> str:
    """A path without empty parts and without leading slash."""
    return "/".join(part for part in path.split("/") if part not in {"", "."})


@lru_cache(PATHS)
def parent(name: str) -> str:
    """The directory of a normalized path."""
    return name.rpartition("/")[0]
