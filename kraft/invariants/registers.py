"""The registers of a simulated application. The log determines their values, and a snapshot of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from zlib import crc32

COUNT: Final = 12
"""Enough registers for a snapshot that takes a few requests to download."""


class Registers:
    """The last value of each register."""

    def __init__(self, known: dict[int, bytes] | None = None) -> None:
        self._known = {} if known is None else known

    def apply(self, values: Iterable[bytes]) -> None:
        """Write values, in order."""
        for value in values:
            self._known[crc32(value) % COUNT] = value

    def values(self) -> tuple[bytes, ...]:
        """The values written so far, ordered by register."""
        return tuple(self._known[register] for register in sorted(self._known))

    def copy(self) -> Registers:
        """An independent copy."""
        return Registers(self._known.copy())
