"""`kraft fleet materialize`: in this process, in other processes, in Spark, and what the command says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from kraft.cli.main import main
from metadata_log import OsDisk
from metadata_log.cluster_names import ClusterNames
from metadata_log.log.segment import file_name
from metadata_log.spark.cluster_table import TABLE_SCHEMA, write_clusters
from metadata_log.spark.directories import Directory
from metadata_log.spark.materialize import Fleet, find_fleet, make_job, pack, run_here, run_in_spark
from metadata_log.tables.cluster import Gate, Status
from metadata_log.tables.commit import TablesBusy
from support.eventually import eventually
from support.spark.fleets import random_log, table_rows, write_log, write_meta

ROOT = Path(__file__).parent.parent.parent
VIEWS = ("config_history", "partition_history", "retention")


def kraft(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Run the command in this process."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(("fleet", "materialize", *words))
    assert isinstance(ended.value.code, int)
    return ended.value.code, *capsys.readouterr()


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """Two clusters with random logs."""
    seed = Random().randrange(2**32)
    print(f"seed {seed}")
    for name in ("a", "b"):
        partition = tmp_path / "fleet" / name / "__cluster_metadata-0"
        partition.mkdir(parents=True)
        write_meta(partition.parent, f"cluster-{name}")
        (partition / file_name(0)).write_bytes(random_log(Random(f"{seed} {name}"), 30))
    return tmp_path / "fleet"


def test_tables_are_the_same_from_one_process_two_processes_and_spark(
    spark: SparkSession, fleet: Path, tmp_path: Path
) -> None:
    """Spark also reads the tables, as any reader of Parquet with partitions of Hive."""
    found = find_fleet([f"{fleet}/*"], {})
    outs = {name: tmp_path / name for name in ("one", "two", "spark")}
    jobs = {name: make_job(str(out), run=name, views=VIEWS) for name, out in outs.items()}
    runs = [
        run_here(found, jobs["one"]),
        run_here(found, jobs["two"], processes=2),
        run_in_spark(spark, found, jobs["spark"]),
    ]
    for run in runs:
        assert [(one.cluster, one.status) for one in run.outcomes] == [
            ("cluster-a", Status.NEW),
            ("cluster-b", Status.NEW),
        ]
    for view in VIEWS:
        assert table_rows(outs["one"], view) == table_rows(outs["two"], view) == table_rows(outs["spark"], view)
    table = spark.read.parquet(str(outs["spark"] / "partition_history"))
    assert dict(table.dtypes)["date"] == "date"
    assert table.count() == sum(table_rows(outs["one"], "partition_history").values()) > 50


def test_the_command_tells_what_is_new_and_that_nothing_is(
    fleet: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = (f"{fleet}/*", "--out", str(tmp_path / "out"), "--view", "config_history", "--jobs", "1")
    code, out, err = kraft(capsys, *given, "--run-id", "one")
    assert (code, err) == (0, "")
    assert out.splitlines()[0].split("  ")[0] == "cluster"
    assert "run one: 2 clusters (2 new), " in out
    code, out, _ = kraft(capsys, *given, "--json", "--run-id", "two")
    assert code == 0
    told = [json.loads(line) for line in out.splitlines()]
    assert [(one["cluster"], one["status"], one["run"]) for one in told] == [
        ("cluster-a", "nothing new", "two"),
        ("cluster-b", "nothing new", "two"),
    ]
    runs = ds.dataset(tmp_path / "out" / "runs", format="parquet", partitioning="hive").to_table().to_pylist()
    assert Counter((row["run"], row["status"]) for row in runs) == {("one", "new"): 2, ("two", "nothing new"): 2}


def test_a_gap_ends_the_command_with_an_error_or_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_log(tmp_path / "fleet" / "a", [1], cluster="a")
    write_log(tmp_path / "fleet" / "a", [1], base=4)
    write_log(tmp_path / "fleet" / "b", [1], cluster="b")
    given = (f"{tmp_path}/fleet/*", "--view", "topic_history", "--view", "retention", "--jobs", "1")
    code, out, err = kraft(capsys, *given, "--out", str(tmp_path / "fails"))
    assert (code, "2 clusters (2 new), 4 records" in out) == (1, True)
    assert "kraft: error: the log goes on at offset 4" in err
    assert "(cluster a)" in err
    code, _, err = kraft(capsys, *given, "--out", str(tmp_path / "warns"), "--gate", "warn")
    assert (code, "kraft: warning: the log goes on at offset 4" in err) == (0, True)


def test_the_names_of_clusters_are_a_table_beside_the_others(
    fleet: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other tables keep the ids. A second run leaves the file, and a new name changes this file alone."""
    names, out = tmp_path / "clusters.toml", tmp_path / "out"
    names.write_text(
        '[clusters.cluster-a]\nname = "orders"\nenvironment = "production"\nlabels = { team = "t1" }\n'
        '[clusters.cluster-x]\nname = "gone"\n'
    )
    given = (f"{fleet}/*", "--out", str(out), "--view", "topic_history", "--jobs", "1", "--clusters", str(names))
    code, shown, err = kraft(capsys, *given)
    assert (code, err) == (0, "")
    assert [line.split()[0] for line in shown.splitlines()[1:3]] == ["orders", "cluster-b"]
    path = out / "clusters" / "clusters.parquet"
    table = pq.read_table(path)
    assert table.schema.equals(TABLE_SCHEMA)
    logs = {name: [f"{fleet}/{name}/__cluster_metadata-0"] for name in ("a", "b")}
    assert [tuple(row.values())[:6] for row in table.to_pylist()] == [
        ("cluster-a", "orders", "production", [("team", "t1")], True, logs["a"]),
        ("cluster-b", "cluster-b", None, [], False, logs["b"]),
        ("cluster-x", "gone", None, [], True, []),
    ]
    before = {file: file.stat() for file in out.rglob("*.parquet") if "runs" not in file.parts}
    code, shown, _ = kraft(capsys, *given, "--json")
    told = [json.loads(line) for line in shown.splitlines()]
    assert [(one["cluster"], one["cluster_name"], one["environment"], one["status"]) for one in told] == [
        ("cluster-a", "orders", "production", "nothing new"),
        ("cluster-b", "cluster-b", None, "nothing new"),
    ]
    assert {file: file.stat().st_ino for file in before} == {file: one.st_ino for file, one in before.items()}
    # A run over one cluster, by its name, keeps the rows of the others.
    names.write_text("cluster,name\ncluster-a,bills\n")
    csv = names.rename(tmp_path / "clusters.csv")
    code, shown, _ = kraft(capsys, *given[:-1], str(csv), "--option", "cluster=bills", "--json")
    assert (code, [json.loads(line)["cluster"] for line in shown.splitlines()]) == (0, ["cluster-a"])
    assert [(row["cluster"], row["name"], row["directories"]) for row in pq.read_table(path).to_pylist()] == [
        ("cluster-a", "bills", logs["a"]),
        ("cluster-b", "cluster-b", logs["b"]),
        ("cluster-x", "cluster-x", []),
    ]
    changed = {file for file, one in before.items() if file.stat().st_ino != one.st_ino}
    assert changed == {path}


def test_two_runs_do_not_write_the_table_of_clusters_at_a_time(tmp_path: Path) -> None:
    lock = OsDisk()
    (tmp_path / "_kraft").mkdir()
    held = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(tmp_path / "_kraft" / "clusters.lock")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with held:
        assert held.stdout is not None
        assert held.stdout.readline() == b"held\n"
        with pytest.raises(TablesBusy, match="another run writes the table of clusters"):
            write_clusters(lock, str(tmp_path), [Directory("/log", "a")], ClusterNames())
        held.communicate(b"\n")
    assert write_clusters(lock, str(tmp_path), [Directory("/log", "a")], ClusterNames())
    assert not write_clusters(lock, str(tmp_path), [Directory("/log", "a")], ClusterNames())


_HOLD = """
import sys
from metadata_log import OsDisk
lock = OsDisk().lock(sys.argv[1])
print("held", flush=True)
sys.stdin.readline()
"""


def test_formats_do_not_share_a_directory(fleet: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain, lake = (["--out", str(tmp_path / name), "--view", "retention"] for name in ("plain", "lake"))
    assert kraft(capsys, f"{fleet}/*", *plain)[0] == 0
    assert kraft(capsys, f"{fleet}/*", *lake, "--format", "delta")[0] == 0
    for words, there in (
        ([*plain, "--format", "delta"], "has tables of Parquet"),
        (lake, "has the checkpoints of tables of another format or at another place"),
        ([*lake, "--format", "iceberg"], "are of Delta, not of Iceberg"),
    ):
        ended, _, err = kraft(capsys, f"{fleet}/*", *words)
        assert ended == 1
        assert there in err
    with pytest.raises(SystemExit) as ended_status:
        main(("fleet", "status", str(tmp_path / "lake")))
    assert ended_status.value.code == 2
    assert "only tables of Parquet are checked here" in capsys.readouterr().err


def test_a_file_and_a_directory_without_a_log_are_failures_of_their_own(fleet: Path, tmp_path: Path) -> None:
    (fleet / "c").mkdir()
    found = find_fleet([f"{fleet}/*", f"{fleet}/a/__cluster_metadata-0/{file_name(0)}"], {})
    assert [one.cluster for one in found.directories] == ["cluster-a", "cluster-b"]
    run = run_here(found, make_job(str(tmp_path / "out"), run="r", views=("churn",), gate=Gate.WARN))
    assert Counter(one.status for one in run.outcomes) == {Status.NEW: 2, Status.FAILED: 1}
    assert not run.is_sound


def test_many_clusters_share_a_task(tmp_path: Path) -> None:
    """The largest log is alone; no task has much more than another."""
    partition = write_log(tmp_path / "large", [1])
    (partition / file_name(0)).write_bytes(bytes(50 << 20))
    small = write_log(tmp_path / "small", [1])
    fleet = Fleet([Directory(str(small), f"c{number}") for number in range(1_000)], [])
    fleet.directories.append(Directory(str(partition), "large"))
    groups = pack(fleet, 40)
    assert len(groups) == 40
    assert sum(map(len, groups)) == 1_001
    assert [len(group) for group in groups if group[0].cluster == "large"] == [1]
    assert max(map(len, groups)) - min(len(group) for group in groups if group[0].cluster != "large") <= 1


def test_processes_that_are_killed_lose_no_row_and_double_none(fleet: Path, tmp_path: Path) -> None:
    """`kill -9` of a process once so many files are there; the last run is not killed."""
    out, wanted = tmp_path / "killed", tmp_path / "whole"
    command = [sys.executable, "-m", "kraft", "fleet", "materialize", f"{fleet}/*", "--jobs", "1", "--out", str(out)]
    killed = 0
    for files in range(1, 60, 6):
        process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.DEVNULL)

        def has_gone_far(process: subprocess.Popen[bytes] = process, files: int = files) -> bool:
            return process.poll() is not None or sum(path.is_file() for path in out.rglob("*")) >= files

        eventually(has_gone_far, f"{files} files, or the end of the process")
        killed += process.poll() is None
        process.kill()
        process.wait()
    assert killed > 2
    found = find_fleet([f"{fleet}/*"], {})
    assert run_here(found, make_job(str(out), run="last")).is_sound
    assert run_here(found, make_job(str(wanted), run="only")).is_sound
    for view in (path.name for path in wanted.iterdir() if path.name not in ("_kraft", "runs")):
        assert table_rows(out, view) == table_rows(wanted, view)
    # One that dies while it adds itself to the table of runs leaves a hidden file there, which no reader sees.
    assert not [path for path in out.rglob(".*.part") if "runs" not in path.relative_to(out).parts]
