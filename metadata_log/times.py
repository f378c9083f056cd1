"""Times of records as text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def iso_time(timestamp_ms: int | None) -> str | None:
    """A time in UTC as `2026-11-21T08:17:20.234Z`; None for None, and for a time outside the calendar."""
    if timestamp_ms is None or timestamp_ms < 0:
        return None
    try:
        moment = _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return None
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{timestamp_ms % 1000:03}Z"
