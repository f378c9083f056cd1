"""The last lines of the nodes' logs, in the format of Kafka's `server.log`, and what the test did meanwhile.

Nothing else gets these lines: not the log of the test, not `caplog`, not a terminal. pytest puts handlers of its own
even on loggers that do not propagate, so that a filter at each logger keeps the lines from all handlers.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Mapping
from datetime import datetime
from itertools import count
from typing import Any, Final

from msgspec import Struct

_LOGGERS: Final = tuple(logging.getLogger(name) for name in ("kraft.node", "transport"))
_MOST: Final = 1000
_THREAD: Final = "kafka of a test "
_NUMBERS: Final = count(1)


class Line(Struct, frozen=True):
    """A line of a node's log. Times are seconds since 1970."""

    at: float
    text: str
    level: int
    message: str
    facts: Mapping[str, Any]
    """The facts of the line, with `node` and `event`; empty for a line of another kind."""


class Call(Struct, frozen=True):
    """The test did something to the cluster, such as `kill(101)`."""

    at: float
    text: str
    name: str
    message: str
    arguments: Mapping[str, Any]


class LogLines:
    """Keeps what happened last in one cluster, until it is closed."""

    def __init__(self) -> None:
        self.thread = f"{_THREAD}{next(_NUMBERS)}"
        """The name of the thread of the nodes: what other threads say is not about them."""
        self._happened: deque[Line | Call] = deque(maxlen=_MOST)
        _DIVERTED.open(self)

    def add(self, record: logging.LogRecord) -> None:
        """Keep one line."""
        facts = getattr(record, "facts", None) or {}
        if facts.get("event") == "long-turn" and record.levelno < logging.WARNING:
            return  # the machine was busy, which says nothing of the test
        where = f"[node {facts['node']}] " if "node" in facts else ""
        message = record.getMessage()
        text = f"[{_stamp(record.created)}] {record.levelname} {where}{message} ({record.name})"
        self._happened.append(Line(record.created, text, record.levelno, message, facts))

    def note(self, name: str, message: str, arguments: Mapping[str, Any]) -> None:
        """Keep what the test does now."""
        now = time.time()
        text = f"[{_stamp(now)}] INFO [test] {message} (kraft.testing)"
        self._happened.append(Call(now, text, name, message, arguments))

    @property
    def happened(self) -> list[Line | Call]:
        """Everything that is kept, in order."""
        return list(self._happened)

    def since(self, at: float) -> list[str]:
        """The lines from a time on, in seconds since 1970."""
        return [one.text for one in self.happened if one.at >= at]

    def close(self) -> None:
        """Keep no more lines; after the last one others see them again. A second call does nothing."""
        _DIVERTED.close(self)


def _stamp(at: float) -> str:
    return f"{datetime.fromtimestamp(at):%Y-%m-%d %H:%M:%S},{int(at * 1000) % 1000:03}"


class _Diverted(logging.Filter):
    """Gives each record of such a node to the lines of its cluster, and to no handler."""

    def __init__(self) -> None:
        super().__init__()
        self._open: list[LogLines] = []
        self._levels: list[int] = []

    def filter(self, record: logging.LogRecord) -> bool:
        if record.threadName is None or not record.threadName.startswith(_THREAD):
            return True
        for one in self._open:
            if one.thread == record.threadName:
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
