"""The names of clusters in Spark: their file, columns with the names beside `cluster`, and the view `clusters`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from metadata_log.cluster_names import (
    ClusterName,
    ClusterNames,
    ClusterNamesError,
    cluster_names_of,
    format_of,
    parse_cluster_names,
)
from metadata_log.disk import OsDisk
from metadata_log.spark.directories import Directory
from metadata_log.spark.storage import is_remote, local_path, remote_disk

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LABELS: Final = pa.map_(pa.string(), pa.string())
NAME_FIELDS: Final = {
    "cluster_name": pa.field("cluster_name", pa.string()),
    "environment": pa.field("environment", pa.string()),
    "cluster_labels": pa.field("cluster_labels", _LABELS),
}
"""The columns that the option `clusters` adds to every view."""


def _labels(names: ClusterNames, cluster: str) -> list[tuple[str, str]]:
    return sorted(names.by_id.get(cluster, ClusterName(cluster, cluster)).labels.items())


_VALUES: Final[dict[str, Callable[[ClusterNames, str], Any]]] = {
    "cluster_name": ClusterNames.name,
    "environment": ClusterNames.environment,
    "cluster_labels": _labels,
}


def load_cluster_names(path: str | None, storage: dict[str, Any] | None = None) -> ClusterNames | None:
    """The names in a file of TOML, CSV, JSON or Parquet, or in a directory of Parquet files; None without a path.

    Args:
        path: The path, local or of fsspec. Parquet is read from local and mounted paths.
        storage: The storage options of fsspec.

    Returns:
        The names.

    Raises:
        ClusterNamesError: The file is missing, of another format, or lists a cluster or a name twice.
    """
    if path is None:
        return None
    form = format_of(path)
    if form == "parquet" and is_remote(path):
        raise ClusterNamesError("cluster names in Parquet are read from local and mounted paths", where=path)
    try:
        if form == "parquet":
            import pyarrow.dataset as ds

            rows = ds.dataset(local_path(path), format="parquet").to_table().to_pylist(maps_as_pydicts="strict")
            return cluster_names_of(rows, where=path)
        content = remote_disk(path, storage).read(path) if is_remote(path) else OsDisk().read(local_path(path))
        return parse_cluster_names(content, form=form, where=path)
    except OSError as bad:
        what = f"the cluster names cannot be read: {bad.strerror or bad}"
        raise ClusterNamesError(what, where=path) from bad


def name_array(field: str, names: ClusterNames, clusters: pa.Array) -> pa.Array:
    """One of `NAME_FIELDS` for a column of cluster ids. A batch has few clusters, so each is looked up once."""
    ids = clusters.dictionary_encode()
    told = [None if id is None else _VALUES[field](names, id) for id in ids.dictionary.to_pylist()]
    return pa.array(told, NAME_FIELDS[field].type).take(ids.indices)


def with_names(frame: DataFrame, names: ClusterNames) -> DataFrame:
    """The rows with the columns `cluster_name` and `environment` after `cluster`.

    Args:
        frame: Rows with a column `cluster`: of a view, of a job, or of a materialised table.
        names: The names, as `load_cluster_names` returns them.

    Returns:
        The same rows. A cluster without a name keeps its id as its name.
    """
    from pyspark.sql import functions as sql

    facts = [(one.cluster, one.name, one.environment) for one in names.by_id.values()]
    schema = "cluster string, cluster_name string, environment string"
    known = sql.broadcast(frame.sparkSession.createDataFrame(facts, schema))
    others = [name for name in frame.columns if name not in ("cluster", "cluster_name", "environment")]
    # A join keeps no order, and the rows of a job are ordered.
    place = "kraft row"
    ordered = frame.select(*(name for name in frame.columns if name in {"cluster", *others}))
    joined = ordered.withColumn(place, sql.monotonically_increasing_id()).join(known, "cluster", "left")
    name = sql.coalesce("cluster_name", "cluster").alias("cluster_name")
    return joined.orderBy(place).select("cluster", name, "environment", *others)


def cluster_rows(directories: Iterable[Directory], names: ClusterNames | None) -> list[dict[str, Any]]:
    """The rows of the view `clusters`: each cluster with a directory or a name.

    Args:
        directories: The directories that were found.
        names: The names, if there are any.

    Returns:
        The rows, in the order of the cluster ids.
    """
    known = names or ClusterNames()
    paths: dict[str, list[str]] = {one: [] for one in known.by_id}
    for directory in directories:
        if directory.cluster:
            paths.setdefault(directory.cluster, []).append(directory.path)
    return [
        {
            "cluster": cluster,
            "name": known.name(cluster),
            "environment": known.environment(cluster),
            "labels": _labels(known, cluster),
            "is_listed": cluster in known.by_id,
            "directories": sorted(paths[cluster]),
        }
        for cluster in sorted(paths)
    ]


def ids_of(clusters: Sequence[str], names: ClusterNames | None) -> tuple[str, ...]:
    """Cluster ids, where each may be given by its name."""
    return tuple(clusters) if names is None else tuple(names.id_of(one) for one in clusters)
