"""Records proposed within one burst of events: they have their offsets at once, and reach the core together at its end.

Handing each unit to the core by itself would cost as much as deciding on it. All units of a burst stand in one batch,
which is more than their authors asked for.
"""

from __future__ import annotations

from kraft.quorum.accumulator import BATCH_OVERHEAD, RECORD_OVERHEAD


class Gathered:
    """The values that the core does not have yet; the first of them has `base_offset`."""

    __slots__ = ("_bytes", "_max_batch_bytes", "base_offset", "values")

    def __init__(self, max_batch_bytes: int) -> None:
        self._max_batch_bytes = max_batch_bytes
        self._bytes = BATCH_OVERHEAD
        self.base_offset = 0
        self.values: list[bytes] = []

    @property
    def next_offset(self) -> int:
        """The offset of the next value."""
        return self.base_offset + len(self.values)

    def add(self, values: tuple[bytes, ...]) -> bool:
        """Take the values, or refuse them if they cannot stand in one batch with those gathered so far."""
        size = self._bytes + sum(map(len, values)) + RECORD_OVERHEAD * len(values)
        if size > self._max_batch_bytes:
            return False
        self._bytes = size
        self.values.extend(values)
        return True

    def take(self) -> tuple[bytes, ...]:
        """Hand out what was gathered and begin anew."""
        taken = tuple(self.values)
        self.values = []
        self._bytes = BATCH_OVERHEAD
        return taken

    def fork(self) -> Gathered:
        """An independent copy."""
        copy = Gathered(self._max_batch_bytes)
        copy._bytes = self._bytes
        copy.base_offset = self.base_offset
        copy.values = self.values.copy()
        return copy
