"""The identity of logs over a fleet: what a run does and tells where a directory has the log of another cluster."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from kraft.cli.main import main
from metadata_log.log.segment import file_name
from support.spark.fleets import random_log, write_meta


def write(folder: Path, cluster: str, seed: int) -> None:
    partition = folder / "__cluster_metadata-0"
    partition.mkdir(parents=True, exist_ok=True)
    write_meta(folder, cluster)
    (partition / file_name(0)).write_bytes(random_log(Random(seed), 20))


def kraft(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(("fleet", "materialize", *words))
    assert isinstance(ended.value.code, int)
    return ended.value.code, *capsys.readouterr()


def test_a_directory_with_another_cluster_stops_and_then_closes_the_former_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "fleet" / "a", "old", 1)
    write(tmp_path / "fleet" / "b", "other", 2)
    words = (f"{tmp_path}/fleet/*", "--out", f"{tmp_path}/tables", "--view", "topic_history", "--jobs", "1")
    assert kraft(capsys, *words, "--run-id", "one")[0] == 0
    write(tmp_path / "fleet" / "a", "new", 3)
    code, out, err = kraft(capsys, *words, "--run-id", "two")
    told = "the directory had the log of cluster old, and has that of new"
    assert (code, "stopped" in out) == (1, True)
    assert f"kraft: error: new id: {told} (cluster new)" in err
    code, out, err = kraft(capsys, *words, "--run-id", "three", "--gate", "warn", "--json")
    by_cluster = {row["cluster"]: row for row in map(json.loads, out.splitlines())}
    assert (code, by_cluster["old"]["status"], by_cluster["new"]["status"]) == (0, "closed", "new")
    assert f"kraft: warning: new id: {told} (cluster new)" in err
    assert kraft(capsys, *words, "--run-id", "four")[::2] == (0, "")
    runs = ds.dataset(tmp_path / "tables" / "runs", partitioning="hive").to_table().to_pylist()
    kinds = {(row["run"], row["cluster"]): (row["status"], row["change"]) for row in runs}
    assert kinds["two", "new"] == ("stopped", "new id")
    assert kinds["three", "old"] == ("closed", "new id")
    assert kinds["three", "new"] == ("new", "new id")
    links = pq.read_table(tmp_path / "tables" / "clusters" / "clusters.parquet").to_pylist()
    assert {row["cluster"]: (row["follows"], row["followed_by"]) for row in links} == {
        "old": (None, "new"),
        "new": ("old", None),
        "other": (None, None),
    }
    assert "its directory" in next(row["closed"] for row in links if row["cluster"] == "old")
    write(tmp_path / "fleet" / "c", "old", 1)
    assert kraft(capsys, *words, "--run-id", "five")[0] == 0
    links = pq.read_table(tmp_path / "tables" / "clusters" / "clusters.parquet").to_pylist()
    assert {row["closed"] for row in links} == {None}
