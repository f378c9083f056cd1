"""The rows of lakes as other engines read them, and fleets that change from night to night."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from metadata_log.log.segment import file_name
from metadata_log.records.batch import scan
from metadata_log.records.batch_builder import build_batch
from metadata_log.spark.lakes.lake import last_commit
from metadata_log.spark.lakes.rows import PUBLICATIONS, Delta, Iceberg, Lake, Parquet, local_catalog
from metadata_log.spark.storage import file_system
from support.spark.fleets import PARTITION, random_log, topic, write_meta

# Polars would rather plan with a package of its own.
os.environ.setdefault("POLARS_ICEBERG_PLANNER", "pyiceberg")
_ASIDE = frozenset({"date", "is_open"})


def make_lake(kind: str, out: Path, location: str | None = None, options: dict[str, str] | None = None) -> Lake:
    """A lake on disk, or at a URL with these options of its library; Parquet is in memory instead of on disk."""
    out.mkdir(parents=True, exist_ok=True)
    if kind == "delta":
        return Delta(location or str(out), options or {})
    if kind == "parquet":
        return Parquet(location or f"memory://{out}", options or {})
    return Iceberg("fleet", "kraft", {**local_catalog(str(out), location), **(options or {})})


def iceberg_table(lake: Iceberg, name: str) -> Table:
    with load_catalog(lake.catalog, **lake.properties) as catalog:
        return catalog.load_table(f"{lake.namespace}.{name}")


def rows_of_lake(lake: Lake, name: str, publication: int | None = None) -> Counter[str]:
    """The rows now, or after a publication, as Polars reads them; in a store DuckDB, or pyiceberg for Iceberg."""
    return plain_rows(frame_of_lake(lake, name, publication).iter_rows(named=True))


def frame_of_lake(lake: Lake, name: str, publication: int | None = None) -> pl.DataFrame:
    match lake:
        case Delta():
            version = None
            if publication is not None:
                version = version_at(lake, name, publication)
            return pl.read_delta(lake.path(name), version=version, storage_options=lake.options)
        case Iceberg():
            table = iceberg_table(lake, name)
            snapshot = None if publication is None else version_at(lake, name, publication)
            if table.location().startswith("file:"):
                return pl.scan_iceberg(table, snapshot_id=snapshot).collect()
            return _frame(table.scan(snapshot_id=snapshot).to_arrow())
        case Parquet():
            assert publication is None, "plain Parquet has no past"
            files = file_system(lake.location, lake.options)
            files.invalidate_cache()
            if not files.glob(f"{lake.location}/{name}/**/*.parquet"):
                return pl.DataFrame()
            with duckdb.connect() as connection:
                connection.register_filesystem(files)
                return _frame(connection.execute(_select(lake.location, name)).to_arrow_table())


def _frame(rows: pa.Table) -> pl.DataFrame:
    frame = pl.from_arrow(rows)
    assert isinstance(frame, pl.DataFrame)
    return frame


def version_at(lake: Lake, name: str, publication: int) -> int:
    """The version after a publication, which leaves a table without news as it is."""
    return [at for at, made in versions(lake, name) if made is not None and made <= publication][-1]


def versions(lake: Lake, name: str) -> list[tuple[int, int | None]]:
    """The versions of a table, oldest first, each with the number of its publication; None for a compaction.

    Parquet has the last one only.
    """
    match lake:
        case Delta():
            from deltalake import DeltaTable

            found = DeltaTable(lake.path(name), storage_options=lake.options).history()
            return [(one["version"], _number(one.get(PUBLICATIONS))) for one in reversed(found)]
        case Iceberg():
            told = iceberg_table(lake, name).snapshots()
            return [
                (one.snapshot_id, _number(None if one.summary is None else one.summary[PUBLICATIONS])) for one in told
            ]
        case Parquet():
            return [(0, last_commit(lake, name, PUBLICATIONS))]


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


def rows_of_parquet(root: Path, view: str) -> Counter[str]:
    """The rows of a table of plain Parquet, as DuckDB reads them."""
    if not (root / view).exists():
        return Counter()
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        found = connection.execute(_select(str(root), view))
        names = [column[0] for column in found.description or ()]
        return plain_rows(dict(zip(names, row, strict=True)) for row in found.fetchall())


def _select(root: str, view: str) -> str:
    types = "hive_partitioning = true, hive_types = {'cluster': VARCHAR, 'date': DATE}, union_by_name = true"
    if view == "clusters":
        types = "hive_partitioning = false"
    if view == "runs":
        types = "hive_partitioning = true, hive_types = {'date': DATE}"
    return f"SELECT * FROM read_parquet('{root}/{view}/**/*.parquet', {types})"


def plain_rows(rows: Iterable[dict[str, Any]]) -> Counter[str]:
    """Rows without lineage, in a form that does not depend on the engine."""
    return Counter(
        str({name: _plain(row[name]) for name in sorted(row) if name not in _ASIDE and not name.startswith("lineage_")})
        for row in rows
    )


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return sorted(value.items())
    if isinstance(value, list) and value and isinstance(value[0], dict) and set(value[0]) == {"key", "value"}:
        return sorted((one["key"], one["value"]) for one in value)
    return [] if value == [] else value.isoformat() if hasattr(value, "isoformat") else value


def write_night(root: Path, logs: dict[str, bytes], part: float, *, lost: bool = False) -> None:
    """The first part of each log. Its end may be lost batches of a leader, in front of what the next leader wrote."""
    for name, data in logs.items():
        found = list(scan(data))
        last = found[max(0, int(len(found) * part) - 1)]
        if lost:
            last = max((one for one in found if one.epoch < last.epoch), key=lambda one: one.base_offset)
        partition = root / f"dir-{name.encode().hex()}" / PARTITION
        partition.mkdir(parents=True, exist_ok=True)
        write_meta(partition.parent, name)
        tail = build_batch(last.next_offset, last.epoch, 10**9, [topic(9_000), topic(9_001)]) if lost else b""
        (partition / file_name(0)).write_bytes(data[: last.end_position] + tail)


def make_logs(seed: int, clusters: Iterable[str], batches: int) -> dict[str, bytes]:
    return {name: random_log(Random(f"{seed} {name}"), batches) for name in clusters}
