"""Columns of rows as Arrow arrays, and rows as batches."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from metadata_log.arrow.schema import COLUMN_TYPES, TIMESTAMP, schema_of
from metadata_log.history.views import VIEWS


def array_of(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """The values of a column, as the engine writes them, as an array of this type."""
    make = _MAKERS.get(kind)
    return pa.array(values, kind) if make is None else make(values)


def indexes_of(numbers: array[int]) -> pa.Array:
    """Numbers of the type code "i" for `take`, without a copy."""
    return pa.Array.from_buffers(pa.int32(), len(numbers), [None, pa.py_buffer(numbers)])


MOST_MS: Final = (1 << 63) // 1000 - 1
"""The latest time that an Arrow timestamp in microseconds holds."""


def _timestamps(values: Sequence[int | None]) -> pa.Array:
    """Times. One beyond the range of Arrow is the nearest in it: most of these columns have no null."""
    held = pc.max_element_wise(
        pc.min_element_wise(pa.array(values, pa.int64()), MOST_MS, skip_nulls=False), -MOST_MS, skip_nulls=False
    )
    return pc.cast(pc.multiply(held, 1000), TIMESTAMP)


def _maps(values: Sequence[dict[str, str] | None]) -> pa.Array:
    pairs = [None if value is None else list(value.items()) for value in values]
    return pa.array(pairs, COLUMN_TYPES["map<string,string>"])


_MAKERS: Final[dict[pa.DataType, Callable[[Sequence[Any]], pa.Array]]] = {
    TIMESTAMP: _timestamps,
    COLUMN_TYPES["map<string,string>"]: _maps,
}


def batch_of(some: list[tuple[Any, ...]], view: str, columns: Sequence[str]) -> pa.RecordBatch:
    """Rows of a view, at least one, as a batch of some of its columns."""
    names = VIEWS[view].names
    return batch_in(some, [names.index(name) for name in columns], schema_of(view, columns))


def batch_in(some: list[tuple[Any, ...]], places: Iterable[int], schema: pa.Schema) -> pa.RecordBatch:
    """The values at some places of rows, at least one, as a batch."""
    turned = list(zip(*some, strict=True))
    arrays = [array_of(turned[place], field.type) for place, field in zip(places, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
