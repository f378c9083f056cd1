"""Rates and averages over the last windows of time, and a bucket of tokens (Kafka: `Rate`, `SimpleRate`, `WindowedSum`,
`Avg`, `TokenBucket`).
"""

from __future__ import annotations

from math import ceil, floor, nan
from typing import Final

from msgspec import Struct

SAMPLES: Final = 11
WINDOW_MS: Final = 1000
_MINUTE_SAMPLES: Final = 2
_MINUTE_WINDOW_MS: Final = 30_000


class _Sample(Struct):
    """The use in one window of time."""

    start_ms: int
    last_ms: int
    value: float = 0.0

    def reset(self, now_ms: int) -> None:
        """Begin anew."""
        self.start_ms = self.last_ms = now_ms
        self.value = 0.0


class Rate:
    """The rate of uses over the last windows of time (Kafka: `Rate` over `WindowedSum`).

    A new rate counts as if all windows but the present one had passed already, without any use.

    Args:
        samples: The number of windows (`quota.window.num`).
        window_ms: The length of a window (`quota.window.size.seconds`).
    """

    __slots__ = ("_current", "_number", "_samples", "_window_ms")

    def __init__(self, samples: int = SAMPLES, window_ms: int = WINDOW_MS) -> None:
        self._number = samples
        self._window_ms = window_ms
        self._samples: list[_Sample] = []
        self._current = 0

    def note(self, value: float, now_ms: int) -> None:
        """Count a use; a negative value takes a use back."""
        if not self._samples:
            self._samples.append(_Sample(now_ms, now_ms))
        sample = self._samples[self._current]
        if now_ms - sample.start_ms >= self._window_ms:
            # One more than the windows: the oldest one may lie only partly in the measured time.
            self._current = (self._current + 1) % (self._number + 1)
            if self._current == len(self._samples):
                self._samples.append(_Sample(now_ms, now_ms))
            sample = self._samples[self._current]
            sample.reset(now_ms)
        sample.value += value
        sample.last_ms = now_ms

    def measure(self, now_ms: int) -> tuple[float, int]:
        """The uses a second, and the time over which they are counted, in ms."""
        elapsed_ms = self._elapsed_ms(now_ms)
        missing = max(0, self._number - 1 - elapsed_ms // self._window_ms)
        over_ms = max(1, elapsed_ms + missing * self._window_ms)
        return sum(each.value for each in self._samples) / (over_ms / 1000), over_ms

    def wait_ms(self, bound: float, longest_ms: int, now_ms: int) -> int:
        """After how long without a use the rate is within a bound again, or 0 (Kafka: `QuotaUtils.throttleTime`).

        Args:
            bound: The uses a second.
            longest_ms: The longest wait, which is also that for a bound of 0.
            now_ms: The time in ms since 1970.
        """
        measured, over_ms = self.measure(now_ms)
        if measured <= bound:
            return 0
        return longest_ms if bound <= 0 else floor(min((measured - bound) / bound * over_ms + 0.5, longest_ms))

    def since_first(self, now_ms: int) -> float:
        """The uses a second since the oldest window began, and over one window at least (Kafka: `SimpleRate`)."""
        over_ms = max(self._elapsed_ms(now_ms), self._window_ms)
        return sum(each.value for each in self._samples) / (over_ms / 1000)

    def ms_until(self, bound: float, now_ms: int) -> int:
        """After how long without a use `since_first` is at a bound above 0, or 0 if it is not above it."""
        elapsed_ms = self._elapsed_ms(now_ms)
        return max(0, ceil(sum(each.value for each in self._samples) * 1000 / bound) - elapsed_ms)

    def _elapsed_ms(self, now_ms: int) -> int:
        """The time since the oldest window began; those that are too old begin anew."""
        for sample in self._samples:
            if now_ms - sample.last_ms >= self._number * self._window_ms:
                sample.reset(now_ms)
        return now_ms - min((each.start_ms for each in self._samples), default=now_ms)


class Average:
    """The average of values over the last minute (Kafka: `Avg` with the windows of its other metrics)."""

    __slots__ = ("_count", "_sum")

    def __init__(self) -> None:
        self._sum, self._count = Rate(_MINUTE_SAMPLES, _MINUTE_WINDOW_MS), Rate(_MINUTE_SAMPLES, _MINUTE_WINDOW_MS)

    def note(self, value: float, now_ms: int) -> None:
        """Count a value."""
        self._sum.note(value, now_ms)
        self._count.note(1, now_ms)

    def measure(self, now_ms: int) -> float:
        """The average; NaN without any value."""
        times = self._count.measure(now_ms)[0]
        return self._sum.measure(now_ms)[0] / times if times else nan


class TokenBucket:
    """Tokens that come at a rate, up to a burst, and may be owed (Kafka: `TokenBucket`; KIP-599). A new one is full.

    Args:
        seconds: For how many seconds of its rate there are tokens at most.
    """

    __slots__ = ("_last_ms", "_seconds", "_tokens")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._tokens = 0.0
        self._last_ms: int | None = None

    def left(self, rate: float, now_ms: int) -> float:
        """The tokens that are left; fewer than none while some are owed."""
        burst = self._seconds * rate
        if self._last_ms is None:
            self._tokens = burst
        else:
            self._tokens = min(burst, self._tokens + rate * max(0, now_ms - self._last_ms) / 1000)
        self._last_ms = now_ms if self._last_ms is None else max(now_ms, self._last_ms)
        return self._tokens

    def take(self, tokens: float, rate: float, now_ms: int) -> None:
        """Take tokens, more than there are if need be."""
        self._tokens = min(self._seconds * rate, self.left(rate, now_ms) - tokens)
