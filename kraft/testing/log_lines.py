"""The last lines of the nodes' logs, in the format of Kafka's `server.log`, for the report of a test that fails."""

from __future__ import annotations

import logging
from collections import deque
from datetime import datetime
from typing import Final

_LOGGERS: Final = ("kraft.node", "transport")
_MOST: Final = 1000


class LogLines(logging.Handler):
    """Keeps the last lines while it is open. Nothing else shows them then: the test's own log stays free of them."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._lines: deque[tuple[float, str]] = deque(maxlen=_MOST)
        self._loggers = [logging.getLogger(name) for name in _LOGGERS]
        self._before = [(one.level, one.propagate) for one in self._loggers]
        for one in self._loggers:
            one.addHandler(self)
            one.setLevel(logging.INFO)
            one.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one line."""
        moment = datetime.fromtimestamp(record.created)
        stamp = f"{moment:%Y-%m-%d %H:%M:%S},{int(record.msecs):03}"
        facts = getattr(record, "facts", None)
        where = "" if not facts or "node" not in facts else f"[node {facts['node']}] "
        text = f"[{stamp}] {record.levelname} {where}{record.getMessage()} ({record.name})"
        self._lines.append((record.created, text))

    def since(self, at: float) -> list[str]:
        """The lines from a time on, in seconds since 1970."""
        return [text for created, text in list(self._lines) if created >= at]

    def close(self) -> None:
        """Keep no more lines, and let others see them again."""
        for one, (level, propagates) in zip(self._loggers, self._before, strict=True):
            if self in one.handlers:
                one.removeHandler(self)
                if not any(isinstance(each, LogLines) for each in one.handlers):
                    one.setLevel(level)
                    one.propagate = propagates
        super().close()
