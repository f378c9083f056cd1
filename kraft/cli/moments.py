"""The moments that commands take: an offset, a time in full, or one relative to now; all in UTC, as is all output."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import click

from metadata_log.reading.timeline import At, parse_at
from metadata_log.times import EPOCH

_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_AGO: Final = re.compile(r"-((?:\d+[smhdw])+)")
_DAY: Final = re.compile(r"(today|yesterday)(?: +(\d.*))?")
_CLOCK: Final = re.compile(r"\d{1,2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?")
FORMS: Final = "such as 12345, 2026-11-20T10:00:00Z, 14:00, yesterday, or -10m for ten minutes ago"


def parse_moment(text: str, now: datetime) -> At:
    """Parse an offset or a time.

    Args:
        text: What `parse_at` takes, a date or a time without zone (UTC), `14:00` of today, `now`, `today` and
            `yesterday` (their beginnings, or with a time: `yesterday 14:00`), or `-1h30m` for that long ago: s, m, h,
            d, w.
        now: The present time, in UTC.

    Raises:
        ValueError: The text is none of these; the message is for the user.
    """
    given = text = text.strip()
    if text.isascii() and text.isdecimal():
        return parse_at(text)
    if text == "now":
        return _at(now)
    if (ago := _AGO.fullmatch(text)) is not None:
        try:
            parts = re.findall(r"(\d+)([smhdw])", ago[1])
            return _at(now - sum((timedelta(**{_UNITS[unit]: int(number)}) for number, unit in parts), timedelta()))
        except OverflowError:
            raise ValueError(f"{text!r} is before the calendar begins") from None
    day, clock = now.date(), text
    if (named := _DAY.fullmatch(text)) is not None:
        day -= timedelta(days=named[1] == "yesterday")
        clock = named[2] or "0:00"
    if _CLOCK.fullmatch(clock):
        text = f"{day.isoformat()}T{clock.rjust(len(clock) + (clock[1] == ':'), '0')}Z"
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{given!r} is neither an offset nor a time, {FORMS}") from None
    return _at(moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC))


def moment_of(text: str) -> At:
    """As `parse_moment`, by the clock of this host."""
    return parse_moment(text, datetime.fromtimestamp(time.time(), UTC))


def _at(moment: datetime) -> At:
    return At(timestamp_ms=(moment - EPOCH) // timedelta(milliseconds=1))


class Moment(click.ParamType[At]):
    """The type of an option that takes a moment; the value is an `At`."""

    name = "offset|time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> At:
        """Parse the text of the user; a usage error if it is no moment."""
        if isinstance(value, At):
            return value
        try:
            return moment_of(value)
        except ValueError as bad:
            self.fail(str(bad), param, ctx)


MOMENT: Final = Moment()
