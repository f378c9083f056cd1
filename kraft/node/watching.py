"""The metadata records of a node's log as they are committed, for programs that embed a controller or a broker."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Sequence

from msgspec import Struct

from kraft.node.committed import CommittedBatches
from metadata_log.records.frame import read_record
from metadata_log.serde import Message


class MetadataChange(Struct, frozen=True, gc=False):
    """One committed metadata record. `record` is None where this version does not know its type."""

    offset: int
    epoch: int
    timestamp_ms: int
    type: str
    record: Message | None


class MetadataWatch(AsyncIterator[MetadataChange]):
    """Iterates over the records of these types (names), or of all types, from a position on.

    Raises `OffsetOutOfRange` if the log does not have the next record any more.
    """

    def __init__(self, batches: CommittedBatches, types: Sequence[str]) -> None:
        self._batches = batches
        self._types = frozenset(types)
        self._ready: deque[MetadataChange] = deque()

    def __aiter__(self) -> MetadataWatch:
        return self

    async def __anext__(self) -> MetadataChange:
        while not self._ready:
            batch = await anext(self._batches)
            for offset, value in enumerate(batch.values, batch.base_offset):
                _, _, name, record = read_record(value, where=f"offset {offset}")
                if not self._types or name in self._types:
                    self._ready.append(MetadataChange(offset, batch.epoch, batch.timestamp_ms, name, record))
        return self._ready.popleft()
