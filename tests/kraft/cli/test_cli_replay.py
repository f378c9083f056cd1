"""`kraft replay` on the directories of real nodes: moments, families, secrets, damage; and that it only reads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

import metadata_log
from kraft.cli.files.image_at import image_at
from metadata_log.reading.timeline import At
from support.kraft.command_line import Done, run
from support.kraft.damaged import damaged
from support.real_data import archive, unpack

LAST = "__cluster_metadata-0/00000000000000004847.log"
SNAPSHOT = "__cluster_metadata-0/00000000000000005210-0000000008.checkpoint"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("static3", "nodes/c1", tmp_path_factory.mktemp("c1"))


def facts(done: Done) -> dict[str, Any]:
    assert (done.code, done.err) == (0, "")
    found: dict[str, Any] = json.loads(done.out)
    return found


def test_replayed_state_equals_the_output_of_kafkas_tools(capsys: pytest.CaptureFixture[str], node: Path) -> None:
    """All topics and partitions, access rules, quotas and credentials that its Admin client was told."""
    state = json.loads(archive("history")["static3/state.json"])
    last = state["as_of"]["high_watermark_before"] - 1
    found = facts(run(capsys, "replay", str(node), "--at", str(last), "--json"))
    names = ("partition", "leader", "replicas", "isr", "elr", "last_known_elr")
    assert {
        topic["name"]: (
            topic["id"],
            [
                {name: sorted(one[name]) if name == "isr" else one[name] for name in names}
                for one in topic["partitions"]
            ],
        )
        for topic in found["topics"]
    } == {
        name: (
            topic["topic_id"],
            [
                {name: sorted(one[name]) if name == "isr" else one[name] for name in names}
                for one in topic["partitions"]
            ],
        )
        for name, topic in state["describeTopics"].items()
    }
    rules = [(one["principal"], one["operation"], one["resource_type"], one["resource_name"]) for one in found["acls"]]
    assert sorted(rules) == sorted(
        (one["principal"], one["op"], one["rtype"], one["name"]) for one in state["describeAcls"]
    )
    assert len(found["quotas"]) == len(state["describeQuotas"])
    assert {"entity": {"client-id": None, "user": "catalog"}, "quotas": {"producer_byte_rate": 1e9}} in found["quotas"]
    assert {one["user"] for one in found["scram"]} == set(state["describeScram"])
    assert len(found["tokens"]) == len(state["tokenDescribe"])
    assert found["metadata_version"] == "4.3-IV0"
    assert found["damage"] == []


@pytest.mark.parametrize(
    "part", ["", "__cluster_metadata-0", SNAPSHOT, "__cluster_metadata-0/00000000000000000000.log"]
)
def test_directories_and_single_files(capsys: pytest.CaptureFixture[str], node: Path, part: str) -> None:
    found = facts(run(capsys, "replay", str(node / part), "--json"))
    assert len(found["topics"]) > 20
    assert found["offset"] == {"": 5316, "__cluster_metadata-0": 5316, SNAPSHOT: 5209}.get(part, 735)


def test_the_image_is_that_of_the_library_at_random_offsets(node: Path) -> None:
    seed = 20261121
    for offset in sorted(Random(seed).sample(range(1, 5316), 12)):
        found = image_at(str(node), At(offset=offset))
        library = metadata_log.replay(str(node), at=offset)
        assert found.provenance.offset == offset
        assert (found.image.topics, found.image.configs, found.image.brokers) == (
            library.topics,
            library.configs,
            library.brokers,
        ), (seed, offset)


@pytest.mark.parametrize(
    ("case", "offset", "file", "position", "at"),
    [
        ("bitflip-last-batch", 5315, LAST, 36123, 5316),
        ("bitflip-middle-batch", 5270, LAST, 32167, 5271),
        ("torn-write", 5315, LAST, 36123, 5316),
        ("wrong-magic-3", 5315, LAST, 36123, 5316),
        ("zero-tail", 5316, LAST, 36195, 5317),
        ("offset-gap", 5270, LAST, 32167, 5272),
        ("bad-frame-version", 5316, LAST, 36262, 5317),
        ("unknown-record-type", 5317, LAST, 36262, 5317),
        ("record-for-missing-topic", 5316, LAST, 36262, 5317),
        ("snapshot-bitflip", 5316, SNAPSHOT, 83, 1),
        ("snapshot-empty", 5316, SNAPSHOT, 0, None),
        ("snapshot-footer-missing", 5316, SNAPSHOT, 89217, None),
        ("snapshot-truncated", 5316, SNAPSHOT, 83, 1),
    ],
)
def test_replay_reports_damage_and_shows_the_image_before_the_damage(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, case: str, offset: int, file: str, position: int, at: int | None
) -> None:
    """Or, where a snapshot is damaged, the image of an older snapshot and the log."""
    done = run(capsys, "replay", str(damaged(case, tmp_path)), "--json")
    found = json.loads(done.out)
    assert (done.code, found["offset"]) == (1, offset)
    [damage] = found["damage"]
    assert (damage["file"], damage["position"], damage["offset"]) == (str(tmp_path / file), position, at)
    assert f"kraft: error: {damage['damage']} ({tmp_path / file}, byte {position}" in done.err
    is_unknown = case == "unknown-record-type"
    assert ("hint: What these records changed is missing here" in done.err) is is_unknown
    assert ("hint: This is the state before the damage" in done.err) == (file.endswith(".log") and not is_unknown)


def test_damage_is_skipped_or_fatal_according_to_the_mode(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    directory = str(damaged("bitflip-middle-batch", tmp_path))
    over = run(capsys, "replay", directory, "--on-damage", "skip-damage", "--json")
    assert (over.code, json.loads(over.out)["offset"]) == (1, 5316)
    strict = run(capsys, "replay", directory, "--on-damage", "strict", "--json")
    assert (strict.code, strict.out) == (1, "")


def test_replay_writes_nothing_and_imports_no_optional_package(node: Path) -> None:
    """The small installation is enough."""
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in sorted(node.rglob("*"))}
    code = (
        "import sys\n"
        "sys.modules.update({name: None for name in ('pyarrow', 'pyspark', 'numpy', 'jinja2')})\n"
        "from kraft.cli.main import main\n"
        "main(sys.argv[1:])\n"
    )
    for words in (["replay", str(node)], ["shell", str(node), "ls"], ["history", str(node), "--gaps"]):
        done = subprocess.run(
            [sys.executable, "-c", code, *words], capture_output=True, text=True, check=False, env=os.environ.copy()
        )
        assert (done.returncode, done.stderr) == (0, ""), words
        assert done.stdout
    assert before == {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in sorted(node.rglob("*"))}


def of_topic(capsys: pytest.CaptureFixture[str], node: Path, topic: str, *words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = facts(run(capsys, "replay", str(node), "--topic", topic, "--json", *words))[
        "partitions"
    ]
    return found


@pytest.mark.parametrize("at", ["2000", "2026-11-21T08:15:44Z", "4000"])
def test_partitions_at_a_moment_equal_the_replayed_image(
    capsys: pytest.CaptureFixture[str], node: Path, at: str
) -> None:
    image = facts(run(capsys, "replay", str(node), "--json", "--at", at))
    names = ("leader", "leader_epoch", "replicas", "isr", "elr", "last_known_elr")
    for topic in image["topics"][:4]:
        found = of_topic(capsys, node, topic["name"], "--at", at)
        assert [[one[name] for name in names] for one in found] == [
            [one[name] for name in names] for one in topic["partitions"]
        ]
