"""Replayed views as Arrow record batches: histories, states and derived views (`metadata_log.history`).

The engine writes a row when the row's interval ends, so that a view of any length passes in batches of bounded size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa
from msgspec.structs import replace

from metadata_log.arrow.columns import batch_in, batch_of
from metadata_log.arrow.partition_rows import ROWS, cell_batches
from metadata_log.arrow.read import Mode
from metadata_log.arrow.schema import schema_of
from metadata_log.arrow.splits import cluster_of
from metadata_log.disk import Disk, OsDisk
from metadata_log.history import VIEWS, Options
from metadata_log.history.engine import HistoryPass, steps
from metadata_log.history.partition_rows import CELL_VIEWS
from metadata_log.reading.damage import OnDamage
from metadata_log.reading.timeline import At, parse_at, read_timeline


def read_view(
    path: str,
    view: str,
    at: At | int | str | None = None,
    *,
    columns: Sequence[str] | None = None,
    mode: Mode = Mode.FAILFAST,
    cluster: str | None = None,
    options: Options | None = None,
    dictionaries: bool = False,
    disk: Disk | None = None,
) -> pa.RecordBatchReader:
    """A view of `metadata_log.history.VIEWS` of a log directory, partition directory, segment or snapshot.

    Args:
        path: The path.
        view: The name of the view.
        at: The end of the history (inclusive): an `At`, an offset, or a text for `parse_at`; None for the whole log.
        columns: The columns and their order; None for all.
        mode: The reaction to damage. Tolerated damage becomes rows of the view `retention`.
        cluster: The value of the column `cluster`; None for the id in `meta.properties`.
        options: The options of the history engine.
        dictionaries: Whether texts are dictionary arrays, which pandas reads as categories.
        disk: The disk; None for the disk of this machine.

    Returns:
        A reader of record batches in the schema of `schema_of`.

    Raises:
        ValueError: A name or the point is unknown.
        MetadataLogError: As of `read_timeline` and `history.rows`, while reading.
    """
    schema = schema_of(view, columns)
    if view not in VIEWS:
        raise ValueError(f"{view} is not replayed: it is read with read_records or read_typed")
    disk = OsDisk() if disk is None else disk
    point = At(offset=at) if isinstance(at, int) else parse_at(at) if isinstance(at, str) else at
    on_damage = OnDamage.STRICT if mode is Mode.FAILFAST else OnDamage.SKIP
    name = cluster_of(disk, path) if cluster is None else cluster
    wanted = replace(options or Options(), on_damage=on_damage)
    batches = view_batches(path, view, schema, at=point, cluster=name, options=wanted, disk=disk)
    if not dictionaries:
        return pa.RecordBatchReader.from_batches(schema, batches)
    compact = pa.schema([_compact(field) for field in schema])
    return pa.RecordBatchReader.from_batches(compact, (batch.cast(compact) for batch in batches))


def _compact(field: pa.Field) -> pa.Field:
    return field.with_type(pa.dictionary(pa.int32(), pa.string())) if field.type == pa.string() else field


def view_batches(
    path: str, view: str, schema: pa.Schema, *, at: At | None, cluster: str, options: Options, disk: Disk
) -> Iterator[pa.RecordBatch]:
    """The rows of a view, up to `at`, in the columns of `schema`. Errors as of `read_timeline` and `history.rows`."""
    story = HistoryPass(cluster, frozenset({view}), options)
    items = read_timeline(disk, path, until=at, on_damage=options.on_damage)
    return history_batches([(story, steps(story, items, at))], view, schema.names)


def history_batches(
    passes: Iterable[tuple[HistoryPass, Iterator[None]]],
    view: str,
    columns: Sequence[str],
    keep: Callable[[tuple[Any, ...]], bool] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of passes that write one view, in some of its columns; short histories share batches.

    Args:
        passes: Passes, each with an iterator that advances it.
        view: The name of the view.
        columns: The columns and their order.
        keep: Whether a row is wanted; None for all rows.

    Returns:
        An iterator of record batches. Errors are those of the iterators.
    """
    if view in CELL_VIEWS and keep is None:
        yield from cell_batches(passes, view, columns)
        return
    every = (row for story, advanced in passes for _ in advanced for _, row in story.sink.take())
    kept = every if keep is None else filter(keep, every)
    while some := list(islice(kept, ROWS)):
        yield batch_of(some, view, columns)


def rows_reader(view: str, found: Iterable[tuple[Any, ...]]) -> pa.RecordBatchReader:
    """Given rows of a view as Arrow, for `write_parquet`.

    Args:
        view: The name of the view.
        found: The rows, as tuples in the order of the view's columns.

    Returns:
        A reader of record batches.
    """
    schema = schema_of(view)
    source = iter(found)
    chunks = iter(lambda: list(islice(source, ROWS)), [])
    batches = (batch_in(some, range(len(schema)), schema) for some in chunks)
    return pa.RecordBatchReader.from_batches(schema, batches)
