"""Tables that an earlier version has made: the archive `former_tables` is of commit 8afef371, after two nights.

`former_pass` is a saved pass of commit 03fff3e6 in the middle of a log, when 169 replicas were out of their ISRs.
"""

from __future__ import annotations

import lzma
from collections import Counter
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from metadata_log.arrow.schema import schema_of
from metadata_log.disk import OsDisk
from metadata_log.history.engine import HistoryPass, Options, steps
from metadata_log.history.partition_rows import CELL_VIEWS
from metadata_log.history.saved_pass import restore_pass, saved_views
from metadata_log.reading.damage import Damage
from metadata_log.reading.timeline import continue_timeline, place_of, read_timeline
from metadata_log.spark.materialize import RUN_SCHEMA, find_fleet, make_job, run_here
from metadata_log.tables.cluster import Status
from metadata_log.tables.files import LINEAGE, table_schema
from metadata_log.types import PARTITION_DIRECTORY
from support import DATA
from support.real_data import unpack

LOGS = ("dynamic3", "old39")
VIEWS = ("broker_history", "config_history", "leader_history", "retention")
ADDED = "topic_history"
FORMER_PASS_AT = 1_344
GONE = "Kmuwa6JIetc3_cp5zvaDLg"
NEW_COLUMN = "lineage_unread_offset"
PARTS = ds.partitioning(pa.schema([("cluster", pa.string()), ("date", pa.date32())]), flavor="hive")


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("logs")
    for name in LOGS:
        unpack("clusters", f"{name}/nodes/b101", folder / name)
    return folder


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    return unpack("former_tables", "tables", tmp_path / "tables")


def materialize(logs: Path, out: Path, run: str, *, only: str = "*", views: tuple[str, ...] = ()) -> list[Status]:
    run_here(find_fleet([f"{logs}/{only}"], {}), job := make_job(str(out), run=run, views=views))
    assert set(job.views) >= {*VIEWS, *views}
    rows = ds.dataset(out / "runs", partitioning="hive").to_table(filter=ds.field("run") == run).to_pylist()
    return [Status(row["status"]) for row in rows]


def rows_of(tables: Path, view: str) -> Counter[str]:
    """The rows of a table without lineage and paths, as any reader sees them."""
    names = [name for name in schema_of(view).names if name != "path"]
    found = ds.dataset(tables / view, partitioning=PARTS).to_table(columns=names)
    return Counter(map(str, found.to_pylist()))


def check_columns(tables: Path, view: str) -> None:
    """Every file has the columns of this version, so readers that look at one file know them all."""
    for file in (tables / view).rglob("*.parquet"):
        assert pa.parquet.read_schema(file).equals(table_schema(view)), file
    assert NEW_COLUMN in ds.dataset(tables / view, partitioning=PARTS).schema.names
    found = duckdb.sql(f"select count(*), count({NEW_COLUMN}) from read_parquet('{tables}/{view}/**/*.parquet')")
    assert found.fetchone() == (sum(rows_of(tables, view).values()), 0)


def test_tables_of_an_earlier_version_go_on_with_a_further_view_and_a_further_column(
    logs: Path, tables: Path, tmp_path: Path
) -> None:
    before = {view: rows_of(tables, view) for view in VIEWS}
    assert LINEAGE[-1].name == NEW_COLUMN
    assert materialize(logs, tables, "night-3", views=(ADDED,)) == [Status.NEW] * 2
    materialize(logs, tmp_path / "full", "night-1", views=(*VIEWS, ADDED))
    for view in (*VIEWS, ADDED):
        assert rows_of(tables, view) == rows_of(tmp_path / "full", view)
        check_columns(tables, view)
    lost = [row for view in VIEWS[:-1] for row in before[view] - rows_of(tables, view)]
    assert [row for row in lost if "'valid_to': None" not in row] == []
    runs = ds.dataset(tables / "runs", partitioning="hive")
    assert set(RUN_SCHEMA.names) <= set(runs.schema.names)
    assert runs.count_rows() == 6
    assert materialize(logs, tables, "night-4") == [Status.NOTHING] * 2


def test_tables_of_a_cluster_without_a_log_get_the_columns_too(logs: Path, tables: Path) -> None:
    before = {view: rows_of(tables, view) for view in VIEWS}
    materialize(logs, tables, "night-3", only="old39")
    for view in VIEWS:
        check_columns(tables, view)
        found = (before[view], rows_of(tables, view))
        was, now = ({row: count for row, count in rows.items() if GONE in row} for rows in found)
        assert was == now != {}


def test_the_open_rows_of_a_former_pass_end_as_those_of_one_that_goes_on(tmp_path: Path) -> None:
    log = str(unpack("clusters", "failover/nodes/b101", tmp_path / "log") / PARTITION_DIRECTORY)
    data = lzma.decompress((DATA / "former_pass.xz").read_bytes())
    story = HistoryPass("c", saved_views(data), Options())
    for item in read_timeline(OsDisk(), log):
        story.tell(item, None)
        place = place_of(item) if not isinstance(item, Damage) else None
        if place is not None and place.offset == FORMER_PASS_AT:
            break
    story.sink.take()
    former = restore_pass(data, cluster="c", views=CELL_VIEWS, options=Options())
    assert place is not None
    found = [
        Counter(
            map(repr, (row for _ in steps(one, continue_timeline(OsDisk(), log, place)) for row in one.sink.take()))
        )
        for one in (story, former)
    ]
    assert found[0] == found[1]
    assert {view for view in CELL_VIEWS if any(f"'{view}'" in row for row in found[0])} == set(CELL_VIEWS)
