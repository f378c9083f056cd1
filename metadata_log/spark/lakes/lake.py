"""Tables of lakes: one commit replaces some rows by others.

`deltalake` and `pyiceberg`, the formats' own libraries, are extras and need no Java. Each commit carries the number of
its publication, so a commit that is tried again changes nothing (decision 0094).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from types import ModuleType

import pyarrow as pa

from metadata_log.errors import MetadataLogError, install_extra
from metadata_log.spark.errors import SourceError
from metadata_log.spark.lakes.rows import Commit, Delta, Iceberg, Lake, Parquet, Rows


def check(lake: Lake) -> None:
    """Raise `SourceError` if the library of a format is not installed."""
    match lake:
        case Delta():
            title, package, extra = "Delta Lake", "deltalake", "delta"
        case Iceberg():
            title, package, extra = "Iceberg", "pyiceberg", "iceberg"
        case Parquet():
            return
    if find_spec(package) is None:
        raise SourceError(
            f"tables of {title} are written by the package {package}, which is not installed",
            hint=install_extra(extra),
        )


def commit(lake: Lake, name: str, change: Commit) -> None:
    """Make a commit in a table, unless the table has it; the table is made if it is missing.

    Raises:
        SourceError: The table cannot be written.
    """
    with _library(lake, name, "written") as library:
        library.commit(lake, name, change)


def replace_table(lake: Lake, name: str, rows: Rows) -> None:
    """Write a table with these rows and columns alone; raises `SourceError` if it cannot be written."""
    with _library(lake, name, "written") as library:
        library.replace_table(lake, name, rows)


def read(lake: Lake, name: str) -> pa.Table | None:
    """All rows of a small table; None if there is no table. Raises `SourceError` if it cannot be read."""
    with _library(lake, name, "read") as library:
        return library.read(lake, name)


def last_commit(lake: Lake, name: str, application: str) -> int | None:
    """The number of the last commit of an application; None without one. Raises `SourceError`."""
    with _library(lake, name, "read") as library:
        number: int | None = library.last_commit(lake, name, application)
        return number


def compact(lake: Lake, name: str) -> None:
    """Merge the small files of each partition, if there is such a table; the rows stay. Raises `SourceError`."""
    with _library(lake, name, "compacted") as library:
        library.compact(lake, name)


def places(lake: Lake, names: Sequence[str]) -> dict[str, str]:
    """The locations of the tables that there are, by name; but for Iceberg also those that a commit will make."""
    if not isinstance(lake, Iceberg):
        return {name: lake.path(name) for name in names}
    with _library(lake, names[0], "found") as library:
        paths: dict[str, str] = library.places(lake, names)
        return paths


@contextmanager
def _library(lake: Lake, name: str, done: str) -> Iterator[ModuleType]:
    """The module of a format. What its library and the store raise is translated."""
    check(lake)
    match lake:
        case Delta():
            from metadata_log.spark.lakes import delta

            library: ModuleType = delta
            where = lake.path(name)
        case Iceberg():
            from metadata_log.spark.lakes import iceberg

            library = iceberg
            where = f"{lake.catalog}.{lake.namespace}.{name}"
        case Parquet():
            from metadata_log.spark.lakes import parquet

            library = parquet
            where = lake.path(name)
    try:
        yield library
    except MetadataLogError:
        raise
    except Exception as failed:
        raise SourceError(
            f"the table {name} cannot be {done}: {_cause(failed)}",
            where=where,
            hint="Once the cause is gone, the next run finishes what this one began.",
        ) from failed


def _cause(failed: Exception) -> str:
    """The first and the last line of an error; delta-rs draws the causes as a tree."""
    plain = re.sub(r"\x1b\[\d+m|↳", "", str(failed))
    lines = [line.strip() for line in plain.splitlines() if line.strip()] or [type(failed).__name__]
    return lines[0] if len(lines) == 1 else f"{lines[0]}: {lines[-1]}"
