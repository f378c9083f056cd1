"""The table `clusters` beside materialised tables: the name, the environment and the labels of each cluster id.

The other tables keep the ids alone, so a new name changes this table and no other (decision 0072). In Parquet the table
is one file, which a rename replaces; `metadata_log.spark.lakes.publish` has the same rows in Delta Lake and Iceberg. A
run that changes nothing leaves the table as it is.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from metadata_log.arrow.schema import CLUSTERS, schema_of
from metadata_log.cluster_names import ClusterNames
from metadata_log.disk import Disk, make_directory, replace_file
from metadata_log.spark.directories import Directory
from metadata_log.spark.named import cluster_rows
from metadata_log.tables.commit import FOLDER, TablesBusy, known_clusters

FILE: Final = "clusters.parquet"
LINKS: Final = (
    pa.field("follows", pa.string(), metadata={b"comment": b"the cluster whose directory has this log now"}),
    pa.field("followed_by", pa.string(), metadata={b"comment": b"the cluster with the log in this one's directory"}),
    pa.field("closed", pa.string(), metadata={b"comment": b"why no more rows are expected; null = they are"}),
)
"""The changes of the identity of a cluster: the last columns of the table."""
_NAMES: Final = ("name", "environment", "labels", "is_listed")
TABLE_SCHEMA: Final = pa.schema([*schema_of(CLUSTERS), *LINKS])
_LOCK: Final = "clusters.lock"


def write_clusters(disk: Disk, root: str, directories: Sequence[Directory], names: ClusterNames | None) -> bool:
    """Bring the table `clusters` up to date.

    The table has a row for each cluster of the file of names, of this run, and of the table so far: a run over some of
    the clusters takes no other cluster away. The directories of a cluster are those of its last run.

    Args:
        disk: The disk of the tables.
        root: The directory of the tables.
        directories: The logs of this run.
        names: The names; None to keep those of the table.

    Returns:
        Whether the table changed.

    Raises:
        TablesBusy: Another run writes the table.
        OSError: The table cannot be read or written.
    """
    make_directory(disk, f"{root}/{FOLDER}")
    place = f"{root}/{FOLDER}/{_LOCK}"
    try:
        lock = disk.lock(place)
    except BlockingIOError as busy:
        hint = "Run this again: the other tables are up to date."
        raise TablesBusy("another run writes the table of clusters", where=place, hint=hint) from busy
    try:
        return _write(disk, root, directories, names)
    finally:
        lock.release()


def next_rows(
    before: Sequence[dict[str, Any]], directories: Sequence[Directory], names: ClusterNames
) -> list[dict[str, Any]]:
    """The rows of the table after a run.

    Args:
        before: The rows of the table so far.
        directories: The logs of this run.
        names: The names.

    Returns:
        The rows, in the order of the cluster ids; they equal `before` if the run changes nothing.
    """
    here = {one.cluster for one in directories}
    kept = [
        Directory(directory, row["cluster"])
        for row in before
        if row["cluster"] not in here
        # A cluster without a directory, which no file lists any more, would vanish; its rows of other tables stay.
        for directory in row["directories"] or [""]
    ]
    return [
        {**row, "directories": [one for one in row["directories"] if one]}
        for row in cluster_rows([*directories, *kept], names)
    ]


def is_wanted(disk: Disk, root: str) -> bool:
    """Whether a run without names writes the table: it exists, or the identity of some cluster has changed."""
    closed = any(one.closed is not None for one in known_clusters(disk, root))
    return closed or disk.exists(f"{root}/{CLUSTERS}/{FILE}")


def _with_links(disk: Disk, root: str, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    known = {one.cluster: one for one in known_clusters(disk, root)}
    follows = {one.followed_by: one.cluster for one in known.values() if one.followed_by is not None}
    return [
        {
            **row,
            "follows": follows.get(row["cluster"]),
            "followed_by": None if (one := known.get(row["cluster"])) is None else one.followed_by,
            "closed": None if one is None else one.closed,
        }
        for row in rows
    ]


def table_rows(
    disk: Disk,
    root: str,
    before: Sequence[dict[str, Any]],
    directories: Sequence[Directory],
    names: ClusterNames | None,
) -> list[dict[str, Any]]:
    """The rows of the table after a run, with what has become of the clusters; they equal `before` if nothing changed.

    Args:
        disk: The disk of the tables.
        root: The directory with the checkpoints of the tables.
        before: The rows of the table so far.
        directories: The logs of this run.
        names: The names; None to keep those of the table.
    """
    here = {one.cluster for one in directories}
    closed = [
        Directory(one.directory or "", one.cluster)
        for one in known_clusters(disk, root)
        if one.closed is not None and one.cluster not in here
    ]
    rows = next_rows(before, [*directories, *closed], names or ClusterNames())
    if names is None:
        named = {row["cluster"]: {name: row[name] for name in _NAMES} for row in before}
        rows = [{**row, **named.get(row["cluster"], {})} for row in rows]
    return _with_links(disk, root, rows)


def _write(disk: Disk, root: str, directories: Sequence[Directory], names: ClusterNames | None) -> bool:
    folder = f"{root}/{CLUSTERS}"
    before = _read(disk, f"{folder}/{FILE}")
    rows = table_rows(disk, root, before, directories, names)
    if rows == before:
        return False
    make_directory(disk, folder)
    content = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=TABLE_SCHEMA), content, compression="zstd")
    replace_file(disk, folder, FILE, content.getvalue())
    return True


def _read(disk: Disk, path: str) -> list[dict[str, Any]]:
    """The rows of the table so far; none without a table."""
    if not disk.exists(path):
        return []
    source = pa.BufferReader(disk.read(path))
    return list(pq.read_table(source, schema=TABLE_SCHEMA, use_threads=False, pre_buffer=False).to_pylist())
