"""Tables of Delta Lake and Iceberg by their own libraries, and of Parquet in stores, beside Parquet on disk."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from metadata_log.cluster_names import ClusterName, ClusterNames
from metadata_log.disk import OsDisk
from metadata_log.records.batch import scan
from metadata_log.records.batch_builder import build_batch
from metadata_log.records.frame import encode_record
from metadata_log.records.metadata import NoOpRecord
from metadata_log.spark.cluster_table import write_clusters
from metadata_log.spark.errors import SourceError
from metadata_log.spark.lakes import lake as lakes
from metadata_log.spark.lakes import publish
from metadata_log.spark.lakes.publish import compact_tables, materialize_into
from metadata_log.spark.lakes.rows import Commit, Delta, Iceberg, Lake, Parquet
from metadata_log.spark.materialize import DEFAULT_VIEWS, find_fleet, make_job, run_here
from metadata_log.spark.storage import file_system
from metadata_log.tables.cluster import Status
from metadata_log.tables.commit import TablesError
from metadata_log.tables.files import RUNS, table_schema
from object_stores import Store, azure, google, s3
from rest_catalog import rest_catalog
from support import ROOT, TESTS
from support.spark.fleets import topic
from support.spark.lake_rows import (
    frame_of_lake,
    make_lake,
    make_logs,
    rows_of_lake,
    rows_of_parquet,
    versions,
    write_night,
)

VIEWS = ("leader_history", "config_history")
KILLED = TESTS / "support" / "spark" / "lake_killed.py"
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, TESTS)))}
CLUSTERS = ("a'b %c", "c")


@pytest.fixture(params=["delta", "iceberg", "parquet"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def of_amazon() -> Iterator[Store]:
    with s3() as store:
        yield store


@pytest.fixture(scope="module")
def of_azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with azure(tmp_path_factory.mktemp("azure")) as store:
        yield store


@pytest.fixture(scope="module")
def of_google(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with google(tmp_path_factory.mktemp("google")) as store:
        yield store


class Killed(Exception):
    """The process ends here."""


def dies_at(monkeypatch: pytest.MonkeyPatch, most: int, *, is_made: bool) -> None:
    """Stop in front of the commit of a table, or right after it."""
    real = lakes.commit
    made = 0

    def counted(lake: Lake, name: str, change: Commit) -> None:
        nonlocal made
        made += 1
        if made == most and not is_made:
            raise Killed
        real(lake, name, change)
        if made == most:
            raise Killed

    monkeypatch.setattr(lakes, "commit", counted)


def materialize(
    lake: Lake, night: Path, out: Path, run: str, views: tuple[str, ...] = VIEWS, *, rebuild: bool = False
) -> list[Status]:
    job = make_job(str(out), run=run, views=views, rebuild=rebuild, is_staged=True)
    return [one.status for one in materialize_into(lake, find_fleet([f"{night}/*"], {}), job).outcomes]


def follow(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, batches: int, views: tuple[str, ...] = VIEWS
) -> None:
    """Three nights with lost records in the first one, runs that die around a commit, and a look back at the end.

    Parquet has no past to look at, and is not compacted.
    """
    logs = make_logs(seed, CLUSTERS, batches)
    out, plain, seen, commits = tmp_path / "staged", tmp_path / "plain", [], []
    for number, (part, lost) in enumerate(((0.4, True), (0.7, False), (1.0, False))):
        night = tmp_path / f"night{number}"
        write_night(night, logs, part, lost=lost)
        run_here(find_fleet([f"{night}/*"], {}), make_job(str(plain), run=f"n{number}", views=views))
        for is_made in (False, True) if number else ():
            with monkeypatch.context() as patched:
                dies_at(patched, 3 - number, is_made=is_made)
                with pytest.raises(Killed):
                    materialize(lake, night, out, f"broken{number}", views)
        materialize(lake, night, out, f"n{number}", views)
        now = {view: rows_of_lake(lake, view) for view in views}
        for view in views:
            assert now[view] == rows_of_parquet(plain, view), (number, view)
        seen.append((_newest(lake, RUNS), now))
        commits.append({view: _newest(lake, view) for view in views})
    before = {view: versions(lake, view) for view in views}
    for view in () if isinstance(lake, Parquet) else views:
        made = [number for _, number in before[view]]
        assert made == sorted({numbers[view] for numbers in commits}), "a night is one commit, or none without news"
        for (_, last), (_, now), told, then in zip(seen, seen[1:], commits, commits[1:], strict=False):
            assert now[view] == last[view] or told[view] < then[view]
    assert set(materialize(lake, night, out, "again", views)) == {Status.NOTHING}
    assert {view: versions(lake, view) for view in views} == before
    job = make_job(str(out), run="compact", views=views, is_staged=True)
    if isinstance(lake, Parquet):
        with pytest.raises(SourceError, match="--format delta"):
            compact_tables(lake, job)
    else:
        compact_tables(lake, job)
        for publication, found in seen:
            for view in views:
                assert rows_of_lake(lake, view, publication) == found[view], (publication, view)
    for view in views:
        assert rows_of_lake(lake, view) == seen[-1][1][view]
    assert sum(seen[-1][1][views[0]].values()) > 10
    runs = frame_of_lake(lake, "runs")["run"].to_list()
    assert sorted(runs) == sorted([*2 * ["n0"], *2 * ["n1"], *2 * ["n2"], *2 * ["again"], *_broken(runs)])
    assert not list((out / "_staging").rglob("*.parquet"))


def _newest(lake: Lake, view: str) -> int:
    *_, (_, number) = versions(lake, view)
    assert number is not None
    return number


def _broken(runs: list[str]) -> list[str]:
    """The rows of the two runs that read logs and died; those that died while they finished these read none."""
    found = [run for run in runs if run.startswith("broken")]
    assert len(found) == 2 * 2
    return found


def test_tables_of_a_lake_are_those_of_parquet_and_their_past_stays(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = Random().randrange(2**32)
    print(f"seed {seed}")
    follow(make_lake(kind, tmp_path / "lake"), tmp_path, monkeypatch, seed, 30)


@pytest.mark.soak
def test_all_views_of_a_lake_are_those_of_parquet(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(5):
        follow(make_lake(kind, tmp_path / f"lake{seed}"), tmp_path / str(seed), monkeypatch, seed, 300, DEFAULT_VIEWS)


@pytest.mark.soak
@pytest.mark.parametrize("place", ["of_amazon", "of_azure", "of_google"])
def test_tables_in_an_object_store(
    kind: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    seed = Random().randrange(2**32)
    print(f"seed {seed}")
    store: Store = request.getfixturevalue(place)
    if kind not in store.options:
        pytest.skip(f"the server refuses the requests of {kind}")
    lake = make_lake(kind, tmp_path / "lake", f"{store.bucket}/{kind}", store.options[kind])
    follow(lake, tmp_path, monkeypatch, seed, 30)


@pytest.mark.soak
def test_tables_in_a_catalog_of_glue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of_amazon: Store) -> None:
    seed = Random().randrange(2**32)
    print(f"seed {seed}")
    properties = {
        "type": "glue",
        "warehouse": f"{of_amazon.bucket}/glue",
        "glue.endpoint": of_amazon.endpoint,
        "glue.region": "us-east-1",
    }
    properties |= {"glue.access-key-id": "test", "glue.secret-access-key": "nothing"}
    lake = Iceberg("fleet", "glue", {**properties, **of_amazon.options["iceberg"]})
    follow(lake, tmp_path, monkeypatch, seed, 30)


@pytest.mark.soak
def test_tables_in_a_rest_catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of_amazon: Store) -> None:
    """The server has the tables' metadata in memory, and their files are on S3."""
    seed = Random().randrange(2**32)
    print(f"seed {seed}")
    with rest_catalog(f"{of_amazon.bucket}/rest") as url:
        lake = Iceberg("fleet", "rest", {"type": "rest", "uri": url, **of_amazon.options["iceberg"]})
        follow(lake, tmp_path, monkeypatch, seed, 30)


@pytest.mark.soak
@pytest.mark.parametrize("place", ["disk", "store"])
def test_a_process_is_killed_before_and_after_each_commit(
    kind: str, place: str, tmp_path: Path, of_amazon: Store
) -> None:
    """Each run dies by SIGKILL around a commit, and the next one around the following; no commit is made twice."""
    if (kind, place) == ("parquet", "disk"):
        pytest.skip("Parquet on disk has no publications: tests/metadata_log/tables stop it at each write")
    seed = Random().randrange(2**32)
    print(f"seed {seed}")
    location = None if place == "disk" else f"{of_amazon.bucket}/killed-{kind}"
    options = None if place == "disk" else of_amazon.options[kind]
    logs, lake, out = (
        make_logs(seed, CLUSTERS, 40),
        make_lake(kind, tmp_path / "lake", location, options),
        tmp_path / "out",
    )
    tables = (*VIEWS, "runs")
    nights = [tmp_path / f"night{number}" for number in range(2)]
    for number, night in enumerate(nights):
        write_night(night, logs, 0.5 + 0.5 * number, lost=not number)
        run_here(find_fleet([f"{night}/*"], {}), make_job(str(tmp_path / "plain"), run=f"n{number}", views=VIEWS))
        for at in range(1, len(tables) + 1):
            for is_made in (False, True):
                settings: dict[str, object] = {
                    "lake": [kind, str(tmp_path / "lake"), location, options],
                    "out": str(out),
                    "night": str(night),
                }
                settings |= {"run": f"n{number}-{at}-{is_made}", "views": VIEWS, "at": at, "is_made": is_made}
                done = subprocess.run([sys.executable, KILLED, json.dumps(settings)], env=ENVIRONMENT, check=False)
                assert done.returncode == -signal.SIGKILL
        materialize(lake, night, out, f"n{number}")
        for view in VIEWS:
            assert rows_of_lake(lake, view) == rows_of_parquet(tmp_path / "plain", view), (number, view)
            made = [made for _, made in versions(lake, view)]
            assert len(made) == len(set(made)) == (1 if kind == "parquet" else number + 1)


def test_open_rows_without_news_stay_as_they_are(kind: str, tmp_path: Path) -> None:
    """A night brings one cluster a batch of NoOp records, and the other one nothing; then both get a topic."""
    lake, plain, out, night = make_lake(kind, tmp_path / "lake"), tmp_path / "plain", tmp_path / "out", tmp_path / "log"
    views = ("leader_history", "topic_history", "retention")
    logs, seen = make_logs(7, CLUSTERS, 30), []
    idle, created = encode_record(NoOpRecord(), 0), topic(9_000)
    for number, news in enumerate(({}, {"c": idle}, dict.fromkeys(CLUSTERS, created))):
        for name, record in news.items():
            last = list(scan(logs[name]))[-1]
            logs[name] += build_batch(last.next_offset, last.epoch, 10**13 + number, [record])
        write_night(night, logs, 1.0)
        materialize(lake, night, out, f"n{number}", views)
        run_here(find_fleet([f"{night}/*"], {}), make_job(str(plain), run=f"n{number}", views=views))
        for view in views:
            assert rows_of_lake(lake, view) == rows_of_parquet(plain, view), (number, view)
        seen.append({view: _publications(lake, view) for view in views})
    assert [versions(lake, view)[-1][1] for view in views] == [1, 3, 3]
    assert seen[0]["retention"] == {name: {1} for name in CLUSTERS}
    assert seen[1] == {**seen[0], "retention": {CLUSTERS[0]: {1}, "c": {2}}}
    assert seen[2]["leader_history"] == seen[0]["leader_history"]
    assert seen[2]["topic_history"] == {name: {3} for name in CLUSTERS}


def _publications(lake: Lake, view: str) -> dict[str, set[int]]:
    """The publications of the open rows of each cluster."""
    found: dict[str, set[int]] = {}
    for row in frame_of_lake(lake, view).iter_rows(named=True):
        if row["is_open"]:
            found.setdefault(row["cluster"], set()).add(row["lineage_publication"])
    return found


def test_a_view_is_added_to_a_lake_with_its_past(kind: str, tmp_path: Path) -> None:
    """The second night names a further view: it begins with the first record, and the other one has its new rows."""
    lake, plain = make_lake(kind, tmp_path / "lake"), tmp_path / "plain"
    logs = make_logs(2, CLUSTERS, 30)
    for number, (part, views) in enumerate(((0.5, VIEWS[:1]), (1.0, VIEWS[1:]), (1.0, VIEWS[:1]))):
        night = tmp_path / f"night{number}"
        write_night(night, logs, part)
        materialize(lake, night, tmp_path / "out", f"n{number}", views)
    run_here(find_fleet([f"{night}/*"], {}), make_job(str(plain), run="whole", views=VIEWS))
    for view in VIEWS:
        found = rows_of_lake(lake, view)
        assert found == rows_of_parquet(plain, view)
        assert found
    assert [number for _, number in versions(lake, VIEWS[0])][-1] == 2


def test_a_view_that_a_rebuilding_drops_loses_its_rows(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the run dies before it publishes, and the next one rebuilds nothing."""
    lake, plain = make_lake(kind, tmp_path / "lake"), tmp_path / "plain"
    night, out = tmp_path / "night", tmp_path / "out"
    write_night(night, make_logs(4, CLUSTERS, 20), 1.0)
    materialize(lake, night, out, "n0", VIEWS)
    with monkeypatch.context() as patched:
        dies_at(patched, 1, is_made=False)
        with pytest.raises(Killed):
            materialize(lake, night, out, "n1", VIEWS[:1], rebuild=True)
    materialize(lake, night, out, "n2", ())
    run_here(find_fleet([f"{night}/*"], {}), make_job(str(plain), run="whole", views=VIEWS[:1]))
    assert rows_of_lake(lake, VIEWS[0]) == rows_of_parquet(plain, VIEWS[0])
    assert not lake_has_rows(lake, VIEWS[1])
    materialize(lake, night, out, "n3", VIEWS[1:])
    assert lake_has_rows(lake, VIEWS[1])


def lake_has_rows(lake: Lake, view: str) -> bool:
    table = lakes.read(lake, view)
    return table is not None and table.num_rows > 0


def test_checkpoints_that_are_not_those_of_the_tables_are_refused(kind: str, tmp_path: Path) -> None:
    """Checkpoints that are lost, or older than the tables, and tables at another place: else rows would be missing."""
    night, out = tmp_path / "night", tmp_path / "out"
    write_night(night, make_logs(5, CLUSTERS, 10), 1.0)
    lake, other = make_lake(kind, tmp_path / "lake"), make_lake(kind, tmp_path / "other")
    materialize(lake, night, out, "n0")
    shutil.copytree(out, tmp_path / "backup")
    materialize(lake, night, out, "n1")
    for where, place, numbers in (
        (tmp_path / "new", lake, "is 0, and that of the tables is 2"),
        (tmp_path / "backup", lake, "is 1, and that of the tables is 2"),
        (out, other, "is 2, and that of the tables is 0"),
    ):
        with pytest.raises(TablesError, match=numbers):
            materialize(place, night, where, "n2")
    assert set(materialize(lake, night, out, "n3")) == {Status.NOTHING}


def test_a_run_into_a_store_dies_at_any_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run dies at one request later than the run before, until one ends; then the rows are those of Parquet."""
    lake, plain, out = make_lake("parquet", tmp_path / "lake"), tmp_path / "plain", tmp_path / "out"
    logs, deaths = make_logs(6, CLUSTERS[:1], 30), 0
    for number, part in enumerate((0.5, 1.0)):
        night = tmp_path / f"night{number}"
        write_night(night, logs, part, lost=not number)
        run_here(find_fleet([f"{night}/*"], {}), make_job(str(plain), run=f"n{number}", views=VIEWS[:1]))
        for most in count(1):
            with monkeypatch.context() as patched:
                dies_at_request(patched, most)
                with suppress(SourceError):
                    materialize(lake, night, out, f"n{number}-{most}", VIEWS[:1])
                    break
            deaths += 1
        assert rows_of_lake(lake, VIEWS[0]) == rows_of_parquet(plain, VIEWS[0])
    assert deaths > 6


def dies_at_request(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Stop in front of a request that writes or removes, and at all that follow."""
    made = 0

    def counted(real: Callable[..., None]) -> Callable[..., None]:
        def request(*given: Any) -> None:
            nonlocal made
            made += 1
            if made >= most:
                raise Killed
            real(*given)

        return request

    for name in ("pipe_file", "rm_file"):
        monkeypatch.setattr(MemoryFileSystem, name, counted(getattr(MemoryFileSystem, name)))


def test_a_column_that_a_later_night_brings_is_null_in_the_rows_before(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version of the first night lacks a column: the rows that it closed have null, and the others a value."""
    lake, logs, view = make_lake(kind, tmp_path / "lake"), make_logs(3, CLUSTERS, 30), VIEWS[0]
    column = "lineage_version"
    for number, part in enumerate((0.5, 1.0)):
        write_night(tmp_path / f"night{number}", logs, part)
    with monkeypatch.context() as patched:
        patched.setattr(publish, "table_schema", lambda name: [one for one in table_schema(name) if one.name != column])
        materialize(lake, tmp_path / "night0", tmp_path / "out", "n0", (view,))
    first = frame_of_lake(lake, view)
    assert column not in first.columns
    materialize(lake, tmp_path / "night1", tmp_path / "out", "n1", (view,))
    found = frame_of_lake(lake, view)
    assert set(found.columns) == {*first.columns, column}
    of_night = {(row["lineage_publication"], row[column] is None) for row in found.iter_rows(named=True)}
    assert of_night == {(1, True), (2, False)}
    if isinstance(lake, Parquet):
        files = file_system(lake.location, {})
        columns = [
            pq.ParquetFile(files.open(path)).schema_arrow.names for path in files.find(f"{lake.location}/{view}")
        ]
        assert all(column in names for names in columns), "a reader takes the columns from any file"
    run_here(find_fleet([f"{tmp_path}/night1/*"], {}), make_job(str(tmp_path / "plain"), run="n", views=(view,)))
    assert rows_of_lake(lake, view) == rows_of_parquet(tmp_path / "plain", view)


NAMES = (
    ClusterName(CLUSTERS[0], "orders", "production", {"team": "o'brien", "tier": "1"}),
    ClusterName("c", "audit"),
    ClusterName("gone", "no log yet", "test"),
)


def test_the_table_of_clusters_changes_with_their_names_alone(kind: str, tmp_path: Path) -> None:
    lake, night = make_lake(kind, tmp_path / "lake"), tmp_path / "night"
    write_night(night, make_logs(1, CLUSTERS, 5), 1.0)
    first = ClusterNames({one.cluster: one for one in NAMES})
    other = ClusterNames({"c": ClusterName("c", "audit-eu", "production"), "late": ClusterName("late", "later")})
    seen: list[list[Any]] = []
    for run, names, clusters in (("a", first, ()), ("b", first, ()), ("c", other, ("c",)), ("d", other, ("c",))):
        fleet = find_fleet([f"{night}/*"], {}, clusters)
        job = make_job(str(tmp_path / "out"), run=run, views=VIEWS[:1], is_staged=True)
        materialize_into(lake, fleet, job, names)
        (tmp_path / "plain").mkdir(exist_ok=True)
        write_clusters(OsDisk(), str(tmp_path / "plain"), fleet.directories, names)
        assert rows_of_lake(lake, "clusters") == rows_of_parquet(tmp_path / "plain", "clusters")
        seen.append(versions(lake, "clusters"))
    assert seen[0] == seen[1] != seen[2] == seen[3]
    if not isinstance(lake, Parquet):
        assert sorted(frame_of_lake(lake, "clusters", 1)["name"]) == ["audit", "no log yet", "orders"]
    assert sorted(frame_of_lake(lake, "clusters")["name"]) == sorted(["audit-eu", CLUSTERS[0], "gone", "later"])


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_library_that_is_missing_is_named_before_anything_is_written(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lakes, "find_spec", lambda name: None)
    lake: Lake = Delta(str(tmp_path)) if kind == "delta" else Iceberg("fleet", "kraft")
    write_night(tmp_path / "night", make_logs(1, CLUSTERS, 5), 1.0)
    with pytest.raises(SourceError, match="which is not installed") as refused:
        materialize(lake, tmp_path / "night", tmp_path / "out", "first")
    assert f"trio-kraft[{kind}]" in (refused.value.hint or "")
    assert not (tmp_path / "out").exists()
