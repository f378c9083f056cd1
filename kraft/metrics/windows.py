"""Averages, maxima and rates over Kafka's windows, and quantiles of recent values (Kafka: `SampledStat`, `Rate`).

Times are seconds of any clock that never runs backwards.
"""

from __future__ import annotations

from math import nan
from typing import Final

from msgspec import Struct

WINDOW_S: Final = 30.0
"""The length of one window (`metrics.sample.window.ms`)."""
WINDOWS: Final = 2
"""The number of windows (`metrics.num.samples`)."""
RECENT: Final = 1028
"""The number of values behind a quantile, as in the reservoir of a Yammer histogram."""
QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)


class _Window(Struct):
    began_s: float
    total: float = 0.0
    count: int = 0
    largest: float = nan


class Sampled:
    """Values over the present window and the one before."""

    __slots__ = ("_windows",)

    def __init__(self, now_s: float) -> None:
        self._windows = [_Window(now_s)]

    def record(self, value: float, now_s: float) -> None:
        """Add a value."""
        window = self._windows[-1]
        if now_s - window.began_s >= WINDOW_S:
            window = _Window(now_s)
            self._windows.append(window)
            del self._windows[:-WINDOWS]
        window.total += value
        window.count += 1
        if not window.largest >= value:
            window.largest = value

    def _valid(self, now_s: float) -> list[_Window]:
        return [one for one in self._windows if now_s - one.began_s < WINDOW_S * WINDOWS]

    def average(self, now_s: float) -> float:
        """The average; NaN without values."""
        windows = self._valid(now_s)
        count = sum(one.count for one in windows)
        return sum(one.total for one in windows) / count if count else nan

    def maximum(self, now_s: float) -> float:
        """The largest value; NaN without values."""
        return max((one.largest for one in self._valid(now_s) if one.count), default=nan)

    def rate(self, now_s: float) -> float:
        """The sum of the values per second. A time of less than one window counts as one window, as in Kafka."""
        windows = self._valid(now_s)
        if not windows:
            return 0.0
        elapsed_s = now_s - windows[0].began_s
        if elapsed_s < WINDOW_S:
            elapsed_s += WINDOW_S
        return sum(one.total for one in windows) / elapsed_s

    def share(self, now_s: float) -> float:
        """The sum of the values, in seconds, as a share of the time that the windows cover; NaN before any time."""
        windows = self._valid(now_s)
        if not windows or now_s <= windows[0].began_s:
            return nan
        return min(1.0, sum(one.total for one in windows) / (now_s - windows[0].began_s))


class Quantiles(Struct, frozen=True):
    """How often an event happened, the sum of its values since the start, and quantiles of the recent values."""

    count: int
    total: float
    values: tuple[tuple[float, float], ...]
    """Each quantile with its value; empty without values."""


class Recent:
    """The number and the sum of all values, and the recent ones for quantiles."""

    __slots__ = ("_at", "_values", "count", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self._values: list[float] = []
        self._at = 0

    def record(self, value: float) -> None:
        """Add a value."""
        self.count += 1
        self.total += value
        if len(self._values) < RECENT:
            self._values.append(value)
            return
        self._values[self._at] = value
        self._at = (self._at + 1) % RECENT

    def quantiles(self) -> Quantiles:
        """The quantiles of the recent values, each the value at its rank."""
        ordered = sorted(self._values)
        last = len(ordered) - 1
        values = tuple((one, ordered[round(one * last)]) for one in QUANTILES) if ordered else ()
        return Quantiles(self.count, self.total, values)
