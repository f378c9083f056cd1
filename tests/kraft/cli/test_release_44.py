"""The tools on directories of Apache Kafka 4.4.0: records, levels and files that earlier releases do not have."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.kraft.command_line import Done, run
from support.real_data import unpack

C1 = "static3/nodes/c1"
FIRST_RECORDS = f"{C1}/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("release44", "", tmp_path_factory.mktemp("release44"))


def told(capsys: pytest.CaptureFixture[str], *words: str | Path) -> Done:
    return run(capsys, *map(str, words))


def test_a_controller_is_unregistered_by_its_record(capsys: pytest.CaptureFixture[str], nodes: Path) -> None:
    """Controller 2 is gone after record 381 and has registered again at 394."""
    before, after, again = (
        {one["id"] for one in json.loads(told(capsys, "replay", nodes / C1, "--at", at, "--json").out)["controllers"]}
        for at in ("380", "381", "3000")
    )
    assert (before, after, again) == ({1, 2, 3}, {1, 3}, {1, 2, 3})
    lines = told(capsys, "history", nodes / C1, "--until", "430").out.splitlines()
    assert [line.split()[0] for line in lines if line.endswith("controller 2: unregistered")] == ["381", "424"]
    named = told(capsys, "dump", "--records", "--type", "UnregisterControllerRecord", nodes / C1)
    assert (named.code, named.out.count('UnregisterControllerRecord v0 {"controllerId": 2}')) == (0, 2)


def test_the_levels_have_their_names(capsys: pytest.CaptureFixture[str], nodes: Path) -> None:
    done = told(capsys, "replay", nodes / C1, "--at", "300")
    assert (done.code, "metadata.version 33 (4.4-IV2)" in done.out) == (0, True), done.out


@pytest.mark.parametrize("cluster", ["static3", "dynamic3"])
def test_nothing_is_wrong_between_the_controllers(
    capsys: pytest.CaptureFixture[str], nodes: Path, cluster: str
) -> None:
    """The snapshot of offset 0 is no snapshot of the log, and neither record nor file is unknown."""
    found = sorted((nodes / cluster / "nodes").glob("c*"))
    done = told(capsys, "check", *found)
    assert (done.code, done.err, "no invariant is violated" in done.out) == (0, "", True), done.out
    done = told(capsys, "doctor", *found, "--json")
    fatal = [one for one in json.loads(done.out)["findings"] if one["severity"] == "fatal"]
    assert fatal == []
    plan = told(capsys, "recover", "plan", *found)
    assert (plan.code, "No recovery is needed" in plan.out) == (0, True), plan.out


def test_the_other_readers_read_them_too(capsys: pytest.CaptureFixture[str], nodes: Path, tmp_path: Path) -> None:
    listed = told(capsys, "shell", nodes / C1, "ls", "/")
    assert listed.code == 0, listed.err
    assert told(capsys, "diff", f"{nodes / C1}@380", f"{nodes / C1}@381").code in {0, 1}
    parquet = tmp_path / "out"
    assert told(capsys, "history", nodes / C1, "--parquet", parquet).code == 0
    kept = told(capsys, "archive", "--from", nodes / C1, "--to", tmp_path / "kept", "--verify")
    assert kept.code == 0, kept.err


def test_a_directory_that_never_ran_has_its_bootstrap_records(
    capsys: pytest.CaptureFixture[str], nodes: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "new" / "__cluster_metadata-0"
    folder.mkdir(parents=True)
    (tmp_path / "new" / "meta.properties").write_bytes((nodes / C1 / "meta.properties").read_bytes())
    (folder / Path(FIRST_RECORDS).name).write_bytes((nodes / FIRST_RECORDS).read_bytes())
    done = told(capsys, "history", tmp_path / "new")
    assert "These are the bootstrap records" in done.err
    assert "4.4-IV2" in told(capsys, "replay", tmp_path / "new").out
    assert told(capsys, "check", tmp_path / "new").code == 0
