"""The rows of views of cells as Arrow columns, straight from the cells of the engine (`history.partition_rows`).

As tuples these rows cost more than their replay. Most have their shape, with its lists, and their reason in common with
others, so these are converted once for each batch and taken by number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from metadata_log.arrow.columns import array_of, indexes_of, partly
from metadata_log.arrow.schema import schema_of
from metadata_log.history.engine import HistoryPass
from metadata_log.history.partition_rows import CellColumns, Ended, Partly, Shared

ROWS: Final = 1 << 14
"""The rows of a batch."""


def cell_batches(
    passes: Iterable[tuple[HistoryPass, Iterator[None]]], view: str, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The rows of passes that write one view of cells alone; short histories share batches.

    Args:
        passes: Passes, each with an iterator that advances it.
        view: The name of the view.
        names: The columns and their order.

    Returns:
        An iterator of record batches in the schema of `schema_of`. Errors are those of the iterators.
    """
    schema = schema_of(view, names)
    held: list[Ended] = []
    for story, steps in passes:
        ended = story.sink.ended[view]
        for _ in steps:
            if ended:
                held += ended
                ended.clear()
                while len(held) >= ROWS:
                    yield pa.RecordBatch.from_arrays(cell_arrays(held[:ROWS], schema), schema=schema)
                    del held[:ROWS]
    if held:
        yield pa.RecordBatch.from_arrays(cell_arrays(held, schema), schema=schema)


def cell_arrays(ended: Sequence[Ended], schema: pa.Schema, *, dictionaries: bool = False) -> list[pa.Array]:
    """The columns of some rows; with `dictionaries` shared texts stay shared."""
    columns = CellColumns(ended)
    return [column_array(columns.column(field.name), field.type, dictionaries=dictionaries) for field in schema]


def column_array(column: Sequence[Any] | Shared | Partly, kind: pa.DataType, *, dictionaries: bool) -> pa.Array:
    """One column; with `dictionaries` shared texts stay shared."""
    if isinstance(column, Partly):
        return partly(column, kind)
    if not isinstance(column, Shared):
        return array_of(column, kind)
    places = indexes_of(column.places)
    values = array_of(column.values, kind)
    if not (dictionaries and kind == pa.string()):
        return values.take(places)
    # Equal texts are one entry of the dictionary, as Parquet needs it.
    distinct = values.dictionary_encode()
    return pa.DictionaryArray.from_arrays(distinct.indices.take(places), distinct.dictionary)
