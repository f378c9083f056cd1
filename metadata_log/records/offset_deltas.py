"""The offset deltas of the first records of a batch in their encoded form, as one reads them with `struct`."""

from __future__ import annotations

from typing import Final

NEAR_COUNT: Final = 64
"""So many records have an offset delta of one byte."""
FAR_COUNT: Final = 8192
"""The records before this one have an offset delta of at most two bytes."""
NEAR_DELTAS: Final = tuple(delta << 1 for delta in range(NEAR_COUNT))
FAR_DELTAS: Final = tuple((delta << 9 | 0x8000) & 0xFF00 | delta >> 6 for delta in range(NEAR_COUNT, FAR_COUNT))
"""Those of two bytes, as one number of 16 bits."""
