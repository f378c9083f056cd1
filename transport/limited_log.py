"""Log lines that a peer can cause: at most one line of a kind per second."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

_QUIET_SECONDS: Final = 1.0


class LimitedLog:
    """Writes to a logger. A kind is a constant of the program, never a text that a peer chose.

    `now` returns seconds on a monotonic clock.
    """

    def __init__(self, log: logging.Logger, now: Callable[[], float]) -> None:
        self._log = log
        self._now = now
        self._written: dict[str, float] = {}
        self._held_back: dict[str, int] = {}

    def write(self, level: int, kind: str, text: str, *arguments: object) -> None:
        """Write a line, or only count the line if one of its kind was written within a second.

        The next line of the kind states the count.
        """
        now = self._now()
        if now - self._written.get(kind, -_QUIET_SECONDS) < _QUIET_SECONDS:
            self._held_back[kind] = self._held_back.get(kind, 0) + 1
            return
        self._written[kind] = now
        held_back = self._held_back.pop(kind, 0)
        if held_back:
            text, arguments = text + " (%d more like this were not written)", (*arguments, held_back)
        self._log.log(level, text, *arguments)
