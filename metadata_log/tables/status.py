"""Warnings about tables that a nightly job keeps: old clusters, failed gates, open rows that only grow.

All of it is in the table of runs, so the check needs no log and no checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Final

from msgspec import Struct

from metadata_log.disk import Disk
from metadata_log.tables.commit import known_clusters
from metadata_log.tables.files import parquet_of, run_files

PROBLEMS: Final = ("stale", "gate", "growing")
"""The faults that a cluster may have."""
_GOOD: Final = frozenset({"new", "nothing new"})
_COLUMNS: Final = ("run", "ended", "gate", "cluster", "status", "open_rows", "damage", "text", "change", "unread")


class ClusterStatus(Struct, frozen=True, kw_only=True):
    """The state of the tables of one cluster.

    Args:
        cluster: The cluster.
        status: What the last run did with it.
        run: The last run.
        age_s: The seconds since the last run that brought the tables to the end of the log; None if there was none.
        open_rows: The open rows after each of the last runs that changed them, oldest first.
        problems: What is wrong, of `PROBLEMS`.
        text: What is wrong, as sentences.
    """

    cluster: str
    status: str
    run: str
    age_s: float | None
    open_rows: list[int]
    problems: list[str]
    text: str


def fleet_status(disk: Disk, root: str, now: datetime, *, max_age: timedelta, growing: int = 7) -> list[ClusterStatus]:
    """The state of each cluster that is not closed.

    Args:
        disk: The disk of the tables.
        root: The directory of the tables.
        now: The present time.
        max_age: The age from which on the tables of a cluster are stale.
        growing: After how many runs in a row with more open rows each that is told.

    Returns:
        The clusters by their ids.
    """
    closed = {one.cluster for one in known_clusters(disk, root) if one.closed is not None}
    runs: dict[str, list[dict[str, Any]]] = {}
    for row in sorted(_runs(disk, root), key=lambda row: row["ended"]):
        if row["cluster"] and row["cluster"] not in closed:
            runs.setdefault(row["cluster"], []).append(row)
    return [_status(cluster, of_cluster, now, max_age, growing) for cluster, of_cluster in sorted(runs.items())]


def _runs(disk: Disk, root: str) -> Iterable[dict[str, Any]]:
    for path in run_files(disk, root):
        file = parquet_of(disk, f"{root}/{path}")
        known = [column for column in _COLUMNS if column in file.schema_arrow.names]
        yield from file.read(columns=known, use_threads=False).to_pylist()


def _status(
    cluster: str, found: Sequence[dict[str, Any]], now: datetime, max_age: timedelta, growing: int
) -> ClusterStatus:
    last = found[-1]
    good = [row["ended"] for row in found if _is_good(row)]
    age = None if not good else now - good[-1]
    open_rows: list[int] = []
    for row in found:
        if row["open_rows"] is not None and row["open_rows"] != (open_rows[-1] if open_rows else None):
            open_rows.append(row["open_rows"])
    recent = open_rows[-growing - 1 :]
    told = {}
    if age is None or age > max_age:
        told["stale"] = "never up to date" if age is None else f"up to date {_hours(age)} ago"
    if (why := _stopped_by(last)) is not None:
        told["gate"] = why
    if len(recent) > growing and all(more > less for less, more in pairwise(recent)):
        told["growing"] = f"{growing} times in a row more open rows: {recent[0]} to {recent[-1]}"
    return ClusterStatus(
        cluster=cluster,
        status=last["status"],
        run=last["run"],
        age_s=None if age is None else age.total_seconds(),
        open_rows=recent,
        problems=list(told),
        text="; ".join(told.values()),
    )


def _is_good(row: dict[str, Any]) -> bool:
    return row["status"] in _GOOD and (row["damage"] is None or row["gate"] != "fail")


def _stopped_by(row: dict[str, Any]) -> str | None:
    """Why the gate of the last run stopped the cluster, or the run failed; None if neither is so."""
    if row["status"] == "failed":
        return str(row["text"])
    if row["gate"] != "fail":
        return None
    if row.get("change") is not None:
        return str(row["change"])
    if row["damage"] is not None:
        return str(row["damage"])
    return "records of a newer Kafka" if row.get("unread") else None


def _hours(age: timedelta) -> str:
    return f"{age.total_seconds() / 3600:.1f} h"
