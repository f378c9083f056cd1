"""Tables of plain Parquet in an object store: a commit puts its files, and then removes those that it replaces.

A store writes each object whole or not at all, and has no rename. So every name follows from the commit, and a commit
that is repeated puts the same objects again. `_kraft/TABLE.json` beside the tables has the commits that are complete
(decision 0099).
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from typing import Any, Final, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from msgspec import Struct

from metadata_log.spark.errors import SourceError
from metadata_log.spark.lakes.rows import Commit, Cut, Parquet, Part, Rows, batches_of
from metadata_log.spark.storage import file_system
from metadata_log.tables.columns import with_columns
from metadata_log.tables.commit import FOLDER
from metadata_log.tables.files import NO_DATE, parquet_in, partition_value

T = TypeVar("T")
_AT_ONCE: Final = 16
"""The requests that wait for a store at the same time."""
_NAME: Final = re.compile(r"(?P<step>\d+)-(?P<kind>open|closed)-\d+-[^/]*\.parquet")


class _Known(Struct, frozen=True):
    """The state of a table: the columns of all its files, and the number of the last commit of each application."""

    columns: str = ""
    commits: dict[str, int] = {}


def commit(lake: Parquet, name: str, change: Commit) -> None:
    """Make a commit in a table, unless the table has it."""
    store = _Store(lake)
    known = store.known(name)
    if known.commits.get(change.application, -1) >= change.number:
        return
    columns = str(change.rows.schema.remove_metadata())
    # A name without a number is replaced by one request, so that no reader sees both.
    number = 0 if change.cut.everything else change.number
    put = _put(store, name, change.rows, f"{change.application}-{number:08d}")
    store.remove(_replaced(store, name, change.cut, put))
    if known.columns not in ("", columns):
        others = [path for path in store.paths(name) if path not in put]
        store.each(lambda path: _bring_columns(store, path, change.rows), others)
    store.note(name, _Known(columns, {**known.commits, change.application: change.number}))


def replace_table(lake: Parquet, name: str, rows: Rows) -> None:
    """Write a table with these rows and columns alone."""
    store = _Store(lake)
    put = _put(store, name, rows, "all")
    store.remove(_replaced(store, name, Cut(everything=True), put))


def read(lake: Parquet, name: str) -> pa.Table | None:
    """All rows; None without a table."""
    store = _Store(lake)
    paths = sorted(store.paths(name))
    return ds.dataset(paths, filesystem=store.fs, partitioning="hive").to_table() if paths else None


def last_commit(lake: Parquet, name: str, application: str) -> int | None:
    """The number of the last commit of an application; None without one."""
    return _Store(lake).known(name).commits.get(application)


def compact(lake: Parquet, name: str) -> None:
    """Refused: between two requests a reader would see rows twice, of steps that no run repeats."""
    raise SourceError(
        "plain Parquet in an object store has no commit that replaces many files by one",
        where=lake.path(name),
        hint="Tables of Delta Lake and Iceberg are compacted there: --format delta.",
    )


class _Store:
    """The objects of a lake, by paths without their protocol."""

    def __init__(self, lake: Parquet) -> None:
        self.fs = file_system(lake.location, lake.options)
        self.fs.invalidate_cache()
        self.base = str(self.fs._strip_protocol(lake.location)).rstrip("/")

    def paths(self, folder: str) -> list[str]:
        """The files below a folder of the lake."""
        with suppress(FileNotFoundError):
            return [path for path in self.fs.find(f"{self.base}/{folder}") if path.endswith(".parquet")]
        return []

    def put(self, path: str, content: bytes) -> None:
        """Write an object, whole or not at all."""
        self.fs.pipe_file(path, content)

    def remove(self, paths: Iterable[str]) -> None:
        """Remove objects; those that are gone count as removed."""

        def gone(path: str) -> None:
            with suppress(FileNotFoundError):
                self.fs.rm_file(path)

        self.each(gone, paths)

    def each(self, work: Callable[[T], object], found: Iterable[T]) -> None:
        """Do something for each of these, some at a time."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for _ in pool.map(work, found):
                pass

    def known(self, name: str) -> _Known:
        """The state of a table."""
        with suppress(FileNotFoundError):
            return msgspec.json.decode(self.fs.cat_file(self._note(name)), type=_Known)
        return _Known()

    def note(self, name: str, known: _Known) -> None:
        """Keep the state of a table."""
        self.put(self._note(name), msgspec.json.encode(known))

    def _note(self, name: str) -> str:
        return f"{self.base}/{FOLDER}/{name}.json"


def _put(store: _Store, name: str, rows: Rows, told: str) -> set[str]:
    """Put the rows; the paths of their files."""
    columns = _columns(rows)
    numbers: dict[str, Iterator[int]] = {}
    files = []
    for part in rows.parts:
        values = [f"{column}={_partition(part.values[column])}" for column in rows.partitions]
        folder = "/".join([store.base, name, *values])
        kind = "open" if part.values.get("is_open") else "closed"
        number = next(numbers.setdefault(folder, count()))
        step = part.values.get("lineage_step", 0)
        files.append((f"{folder}/{step:08d}-{kind}-{number}-{told}.parquet", part))
    store.each(lambda file: store.put(file[0], _content(file[1], columns)), files)
    return {path for path, _ in files}


def _columns(rows: Rows) -> pa.Schema:
    """The columns of the files: those of partitions are in the paths."""
    return pa.schema([field for field in rows.schema if field.name not in rows.partitions])


def _content(part: Part, columns: pa.Schema) -> bytes:
    content = io.BytesIO()
    with pq.ParquetWriter(content, columns, compression="zstd") as writer:
        for batch in batches_of(part, columns):
            writer.write_batch(batch)
    return content.getvalue()


def _partition(value: Any) -> str:
    return NO_DATE if value is None else partition_value(str(value))


def _replaced(store: _Store, name: str, cut: Cut, put: set[str]) -> list[str]:
    """The files that a commit replaces: all, or those of the clusters of the cut."""
    if cut.everything:
        return [path for path in store.paths(name) if path not in put]
    return [
        path
        for cluster in cut.open_of
        for path in store.paths(f"{name}/cluster={partition_value(cluster)}")
        if path not in put and _is_replaced(path, cut.taken_back.get(cluster))
    ]


def _is_replaced(path: str, kept: int | None) -> bool:
    """Whether a file of a cluster with new rows is open, or of a step that was taken back."""
    match = _NAME.fullmatch(path.rpartition("/")[2])
    if match is None or match["kind"] == "open":
        return match is not None
    return kept is not None and int(match["step"]) > kept


def _bring_columns(store: _Store, path: str, rows: Rows) -> None:
    """Give a file the columns of this commit, as readers take the columns from any file."""
    source, wanted = parquet_in(store.fs.cat_file(path)), _columns(rows)
    if not source.schema_arrow.equals(wanted):
        content = io.BytesIO()
        pq.write_table(with_columns(source.read(use_threads=False), wanted, path), content, compression="zstd")
        store.put(path, content.getvalue())
