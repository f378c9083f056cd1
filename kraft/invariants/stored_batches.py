"""The batches in the files of a partition, as the invariants of records see them: the header of format 2, read without
the code of the brokers (Kafka: `DefaultRecordBatch`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct as Layout
from typing import Final

from msgspec import Struct

_HEADER: Final = Layout(">qiibIhiqqqhii")
_BEFORE_LENGTH: Final = 12
_ATTRIBUTES: Final = Layout(">h")
_ATTRIBUTES_AT: Final = 21
_TRANSACTIONAL: Final = 16
_CONTROL: Final = 32
_CLIENT_PART: Final = 16
"""The position behind the base offset, the length and the leader epoch, which a leader sets."""
NO_PRODUCER: Final = -1


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
    found = list[StoredBatch]()
    for batch in reversed(batches):
        if batch.next_offset <= start:
            break
        if batch.next_offset <= end:
            found.append(batch)
    found.reverse()
    return found
