"""Replayed views as Arrow batches: the rows of the history engine, column by column, some thousands at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from metadata_log.arrow.schema import TIMESTAMP
from metadata_log.disk import Disk
from metadata_log.history import VIEWS, Options, rows
from metadata_log.timeline import At, read_timeline

_ROWS: Final = 1 << 14
_TYPES: Final[dict[str, pa.DataType]] = {
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float64": pa.float64(),
    "bool": pa.bool_(),
    "string": pa.string(),
    "binary": pa.binary(),
    "uuid": pa.string(),
    "timestamp": TIMESTAMP,
    "int32[]": pa.list_(pa.int32()),
    "string[]": pa.list_(pa.string()),
    "uuid[]": pa.list_(pa.string()),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
}
"""How a column of a view is held in Arrow."""


def view_schema(view: str, columns: Sequence[str] | None = None) -> pa.Schema:
    """The schema of a replayed view, or of some of its columns; `ValueError` for a column it does not have."""
    fields = {column.name: pa.field(column.name, _TYPES[column.type]) for column in VIEWS[view].columns}
    if columns is None:
        return pa.schema(fields.values())
    if unknown := [name for name in columns if name not in fields]:
        raise ValueError(f"the view {view} has no column {unknown[0]!r}; it has {', '.join(fields)}")
    return pa.schema([fields[name] for name in columns])


def read_view(
    path: str,
    view: str,
    *,
    columns: Sequence[str],
    at: At | None,
    cluster: str,
    disk: Disk,
    options: Options,
) -> Iterator[pa.RecordBatch]:
    """The rows of a view of one log, up to `at`. Errors as those of `read_timeline` and of `history.rows`."""
    schema = view_schema(view, columns)
    places = [VIEWS[view].names.index(name) for name in columns]
    items = read_timeline(disk, path, until=at, on_damage=options.on_damage)
    found = (row for _, row in rows(items, {view}, cluster=cluster, at=at, options=options))
    while some := list(islice(found, _ROWS)):
        turned = list(zip(*some, strict=True))
        arrays = [_array(turned[place], field.type) for place, field in zip(places, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    make: Callable[[Sequence[Any]], pa.Array] | None = _MAKERS.get(kind)
    return pa.array(values, kind) if make is None else make(values)


def _timestamps(values: Sequence[int | None]) -> pa.Array:
    return pc.cast(pc.multiply(pa.array(values, pa.int64()), 1000), TIMESTAMP)


def _maps(values: Sequence[dict[str, str] | None]) -> pa.Array:
    pairs = [None if value is None else list(value.items()) for value in values]
    return pa.array(pairs, _TYPES["map<string,string>"])


_MAKERS: Final[dict[pa.DataType, Callable[[Sequence[Any]], pa.Array]]] = {
    TIMESTAMP: _timestamps,
    _TYPES["map<string,string>"]: _maps,
}
