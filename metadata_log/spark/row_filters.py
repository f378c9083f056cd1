"""Filters that Spark pushes down on the columns of a replayed view: topic, partition, validity and others.

The replay still reads every record, but a row that no filter wants is neither converted nor sent to Spark. Spark gets
every filter back and applies it again, so a filter that is not understood here costs time and changes nothing.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from msgspec import Struct
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
)

from metadata_log.history.open_rows import Row
from metadata_log.history.views import HISTORY_VIEWS, VIEWS
from metadata_log.times import EPOCH

_VALID_TO: Final = "valid_to"
_COMPARED: Final = {
    EqualTo: "=",
    LessThan: "<",
    LessThanOrEqual: "<=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
}
_OPERATORS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda value, allowed: value in allowed,
}
_NUMBERS: Final = frozenset({"int8", "int16", "int32", "int64"})


class Condition(Struct, frozen=True):
    """A condition on one column; a time is in ms. `null` and `not null` have no value."""

    column: str
    kind: str
    value: Any = None


def conditions_of(view: str, filters: Iterable[Filter]) -> tuple[Condition, ...]:
    """The conditions among some filters that are understood for a view."""
    types = {column.name: column.type for column in VIEWS[view].columns}
    conditions = []
    for one in filters:
        attribute: tuple[str, ...] = getattr(one, "attribute", ())
        name = ".".join(attribute)
        if name not in types:
            continue
        match one:
            case IsNull():
                conditions.append(Condition(name, "null"))
            case IsNotNull():
                conditions.append(Condition(name, "not null"))
            case In(value=values):
                known = tuple(_value(types[name], "=", each) for each in values)
                if None not in known:
                    conditions.append(Condition(name, "in", known))
            case _ if type(one) in _COMPARED:
                kind = _COMPARED[type(one)]
                value = _value(types[name], kind, getattr(one, "value", None))
                if value is not None:
                    conditions.append(Condition(name, kind, value))
    return tuple(conditions)


def _value(kind: str, compared: str, value: object) -> float | str | None:
    """A value in the form of the rows; None if it is not understood."""
    if kind == "timestamp" and isinstance(value, datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return (aware - EPOCH) / timedelta(milliseconds=1)
    if kind in ("string", "uuid") and isinstance(value, str) and compared == "=":
        return value
    return value if kind in _NUMBERS and type(value) is int else None


def keeps(view: str, conditions: Sequence[Condition]) -> Callable[[Row], bool] | None:
    """Whether a row of a view satisfies all conditions, as a function; None without conditions."""
    if not conditions:
        return None
    names = VIEWS[view].names
    tests = [(names.index(one.column), _OPERATORS.get(one.kind), one.kind == "null", one.value) for one in conditions]

    def keep(row: Row) -> bool:
        for at, compare, is_null, wanted in tests:
            value = row[at]
            if is_null or value is None:
                if is_null != (value is None):
                    return False
            elif compare is not None and not compare(value, wanted):
                return False
        return True

    return keep


def wants_part(view: str, conditions: Sequence[Condition], latest_ms: int) -> bool:
    """Whether a part of a history that is not the last one can have rows that satisfy the conditions.

    Every row of such a part has ended, at `latest_ms` or before.
    """
    if view not in HISTORY_VIEWS:
        return True
    for one in conditions:
        if one.column == _VALID_TO:
            if one.kind == "null":
                return False
            if one.kind in (">", ">=", "=") and latest_ms < one.value:
                return False
    return True
