"""The content of one file of a `MemoryDisk`: its written bytes, its durable bytes, and its faults.

Kafka has no counterpart: its simulation ends at `MockLog`, which never uses a disk.
"""

from __future__ import annotations

import errno
from hashlib import blake2b
from random import Random


class Inode:
    """One file's content. Only `owner` may change it: a fork of a disk copies the content first."""

    __slots__ = (
        "begun_size",
        "damaged",
        "data",
        "durable_size",
        "durable_tail",
        "hashed",
        "hasher",
        "is_cut",
        "is_stuck",
        "owner",
        "unreadable",
    )

    def __init__(self, owner: object) -> None:
        self.owner = owner
        self.data = bytearray()
        self.durable_size = 0
        """How many bytes of `data` are durable."""
        self.durable_tail = b""
        """Bytes that are still durable although `data` was truncated."""
        self.begun_size = -1
        """How many bytes of `data` the fsync covers that is running; -1 if none is."""
        self.is_cut = False
        """Whether `data` was truncated below `begun_size` since that fsync began."""
        self.is_stuck = False
        """Whether an fsync has failed: its data is lost, and no later fsync writes that data."""
        self.unreadable: tuple[int, ...] = ()
        """The positions of bytes that the disk cannot read."""
        self.damaged: tuple[int, ...] = ()
        """The positions of the first bytes of wrong data."""
        self.hasher = blake2b(digest_size=16)
        self.hashed = 0

    def copy(self, owner: object) -> Inode:
        """The same content for another owner."""
        copy = Inode(owner)
        copy.data = self.data.copy()
        copy.durable_size = self.durable_size
        copy.durable_tail = self.durable_tail
        copy.begun_size = self.begun_size
        copy.is_cut = self.is_cut
        copy.is_stuck = self.is_stuck
        copy.unreadable = self.unreadable
        copy.damaged = self.damaged
        copy.hasher = self.hasher.copy()
        copy.hashed = self.hashed
        return copy

    def read(self, size: int, position: int, path: str) -> bytes:
        """Up to `size` bytes; `OSError` if one of them cannot be read."""
        if self.unreadable and any(position <= one < position + size for one in self.unreadable):
            raise OSError(errno.EIO, "a sector cannot be read", path)
        return bytes(self.data[position : position + size])

    def truncate(self, size: int) -> None:
        """Remove everything after `size`."""
        if size < self.durable_size:
            self.durable_tail = bytes(self.data[size : self.durable_size]) + self.durable_tail
            self.durable_size = size
        if size < self.begun_size:
            self.begun_size = size
            self.is_cut = True
        del self.data[size:]
        self.unreadable = tuple(one for one in self.unreadable if one < size)
        self.damaged = tuple(one for one in self.damaged if one < size)
        if self.hashed > size:
            self._hash_anew()

    def fsync(self) -> None:
        """Make everything durable, as far as that is still possible."""
        if not self.is_stuck:
            self.durable_size = len(self.data)
            self.durable_tail = b""

    def begin_fsync(self) -> None:
        """An fsync begins, which does not cover what is written from now on (Linux: a page that becomes dirty while an
        fsync runs waits for the next one).
        """
        self.begun_size, self.is_cut = len(self.data), False

    def write_back(self) -> None:
        """Make durable what the running fsync covers, as far as that is still possible and has not been truncated."""
        if self.is_stuck:
            return
        if self.begun_size > self.durable_size:
            self.durable_size = self.begun_size
            self.durable_tail = b""
        elif not self.is_cut:
            self.durable_tail = b""

    def end_fsync(self) -> None:
        """The running fsync returns."""
        self.write_back()
        self.begun_size = -1

    def drop_cache(self) -> None:
        """Return to the durable content if an fsync has failed."""
        if self.is_stuck:
            self.data = bytearray(bytes(self.data[: self.durable_size]) + self.durable_tail)
            self.is_stuck = False
            self.fsync()
            self._hash_anew()

    def overwrite(self, position: int, data: bytes) -> None:
        """Durably replace bytes."""
        assert position + len(data) <= len(self.data), (position, len(data), len(self.data))
        if self.data[position : position + len(data)] != data:
            self.damaged = (*self.damaged, position)
        self.data[position : position + len(data)] = data
        self._hash_anew()

    def facts(self) -> tuple[object, ...]:
        """The state that distinguishes files with the same digest."""
        return (
            len(self.data),
            self.durable_size,
            self.durable_tail,
            self.begun_size,
            self.is_cut,
            self.is_stuck,
            self.unreadable,
        )

    def digest(self) -> bytes:
        """16 bytes that differ for different contents."""
        self.hasher.update(memoryview(self.data)[self.hashed :])
        self.hashed = len(self.data)
        return self.hasher.digest()

    def crash(self, rng: Random | None) -> None:
        """Keep the durable content; with `rng` perhaps some of the rest, perhaps torn."""
        durable = bytes(self.data[: self.durable_size]) + self.durable_tail
        if rng is not None:
            if self.durable_tail:
                durable = rng.choice((durable, bytes(self.data)))
            else:
                durable += _torn(bytes(self.data[self.durable_size :]), rng)
        self.data = bytearray(durable)
        self.is_stuck = False
        self.begun_size = -1
        self.fsync()
        self._hash_anew()

    def _hash_anew(self) -> None:
        self.hasher = blake2b(digest_size=16)
        self.hashed = 0


def _torn(written: bytes, rng: Random) -> bytes:
    """A possible remainder of an append without fsync: nothing, all, a part, or a part with a hole of zeros."""
    if not written:
        return b""
    kept = rng.choice((0, len(written), rng.randrange(len(written) + 1)))
    hole = rng.randrange(kept + 1) if rng.random() < 0.3 else kept
    return written[:hole] + bytes(kept - hole)
