"""Tables of Delta Lake, Iceberg and Parquet: where they are, the rows of a commit, and what the rows replace."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from metadata_log.arrow.schema import COMMENT, TIMESTAMP

PUBLICATIONS: Final = "kraft-materialize"
"""The application of the commits of `kraft fleet materialize`."""


class Delta(Struct, frozen=True):
    """Tables of Delta Lake, one directory each.

    Args:
        location: The directory above the tables: a path, or a URL such as `s3://lake/kafka`.
        options: Storage options of `deltalake`, such as `AWS_REGION`; the environment counts too.
    """

    location: str
    options: dict[str, str] = {}

    def path(self, name: str) -> str:
        """The directory of a table."""
        return f"{self.location.rstrip('/')}/{name}"


class Iceberg(Struct, frozen=True):
    """Tables of Iceberg in a catalog of `pyiceberg`.

    Args:
        namespace: The namespace of the tables.
        catalog: The name of the catalog, which `.pyiceberg.yaml` and the environment may describe.
        properties: Properties of the catalog above those, such as `type`, `uri` and `s3.endpoint`.
    """

    namespace: str
    catalog: str
    properties: dict[str, str] = {}


class Parquet(Struct, frozen=True):
    """Tables of plain Parquet in an object store; those on disk need no lake.

    Args:
        location: The URL above the tables, such as `s3://lake/kafka`.
        options: Options of the file system of fsspec, such as `endpoint_url`; the environment counts too.
    """

    location: str
    options: dict[str, str] = {}

    def path(self, name: str) -> str:
        """The folder of a table."""
        return f"{self.location.rstrip('/')}/{name}"


Lake = Delta | Iceberg | Parquet


def local_catalog(folder: str, warehouse: str | None = None) -> dict[str, str]:
    """The properties of a catalog in one file of SQLite.

    Args:
        folder: The directory of the file `catalog.db`, as an absolute path.
        warehouse: Where the tables are, a path or a URL; None for `folder`.
    """
    place = warehouse or folder
    where = place if "://" in place else f"file://{place}"
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": where}


class Part(Struct, frozen=True):
    """Rows of one partition of a table.

    Args:
        batches: Reads the rows.
        values: Columns with one value for all rows; those of the partition are among them.
    """

    batches: Callable[[], Iterator[pa.RecordBatch]]
    values: dict[str, Any]


class Rows(Struct, frozen=True):
    """The rows of one commit.

    Args:
        schema: The columns.
        parts: The rows.
        partitions: The columns by which the table is partitioned.
    """

    schema: pa.Schema
    parts: list[Part]
    partitions: tuple[str, ...] = ()


class Cut(Struct, frozen=True):
    """The rows that a commit replaces.

    Args:
        open_of: Clusters whose open rows go.
        taken_back: Some of those clusters, with the last step that stays: the closed rows of later steps go.
        everything: Whether all rows go.
    """

    open_of: tuple[str, ...] = ()
    taken_back: Mapping[str, int] = {}
    everything: bool = False


class Commit(Struct, frozen=True):
    """One commit in one table: `number` grows with each commit of an application, and is made once."""

    application: str
    number: int
    rows: Rows
    cut: Cut = Cut()


def lake_schema(*columns: pa.Field) -> pa.Schema:
    """The columns of a table of these formats: each may be null, and times are in µs, which both formats have."""
    return pa.schema([_in_lake(field) for field in columns])


def _in_lake(field: pa.Field) -> pa.Field:
    told = (field.metadata or {}).get(COMMENT)
    kind = TIMESTAMP if pa.types.is_timestamp(field.type) else field.type
    # Delta Lake describes a column by `comment`, pyiceberg by `doc`.
    return pa.field(field.name, kind, metadata=None if told is None else {COMMENT: told, b"doc": told})


def batches_of(part: Part, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a part with all columns; a column that the part lacks is null."""
    for batch in part.batches():
        yield pa.RecordBatch.from_arrays([_column(batch, part.values, field) for field in schema], schema=schema)


def _column(batch: pa.RecordBatch, values: Mapping[str, Any], field: pa.Field) -> pa.Array:
    if field.name in batch.schema.names:
        column = batch.column(field.name)
        return column if column.type == field.type else column.cast(field.type)
    return pa.repeat(pa.scalar(values.get(field.name), field.type), batch.num_rows)


def parts_of(table: pa.Table, partitions: Sequence[str]) -> list[Part]:
    """The rows of a table by their partitions."""
    if not partitions:
        return [Part(partial(_batches_of_table, table), {})]
    parts = []
    for values in table.select(partitions).group_by(list(partitions)).aggregate([]).to_pylist():
        chosen = pa.scalar(True)
        for name, value in values.items():
            column = table[name]
            same = column.is_null() if value is None else pc.equal(column, pa.scalar(value, column.type))
            chosen = pc.and_(chosen, pc.fill_null(same, False))
        rows = table.filter(chosen)
        parts.append(Part(partial(_batches_of_table, rows), values))
    return parts


def _batches_of_table(table: pa.Table) -> Iterator[pa.RecordBatch]:
    yield from table.to_batches()
