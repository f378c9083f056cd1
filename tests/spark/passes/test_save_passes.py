"""`kraft fleet save-passes`, and the saving of passes in the tasks of Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kraft.cli.main import main
from metadata_log.spark.passes import save_passes
from support.real_data import unpack
from support.spark.fleets import write_log, write_meta
from support.spark.in_process import read


@pytest.fixture
def fleet(tmp_path: Path) -> str:
    """Two clusters; only the log of the first one is as long as 100 kB."""
    unpack("static3", "nodes/c1", tmp_path / "fleet" / "a")
    write_log(tmp_path / "fleet" / "b", [1, 2], cluster="small")
    return f"{tmp_path}/fleet/*"


def saved(root: Path) -> dict[str, int]:
    """The files and their sizes; the order inside maps is that of the hashes of a process."""
    return {str(path.relative_to(root)): path.stat().st_size for path in root.rglob("*") if path.is_file()}


def kraft(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = 0
    try:
        main(("fleet", "save-passes", *words))
    except SystemExit as ended:
        code = int(ended.code or 0)
    out, err = capsys.readouterr()
    return code, out, err


def test_the_tasks_of_spark_save_the_same_passes(spark: SparkSession, fleet: str, tmp_path: Path) -> None:
    """And a query of Spark, cut at the passes, has the rows of an uncut one."""
    here, there = tmp_path / "here", tmp_path / "there"
    found = save_passes([fleet], str(there), spark=spark, every_bytes=100_000)
    assert [(one.cluster, one.added, one.problem) for one in found] == [
        ("c92P2-zHd3OC2pYwL82DeQ", 3, None),
        ("small", 0, None),
    ]
    assert save_passes([fleet], str(here), every_bytes=100_000) == found
    assert saved(here) == saved(there)
    again = save_passes([fleet], str(there), spark=spark, every_bytes=100_000)
    assert [(one.added, one.passes) for one in again] == [(0, 3), (0, 0)]
    reader = spark.read.format("kraft").option("view", "leader_history")
    whole, cut = reader.load(fleet), reader.option("passes", str(there)).load(fleet)
    assert sorted(map(str, cut.collect())) == sorted(map(str, whole.collect()))
    assert cut.count() > 1_000


def test_the_command_saves_what_is_new_for_queries(
    fleet: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, words = tmp_path / "passes", ("--every-mib", "0.1", "--option", "sessionTimeoutMs=9000")
    code, out, err = kraft(capsys, fleet, "--out", str(root), *words)
    assert (code, err) == (0, "")
    assert "c92P2-zHd3OC2pYwL82DeQ  3      3       5210" in out
    assert out.endswith("2 clusters: 3 new passes\n")
    code, out, err = kraft(capsys, fleet, "--out", str(root), *words, "--json")
    told = [json.loads(line) for line in out.splitlines()]
    assert [(one["cluster"], one["added"], one["passes"]) for one in told] == [
        ("c92P2-zHd3OC2pYwL82DeQ", 0, 3),
        ("small", 0, 0),
    ]
    of = {"view": "partition_history", "sessionTimeoutMs": "9000"}
    assert read(fleet, None, passes=str(root), **of) == read(fleet, None, **of)


def test_damage_ends_the_command_with_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_log(tmp_path / "fleet" / "a", [1], cluster="a")
    write_log(tmp_path / "fleet" / "a", [1], base=4)
    write_log(tmp_path / "fleet" / "b", [1], cluster="b")
    (tmp_path / "fleet" / "c").mkdir()
    write_meta(tmp_path / "fleet" / "c", "c")
    code, out, err = kraft(capsys, f"{tmp_path}/fleet/*", "--out", f"{tmp_path}/passes")
    assert (code, out) == (1, "3 clusters: 0 new passes\n")
    assert "kraft: error: " in err
    assert "the log goes on at offset 4" in err
    assert "(cluster a)" in err
    assert "holds no metadata log" in err
