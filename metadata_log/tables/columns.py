"""The columns of files that an earlier version has written, brought to those of this version.

A reader of many files takes the columns from one of them: from the first (pyarrow, DuckDB), or from any (Spark). So a
column that only the newer files have is visible by chance. The first run of a version with a new column writes the
older files again, with null in that column, under their own names.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from metadata_log.disk import Disk
from metadata_log.tables.commit import ClusterTables, TablesError, columns_of
from metadata_log.tables.files import DataFile, Output, has_open_rows, parquet_of, run_files, table_schema


def bring_columns(disk: Disk, tables: ClusterTables) -> int:
    """Give all files of a cluster the columns of this version.

    Args:
        disk: The disk of the tables.
        tables: The tables of the cluster.

    Returns:
        How many files were written again.

    Raises:
        TablesError: A column has another type than before, or is gone.
        OSError: A file cannot be read or written.
    """
    head = tables.head
    if not head.steps or head.columns == columns_of(head.views):
        return 0
    made = [file for path in tables.all_files() if (file := _again(disk, tables, path)) is not None]
    for folder in sorted({file.path.rpartition("/")[0] for file in made}):
        disk.fsync_dir(f"{tables.root}/{folder}")
    tables.rewritten(made)
    return len(made)


def _again(disk: Disk, tables: ClusterTables, path: str) -> DataFile | None:
    """Write one file again under its hidden name; None if it has the columns."""
    source = parquet_of(disk, f"{tables.root}/{path}")
    made = DataFile(path, source.metadata.num_rows, is_open=has_open_rows(path))
    wanted = table_schema(path.partition("/")[0])
    if source.schema_arrow.equals(wanted):
        return None
    tables.note(made.staged)
    _write(disk, source, wanted, f"{tables.root}/{path}", f"{tables.root}/{made.staged}")
    return made


def bring_columns_of_runs(disk: Disk, root: str, wanted: pa.Schema) -> int:
    """The same for the table of runs, file by file. The oldest file comes last, and tells whether all is done."""
    paths = [f"{root}/{path}" for path in run_files(disk, root)]
    if not paths or parquet_of(disk, paths[0]).schema_arrow.equals(wanted):
        return 0
    made = 0
    for path in reversed(paths):
        source = parquet_of(disk, path)
        if not source.schema_arrow.equals(wanted):
            parent, _, name = path.rpartition("/")
            _write(disk, source, wanted, path, f"{parent}/.{name}.part")
            disk.rename(f"{parent}/.{name}.part", path)
            disk.fsync_dir(parent)
            made += 1
    return made


def _write(disk: Disk, source: pq.ParquetFile, wanted: pa.Schema, path: str, staged: str) -> None:
    """Write the rows of a file with other columns to a path; complete on disk."""
    if disk.exists(staged):
        disk.remove(staged)
    target = disk.open(staged, create=True)
    output = Output(target)
    try:
        with pq.ParquetWriter(pa.PythonFile(output, mode="w"), wanted, compression="zstd") as writer:
            for group in range(source.num_row_groups):
                writer.write_table(with_columns(source.read_row_group(group, use_threads=False), wanted, path))
        target.fsync()
    finally:
        output.is_abandoned = True
        target.close()


def with_columns(table: pa.Table, wanted: pa.Schema, where: str) -> pa.Table:
    """A table with the columns of this version, null where they are new; raises `TablesError` for one that is gone."""
    hint = "With --rebuild the tables are made again."
    if gone := sorted(set(table.schema.names) - set(wanted.names)):
        raise TablesError(f"this version has no column {', '.join(gone)}", where=where, hint=hint)
    columns = [
        table[field.name] if field.name in table.schema.names else pa.nulls(table.num_rows, field.type)
        for field in wanted
    ]
    try:
        return pa.table(columns, names=wanted.names).cast(wanted)
    except (pa.ArrowException, ValueError) as bad:
        raise TablesError(f"a column has another type in this version: {bad}", where=where, hint=hint) from bad
