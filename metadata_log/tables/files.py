"""The Parquet files of one step, partitioned by cluster and date as Hive does: `VIEW/cluster=ID/date=DAY/…parquet`.

The date of a row is the day on which the row ended or happened; an open row has none. So a step only adds files to the
partitions of its own days, and a query for one day skips all rows that had ended before. A file has a hidden name until
the step is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from metadata_log.arrow.schema import schema_of
from metadata_log.arrow.views import batch_of
from metadata_log.disk import Disk, File, make_directory
from metadata_log.history.views import VIEWS
from metadata_log.tables.increment import TableRow
from metadata_log.times import moment_at

_BUFFERED: Final = 1 << 13
"""The rows of a row group, at most."""
_OPEN_FILES: Final = 256
"""The most files that are written at a time; a further row of a finished file begins another file."""
NO_DATE: Final = "__HIVE_DEFAULT_PARTITION__"
"""Hive's name of the partition without a value."""
_TIMES: Final = ("valid_to", "timestamp", "hour", "as_of", "to_time")
LINEAGE: Final = (
    pa.field("lineage_file", pa.string(), metadata={b"comment": b"the file with the records that made the row known"}),
    pa.field("lineage_offset", pa.int64(), metadata={b"comment": b"the offset that follows those records"}),
    pa.field("lineage_run", pa.string(), metadata={b"comment": b"the run that wrote the row"}),
    pa.field("lineage_version", pa.string(), metadata={b"comment": b"the version of trio-kraft in that run"}),
)
"""Where a row comes from: the last columns of every table."""


class DataFile(Struct, frozen=True):
    """One file of a table, by its final path below the tables' directory."""

    path: str
    rows: int
    is_open: bool

    @property
    def staged(self) -> str:
        """The path until the step is committed; Spark and other readers skip names that begin with a dot."""
        folder, _, name = self.path.rpartition("/")
        return f"{folder}/.{name}.part"


def table_schema(view: str) -> pa.Schema:
    """The columns of a table's files: those of the view without `cluster`, which is in the path, and the lineage."""
    return pa.schema([*(field for field in schema_of(view) if field.name != "cluster"), *LINEAGE])


def partition_value(text: str) -> str:
    """A value in the name of a partition's directory, escaped as Hive does."""
    return quote(text, safe=" -_.~@+,") if text else NO_DATE


def date_of(view: str, values: tuple[Any, ...]) -> str:
    """The day of a row in UTC, such as 2026-11-21; `NO_DATE` for a row without an end or a day."""
    value = values[_time_at(view)]
    moment = None if value is None else moment_at(value)
    return NO_DATE if moment is None else f"{moment.date()}"


def _time_at(view: str) -> int:
    names = VIEWS[view].names
    return next(names.index(name) for name in _TIMES if name in names)


class StepFiles:
    """The files of one step of one cluster, written row by row.

    Args:
        disk: The disk.
        root: The directory of the tables.
        cluster: The cluster.
        number: The number of the step, a part of the names.
        run: The id of the run, for the lineage.
        version: The version of this software, for the lineage.
        on_file: Called with each file's staged path, before the file is made.
    """

    def __init__(
        self,
        disk: Disk,
        root: str,
        cluster: str,
        number: int,
        *,
        run: str,
        version: str,
        on_file: Callable[[str], None],
    ) -> None:
        self._disk = disk
        self._root = root
        self._cluster = cluster
        self._number = number
        self._run = run
        self._version = version
        self._on_file = on_file
        self._writing: dict[tuple[str, str, bool], _Writer] = {}
        self._parts: dict[tuple[str, str, bool], int] = {}
        self._done: list[DataFile] = []

    def write(self, rows: Iterable[TableRow]) -> None:
        """Write rows; the files are complete after `finish`."""
        for row in rows:
            key = (row.view, date_of(row.view, row.values), row.is_open)
            writer = self._writing.pop(key, None)
            if writer is None:
                if len(self._writing) >= _OPEN_FILES:
                    self._close(next(iter(self._writing)))
                writer = self._begin(key)
            self._writing[key] = writer
            writer.add(row)

    def finish(self) -> list[DataFile]:
        """Complete all files on disk, and return them."""
        try:
            for key in list(self._writing):
                self._close(key)
        except BaseException:
            self._abandon()
            raise
        for folder in sorted({file.path.rpartition("/")[0] for file in self._done}):
            self._disk.fsync_dir(f"{self._root}/{folder}")
        return self._done

    def discard(self) -> None:
        """Remove all files."""
        self._abandon()
        files = [*self._done, *(writer.file for writer in self._writing.values())]
        self._writing, self._done = {}, []
        for file in files:
            self._disk.remove(f"{self._root}/{file.staged}")

    def _abandon(self) -> None:
        for writer in self._writing.values():
            writer.abandon()

    def _begin(self, key: tuple[str, str, bool]) -> _Writer:
        view, date, is_open = key
        part = self._parts[key] = self._parts.get(key, -1) + 1
        folder = f"{view}/cluster={partition_value(self._cluster)}/date={date}"
        make_directory(self._disk, f"{self._root}/{folder}")
        name = f"{self._number:08d}-{'open' if is_open else 'closed'}-{part}.parquet"
        file = DataFile(f"{folder}/{name}", 0, is_open)
        path = f"{self._root}/{file.staged}"
        self._on_file(file.staged)
        if self._disk.exists(path):
            self._disk.remove(path)
        return _Writer(file, view, self._disk.open(path, create=True), (self._run, self._version))

    def _close(self, key: tuple[str, str, bool]) -> None:
        self._done.append(self._writing[key].close())
        del self._writing[key]


class Output:
    """A file of a `Disk` as pyarrow writes it."""

    def __init__(self, file: File) -> None:
        self._file = file
        self.closed = False
        self.is_abandoned = False
        """Whether what pyarrow still writes, also when its objects are collected, goes nowhere."""

    def write(self, data: Any) -> int:
        """Append, unless the file is abandoned."""
        content = bytes(data)
        if not self.is_abandoned:
            self._file.append(content)
        return len(content)

    def flush(self) -> None:
        """Nothing waits here."""

    def writable(self) -> bool:
        """Always."""
        return True

    def readable(self) -> bool:
        """Never."""
        return False

    def seekable(self) -> bool:
        """Never."""
        return False

    def tell(self) -> int:
        """The bytes so far."""
        return self._file.size()

    def close(self) -> None:
        """Note the end; the owner closes the file of the disk."""
        self.closed = True


class _Writer:
    """One file in the making."""

    def __init__(self, file: DataFile, view: str, target: File, told: tuple[str, str]) -> None:
        self.file = file
        self._target = target
        self._told = told
        self._names = [name for name in schema_of(view).names if name != "cluster"]
        self._view = view
        self._schema = table_schema(view)
        self._rows: list[TableRow] = []
        self._count = 0
        self._output = Output(target)
        try:
            self._parquet = pq.ParquetWriter(pa.PythonFile(self._output, mode="w"), self._schema, compression="zstd")
        except BaseException:
            self._output.is_abandoned = True
            target.close()
            raise

    def add(self, row: TableRow) -> None:
        """Add a row."""
        self._rows.append(row)
        self._count += 1
        if len(self._rows) >= _BUFFERED:
            self._flush()

    def close(self) -> DataFile:
        """Complete the file on disk."""
        self._flush()
        self._parquet.close()
        self._target.fsync()
        self._target.close()
        return DataFile(self.file.path, self._count, self.file.is_open)

    def abandon(self) -> None:
        """Release an incomplete file. pyarrow closes its writer when the object is collected."""
        self._output.is_abandoned = True
        self._target.close()

    def _flush(self) -> None:
        rows, self._rows = self._rows, []
        if rows:
            known = batch_of([row.values for row in rows], self._view, self._names)
            lineage = (
                [row.file for row in rows],
                [row.offset for row in rows],
                *([told] * len(rows) for told in self._told),
            )
            arrays = [pa.array(values, field.type) for values, field in zip(lineage, LINEAGE, strict=True)]
            self._parquet.write_batch(pa.RecordBatch.from_arrays([*known.columns, *arrays], schema=self._schema))
