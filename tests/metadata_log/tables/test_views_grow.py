"""Views that are added to tables: their past is made from the log alone, and the other rows stay as they are."""

from __future__ import annotations

import io
import json
from random import Random
from typing import Any

import pyarrow.parquet as pq
import pytest

from metadata_log.disk import replace_file
from metadata_log.history import VIEWS
from metadata_log.memory_disk import MemoryDisk
from metadata_log.tables.cluster import ClusterOutcome, Job, Status, materialize_cluster
from metadata_log.tables.commit import FOLDER, HEAD
from metadata_log.tables.files import table_schema
from nightly_logs import DIRECTORY, LOGS, Night, nights
from table_rows import ROOT, content, files, rows_of_log, table_rows

CLUSTER = "c"


def run(night: Night, disk: MemoryDisk, views: list[str], **settings: Any) -> ClusterOutcome:
    job = Job(root=ROOT, run="run", version="1", views=tuple(views), **settings)
    return materialize_cluster(night.disk(), DIRECTORY, CLUSTER, disk, job)


def check_growth(seed: int, cluster: str, days: int) -> None:
    """Each night some further views are added, and some nights find fewer columns; at the end the tables are
    those of all these views from the start.
    """
    print(f"seed {seed}")
    rng = Random(seed)
    found, whole = nights(rng, cluster, days)
    while any(night.was_compacted for night in found):
        found, whole = nights(rng, cluster, days)
    waiting = rng.sample(list(VIEWS), len(VIEWS))
    views: list[str] = []
    disk = MemoryDisk()
    for night in found:
        some = rng.randint(0 if views else 1, max(1, 2 * len(VIEWS) // days))
        views += waiting[:some]
        del waiting[:some]
        named = rng.sample(views, rng.randint(0, len(views))) or views[:1]
        if rng.random() < 0.3:
            forget_a_column(disk)
        run(night, disk, [*named, *views[-some:]] if some else named)
    wanted = {
        row: count for row, count in rows_of_log(whole.disk(), DIRECTORY, CLUSTER).items() if row.split()[0] in views
    }
    assert table_rows(disk) == wanted
    for path in files(disk):
        assert pq.read_schema(io.BytesIO(content(disk, path))).equals(table_schema(path.split("/")[2]))


def forget_a_column(disk: MemoryDisk) -> None:
    """Make the tables those of an earlier version, which lacked a column."""
    for path in list(files(disk)):
        made = io.BytesIO()
        pq.write_table(pq.read_table(io.BytesIO(content(disk, path))).drop_columns(["lineage_unread_offset"]), made)
        folder, _, name = path.rpartition("/")
        replace_file(disk, folder, name, made.getvalue())
    folder = f"{ROOT}/{FOLDER}/{CLUSTER}"
    if disk.exists(f"{folder}/{HEAD}"):
        head = {**json.loads(content(disk, f"{folder}/{HEAD}")), "columns": "of an earlier version"}
        replace_file(disk, folder, HEAD, json.dumps(head).encode())


@pytest.mark.parametrize("days", [2, 4])
def test_views_that_are_added_have_the_rows_that_they_would_have_from_the_start(days: int) -> None:
    check_growth(Random().randrange(2**32), "old39", days)


@pytest.mark.soak
def test_views_are_added_in_a_thousand_ways() -> None:
    first = Random().randrange(2**32)
    for seed in range(first, first + 1_000):
        check_growth(seed, Random(seed).choice(sorted(LOGS)), Random(seed).randint(2, 5))


def test_a_rebuilding_accepts_any_views_and_removes_the_others() -> None:
    _, whole = nights(Random(7), "old39", 2, with_snapshots=False)
    disk = MemoryDisk()
    run(whole, disk, ["broker_history", "topic_history"])
    again = run(whole, disk, ["config_history", "topic_history"], rebuild=True)
    assert (again.status, again.from_offset) == (Status.NEW, 0)
    assert {row.split()[0] for row in table_rows(disk)} == {"config_history", "topic_history"}
    later = run(whole, disk, ["topic_history"])
    assert (later.status, later.added) == (Status.NOTHING, [])
