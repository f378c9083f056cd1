"""The last lines of the nodes' logs, in the format of Kafka's `server.log`, for the report of a test that fails.

Nothing else gets these lines meanwhile: not the log of the test, not `caplog`, not a terminal. pytest puts handlers of
its own even on loggers that do not propagate, so that a filter at each logger keeps the lines from all handlers.
"""

from __future__ import annotations

import logging
from collections import deque
from datetime import datetime
from typing import Final

_LOGGERS: Final = tuple(logging.getLogger(name) for name in ("kraft.node", "transport"))
_MOST: Final = 1000
THREAD: Final = "kafka of a test"
"""The name of the threads in which such nodes run: what other threads say is not about them."""


class LogLines:
    """Keeps the last lines of all nodes in this process, until it is closed."""

    def __init__(self) -> None:
        self._lines: deque[tuple[float, str]] = deque(maxlen=_MOST)
        _DIVERTED.open(self)

    def add(self, record: logging.LogRecord) -> None:
        """Keep one line."""
        stamp = f"{datetime.fromtimestamp(record.created):%Y-%m-%d %H:%M:%S},{int(record.msecs):03}"
        facts = getattr(record, "facts", None)
        where = "" if not facts or "node" not in facts else f"[node {facts['node']}] "
        text = f"[{stamp}] {record.levelname} {where}{record.getMessage()} ({record.name})"
        self._lines.append((record.created, text))

    def since(self, at: float) -> list[str]:
        """The lines from a time on, in seconds since 1970."""
        return [text for created, text in list(self._lines) if created >= at]

    def close(self) -> None:
        """Keep no more lines; after the last one others see them again. A second call does nothing."""
        _DIVERTED.close(self)


class _Diverted(logging.Filter):
    """Gives each record of such a node to all that are open, and to no handler."""

    def __init__(self) -> None:
        super().__init__()
        self._open: list[LogLines] = []
        self._levels: list[int] = []

    def filter(self, record: logging.LogRecord) -> bool:
        if record.threadName != THREAD:
            return True
        for one in self._open:
            one.add(record)
        return False

    def open(self, lines: LogLines) -> None:
        if not self._open:
            self._levels = [one.level for one in _LOGGERS]
            for one in _LOGGERS:
                one.setLevel(logging.INFO)
                one.addFilter(self)
        self._open.append(lines)

    def close(self, lines: LogLines) -> None:
        if lines not in self._open:
            return
        self._open.remove(lines)
        if not self._open:
            for one, level in zip(_LOGGERS, self._levels, strict=True):
                one.removeFilter(self)
                one.setLevel(level)


_DIVERTED: Final = _Diverted()
