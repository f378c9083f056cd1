"""A figure over several rounds, as benches print it: the median, and beside it the least and the most."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from msgspec import Struct


class Spread(Struct, frozen=True):
    """A figure over all rounds."""

    median: float
    least: float
    most: float

    def __str__(self) -> str:
        """`1,250 (990-1,300)`: with two digits after the point below 100."""
        digits = 0 if self.median >= 100 else 2
        return f"{self.median:,.{digits}f} ({self.least:,.{digits}f}-{self.most:,.{digits}f})"


def spread(values: Sequence[float]) -> Spread:
    """The median, the least and the most."""
    return Spread(statistics.median(values), min(values), max(values))
