"""Permanent damage of the disk of one node, beyond the effects of a power failure.

No checksum covers `quorum-state` and the fields of a batch header before the checksum, such as the epoch. Rot loses
these as a whole or together with the bytes around them, and no batch gets the whole checksummed part of another one:
no node, nor one of Kafka, could detect all such damage. `unchecked_damage` has the kinds that change them alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from enum import StrEnum
from random import Random
from typing import Final

from metadata_log.errors import MetadataLogError
from metadata_log.log.segment import SUFFIX
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.batch import RecordBatch, scan


class Damage(StrEnum):
    """The kinds of permanent damage of a disk."""

    ROT = "rot"
    """A bit flips."""
    ASTRAY = "astray"
    """A write went to a wrong place."""
    UNREADABLE = "unreadable"
    """A sector cannot be read any more."""
    LOST_FILE = "lost-file"
    """A file is gone from its directory."""
    WIPED = "wiped"
    """The operator formats the directory again."""
    FOREIGN = "foreign"
    """The operator has installed the disk of another node or of another cluster."""
    OLD_COPY = "old-copy"
    """The operator has restored a backup: the disk has the content of the start of an earlier life."""
    ELECTION = "election"
    """The file quorum-state has another content."""
    EPOCHS = "epochs"
    """The epoch of a batch has changed."""

    @property
    def needs_stop(self) -> bool:
        """Whether this damage requires a stopped node."""
        return self in (Damage.WIPED, Damage.FOREIGN, Damage.OLD_COPY, Damage.ELECTION, Damage.EPOCHS)


UNCHECKED: Final = ("/quorum-state", ".lock", ".index", ".timeindex", ".deleted", "leader-epoch-checkpoint")
"""The suffixes of files without a checksum, and of files that a node does not read."""
_EPOCH_BEGIN: Final = 12
_EPOCH_END: Final = 16


def damage_file(disk: MemoryDisk, what: Damage, rng: Random) -> str:
    """Damage one of the files on a disk; returns the path and the position, or an empty text if there is no file."""
    may_be_anything = what in (Damage.LOST_FILE, Damage.UNREADABLE)
    paths = [path for path in disk.files() if disk.peek(path) and (may_be_anything or not path.endswith(UNCHECKED))]
    if not paths:
        return ""
    path = rng.choice(paths)
    content = disk.peek(path)
    size = len(content)
    position = rng.randrange(size)
    match what:
        case Damage.ROT:
            position = _past_the_epoch(content, position) if path.endswith(".log") else position
            disk.overwrite(path, position, bytes([content[position] ^ 1 << rng.randrange(8)]))
        case Damage.ASTRAY:
            source = disk.peek(rng.choice(paths))
            start = rng.randrange(len(source))
            piece = source[start : start + rng.randint(32, 4096)]
            position = min(position, max(size - len(piece), 0))
            piece = piece[: size - position]
            if _forges(content, content[:position] + piece + content[position + len(piece) :]):
                return ""
            disk.overwrite(path, position, piece)
        case Damage.UNREADABLE:
            disk.spoil(path, position)
        case Damage.LOST_FILE:
            disk.lose_name(path)
            return path
        case _:
            raise AssertionError(what)
    return f"{path} at {position}"


def damaged_old_segments(disk: MemoryDisk) -> Iterator[str]:
    """The segments with a later segment that cannot be read to their end."""
    segments = [path for path in disk.files() if path.endswith(SUFFIX)]
    for path in segments[:-1]:
        content = disk.peek(path)
        if sum(batch.size_bytes for batch in _batches(content)) < len(content):
            yield path


def _forges(before: bytes, after: bytes) -> bool:
    """Whether a batch has been replaced by another one at its offset with a valid checksum."""
    known = {batch.base_offset: batch.data for batch in _batches(before)}
    return any(known.get(batch.base_offset, batch.data) != batch.data for batch in _batches(after))


def _batches(content: bytes, *, verify: bool = True) -> Iterator[RecordBatch]:
    """The batches of a file up to the first one that is damaged."""
    with suppress(MetadataLogError):
        yield from scan(content, verify=verify)


def _past_the_epoch(content: bytes, position: int) -> int:
    """The position; if it lies in the epoch of a batch, one after that field."""
    for batch in _batches(content, verify=False):
        if batch.position + _EPOCH_BEGIN <= position < batch.position + _EPOCH_END:
            return position + _EPOCH_END - _EPOCH_BEGIN
    return position
