"""Small files of one cluster merged: the closed files of a view and a date become one file with the same rows.

The files of the latest steps stay as they are, since these steps can be taken back. The merged files replace the small
ones by the rename that commits a step, so a crash at any write loses and doubles no row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import closing
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from metadata_log.disk import Disk, file_bytes
from metadata_log.tables.cluster import Job
from metadata_log.tables.commit import ClusterTables
from metadata_log.tables.files import DataFile, Output, parquet_of, partition_value, step_of

_NAME: Final = re.compile(r"(\d+)-(?:closed|compacted)-\d+\.parquet")
LARGE: Final = 128 << 20
"""The bytes from which on a file is left as it is, and a merged file takes no further file."""


class Compacted(Struct, frozen=True):
    """The result of a compaction for one cluster: how many files were merged, and into how many."""

    merged: int = 0
    made: int = 0


def compact_cluster(cluster: str, disk: Disk, job: Job, *, large: int = LARGE) -> Compacted:
    """Merge the small files of a cluster.

    Args:
        cluster: The cluster.
        disk: The disk of the tables.
        job: The tables and their views.
        large: The bytes from which on a file is not small.

    Returns:
        How many files were merged, and how many came of them.

    Raises:
        TablesError: Another run has the tables open, or they were made with other settings.
        OSError: A file cannot be read or written.
    """
    with closing(ClusterTables(disk, job.root, cluster, (), job.settings)) as tables:
        groups = [
            group
            for view in tables.head.views
            for group in _groups(disk, job.root, f"{view}/cluster={partition_value(cluster)}", tables, large)
        ]
        # If this fails, the journal names the files, and the next run removes them.
        made = [_merge(disk, tables, group) for group in groups]
        if groups:
            for folder in sorted({file.path.rpartition("/")[0] for file in made}):
                disk.fsync_dir(f"{job.root}/{folder}")
            tables.replace_files(made, [path for group in groups for path in group])
        return Compacted(sum(map(len, groups)), len(made))


def _groups(disk: Disk, root: str, folder: str, tables: ClusterTables, large: int) -> list[list[str]]:
    """The files to be merged, as paths below the root: two or more in a group, in the order of their steps.

    Files of a former log stay apart, as a rebuilding keeps them.
    """
    if not disk.exists(f"{root}/{folder}"):
        return []
    oldest = tables.head.steps[0].number if tables.head.steps else 0
    floor = tables.head.floor
    groups: list[list[str]] = []
    for date in disk.list(f"{root}/{folder}"):
        group: list[str] = []
        total = 0
        for name in disk.list(f"{root}/{folder}/{date}"):
            match = _NAME.fullmatch(name)
            size = file_bytes(disk, f"{root}/{folder}/{date}/{name}") if match else large
            if match is None or int(match[1]) >= oldest or size >= large:
                continue
            is_of_former_log = int(match[1]) <= floor
            if group and (total + size >= large or is_of_former_log is not (step_of(group[-1]) <= floor)):
                groups.append(group)
                group, total = [], 0
            group.append(f"{folder}/{date}/{name}")
            total += size
        groups.append(group)
    return [group for group in groups if len(group) > 1]


def _merge(disk: Disk, tables: ClusterTables, paths: Sequence[str]) -> DataFile:
    """Write the rows of some files into one, under its hidden name."""
    folder, _, last = paths[-1].rpartition("/")
    number = last.partition("-")[0]
    made = DataFile(f"{folder}/{number}-compacted-{tables.head.next_number}.parquet", 0, False)
    path = f"{tables.root}/{made.staged}"
    tables.note(made.staged)
    if disk.exists(path):
        disk.remove(path)
    target = disk.open(path, create=True)
    output = Output(target)
    rows = 0
    try:
        parts = [parquet_of(disk, f"{tables.root}/{path}") for path in paths]
        schema = parts[-1].schema_arrow
        with pq.ParquetWriter(pa.PythonFile(output, mode="w"), schema, compression="zstd") as writer:
            for part in parts:
                for group in range(part.num_row_groups):
                    table = part.read_row_group(group, use_threads=False)
                    rows += table.num_rows
                    writer.write_table(table.cast(schema))
        target.fsync()
    finally:
        output.is_abandoned = True
        target.close()
    return DataFile(made.path, rows, False)
