"""The check that a Produce request has one whole batch for a partition (Kafka: `ProduceRequest.validateRecords`,
`ByteBufferLogInputStream`, `RequestUtils.hasTransactionalRecords`).
"""

from __future__ import annotations

from struct import Struct as Layout
from typing import Final

from msgspec import Struct

from kraft.partitions.log.outcomes import RefusedAppend
from metadata_log.compression import Compression
from metadata_log.records.batch import COMPRESSION_MASK, TRANSACTIONAL
from transport.protocol.errors import Error

ZSTD_SINCE: Final = 7
"""The first version of Produce that allows zstd."""
_BEFORE_LENGTH: Final = 12
_UP_TO_MAGIC: Final = 17
_SMALLEST_LENGTH: Final = 14
_FLAGS_AT: Final = 22
_HEADER: Final = Layout(">8xi4xb5xB20xqhi")
"""The length, the format, the flags and the producer of a batch."""
_PRODUCER_AT: Final = 43
_PRODUCER: Final = Layout(">qhi")
"""The producer's id, its epoch, and the sequence number of the first record."""


class FirstBatch(Struct, frozen=True, gc=False):
    """The fields of the first batch that the checks need: its flags and its producer. A short batch has neither."""

    size_bytes: int
    magic: int
    flags: int
    producer_id: int
    producer_epoch: int = -1
    base_sequence: int = -1

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return self.magic == 2 and bool(self.flags & TRANSACTIONAL)


def first_batch(data: bytes, at: int = 0) -> FirstBatch | RefusedAppend | None:
    """The batch at a position; None if no whole batch is there, and a refusal for a length or a format of no batch."""
    left = len(data) - at
    if left >= _HEADER.size:
        length, magic, flags, producer, epoch, sequence = _HEADER.unpack_from(data, at)
        if magic == 2 and _HEADER.size <= length + _BEFORE_LENGTH <= left:
            return FirstBatch(length + _BEFORE_LENGTH, magic, flags, producer, epoch, sequence)
    if left < _BEFORE_LENGTH:
        return None
    length = int.from_bytes(data[at + 8 : at + 12], "big", signed=True)
    if length < _SMALLEST_LENGTH:
        return RefusedAppend(Error.CORRUPT_MESSAGE, f"no batch has a length of {length}")
    if left < _UP_TO_MAGIC:
        return None
    magic = int.from_bytes(data[at + 16 : at + 17], "big", signed=True)
    if not 0 <= magic <= 2:
        return RefusedAppend(Error.CORRUPT_MESSAGE, f"unknown batch format {magic}")
    size = length + _BEFORE_LENGTH
    if left < size:
        return None
    flags = data[at + _FLAGS_AT] if size > _FLAGS_AT else 0
    if size < _PRODUCER_AT + _PRODUCER.size:
        return FirstBatch(size, magic, flags, -1)
    return FirstBatch(size, magic, flags, *_PRODUCER.unpack_from(data, at + _PRODUCER_AT))


def only_batch(
    data: bytes | None, first: FirstBatch | RefusedAppend | None, version: int
) -> FirstBatch | RefusedAppend:
    """The one batch of a partition in a Produce request, or why the request is refused for this partition.

    Args:
        data: The records of the partition.
        first: What `first_batch` has found in them.
        version: The version of the request.
    """
    if data is None or first is None:
        return RefusedAppend(Error.INVALID_RECORD, f"Produce {version} needs a whole record batch for each partition")
    if isinstance(first, RefusedAppend):
        return first
    if first.magic != 2:
        return RefusedAppend(Error.INVALID_RECORD, f"Produce {version} takes batches of format 2, not {first.magic}")
    if version < ZSTD_SINCE and first.flags & COMPRESSION_MASK == Compression.ZSTD:
        return RefusedAppend(Error.UNSUPPORTED_COMPRESSION_TYPE, f"Produce {version} does not allow zstd")
    if first.size_bytes == len(data):
        return first
    second = first_batch(data, first.size_bytes)
    if isinstance(second, RefusedAppend):
        return second
    if second is not None:
        return RefusedAppend(
            Error.INVALID_RECORD, f"Produce {version} takes exactly one record batch for each partition"
        )
    return first
