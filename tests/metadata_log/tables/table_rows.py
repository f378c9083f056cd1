"""The rows in the tables' files, as a reader finds them that knows nothing but the names of files."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Collection, Iterator
from urllib.parse import unquote

import pyarrow.parquet as pq

from metadata_log.arrow.schema import schema_of
from metadata_log.arrow.views import batch_of
from metadata_log.disk import Disk
from metadata_log.history import VIEWS, Options
from metadata_log.memory_disk import MemoryDisk
from metadata_log.tables.increment import Checkpoint, Step, read_log

ROOT = "/tables"


def files(disk: Disk) -> Iterator[str]:
    """The paths of all files that a reader of Parquet would take."""
    for view in VIEWS:
        for cluster in names(disk, f"{ROOT}/{view}"):
            for date in names(disk, f"{ROOT}/{view}/{cluster}"):
                for name in names(disk, f"{ROOT}/{view}/{cluster}/{date}"):
                    if not name.startswith((".", "_")):
                        yield f"{ROOT}/{view}/{cluster}/{date}/{name}"


def names(disk: Disk, path: str) -> list[str]:
    return disk.list(path) if disk.exists(path) else []


def content(disk: Disk, path: str) -> bytes:
    file = disk.open(path, writable=False)
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()


def everything(disk: MemoryDisk) -> dict[str, bytes]:
    """All files below the tables, hidden ones and `_kraft` included."""
    found: dict[str, bytes] = {}
    folders = [ROOT]
    while folders:
        folder = folders.pop()
        for name in disk.list(folder):
            path = f"{folder}/{name}"
            try:
                disk.list(path)
            except OSError:
                found[path] = content(disk, path)
            else:
                folders.append(path)
    return found


def table_rows(disk: Disk) -> Counter[str]:
    """All rows of all tables, without lineage; the cluster and the date are those of the path."""
    found: Counter[str] = Counter()
    for path in files(disk):
        view, cluster, date = path.removeprefix(f"{ROOT}/").split("/")[:3]
        table = pq.read_table(io.BytesIO(content(disk, path)))
        wanted = [name for name in schema_of(view).names if name != "cluster"]
        assert table.num_rows
        for row in table.select(wanted).to_pylist():
            ended = next(row[name] for name in ("valid_to", "timestamp", "hour", "as_of", "to_time") if name in row)
            assert date == f"date={'__HIVE_DEFAULT_PARTITION__' if ended is None else ended.date()}"
            found[f"{view} {unquote(cluster)} {row}"] += 1
    return found


def rows_of_log(disk: MemoryDisk, directory: str, cluster: str, views: Collection[str] = VIEWS) -> Counter[str]:
    """All rows of some views of a log that is read as a whole, in the same form."""
    step = Step(read_log(disk, directory), Checkpoint(), cluster=cluster, views=views, options=Options())
    found: Counter[str] = Counter()
    for rows in step.rows():
        columns = [name for name in VIEWS[rows.view].names if name != "cluster"]
        for told in batch_of(list(rows.values), rows.view, columns).to_pylist():
            found[f"{rows.view} cluster={cluster} {told}"] += 1
    return found
