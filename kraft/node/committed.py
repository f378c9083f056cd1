"""Iterates over the committed log while it grows."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable

from msgspec import Struct

from kraft.committed import CommittedBatch
from kraft.limits import APPLIED_BYTES_PER_STEP
from kraft.node.errors import OffsetOutOfRange
from metadata_log.log.log import MetadataLog
from metadata_log.records.batch import scan
from metadata_log.records.record import records


class LogSnapshot(Struct, frozen=True):
    """The state that the program of a raw log has made of all values below `offset`; see `Node.snapshot`."""

    offset: int
    epoch: int
    state: bytes


Read = Callable[[int], tuple[list[CommittedBatch], int]]
"""Returns committed data batches from an offset on, and the offset after them."""


def read_committed(log: MetadataLog, offset: int, high_watermark: int) -> tuple[list[CommittedBatch], int]:
    """About a megabyte of data batches, from the one with `offset` on, and the offset after them.

    Raises `OffsetOutOfRange` where the log begins later, `CorruptBatch` where it cannot be read.
    """
    if offset < log.start_offset:
        raise OffsetOutOfRange(offset, log.start_offset)
    batches: list[CommittedBatch] = []
    if offset < high_watermark:
        data = log.read(offset, APPLIED_BYTES_PER_STEP, end_offset=high_watermark)
        for batch in scan(data, where=log.directory):
            offset = batch.next_offset
            if not batch.is_control:
                values = tuple(record.value or b"" for record in records(batch, where=log.directory))
                batches.append(CommittedBatch(batch.base_offset, offset, batch.epoch, batch.base_timestamp, values))
    return batches, offset


class CommittedBatches:
    """An asynchronous iterator over committed batches of data records, from an offset on; ends when the node stops.

    The iterator reads the log on demand, so that a slow reader needs no buffer. The first batch may begin before the
    requested offset, as batches are never split.
    """

    def __init__(self, from_offset: int, read: Read, wait: Callable[[], Awaitable[bool]]) -> None:
        self._next_offset = from_offset
        self._read = read
        self._wait = wait
        self._ready: deque[CommittedBatch] = deque()

    def __aiter__(self) -> CommittedBatches:
        return self

    async def __anext__(self) -> CommittedBatch:
        while not self._ready:
            batches, next_offset = self._read(self._next_offset)
            self._ready.extend(batches)
            if next_offset == self._next_offset and not await self._wait():
                raise StopAsyncIteration
            self._next_offset = next_offset
        return self._ready.popleft()
