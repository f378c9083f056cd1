"""Looking into logs beside Apache Kafka: its metadata shell on the same snapshots, the directories of live nodes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.interop.kafka_or_skip import oracle
from support.interop.our_nodes import told
from support.interop.real_kafka import SHELL, KafkaInstallation, Nodes, eventually
from support.real_data import archive
from support.wire import leader_of, set_client_metrics
from transport.protocol.errors import Error

pytestmark = pytest.mark.kafka

SNAPSHOTS = {
    "old39": ("clusters", "old39/nodes/c3/__cluster_metadata-0/00000000000000000516-0000000004.checkpoint"),
    "dynamic3": ("clusters", "dynamic3/nodes/c1/__cluster_metadata-0/00000000000000000921-0000000005.checkpoint"),
    "static3": ("brokers", "nodes/b103/__cluster_metadata-0/00000000000000004967-0000000008.checkpoint"),
}
SECRETS = "--show-secrets"
COMMANDS = (
    ("tree", "/image/topics", "/image/cluster", "/image/acls", "/image/configs", "/image/features"),
    ("tree", "/image/scram", "/image/delegationToken", "/image/producerIds"),
    ("cat", "/image/topics/byName/*/{name,id}", "/image/cluster/*/1*", "/image/configs/BROKER/?in*"),
    ("find", "/image/topics/byName", "image/scram"),
    ("ls", "/image"),
    ("ls", "/image/scram", "/local", "/image"),
    ("ls",),
)
ORACLE = Path(__file__).parent.parent / "ShellOracle.java"
SEPARATOR = "\x1e"


@pytest.fixture(scope="module")
def snapshots(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A snapshot of each of three real clusters."""
    found = {}
    for cluster, (name, path) in SNAPSHOTS.items():
        file = tmp_path_factory.mktemp(cluster) / "metadata" / "__cluster_metadata-0" / Path(path).name
        file.parent.mkdir(parents=True)
        file.write_bytes(archive(name)[path])
        found[cluster] = file
    return found


@pytest.fixture(scope="module")
def kafkas(kafka: KafkaInstallation, snapshots: dict[str, Path]) -> dict[tuple[str, tuple[str, ...]], str]:
    """The output of Kafka's shell, by cluster and command, all in one process."""
    asked = [(cluster, words) for cluster in snapshots for words in COMMANDS]
    lines = ["\t".join([str(snapshots[cluster]), *words]) for cluster, words in asked]
    printed = oracle(kafka, ORACLE, lines).split(SEPARATOR)
    assert printed.pop() == ""
    return dict(zip(asked, printed, strict=True))


@pytest.mark.parametrize("words", COMMANDS, ids=["most", "secrets", "globs", "find", "ls", "ls-some", "ls-here"])
@pytest.mark.parametrize("cluster", SNAPSHOTS)
def test_shell_commands_print_what_kafkas_shell_prints(
    snapshots: dict[str, Path],
    kafkas: dict[tuple[str, tuple[str, ...]], str],
    cluster: str,
    words: tuple[str, ...],
) -> None:
    shown = () if words[0] == "ls" else (SECRETS,)
    assert kafkas[cluster, words]
    assert told("shell", str(snapshots[cluster]), *shown, *words) == kafkas[cluster, words]


def test_kafka_metadata_shell_started_by_its_script_prints_the_same(
    kafka: KafkaInstallation, snapshots: dict[str, Path]
) -> None:
    """The shell as it is started; without a path it lists what is there whatever it has read so far."""
    done = kafka.run(SHELL, "--snapshot", str(snapshots["static3"]), "ls")
    assert told("shell", str(snapshots["static3"]), "ls") == done.stdout


def files_of(directory: Path) -> dict[str, tuple[int, int]]:
    """Every file below a directory with its size and the time of its last change."""
    return {
        str(path.relative_to(directory)): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize("make", ["ours", "theirs"])
def test_the_shell_reads_a_running_node_without_locks_or_writes(request: pytest.FixtureRequest, make: str) -> None:
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
