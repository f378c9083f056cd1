"""The labels of a time axis."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from msgspec import Struct

from metadata_log.times import moment_at, when_text

_SECOND: Final = 1000
_STEPS: Final = tuple(
    count * unit
    for unit, counts in (
        (1, (1, 2, 5, 10, 20, 50, 100, 200, 500)),
        (_SECOND, (1, 2, 5, 10, 15, 30)),
        (60 * _SECOND, (1, 2, 5, 10, 15, 30)),
        (3600 * _SECOND, (1, 2, 3, 6, 12)),
        (86_400 * _SECOND, (1, 2, 7, 14, 28, 91, 182, 364, 728, 1820, 3640, 7280, 18_200)),
    )
    for count in counts
)
"""Round steps in milliseconds."""
_MOST: Final = 7


class Tick(Struct, frozen=True):
    """A label at a place in percent; `day` is the date, if it differs from that of the label before."""

    x: float
    time: str
    day: str


def ticks_of(begin: int, end: int) -> tuple[Tick, ...]:
    """At most seven labels at round times, in UTC.

    Args:
        begin: The time at the left edge, in milliseconds.
        end: The time at the right edge, later than `begin`.
    """
    step = next((step for step in _STEPS if (end - begin) // step < _MOST), _STEPS[-1])
    while (end - begin) // step >= _MOST:  # A record may claim any time.
        step *= 2
    ticks, day = [], ""
    for at in range(-(-begin // step) * step, end + 1, step):
        x = round(100 * (at - begin) / (end - begin), 2)
        if not 2 <= x <= 96:  # A label at an edge would leave the plot.
            continue
        when = moment_at(at)
        date = when_text(at) if when is None else f"{when.date()}"
        ticks.append(Tick(x, "" if when is None else _time(when, step), "" if date == day else date))
        day = date
    return tuple(ticks)


def _time(when: datetime, step: int) -> str:
    if step >= 86_400 * _SECOND:
        return ""
    if step >= 60 * _SECOND:
        return f"{when:%H:%M}"
    return f"{when:%H:%M:%S}" if step >= _SECOND else f"{when:%H:%M:%S}.{when.microsecond // 1000:03}"
