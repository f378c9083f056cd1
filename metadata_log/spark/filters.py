"""The clusters and rows of a query, from its options and from the filters that Spark pushes down.

Pushed filters only skip rows that cannot match, so Spark gets every filter back and applies it again. The exception is
equality on the cluster, which the source evaluates exactly.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

from msgspec import Struct
from msgspec.structs import replace
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from metadata_log.arrow import Filters
from metadata_log.arrow.read import is_type_name
from metadata_log.arrow.schema import RECORD_CLASSES
from metadata_log.reading.timeline import At, parse_at
from metadata_log.spark.errors import OptionError
from metadata_log.spark.options import Options, nearest
from metadata_log.times import EPOCH

_MILLISECOND: Final = timedelta(milliseconds=1)


class Wanted(Struct, frozen=True):
    """The clusters to read, None for all, and the selected rows."""

    clusters: tuple[str, ...] | None = None
    rows: Filters = Filters()

    def has(self, cluster: str) -> bool:
        """Whether any rows of a cluster are selected."""
        return self.clusters is None or cluster in self.clusters


def wanted_by(options: Options) -> Wanted:
    """The selection by the options; raises `OptionError`."""
    for name in options.types:
        if not is_type_name(name):
            raise OptionError(f"there is no record type {name!r}{nearest(name, tuple(RECORD_CLASSES))}")
    at = as_of(options)
    until_offset, until_ms = options.to_offset, _time("until", options.until)
    if at is not None and at.offset is not None:
        until_offset = _lower(until_offset, at.offset + 1)
    if at is not None and at.timestamp_ms is not None:
        until_ms = _lower(until_ms, at.timestamp_ms + 1)
    rows = Filters(
        from_offset=options.from_offset,
        until_offset=until_offset,
        from_timestamp_ms=_time("since", options.since),
        until_timestamp_ms=until_ms,
        types=options.types or None,
    )
    return Wanted(options.clusters or None, rows)


def as_of(options: Options) -> At | None:
    """The point of `asOfOffset` or `asOfTimestamp`; raises `OptionError`."""
    if options.as_of_offset is not None:
        return At(offset=options.as_of_offset)
    timestamp = _time("asOfTimestamp", options.as_of_timestamp)
    return None if timestamp is None else At(timestamp_ms=timestamp)


def _time(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        at = parse_at(text)
    except ValueError as bad:
        raise OptionError(f"{name}={text!r} is not understood: {bad}") from bad
    if at.timestamp_ms is None:
        raise OptionError(f"{name}={text!r} is not understood: a time is expected, such as 2026-11-20T10:00:00Z")
    return at.timestamp_ms


def narrowed(wanted: Wanted, filters: Iterable[Filter]) -> Wanted:
    """The selection that also satisfies all these filters."""
    for condition in filters:
        wanted = _narrowed_by(wanted, condition)
    return wanted


def is_exact(condition: Filter) -> bool:
    """Whether `narrowed` selects exactly the rows that satisfy a filter."""
    return isinstance(condition, EqualTo) and condition.attribute == ("cluster",)


def _narrowed_by(wanted: Wanted, condition: Filter) -> Wanted:
    match condition:
        case EqualTo(attribute=("cluster",), value=str(name)) | EqualNullSafe(attribute=("cluster",), value=str(name)):
            return Wanted(_both(wanted.clusters, (name,)), wanted.rows)
        case In(attribute=("cluster",), value=names):
            return Wanted(_both(wanted.clusters, names), wanted.rows)
        case EqualTo(attribute=("type",), value=str(name)) | EqualNullSafe(attribute=("type",), value=str(name)):
            return _with_rows(wanted, types=_both(wanted.rows.types, (name,)))
        case In(attribute=("type",), value=names):
            return _with_rows(wanted, types=_both(wanted.rows.types, names))
        case EqualTo(attribute=("offset",), value=int(offset)):
            return _between(wanted, offset, offset + 1)
        case GreaterThan(attribute=("offset",), value=int(offset)):
            return _between(wanted, offset + 1, None)
        case GreaterThanOrEqual(attribute=("offset",), value=int(offset)):
            return _between(wanted, offset, None)
        case LessThan(attribute=("offset",), value=int(offset)):
            return _between(wanted, None, offset)
        case LessThanOrEqual(attribute=("offset",), value=int(offset)):
            return _between(wanted, None, offset + 1)
        case EqualTo(attribute=("timestamp",), value=datetime() as time):
            return _during(wanted, time, time)
        case GreaterThan(attribute=("timestamp",), value=datetime() as time):
            return _during(wanted, time, None)
        case GreaterThanOrEqual(attribute=("timestamp",), value=datetime() as time):
            return _during(wanted, time, None)
        case LessThan(attribute=("timestamp",), value=datetime() as time):
            return _during(wanted, None, time)
        case LessThanOrEqual(attribute=("timestamp",), value=datetime() as time):
            return _during(wanted, None, time)
    return wanted


def _with_rows(wanted: Wanted, **changed: tuple[str, ...] | int | None) -> Wanted:
    return Wanted(wanted.clusters, replace(wanted.rows, **changed))


def _between(wanted: Wanted, from_offset: int | None, until_offset: int | None) -> Wanted:
    rows = wanted.rows
    return _with_rows(
        wanted,
        from_offset=_higher(rows.from_offset, from_offset),
        until_offset=_lower(rows.until_offset, until_offset),
    )


def _during(wanted: Wanted, first: datetime | None, last: datetime | None) -> Wanted:
    rows = wanted.rows
    return _with_rows(
        wanted,
        from_timestamp_ms=_higher(rows.from_timestamp_ms, None if first is None else _milliseconds(first)),
        until_timestamp_ms=_lower(rows.until_timestamp_ms, None if last is None else _milliseconds(last) + 1),
    )


def _milliseconds(time: datetime) -> int:
    aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return (aware - EPOCH) // _MILLISECOND


def _both(one: tuple[str, ...] | None, other: Iterable[object]) -> tuple[str, ...]:
    names = tuple(name for name in other if isinstance(name, str))
    return names if one is None else tuple(name for name in one if name in names)


def _higher(one: int | None, other: int | None) -> int | None:
    return max((bound for bound in (one, other) if bound is not None), default=None)


def _lower(one: int | None, other: int | None) -> int | None:
    return min((bound for bound in (one, other) if bound is not None), default=None)
