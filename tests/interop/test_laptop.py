"""Looking into logs beside Apache Kafka: its metadata shell on the same snapshots, the directories of live nodes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from our_nodes import told
from real_data import archive
from real_kafka import SHELL, KafkaInstallation, Nodes, eventually
from wire import leader_of, set_client_metrics

from transport.protocol.errors import Error

pytestmark = pytest.mark.kafka

SNAPSHOTS = {
    "old39": ("clusters", "old39/nodes/c3/__cluster_metadata-0/00000000000000000516-0000000004.checkpoint"),
    "dynamic3": ("clusters", "dynamic3/nodes/c1/__cluster_metadata-0/00000000000000000921-0000000005.checkpoint"),
    "static3": ("brokers", "nodes/b103/__cluster_metadata-0/00000000000000004967-0000000008.checkpoint"),
}
ATTEMPTS = 10
"""Kafka's shell answers from what it has read so far, often from an empty image; so it is asked again."""


@pytest.fixture(params=list(SNAPSHOTS))
def snapshot(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    name, path = SNAPSHOTS[request.param]
    file = tmp_path / "metadata" / "__cluster_metadata-0" / Path(path).name
    file.parent.mkdir(parents=True)
    file.write_bytes(archive(name)[path])
    return file


def kafkas(kafka: KafkaInstallation, snapshot: Path, words: tuple[str, ...], expected: str) -> str:
    """What Kafka's shell prints, once it is what is expected, or else in the end."""
    printed = ""
    for _ in range(ATTEMPTS):
        done = kafka.run(SHELL, "--snapshot", str(snapshot), *words)
        printed = done.stdout
        if printed == expected:
            break
    return printed


@pytest.mark.parametrize(
    "words",
    [
        ("tree", "/image/topics", "/image/cluster", "/image/acls", "/image/configs", "/image/features"),
        ("tree", "/image/scram", "/image/delegationToken", "/image/producerIds"),
        ("cat", "/image/topics/byName/*/{name,id}", "/image/cluster/*/1*", "/image/configs/BROKER/?in*"),
        ("find", "/image/topics/byName", "image/scram"),
    ],
    ids=["most", "secrets", "globs", "find"],
)
def test_kafkas_shell_prints_the_same(kafka: KafkaInstallation, snapshot: Path, words: tuple[str, ...]) -> None:
    ours = told("shell", str(snapshot), "--show-secrets", *words)
    assert kafkas(kafka, snapshot, words, ours) == ours


@pytest.mark.parametrize("words", [("ls", "/image"), ("ls", "/image/scram", "/local", "/image"), ("ls",)], ids=len)
def test_ls_lists_what_kafkas_shell_lists(kafka: KafkaInstallation, snapshot: Path, words: tuple[str, ...]) -> None:
    done = kafka.run(SHELL, "--snapshot", str(snapshot), *words)
    assert told("shell", str(snapshot), *words) == done.stdout


def files_of(directory: Path) -> dict[str, tuple[int, int]]:
    """Every file below a directory with its size and the time of its last change."""
    return {
        str(path.relative_to(directory)): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize("make", ["ours", "theirs"])
def test_a_running_node_is_read_and_not_disturbed(request: pytest.FixtureRequest, make: str) -> None:
    """Nothing is locked or written; the node serves on, and what it wrote meanwhile is read the next time."""
    nodes: Nodes = request.getfixturevalue(make)
    layout = nodes.layout
    leader = leader_of(layout)
    directory = layout.log_dir(leader)
    port = layout.ports[leader]
    assert set_client_metrics(port, "laptop", metrics="first") is Error.NONE
    before = files_of(directory)
    path = str(directory)
    first = json.loads(told("replay", path, "--json"))
    assert {one["id"] for one in first["controllers"]} == set(layout.ports)
    assert told("shell", path, "cat", "/image/configs/CLIENT_METRICS:laptop/metrics") == "first\n"
    assert f"active in epoch {first['epoch']}" in told("history", path)
    told("history", path, "--gaps")
    follower = next(node for node in layout.ports if node != leader)
    assert "No difference." in told("diff", path, str(layout.log_dir(follower)))
    assert files_of(directory) == before
    assert nodes.processes[leader].popen.poll() is None

    assert set_client_metrics(port, "laptop", metrics="second") is Error.NONE
    changed = json.loads(told("diff", f"{path}@{first['offset']}", path, "--json"))["differences"]
    assert [(one["kind"], one["name"], one["before"], one["after"]) for one in changed] == [
        ("configs", "client_metrics laptop", "first", "second")
    ]
    eventually(
        lambda: "second" in told("shell", str(layout.log_dir(follower)), "tree", "/image/configs"),
        "the follower has it, too",
    )
