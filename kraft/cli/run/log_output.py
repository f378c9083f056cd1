"""The log of a served node on stderr: lines for people or JSON objects, and a level that signals change.

Signals change the level because only the owner of the process and the superuser may send them; a controller's listener
changes levels for callers with rights (`kraft.node.loggers`). The metrics listener changes nothing, so that its readers
need no rights.
"""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import MutableMapping
from datetime import UTC, datetime
from typing import Any, Final

from metadata_log.printable import printable

LOGGER: Final = logging.getLogger("kraft.node")
LEVELS: Final = ("debug", "info", "warning")
"""The levels, the most verbose one first."""
MORE: Final = signal.SIGUSR1
LESS: Final = signal.SIGUSR2
PLAIN_EVENT: Final = "message"
"""The event of a line without facts; `message` has its text."""


def log_to_stderr(level: str, form: str = "text") -> None:
    """Log one line for each event: as text with its time in UTC, or as a JSON object."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Utc() if form == "text" else _json_formatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


def shift_level(number: int) -> str:
    """Change the level of the process by one step, and log that; returns the new level.

    Args:
        number: `MORE` for more lines, `LESS` for fewer.
    """
    root = logging.getLogger()
    steps = [getattr(logging, level.upper()) for level in LEVELS]
    # A request may have set a level that is none of these steps.
    if number == MORE:
        root.setLevel(max((step for step in steps if step < root.level), default=root.level))
    else:
        root.setLevel(min((step for step in steps if step > root.level), default=root.level))
    level = logging.getLevelName(root.level).lower()
    facts = {"event": "log-level", "to": level, "by": signal.Signals(number).name}
    LOGGER.warning("log-level to=%s by=%s", level, facts["by"], extra={"facts": facts})
    return level


class _Utc(logging.Formatter):
    """Formats lines like `2026-11-21T10:26:14.123Z level text`."""

    def format(self, record: logging.LogRecord) -> str:
        return f"{_moment(record)} {record.levelname.lower()} {printable(record.getMessage())}"


def _moment(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _json_formatter() -> logging.Formatter:
    """JSON objects by structlog: `time`, `level`, `logger`, `event`, and the facts of the event."""
    import structlog

    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[_with_facts],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(default=str),
        ],
    )


def _with_facts(_: object, __: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """The fields of a record, in a fixed order. A fact with the name of a field of every line keeps its value."""
    record: logging.LogRecord = line["_record"]
    facts: dict[str, object] | None = getattr(record, "facts", None)
    fields: dict[str, Any] = {"time": _moment(record), "level": record.levelname.lower(), "logger": record.name}
    fields |= {"event": PLAIN_EVENT, "message": line["event"]} if facts is None else facts
    return {**line, **fields}
