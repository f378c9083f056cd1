"""The names of clusters: a file of an operator that says what each cluster id is called.

A cluster id has 22 characters and says nothing. The file gives each id a name, an environment and labels. Names are
unique, and no name is the id of another cluster, so a name can stand wherever an id stands.
"""

from __future__ import annotations

import csv
import json
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import Struct

from metadata_log.errors import MetadataLogError

FORMATS: Final = ("toml", "csv", "json", "parquet")
_FIXED: Final = ("cluster", "name", "environment", "labels")
_EXAMPLE: Final = (
    'Such as, in TOML: [clusters.A3gcw2Qkrwsj8xyJO7bBIw] name = "orders-eu", environment = "production", '
    'labels = { team = "orders" }.'
)


class ClusterNamesError(MetadataLogError):
    """The file of cluster names cannot be used."""


class ClusterName(Struct, frozen=True):
    """The names of one cluster.

    Attributes:
        cluster: The cluster id.
        name: The name; unique.
        environment: The environment, such as `production`; None if the file has none.
        labels: Further facts by name.
    """

    cluster: str
    name: str
    environment: str | None = None
    labels: dict[str, str] = {}


class ClusterNames(Struct, frozen=True):
    """The names of all clusters of a file, by cluster id."""

    by_id: dict[str, ClusterName] = {}

    def name(self, cluster: str) -> str:
        """The name of a cluster; its id if the file does not list the cluster."""
        known = self.by_id.get(cluster)
        return cluster if known is None else known.name

    def environment(self, cluster: str) -> str | None:
        """The environment of a cluster, if the file has one."""
        known = self.by_id.get(cluster)
        return None if known is None else known.environment

    def id_of(self, name: str) -> str:
        """The id of the cluster with this name; any other text is an id already."""
        return next((one.cluster for one in self.by_id.values() if one.name == name), name)


def format_of(path: str) -> str:
    """The format by the suffix of a path; raises `ClusterNamesError` for another suffix."""
    suffix = path.rstrip("/").rpartition(".")[2].lower()
    if suffix not in FORMATS:
        raise ClusterNamesError(
            f"cluster names are read from files of {', '.join('.' + one for one in FORMATS)}",
            where=path,
            hint=_EXAMPLE,
        )
    return suffix


def parse_cluster_names(data: bytes, *, form: str, where: str) -> ClusterNames:
    """Read a file of cluster names.

    Args:
        data: The content.
        form: `toml`, `csv` or `json`.
        where: The path, for errors.

    Returns:
        The names.

    Raises:
        ClusterNamesError: The content is not of this form, a cluster is listed twice, or two clusters have one name.
    """
    try:
        text = data.decode("utf-8-sig")
        match form:
            case "toml":
                rows = _of_toml(tomllib.loads(text), where)
            case "csv":
                rows = list(csv.DictReader(text.splitlines(), strict=True))
            case _:
                rows = _of_json(text, where)
    except (ValueError, csv.Error) as bad:
        raise ClusterNamesError(f"this is no {form.upper()}: {bad}", where=where, hint=_EXAMPLE) from bad
    return cluster_names_of(rows, where=where)


def cluster_names_of(rows: Iterable[Mapping[str, Any]], *, where: str) -> ClusterNames:
    """The names in rows with the columns `cluster`, `name` and `environment`; further columns are labels.

    Args:
        rows: The rows. A column `labels` may hold a map.
        where: The place of the rows, for errors.

    Returns:
        The names.

    Raises:
        ClusterNamesError: A row has no cluster or no name, a cluster is listed twice, or two clusters have one name.
    """
    by_id: dict[str, ClusterName] = {}
    by_name: dict[str, str] = {}
    for number, row in enumerate(rows, 1):
        entry = _row(row, f"{where}, entry {number}")
        if entry.cluster in by_id:
            raise ClusterNamesError(f"the cluster {entry.cluster} is listed twice", where=f"{where}, entry {number}")
        if entry.name in by_name:
            raise ClusterNamesError(
                f"two clusters have the name {entry.name!r}: {by_name[entry.name]} and {entry.cluster}", where=where
            )
        by_id[entry.cluster] = entry
        by_name[entry.name] = entry.cluster
    for name, cluster in by_name.items():
        if name in by_id and name != cluster:
            raise ClusterNamesError(f"the name of cluster {cluster} is the id of another cluster, {name}", where=where)
    return ClusterNames(by_id)


def _row(row: Mapping[str, Any], where: str) -> ClusterName:
    values = {str(key).strip(): value for key, value in row.items() if key is not None}
    cluster, name = _text(values.get("cluster")), _text(values.get("name"))
    if cluster is None or name is None:
        missing = "cluster" if cluster is None else "name"
        raise ClusterNamesError(f"the entry has no {missing}", where=where, hint=_EXAMPLE)
    given = values.get("labels") or {}
    if not isinstance(given, Mapping):
        try:
            given = dict(given)
        except (TypeError, ValueError):
            raise ClusterNamesError(f"labels are a map of texts, not {given!r}", where=where) from None
    labels = {**{key: value for key, value in values.items() if key not in _FIXED}, **given}
    texts = {str(key): text for key, value in labels.items() if (text := _text(value)) is not None}
    return ClusterName(cluster, name, _text(values.get("environment")), texts)


def _text(value: object) -> str | None:
    """A value as text; None for nothing and for blanks."""
    return None if value is None else str(value).strip() or None


def _of_toml(found: dict[str, Any], where: str) -> list[dict[str, Any]]:
    clusters = found.get("clusters")
    if not isinstance(clusters, dict) or not all(isinstance(one, dict) for one in clusters.values()):
        raise ClusterNamesError("the file has no tables [clusters.ID]", where=where, hint=_EXAMPLE)
    return [{**facts, "cluster": cluster} for cluster, facts in clusters.items()]


def _of_json(text: str, where: str) -> list[dict[str, Any]]:
    """A list of objects, or one object a line."""
    lines = [line for line in text.splitlines() if line.strip()]
    rows = json.loads(text) if text.lstrip().startswith("[") else [json.loads(line) for line in lines]
    if not all(isinstance(row, dict) for row in rows):
        raise ClusterNamesError("a list of objects, or one object a line, is expected", where=where)
    return list(rows)
