"""The content of a snapshot of a raw log: the state that its program gives, in pieces behind a tag.

The tag tells it from the snapshot of a state machine or of Kafka's metadata, and from a backup.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from kraft.limits import MACHINE_PIECE_BYTES
from metadata_log.errors import CorruptBatch

_TAG: Final = b"kraft raw log: state"


def pieces_of(data: bytes) -> Iterator[bytes]:
    """Bytes as the values of records."""
    return (data[at : at + MACHINE_PIECE_BYTES] for at in range(0, len(data), MACHINE_PIECE_BYTES))


def raw_snapshot_values(state: bytes) -> tuple[bytes, ...]:
    """The record values of the snapshot of a raw log."""
    return (_TAG, *pieces_of(state))


def is_raw_snapshot(values: Iterable[bytes]) -> bool:
    """Whether these are the record values of the snapshot of a raw log."""
    return next(iter(values), b"") == _TAG


def state_of(values: Iterable[bytes], where: str | None = None) -> bytes:
    """The state in the record values of the snapshot of a raw log. Raises `CorruptBatch` for another snapshot."""
    values = iter(values)
    if next(values, b"") != _TAG:
        raise CorruptBatch("this is no snapshot of a raw log", where=where)
    return b"".join(values)
