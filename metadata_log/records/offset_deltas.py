"""Helpers that read the records of plain batches in bulk: the encoded offset deltas of the first records, for use
with `struct`, and short numbers.
"""

from __future__ import annotations

from typing import Final

NEAR_COUNT: Final = 64
"""So many records have an offset delta of one byte."""
FAR_COUNT: Final = 8192
"""The records before this one have an offset delta of at most two bytes."""
NEAR_DELTAS: Final = tuple(delta << 1 for delta in range(NEAR_COUNT))
FAR_DELTAS: Final = tuple((delta << 9 | 0x8000) & 0xFF00 | delta >> 6 for delta in range(NEAR_COUNT, FAR_COUNT))
"""Those of two bytes, as one number of 16 bits."""


class NotPlain(Exception):
    """A batch has anything unusual, and is read in the general way."""


def short_number(data: bytes, position: int) -> tuple[int, int]:
    """An unsigned variable-length number of at most three bytes, and the position after it; raises `NotPlain`."""
    number = 0
    for index in range(3):
        byte = data[position + index]
        number |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return number, position + index + 1
    raise NotPlain
