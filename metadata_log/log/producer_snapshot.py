"""The producer snapshots of a broker's partition (Kafka: `ProducerStateManager.writeSnapshot`)."""

from __future__ import annotations

from struct import Struct as Layout
from typing import Final

SUFFIX: Final = ".snapshot"
_HEAD: Final = Layout(">hII")
"""Version, CRC-32C and number of entries."""
_ENTRY: Final = Layout(">qhiqiqiq")
"""Producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch, first open offset."""


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
