"""The tables of `kraft fleet materialize` in each of its formats, for the notebook and the models."""

from __future__ import annotations

import os

import pyarrow as pa
import pyarrow.dataset as ds

_PARTS = ds.partitioning(pa.schema([("cluster", pa.string()), ("date", pa.date32())]), flavor="hive")


def read_table(lake: str, name: str, form: str = "parquet") -> pa.Table:
    """All rows of a table.

    Args:
        lake: The directory of the tables; for Delta Lake also a URL.
        name: The table, such as `incidents`.
        form: `parquet`, `delta`, or `iceberg` with the catalog that `kraft` makes in the directory.

    Raises:
        FileNotFoundError: There is no such table of Parquet; that of clusters needs a run with `--clusters`.
    """
    if form == "delta":
        from deltalake import DeltaTable

        return DeltaTable(f"{lake}/{name}").to_pyarrow_table()
    if form == "iceberg":
        from pyiceberg.catalog import load_catalog

        from metadata_log.spark.lakes.rows import local_catalog

        with load_catalog("kraft", **local_catalog(os.path.abspath(lake))) as catalog:
            return catalog.load_table(f"fleet.{name}").scan().to_arrow()
    if name == "clusters":
        return ds.dataset(f"{lake}/{name}").to_table()
    if not os.path.isdir(f"{lake}/{name}"):
        from metadata_log.disk import OsDisk
        from metadata_log.tables.commit import known_clusters
        from metadata_log.tables.files import table_schema

        # A view that has no row yet has no file.
        if any(name in one.views for one in known_clusters(OsDisk(), lake)):
            return pa.schema([*table_schema(name), *_PARTS.schema]).empty_table()
    return ds.dataset(f"{lake}/{name}", partitioning=_PARTS).to_table()
