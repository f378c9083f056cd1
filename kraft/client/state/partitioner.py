"""Which partition a key belongs to (Kafka: `BuiltInPartitioner`, `Utils.murmur2`)."""

from __future__ import annotations

from typing import Final

_SEED: Final = 0x9747B28C
_MIX: Final = 0x5BD1E995
_MASK: Final = 0xFFFF_FFFF
_POSITIVE: Final = 0x7FFF_FFFF


def murmur2(data: bytes) -> int:
    """The hash of Kafka's clients, as an unsigned number of 32 bits."""
    size = len(data)
    found = _SEED ^ size
    whole = size & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _MIX & _MASK
        word = (word ^ word >> 24) * _MIX & _MASK
        found = found * _MIX & _MASK ^ word
    if size > whole:
        found = (found ^ int.from_bytes(data[whole:], "little")) * _MIX & _MASK
    found = (found ^ found >> 13) * _MIX & _MASK
    return found ^ found >> 15


def partition_of_key(key: bytes, partitions: int) -> int:
    """The partition of a key in a topic with so many partitions, as each client of Kafka chooses it."""
    return (murmur2(key) & _POSITIVE) % partitions
