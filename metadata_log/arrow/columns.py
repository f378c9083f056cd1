"""Columns of rows as Arrow arrays, and rows as batches."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from metadata_log.arrow.schema import COLUMN_TYPES, TIMESTAMP, schema_of
from metadata_log.history.partition_rows import Partly
from metadata_log.history.views import VIEWS


def array_of(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """The values of a column, as the engine writes them, as an array of this type."""
    make = _MAKERS.get(kind)
    if make is not None:
        return make(values)
    return integers_of(values, kind) if kind in _CODES else pa.array(values, kind)


def integers_of(values: Sequence[int | None], kind: pa.DataType, known: bytes | None = None) -> pa.Array:
    """Integers or times in ms as an array: packed, which takes a fifth of the time, if none of them is null.

    Args:
        values: The numbers.
        kind: The type of the array.
        known: For each number 1, or 0 where the array has null instead; None for 1 always.

    Returns:
        The array.
    """
    try:
        packed = struct.pack(f"={len(values)}{_CODES[kind]}", *values)
    except struct.error:
        return pa.array(values, kind)
    held = None if known is None or 0 not in known else _bits(known)
    return pa.Array.from_buffers(kind, len(values), [held, pa.py_buffer(packed)])


def _bits(flags: bytes) -> pa.Buffer:
    """Flags of a byte each as bits."""
    return pa.Array.from_buffers(pa.uint8(), len(flags), [None, pa.py_buffer(flags)]).cast(pa.bool_()).buffers()[1]


def partly(column: Partly, kind: pa.DataType) -> pa.Array:
    """A column of numbers that some rows lack."""
    if kind == TIMESTAMP:
        return _times(integers_of(column.values, pa.int64(), column.known))
    return integers_of(column.values, kind, column.known)


def indexes_of(numbers: array[int]) -> pa.Array:
    """Numbers of the type code "i" for `take`, without a copy."""
    return pa.Array.from_buffers(pa.int32(), len(numbers), [None, pa.py_buffer(numbers)])


MOST_MS: Final = (1 << 63) // 1000 - 1
"""The latest time that an Arrow timestamp in microseconds holds."""


def _timestamps(values: Sequence[int | None]) -> pa.Array:
    """Times. One beyond the range of Arrow is the nearest in it: most of these columns have no null."""
    return _times(integers_of(values, pa.int64()))


def _times(ms: pa.Array) -> pa.Array:
    held = pc.max_element_wise(pc.min_element_wise(ms, MOST_MS, skip_nulls=False), -MOST_MS, skip_nulls=False)
    return pc.cast(pc.multiply(held, 1000), TIMESTAMP)


def _maps(values: Sequence[dict[str, str] | None]) -> pa.Array:
    pairs = [None if value is None else list(value.items()) for value in values]
    return pa.array(pairs, COLUMN_TYPES["map<string,string>"])


_CODES: Final = {pa.int8(): "b", pa.int16(): "h", pa.int32(): "i", pa.int64(): "q"}
"""How `struct` packs the values of these types."""
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
