"""The batches in the files of a partition, as the invariants of records see them: the header of format 2, read without
the code of the brokers (Kafka: `DefaultRecordBatch`); and what readers of committed records may see of them (KIP-98).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct as Layout
from typing import Final

from msgspec import Struct

from metadata_log.types import NO_PRODUCER

_HEADER: Final = Layout(">qiibIhiqqqhii")
_BEFORE_LENGTH: Final = 12
_ATTRIBUTES: Final = Layout(">h")
_ATTRIBUTES_AT: Final = 21
_TRANSACTIONAL: Final = 16
_CONTROL: Final = 32
_CLIENT_PART: Final = 16
"""The position after the base offset, the length and the leader epoch, which a leader sets."""


class StoredBatch(Struct, frozen=True, gc=False):
    """One batch. `content` has all of its bytes."""

    base_offset: int
    next_offset: int
    epoch: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    content: bytes

    @property
    def is_transactional(self) -> bool:
        """Whether the batch is part of a transaction, or ends one."""
        return bool(self._attributes & _TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether the batch has the marker that ends a transaction."""
        return bool(self._attributes & _CONTROL)

    @property
    def _attributes(self) -> int:
        attributes: int = _ATTRIBUTES.unpack_from(self.content, _ATTRIBUTES_AT)[0]
        return attributes

    def __repr__(self) -> str:
        """The offsets and the leader epoch, and the producer if there is one."""
        text = f"the batch of offsets {self.base_offset} to {self.next_offset - 1} and leader epoch {self.epoch}"
        if self.producer_id == NO_PRODUCER:
            return text
        return f"{text}, sequence {self.base_sequence} of producer {self.producer_id}"

    def is_of_client(self, sent: bytes) -> bool:
        """Whether the batch has what a client sent: everything but the base offset and the leader epoch."""
        return self.content[_CLIENT_PART:] == sent[_CLIENT_PART:]


def stored_batches(data: bytes) -> Iterator[StoredBatch]:
    """The whole batches in these bytes; an incomplete one at the end is left out."""
    at = 0
    while len(data) - at >= _HEADER.size:
        base, length, epoch, _, _, _, last_delta, _, _, producer_id, producer_epoch, sequence, _ = _HEADER.unpack_from(
            data, at
        )
        end = at + _BEFORE_LENGTH + length
        if end > len(data) or length <= 0:
            return
        yield StoredBatch(base, base + last_delta + 1, epoch, producer_id, producer_epoch, sequence, data[at:end])
        at = end


def batches_between(batches: Sequence[StoredBatch], start: int, end: int) -> list[StoredBatch]:
    """The batches that end above `start` and not above `end`."""
    between = list[StoredBatch]()
    for batch in reversed(batches):
        if batch.next_offset <= start:
            break
        if batch.next_offset <= end:
            between.append(batch)
    between.reverse()
    return between


_RECORDS_AT: Final = 61
_KEY: Final = Layout(">hh")
_KEY_AT: Final = 5
"""The position of the key in a marker's record: after length, attributes, both deltas and the key's size."""
_COMMIT: Final = 1


def is_commit(marker: StoredBatch) -> bool:
    """Whether a control batch commits the transaction of its producer; else the batch aborts it."""
    _, kind = _KEY.unpack_from(marker.content, _RECORDS_AT + _KEY_AT)
    return bool(kind == _COMMIT)


def stable_end(batches: Iterable[StoredBatch], watermark: int, reloaded: int = 0) -> int:
    """The offset up to which a reader of committed records may read.

    A transaction is over once its marker is below the high watermark. A start and a truncation, of which `reloaded` is
    the log end at the last one, take every marker in the log for one that ends its transaction, as in Kafka
    (`ProducerStateManager.truncateAndReload`).
    """
    bound = max(watermark, reloaded)
    firsts: dict[int, int] = {}
    for batch in batches:
        if batch.next_offset > bound:
            break
        if batch.is_control:
            firsts.pop(batch.producer_id, None)
        elif batch.is_transactional:
            firsts.setdefault(batch.producer_id, batch.base_offset)
    return min((*firsts.values(), watermark))


def was_committed(batches: Sequence[StoredBatch], batch: StoredBatch) -> bool | None:
    """Whether the transaction of a batch of this log was committed; None while no marker has ended it."""
    if not batch.is_transactional:
        return True
    markers = (
        one
        for one in batches
        if one.is_control and one.producer_id == batch.producer_id and one.base_offset > batch.base_offset
    )
    first = next(markers, None)
    return None if first is None else is_commit(first)


def shown_to_reader(read: Iterable[StoredBatch], aborted: Iterable[tuple[int, int]]) -> list[tuple[StoredBatch, bool]]:
    """The data batches of an answer, and whether a consumer of committed records passes each to its user. The aborted
    transactions are those in the answer: the producer, and the first offset.
    """
    waiting, dropped = sorted(aborted, key=lambda one: one[1]), set[int]()
    shown = list[tuple[StoredBatch, bool]]()
    for batch in read:
        while waiting and waiting[0][1] < batch.next_offset:
            dropped.add(waiting.pop(0)[0])
        if not batch.is_control:
            shown.append((batch, not batch.is_transactional or batch.producer_id not in dropped))
        elif batch.producer_id != NO_PRODUCER and not is_commit(batch):
            dropped.discard(batch.producer_id)
    return shown
