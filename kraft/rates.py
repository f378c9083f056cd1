"""Rates over the last windows of time, and a bucket of tokens (Kafka: `Rate`, `SimpleRate`, `WindowedSum`,
`TokenBucket`).
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

SAMPLES: Final = 11
WINDOW_MS: Final = 1000


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

    def since_first(self, now_ms: int) -> float:
        """The uses a second since the oldest window began, and over one window at least (Kafka: `SimpleRate`)."""
        over_ms = max(self._elapsed_ms(now_ms), self._window_ms)
        return sum(each.value for each in self._samples) / (over_ms / 1000)

    def _elapsed_ms(self, now_ms: int) -> int:
        """The time since the oldest window began; those that are too old begin anew."""
        for sample in self._samples:
            if now_ms - sample.last_ms >= self._number * self._window_ms:
                sample.reset(now_ms)
        return now_ms - min((each.start_ms for each in self._samples), default=now_ms)


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
