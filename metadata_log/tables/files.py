"""The Parquet files of one step, partitioned by cluster and date as Hive does: `VIEW/cluster=ID/date=DAY/…parquet`.

The date of a row is the day on which the row ended or happened; an open row has none. So a step only adds files to the
partitions of its own days, and a query for one day skips all rows that had ended before. A file has a hidden name until
the step is committed.
"""

from __future__ import annotations

import base64
import hashlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct
from msgspec.structs import replace

from metadata_log.arrow.lean_pyarrow import load_lean_compute
from metadata_log.arrow.schema import schema_of
from metadata_log.disk import Disk, File, make_directory, read_whole
from metadata_log.history.partition_rows import CELL_VIEWS, Shared, whole_rows
from metadata_log.history.views import VIEWS
from metadata_log.tables.increment import TableRows
from metadata_log.times import moment_at

RUNS: Final = "runs"
"""The table of runs: a row for each run and cluster."""
_GROUP_ROWS: Final = 1 << 15
"""The rows of a row group, at most."""
_BUFFER_BYTES: Final = 1 << 16
"""A writer of Parquet writes each header and each page by itself."""
_MOST_HELD: Final = 1 << 18
"""The most rows that wait for their row groups, in all files."""
_OPEN_FILES: Final = 256
"""The most files that are written at a time; a further row of a finished file begins another file."""
_DAY_MS: Final = 86_400_000
NO_DATE: Final = "__HIVE_DEFAULT_PARTITION__"
"""Hive's name of the partition without a value."""
_TIMES: Final = ("valid_to", "timestamp", "hour", "as_of", "to_time")
LINEAGE: Final = (
    pa.field("lineage_file", pa.string(), metadata={b"comment": b"the file with the records that made the row known"}),
    pa.field("lineage_offset", pa.int64(), metadata={b"comment": b"the offset that follows those records"}),
    pa.field("lineage_run", pa.string(), metadata={b"comment": b"the run that wrote the row"}),
    pa.field("lineage_version", pa.string(), metadata={b"comment": b"the version of trio-kraft in that run"}),
    pa.field(
        "lineage_unread_offset",
        pa.int64(),
        metadata={b"comment": b"the first record of a newer Kafka that may have changed the row; null = none"},
    ),
)
"""Where a row comes from: the last columns of every table."""


class DataFile(Struct, frozen=True):
    """One file of a table.

    Args:
        path: Its final path below the tables' directory.
        rows: How many rows it has.
        is_open: Whether the rows are open.
        digest: A hash of open rows without their lineage; empty for closed rows.
    """

    path: str
    rows: int
    is_open: bool
    digest: str = ""

    @property
    def staged(self) -> str:
        """The path until the step is committed; Spark and other readers skip names that begin with a dot."""
        folder, _, name = self.path.rpartition("/")
        return f"{folder}/.{name}.part"


def step_of(path: str) -> int:
    """The number of the step that has written a file; of merged files the last one."""
    return int(path.rpartition("/")[2].partition("-")[0])


def has_open_rows(path: str) -> bool:
    """Whether a file has open rows."""
    return "-open-" in path.rpartition("/")[2]


def part_of(path: str) -> tuple[str, str]:
    """The partition and the name of a file without the number of its step: the same for the next step's file."""
    folder, _, name = path.rpartition("/")
    return folder, name.partition("-")[2]


def view_of(path: str) -> str:
    """The view of a file."""
    return path.partition("/")[0]


def table_schema(view: str) -> pa.Schema:
    """The columns of a table's files: those of the view without `cluster`, which is in the path, and the lineage."""
    return pa.schema([*(field for field in schema_of(view) if field.name != "cluster"), *LINEAGE])


def partition_value(text: str) -> str:
    """A value in the name of a partition's directory, escaped as Hive does."""
    return quote(text, safe=" -_.~@+,") if text else NO_DATE


def by_date(rows: TableRows) -> Iterable[tuple[str, Sequence[Any]]]:
    """The rows of each day in UTC, such as 2026-11-21; `NO_DATE` has the rows without an end or a day."""
    name, place = _TIME_AT[rows.view]
    if rows.view not in CELL_VIEWS:
        times = [values[place] for values in rows.rows]
    elif name == _TIMES[0]:
        times = [None if end is None else end[6] for _, _, end in rows.rows]
    else:
        times = [cell[6] for _, cell, _ in rows.rows]
    if times.count(times[0]) == len(times):
        return ((_date_of(times[0]), rows.rows),)
    by_day: dict[str, list[Any]] = {}
    for row, time in zip(rows.rows, times, strict=True):
        by_day.setdefault(_date_of(time), []).append(row)
    return by_day.items()


def _time_at(view: str) -> tuple[str, int]:
    names = VIEWS[view].names
    return next((name, names.index(name)) for name in _TIMES if name in names)


_TIME_AT: Final = {view: _time_at(view) for view in VIEWS}
"""The column with the time of a row's date, and its place."""


def _date_of(time_ms: int | None) -> str:
    return NO_DATE if time_ms is None else _date(time_ms // _DAY_MS)


@lru_cache(maxsize=4096)
def _date(day: int) -> str:
    moment = moment_at(day * _DAY_MS)
    return NO_DATE if moment is None else f"{moment.date()}"


class StepFiles:
    """The files of one step of one cluster.

    Args:
        disk: The disk.
        root: The directory of the tables.
        cluster: The cluster.
        number: The number of the step, a part of the names.
        run: The id of the run, for the lineage.
        version: The version of this software, for the lineage.
        on_file: Called with each file's staged path, before the file is made.
        before: The open files of the step before, by path. One that would get the same rows again stays, and no file is
            made for these rows.
        whole_views: Whether open files stay only if all those of their view do.
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
        before: Mapping[str, str] = {},
        whole_views: bool = False,
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
        self._before = {part_of(path): (path, digest) for path, digest in before.items()}
        self._whole_views = whole_views
        self.same: list[DataFile] = []
        """The open files of the step before that stay."""

    def write(self, found: Iterable[TableRows]) -> None:
        """Write rows; the files are complete after `finish`."""
        held = 0
        for rows in found:
            for date, some in by_date(rows):
                self._writer((rows.view, date, rows.is_open)).add(some, rows)
            held += len(rows.rows)
            if held > _MOST_HELD:
                for writer in self._writing.values():
                    writer.flush()
                held = 0

    def _writer(self, key: tuple[str, str, bool]) -> _Writer:
        writing = self._writing
        writer = writing.get(key)
        if writer is None:
            if len(writing) >= _OPEN_FILES:
                self._close(next(iter(writing)))
            writer = writing[key] = self._begin(key)
        elif len(writing) > _OPEN_FILES // 2:
            # The file that was used last is closed last.
            writing[key] = writing.pop(key)
        return writer

    def finish(self) -> list[DataFile]:
        """Complete all files on disk, and return them."""
        try:
            if self._whole_views:
                self._keep_whole_views()
                self._whole_views = False
            for key in list(self._writing):
                self._close(key)
        except BaseException:
            self._abandon()
            raise
        for folder in sorted({file.path.rpartition("/")[0] for file in self._done}):
            self._disk.fsync_dir(f"{self._root}/{folder}")
        return self._done

    def _keep_whole_views(self) -> None:
        """Forget the files before of views that changed, or of which a file was closed too early to tell."""
        before = {(part, digest) for part, (_, digest) in self._before.items()}
        now = {(part_of(one.file.path), one.digest()) for one in self._writing.values() if one.file.is_open}
        changed = {view_of(folder) for (folder, _), _ in now ^ before}
        changed |= {view_of(file.path) for file in self._done if file.is_open}
        self._before = {part: one for part, one in self._before.items() if view_of(one[0]) not in changed}

    def discard(self) -> None:
        """Remove all files."""
        self._abandon()
        files = [*self._done, *(writer.file for writer in self._writing.values() if writer.is_made)]
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
        name = f"{self._number:08d}-{'open' if is_open else 'closed'}-{part}.parquet"
        file = DataFile(f"{folder}/{name}", 0, is_open)
        return _Writer(file, view, self._make, (self._run, self._version))

    def _make(self, file: DataFile) -> File:
        make_directory(self._disk, f"{self._root}/{file.path.rpartition('/')[0]}")
        path = f"{self._root}/{file.staged}"
        self._on_file(file.staged)
        if self._disk.exists(path):
            self._disk.remove(path)
        return self._disk.open(path, create=True)

    def _close(self, key: tuple[str, str, bool]) -> None:
        writer = self._writing[key]
        path, digest = self._before.get(part_of(writer.file.path), ("", ""))
        if writer.file.is_open and writer.digest() == digest and not self._whole_views:
            self.same.append(DataFile(path, writer.rows, is_open=True, digest=digest))
            writer.abandon()
            if writer.is_made:
                self._disk.remove(f"{self._root}/{writer.file.staged}")
        else:
            self._done.append(writer.close())
        del self._writing[key]


def parquet_of(disk: Disk, path: str) -> pq.ParquetFile:
    """A file of a table as `parquet_in` has it."""
    return parquet_in(read_whole(disk, path))


def parquet_in(content: bytes) -> pq.ParquetFile:
    """The content of a file of a table, to be read with `use_threads=False`.

    A thread of pyarrow that still lets go of an object of Python while the interpreter ends aborts the process, with
    exit code 134. A short command ends that soon after it has read.
    """
    return pq.ParquetFile(pa.BufferReader(content))


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


_SHARED_TEXT: Final = pa.dictionary(pa.int32(), pa.string())
_SERIAL: Final = frozenset(
    {"valid_from_offset", "valid_from", "valid_to_offset", "valid_to", "offset", "timestamp", "cause_offset"}
)
"""The columns with a new value in nearly every row, or in every batch: a dictionary makes them larger and slower."""


class _Writer:
    """One file in the making. It is made on disk once a row group is full, or at the end.

    Texts that rows have in common stay shared up to the file: the writer gets them as dictionaries, and the file has
    the schema of plain texts (Arrow's own schema in the footer too).
    """

    def __init__(self, file: DataFile, view: str, make: Callable[[DataFile], File], told: tuple[str, str]) -> None:
        self.file = file
        self.rows = 0
        self._view = view
        self._make = make
        self._told = told
        self._waiting: list[Any] = []
        self._lineage: list[tuple[int, TableRows]] = []
        """How many of the waiting rows are of which rows that became known together."""
        self._hash = hashlib.blake2b(digest_size=16)
        self._digest = ""
        self._target: File | None = None

    @property
    def is_made(self) -> bool:
        """Whether there is a file."""
        return self._target is not None

    def add(self, some: Sequence[Any], of: TableRows) -> None:
        """Add some of these rows."""
        self._waiting += some
        self._lineage.append((len(some), of))
        self.rows += len(some)
        if len(self._waiting) >= _GROUP_ROWS:
            self.flush()

    def digest(self) -> str:
        """The hash of the rows without their lineage, besides records that were not read; no row may follow."""
        if not self._digest:
            self._hash.update(self._encoded())
            self._digest = self._hash.hexdigest()
        return self._digest

    def close(self) -> DataFile:
        """Complete the file on disk, after `digest` if the rows are open."""
        self._write()
        assert self._target is not None
        self._parquet.close()
        self._stream.close()
        self._target.fsync()
        self._target.close()
        return replace(self.file, rows=self.rows, digest=self._digest)

    def abandon(self) -> None:
        """Release an incomplete file. pyarrow closes its writer when the object is collected."""
        if self._target is not None:
            self._output.is_abandoned = True
            self._target.close()

    def flush(self) -> None:
        """Write the rows so far as row groups."""
        if self.file.is_open:
            self._hash.update(self._encoded())
        self._write()

    def _encoded(self) -> bytes:
        rows = whole_rows(self._view, self._waiting) if self._view in CELL_VIEWS else self._waiting
        return msgspec.msgpack.encode([rows, [(count, of.unread) for count, of in self._lineage]])

    def _open(self) -> None:
        self._target = target = self._make(self.file)
        self._names = [name for name in schema_of(self._view).names if name != "cluster"]
        schema = table_schema(self._view)
        is_shared = self._view in CELL_VIEWS
        self._schema = pa.schema([_shared(field) if is_shared or field in LINEAGE else field for field in schema])
        self._output = Output(target)
        try:
            self._stream = pa.BufferedOutputStream(pa.PythonFile(self._output, mode="w"), _BUFFER_BYTES)
            self._parquet = pq.ParquetWriter(
                self._stream,
                self._schema,
                compression="zstd",
                use_dictionary=[path for path in _leaves(schema) if path not in _SERIAL],
                store_schema=False,
            )
        except BaseException:
            self._output.is_abandoned = True
            target.close()
            raise
        self._parquet.add_key_value_metadata({_ARROW_SCHEMA: base64.b64encode(schema.serialize())})

    def _write(self) -> None:
        if self._target is None:
            self._open()
        rows, self._waiting = self._waiting, []
        if not rows:
            return
        # Most runs of a quiet night write no row, and these modules load much of pyarrow.
        load_lean_compute()
        from metadata_log.arrow.columns import batch_of
        from metadata_log.arrow.partition_rows import cell_arrays

        lineage = self._lineage_arrays()
        for at in range(0, len(rows), _GROUP_ROWS):
            some = rows[at : at + _GROUP_ROWS]
            if self._view in CELL_VIEWS:
                known = cell_arrays(some, schema_of(self._view, self._names), dictionaries=True)
            else:
                known = batch_of(some, self._view, self._names).columns
            arrays = [*known, *(one.slice(at, len(some)) for one in lineage)]
            self._parquet.write_batch(pa.RecordBatch.from_arrays(arrays, schema=self._schema))

    def _lineage_arrays(self) -> list[pa.Array]:
        from metadata_log.arrow.partition_rows import column_array

        told, self._lineage = self._lineage, []
        places = array("i")
        for place, (many, _) in enumerate(told):
            places += array("i", (place,)) * many
        run, version = self._told
        columns = zip(*[(rows.file, rows.offset, run, version, rows.unread) for _, rows in told], strict=True)
        return [
            column_array(Shared(list(values), places), field.type, dictionaries=True)
            for values, field in zip(columns, LINEAGE, strict=True)
        ]


_ARROW_SCHEMA: Final = b"ARROW:schema"


def _shared(field: pa.Field) -> pa.Field:
    """A field whose texts the writer gets as a dictionary."""
    return field.with_type(_SHARED_TEXT) if field.type == pa.string() else field


def _leaves(schema: pa.Schema) -> Iterator[str]:
    """The names of Parquet's columns for those of a schema."""
    for field in schema:
        if pa.types.is_map(field.type):
            yield f"{field.name}.key_value.key"
            yield f"{field.name}.key_value.value"
        else:
            yield f"{field.name}.list.element" if pa.types.is_list(field.type) else field.name


def run_files(disk: Disk, root: str) -> list[str]:
    """The files of the table of runs, as paths below the tables' directory, oldest day first."""
    days = disk.list(f"{root}/{RUNS}") if disk.exists(f"{root}/{RUNS}") else []
    folders = [f"{RUNS}/{day}" for day in days]
    return [f"{folder}/{name}" for folder in folders for name in disk.list(f"{root}/{folder}") if name[0] != "."]
