"""The producer snapshots of a broker's partition (Kafka: `ProducerStateManager.writeSnapshot`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct as Layout
from typing import Final

from msgspec import Struct

from metadata_log.crc32c import extend
from metadata_log.crc32c import value as crc32c
from metadata_log.errors import DecodeError

SUFFIX: Final = ".snapshot"
_HEAD: Final = Layout(">hII")
"""Version, CRC-32C and number of entries."""
_ENTRY: Final = Layout(">qhiqiqiq")
"""Producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch, first open offset."""
_VERSION: Final = 1
_CHECKED_AT: Final = 6
"""The position of the first byte that the CRC covers."""


class StoredProducer(Struct, frozen=True, gc=False):
    """One entry of a producer snapshot: a producer and its last batch (Kafka: `ProducerStateEntry`).

    Args:
        producer_id: The producer's id.
        epoch: The producer's epoch.
        last_sequence: The last sequence number of the last batch; -1 without a batch.
        last_offset: The last offset of the last batch; -1 without a batch.
        offset_delta: The distance from the first to the last offset of the last batch.
        timestamp: The time of the last batch or transaction marker, in ms since 1970.
        coordinator_epoch: The epoch of the coordinator that wrote the last transaction marker; -1 for none.
        open_offset: The first offset of the open transaction; -1 for none.
    """

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    open_offset: int


def encode_producer_snapshot(producers: Sequence[StoredProducer]) -> bytes:
    """The content of a producer snapshot, with the entries in the given order."""
    entries = encode_entries(producers)
    return encode_head(len(producers), (entries,)) + entries


def encode_entries(producers: Iterable[StoredProducer]) -> bytes:
    """Some of the entries of a snapshot."""
    return b"".join(
        _ENTRY.pack(
            each.producer_id,
            each.epoch,
            each.last_sequence,
            each.last_offset,
            each.offset_delta,
            each.timestamp,
            each.coordinator_epoch,
            each.open_offset,
        )
        for each in producers
    )


def encode_head(count: int, entries: Iterable[bytes]) -> bytes:
    """The header of a snapshot; the entries, which follow it, come in pieces."""
    number = count.to_bytes(4, "big")
    crc: int = crc32c(number)
    for piece in entries:
        crc = extend(crc, piece)
    return _VERSION.to_bytes(2, "big") + crc.to_bytes(4, "big") + number


def decode_producer_snapshot(content: bytes, where: str) -> tuple[StoredProducer, ...]:
    """The entries of a producer snapshot (`ProducerStateManager.readSnapshot`).

    Args:
        content: The content of the file.
        where: The path of the file, for errors.

    Returns:
        The entries in the order of the file.

    Raises:
        DecodeError: The file is short, or has another version or a wrong checksum.
    """
    hint = "Remove the file: the broker rebuilds the producer state from an older snapshot and the log."
    if len(content) < _HEAD.size:
        raise DecodeError(f"the producer snapshot has only {len(content)} bytes", where=where, hint=hint)
    version, crc, count = _HEAD.unpack_from(content)
    if version != _VERSION:
        raise DecodeError(f"unknown version {version} of a producer snapshot", where=where, hint=hint)
    if crc32c(content[_CHECKED_AT:]) != crc:
        raise DecodeError("the producer snapshot does not match its checksum", where=where, hint=hint)
    end = _HEAD.size + count * _ENTRY.size
    if len(content) < end:
        raise DecodeError(f"the producer snapshot ends before its {count} entries", where=where, hint=hint)
    return tuple(StoredProducer(*entry) for entry in _ENTRY.iter_unpack(content[_HEAD.size : end]))


def read_producer_snapshot(content: bytes, where: str) -> tuple[int, str | None]:
    """The highest producer id in a broker's producer snapshot, -1 for none; and the defect of the file, if any.

    Args:
        content: The content of the file. Its checksum is not verified.
        where: The path of the file, for the text of a defect.
    """
    if len(content) < _HEAD.size:
        return -1, f"the producer snapshot has only {len(content)} bytes ({where})"
    version, _, count = _HEAD.unpack_from(content)
    if version != 1 or len(content) < _HEAD.size + count * _ENTRY.size:
        return -1, f"the producer snapshot of version {version} cannot be read ({where})"
    entries = _ENTRY.iter_unpack(content[_HEAD.size : _HEAD.size + count * _ENTRY.size])
    return max((entry[0] for entry in entries), default=-1), None
