"""Times of records as text. Clients write the times of records: a time is any int64."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_MS: Final = -62_135_596_800_000
_END_MS: Final = 253_402_300_800_000
"""The years 1 to 9999, which a calendar has."""


def moment_at(timestamp_ms: int) -> datetime | None:
    """A time as a moment in UTC; None outside of the years 1 to 9999."""
    return EPOCH + timedelta(milliseconds=timestamp_ms) if _FIRST_MS <= timestamp_ms < _END_MS else None


def iso_time(timestamp_ms: int | None) -> str | None:
    """A time in UTC as `2026-11-21T08:17:20.234Z`; None for None and for -1, Kafka's value for no time.

    A time outside of the years 1 to 9999 is its number, as in `9223372036854775807 ms`: Kafka's tools print each time
    as a number.
    """
    if timestamp_ms is None or timestamp_ms == -1:
        return None
    moment = moment_at(timestamp_ms)
    if moment is None:
        return f"{timestamp_ms} ms"
    return f"{moment.isoformat(timespec='milliseconds').removesuffix('+00:00')}Z"


def when_text(timestamp_ms: int | None) -> str:
    """A time within a text: as `iso_time`, or `no time`."""
    return iso_time(timestamp_ms) or "no time"


def json_time(timestamp_ms: int) -> str | int:
    """A time for JSON, from which it can be read back: as `iso_time`, and a number where there is no calendar date."""
    text = None if moment_at(timestamp_ms) is None else iso_time(timestamp_ms)
    return timestamp_ms if text is None else text
