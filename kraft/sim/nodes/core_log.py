"""The log of a bare core: batches in memory, what an fsync has made durable of them, and their form in a response
(Kafka: `MockLog`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache
from operator import attrgetter
from random import Random
from struct import Struct as Layout
from typing import Final

from kraft.invariants.observation import LogBatch
from kraft.quorum.effects import ControlRecord
from kraft.quorum.messages import BatchFacts
from kraft.quorum.voters import QuorumChange, VoterSet
from metadata_log.log.epochs import EpochHistory
from metadata_log.records.control import KRaftVersionRecord, VotersRecord
from metadata_log.records.frame import decode_control, encode_control

DATA: Final = b"d"
"""The first line of a batch of data; the second line is the timestamp, and each further line one value."""
CONTROL: Final = b"c"
"""The first line of a control batch; the second line is the timestamp, and each further line one record."""
REMEMBERED: Final = 1024
"""The number of cached control batches."""
_FRAME: Final = Layout(">qqiI")
_base_offset = attrgetter("base_offset")


class CoreLog:
    """The batches of a log, and which of them an fsync has made durable.

    A crash keeps a random number of the appends and truncations since the last fsync, the earliest first.
    """

    def __init__(self, batches: tuple[LogBatch, ...] = ()) -> None:
        self.batches = list(batches)
        self._durable = list(batches)
        self._unsynced: list[LogBatch | int] = []
        self._synced_count = 0

    @property
    def end_offset(self) -> int:
        """The offset after the last record."""
        return self.batches[-1].next_offset if self.batches else 0

    def append(self, batch: LogBatch) -> None:
        """Append a batch, which must begin where the log ends."""
        assert batch.base_offset == self.end_offset, (batch, self.end_offset)
        self.batches.append(batch)
        self._unsynced.append(batch)

    def truncate(self, offset: int) -> None:
        """Truncate the log at `offset`, which must be between two batches."""
        _cut(self.batches, offset)
        assert self.end_offset == offset, (self.end_offset, offset)
        self._unsynced.append(offset)

    def read(self, offset: int) -> list[LogBatch]:
        """The batches from the one that contains `offset` to the end of the log."""
        first = bisect_right(self.batches, offset, key=_base_offset) - 1
        return self.batches[max(first, 0) :] if offset < self.end_offset else []

    def sync_point(self) -> int:
        """The operations that an fsync makes durable if it begins now, as a number for `synced`."""
        return self._synced_count + len(self._unsynced)

    def synced(self, point: int) -> None:
        """The fsync that began at `point` has completed; a later fsync may have completed before."""
        count = max(point - self._synced_count, 0)
        for operation in self._unsynced[:count]:
            if isinstance(operation, LogBatch):
                self._durable.append(operation)
            else:
                _cut(self._durable, operation)
        del self._unsynced[:count]
        self._synced_count += count

    def crash(self, rng: Random) -> None:
        """Lose some or all operations without an fsync; the remaining batches are durable."""
        self.synced(self._synced_count + rng.randint(0, len(self._unsynced)))
        self._synced_count += len(self._unsynced)
        self._unsynced.clear()
        self.batches = list(self._durable)

    def epochs(self) -> EpochHistory:
        """The offset at which each epoch begins."""
        history = EpochHistory()
        for batch in self.batches:
            history = history.assign(batch.epoch, batch.base_offset)
        return history


def _cut(batches: list[LogBatch], offset: int) -> None:
    while batches and batches[-1].next_offset > offset:
        batches.pop()


def pack_batches(batches: list[LogBatch], max_bytes: int) -> tuple[tuple[BatchFacts, ...], bytes]:
    """The records of a `FetchReply`: whole batches of at most `max_bytes`, but at least one batch."""
    facts: list[BatchFacts] = []
    data = bytearray()
    for batch in batches:
        size = _FRAME.size + len(batch.content)
        if facts and len(data) + size > max_bytes:
            break
        data += _FRAME.pack(batch.base_offset, batch.next_offset, batch.epoch, len(batch.content)) + batch.content
        changes = changes_in(batch)
        facts.append(BatchFacts(batch.base_offset, batch.next_offset, batch.epoch, len(data), changes))
    return tuple(facts), bytes(data)


def changes_in(batch: LogBatch) -> tuple[QuorumChange, ...]:
    """The changes of the quorum in a control batch; none in a batch of data."""
    return _changes_in(batch.content, batch.base_offset) if batch.content.startswith(CONTROL) else ()


@lru_cache(REMEMBERED)
def _changes_in(content: bytes, base_offset: int) -> tuple[QuorumChange, ...]:
    """The changes in the content of a control batch, cached, as several nodes have the same batch."""
    return tuple(_changes(content, base_offset))


def _changes(content: bytes, base_offset: int) -> Iterator[QuorumChange]:
    _, _, *lines = content.split(b"\n")
    for offset, line in enumerate(lines, base_offset):
        key, _, value = line.decode().partition(":")
        match decode_control(bytes.fromhex(key), bytes.fromhex(value))[1]:
            case KRaftVersionRecord() as version:
                yield QuorumChange(offset, version.kraft_version)
            case VotersRecord() as voters:
                yield QuorumChange(offset, VoterSet.of_record(voters))


def unpack_batches(data: bytes) -> list[LogBatch]:
    """The batches in the data that `pack_batches` returned."""
    batches = []
    position = 0
    while position < len(data):
        base_offset, next_offset, epoch, size = _FRAME.unpack_from(data, position)
        position += _FRAME.size
        batches.append(LogBatch(base_offset, next_offset, epoch, data[position : position + size]))
        position += size
    return batches


def data_content(timestamp_ms: int, values: tuple[bytes, ...]) -> bytes:
    """The content of a batch of data."""
    return b"\n".join((DATA, str(timestamp_ms).encode(), *values))


def control_content(timestamp_ms: int, records: tuple[ControlRecord, ...]) -> bytes:
    """The content of a control batch."""
    lines = (f"{key.hex()}:{value.hex()}".encode() for _, key, value in map(encode_control, records))
    return b"\n".join((CONTROL, str(timestamp_ms).encode(), *lines))


def values_in(batch: LogBatch) -> tuple[bytes, ...]:
    """The submitted values in a batch; none in a control batch."""
    kind, _, *values = batch.content.split(b"\n")
    return tuple(values) if kind == DATA else ()
