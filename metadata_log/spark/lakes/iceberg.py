"""Tables of Iceberg by `pyiceberg`: new data files, and one snapshot that takes them in and drops others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, EqualTo, GreaterThan, In, LessThanOrEqual
from pyiceberg.io.pyarrow import ArrowScan, pyarrow_to_schema, write_file
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionFieldValue, PartitionKey
from pyiceberg.table import FileScanTask, Table, Transaction, WriteTask

from metadata_log.spark.lakes.rows import Commit, Cut, Iceberg, Part, Rows, batches_of

_AT_A_TIME: Final = 16
"""The files that are in memory, on their way to the store."""
_LARGE: Final = 128 << 20
"""The bytes from which on a file is not merged with others."""


def commit(lake: Iceberg, name: str, change: Commit) -> None:
    """Make a commit in a table, unless the table has it. A property of the table has the number of the last one."""
    number = {change.application: str(change.number)}
    rows = _in_iceberg(change.rows)
    with _opened(lake) as catalog:
        identifier = f"{lake.namespace}.{name}"
        if not catalog.table_exists(identifier):
            _create(catalog, identifier, rows, number)
            return
        table = catalog.load_table(identifier)
        known = _last_commit(table, change.application)
        if known is not None and known >= change.number:
            return
        with table.transaction() as transaction:
            with transaction.update_schema() as columns:
                columns.union_by_name(rows.schema)
            gone, kept = _cut(table, change.cut)
            _add(transaction, table, Rows(rows.schema, [*kept, *rows.parts], rows.partitions), gone, number)
            transaction.set_properties(number)


def replace_table(lake: Iceberg, name: str, rows: Rows) -> None:
    """Write a table with these rows and columns alone; a table with other columns is dropped first."""
    identifier, rows = f"{lake.namespace}.{name}", _in_iceberg(rows)
    with _opened(lake) as catalog:
        table = catalog.load_table(identifier) if catalog.table_exists(identifier) else None
        shape = (rows.schema.names, list(rows.partitions))
        if table is not None and (table.schema().column_names, [one.name for one in table.spec().fields]) != shape:
            catalog.drop_table(identifier)
            table = None
        if table is None:
            _create(catalog, identifier, rows, {})
            return
        with table.transaction() as transaction:
            _add(transaction, table, rows, [task.file for task in table.scan().plan_files()], {})


def read(lake: Iceberg, name: str) -> pa.Table | None:
    """All rows; None without a table."""
    identifier = f"{lake.namespace}.{name}"
    with _opened(lake) as catalog:
        return catalog.load_table(identifier).scan().to_arrow() if catalog.table_exists(identifier) else None


def last_commit(lake: Iceberg, name: str, application: str) -> int | None:
    """The number of the last commit of an application; None without one."""
    identifier = f"{lake.namespace}.{name}"
    with _opened(lake) as catalog:
        return _last_commit(catalog.load_table(identifier), application) if catalog.table_exists(identifier) else None


def places(lake: Iceberg, names: Sequence[str]) -> dict[str, str]:
    """The locations of the tables that there are, by name."""
    with _opened(lake) as catalog:
        there = [name for name in names if catalog.table_exists(f"{lake.namespace}.{name}")]
        return {name: catalog.load_table(f"{lake.namespace}.{name}").location() for name in there}


def compact(lake: Iceberg, name: str) -> None:
    """Merge the small files of each partition, in one snapshot."""
    identifier = f"{lake.namespace}.{name}"
    with _opened(lake) as catalog:
        if not catalog.table_exists(identifier):
            return
        table = catalog.load_table(identifier)
        groups: dict[str, list[FileScanTask]] = {}
        for task in table.scan().plan_files():
            if task.file.file_size_in_bytes < _LARGE:
                groups.setdefault(repr(_values(table, task)), []).append(task)
        small = [tasks for tasks in groups.values() if len(tasks) > 1]
        if small:
            parts = [_part(table, tasks, AlwaysTrue()) for tasks in small]
            rows = Rows(table.schema().as_arrow(), parts, tuple(field.name for field in table.spec().fields))
            with table.transaction() as transaction:
                _add(transaction, table, rows, [task.file for tasks in small for task in tasks], {})


def _last_commit(table: Table, application: str) -> int | None:
    number = table.properties.get(application)
    return None if number is None else int(number)


@contextmanager
def _opened(lake: Iceberg) -> Iterator[Catalog]:
    with load_catalog(lake.catalog, **lake.properties) as catalog:
        yield catalog


def _create(catalog: Catalog, identifier: str, rows: Rows, number: dict[str, str]) -> None:
    """Make a table with its first rows in one commit."""
    catalog.create_namespace_if_not_exists(identifier.rpartition(".")[0])
    with catalog.create_table_transaction(identifier, rows.schema, properties=number) as transaction:
        with transaction.update_spec() as spec:
            for column in rows.partitions:
                spec.add_identity(column)
        _add(transaction, transaction._table, rows, [], number)


def _add(transaction: Transaction, table: Table, rows: Rows, gone: Iterable[DataFile], number: dict[str, str]) -> None:
    """One snapshot with new rows and without the rows of some files."""
    with transaction.update_snapshot(number).overwrite() as snapshot:
        for file in gone:
            snapshot.delete_data_file(file)
        for file in _written(transaction, table, rows):
            snapshot.append_data_file(file)


def _written(transaction: Transaction, table: Table, rows: Rows) -> Iterator[DataFile]:
    """The new data files, one for each part."""
    metadata, id = transaction.table_metadata, uuid4()
    schema, spec = metadata.schema(), metadata.spec()
    columns = pyarrow_to_schema(rows.schema, name_mapping=schema.name_mapping, format_version=metadata.format_version)

    def tasks() -> Iterator[WriteTask]:
        for number, part in enumerate(rows.parts):
            batches = [batch for batch in batches_of(part, rows.schema) if batch.num_rows]
            if batches:
                values = [PartitionFieldValue(field, part.values[field.name]) for field in spec.fields]
                key = PartitionKey(values, spec, schema) if values else None
                yield WriteTask(id, number, columns, batches, partition_key=key)

    waiting = tasks()
    while some := list(islice(waiting, _AT_A_TIME)):
        yield from write_file(table.io, metadata, iter(some))


def _cut(table: Table, cut: Cut) -> tuple[list[DataFile], list[Part]]:
    """The files that lose rows, and the rows of these files that stay. Open rows have files of their own."""
    if cut.everything:
        return [task.file for task in table.scan().plan_files()], []
    gone, kept = [], []
    if cut.open_of:
        of_clusters = And(In("cluster", list(cut.open_of)), EqualTo("is_open", True))
        gone += [task.file for task in table.scan(of_clusters).plan_files()]
    for cluster, step in cut.taken_back.items():
        later = And(EqualTo("cluster", cluster), EqualTo("is_open", False), GreaterThan("lineage_step", step))
        for task in table.scan(later).plan_files():
            gone.append(task.file)
            kept.append(_part(table, [task], LessThanOrEqual("lineage_step", step)))
    return gone, kept


def _part(table: Table, tasks: list[FileScanTask], condition: BooleanExpression) -> Part:
    """Some rows of files of one partition."""

    def batches() -> Iterator[pa.RecordBatch]:
        scan = ArrowScan(table.metadata, table.io, table.schema(), condition)
        yield from scan.to_table(tasks).to_batches()

    return Part(batches, _values(table, tasks[0]))


def _values(table: Table, task: FileScanTask) -> dict[str, Any]:
    """The values of a file's partition."""
    return {field.name: task.file.partition[at] for at, field in enumerate(table.spec().fields)}


def _in_iceberg(rows: Rows) -> Rows:
    """The rows with the integers of Iceberg, which has none below 32 bits."""
    fields = [field.with_type(pa.int32()) if field.type in (pa.int8(), pa.int16()) else field for field in rows.schema]
    return Rows(pa.schema(fields), rows.parts, rows.partitions)
