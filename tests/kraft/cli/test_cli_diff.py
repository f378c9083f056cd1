"""`kraft diff`: two directories, two moments, a snapshot and a directory; what it hides, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kraft.cli.files.diff import KINDS
from support.kraft.command_line import Done, run
from support.kraft.damaged import damaged
from support.real_data import unpack

SNAPSHOT = "__cluster_metadata-0/00000000000000004271-0000000004.checkpoint"


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("static3", "nodes", tmp_path_factory.mktemp("nodes"))


def diff(capsys: pytest.CaptureFixture[str], *words: str | Path) -> Done:
    return run(capsys, "diff", *map(str, words))


def json_of(done: Done) -> list[dict[str, Any]]:
    assert (done.code, done.err) == (0, "")
    found: list[dict[str, Any]] = json.loads(done.out)["differences"]
    return found


def test_controllers_of_one_quorum_agree(capsys: pytest.CaptureFixture[str], nodes: Path) -> None:
    """Whatever they have in common of the log; all three were stopped at different offsets."""
    done = diff(capsys, nodes / "c1", nodes / "c2")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        f"--- {nodes / 'c1'} after offset 5316, epoch 13, 2026-11-21T08:17:58.733Z",
        f"+++ {nodes / 'c2'} after offset 5317, epoch 14, 2026-11-21T08:17:59.081Z",
        "No difference.",
    ]
    assert diff(capsys, nodes / "c1", nodes / "c3", "--exit-code").code == 0


def test_a_snapshot_is_the_log_up_to_its_offset(capsys: pytest.CaptureFixture[str], nodes: Path) -> None:
    assert json_of(diff(capsys, nodes / "c1" / SNAPSHOT, f"{nodes / 'c1'}@4270", "--json")) == []
    assert json_of(diff(capsys, nodes / "c1" / SNAPSHOT, f"{nodes / 'c1'}@4500", "--json")) != []


def test_added_and_removed_entries_are_marked(capsys: pytest.CaptureFixture[str], nodes: Path) -> None:
    lines = diff(capsys, f"{nodes / 'c1'}@120", "@250", "--only", "acls,quotas,tokens").out.splitlines()
    assert "  + client-id <default>, user catalog: producer_byte_rate 1000000000" in lines
    assert (
        "  + acl rFqPFlOvSPatZY4bz1Bk1Q: resource_type TOPIC, resource_name clicks, pattern_type LITERAL, "
        "principal User:alice, host *, operation READ, permission_type ALLOW"
    ) in lines
    back = diff(capsys, f"{nodes / 'c1'}@250", "@120", "--only", "acls,quotas,tokens").out.splitlines()
    assert [line.replace("  -", "  +") for line in back[2:]] == lines[2:]


def test_diff_can_be_limited_to_kinds_of_entries(capsys: pytest.CaptureFixture[str], nodes: Path) -> None:
    operands = [f"{nodes / 'c1'}@100", "@5000", "--json"]
    everything = json_of(diff(capsys, *operands))
    kinds = {one["kind"] for one in everything}
    assert {"topics", "configs", "brokers", "acls", "scram", "tokens", "quotas"} <= kinds <= set(KINDS)
    some = json_of(diff(capsys, *operands, "--only", "configs, acls"))
    assert some == [one for one in everything if one["kind"] in ("configs", "acls")]


def test_exit_code_is_1_for_differences_on_request(capsys: pytest.CaptureFixture[str], nodes: Path) -> None:
    operands = [f"{nodes / 'c1'}@100", "@101", "--only", "acls"]
    assert diff(capsys, f"{nodes / 'c1'}@100", "@5000", "--exit-code").code == 1
    assert diff(capsys, f"{nodes / 'c1'}@100", "@5000").code == 0
    assert diff(capsys, *operands, "--exit-code").code == 0


def test_diff_reports_damage_with_its_position(capsys: pytest.CaptureFixture[str], nodes: Path, tmp_path: Path) -> None:
    done = diff(capsys, damaged("bitflip-middle-batch", tmp_path), f"{nodes / 'c1'}@5270", "--json")
    assert done.code == 1
    assert "byte 32167, offset 5271)" in done.err
    found = json.loads(done.out)
    assert found["differences"] == []
    assert [len(found[side]["damage"]) for side in ("before", "after")] == [1, 0]


def test_clusters_of_different_releases(capsys: pytest.CaptureFixture[str], nodes: Path, tmp_path: Path) -> None:
    old = unpack("clusters", "old39/nodes/c1", tmp_path)
    found = json_of(diff(capsys, old, nodes / "c1", "--only", "features,topics", "--json"))
    assert {(one["name"], one["before"] is None) for one in found if one["field"] == "id"} >= {("orders", True)}
