"""Commands on a broker in ZooKeeper mode, which neither Kafka 4 nor this software knows: one sentence says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.kraft.command_line import run

MODE, REMEDY = "in ZooKeeper mode", "Migrate the cluster to KRaft first"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A log directory as a broker of Kafka 2 in ZooKeeper mode left it: without topic ids."""
    path = tmp_path / "data"
    (path / "orders-0").mkdir(parents=True)
    (path / "orders-0" / "00000000000000000000.log").touch()
    (path / "meta.properties").write_text("version=0\nbroker.id=0\ncluster.id=4r7wkyKkSWiB3LPcgh31RQ\n")
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (path / name).write_text("0\n0\n")
    return path


@pytest.fixture
def config(directory: Path, tmp_path: Path) -> Path:
    """The file that Kafka 3 came with for a broker in ZooKeeper mode."""
    path = tmp_path / "server.properties"
    path.write_text(
        f"broker.id=0\nlisteners=PLAINTEXT://:9092\nlog.dirs={directory}\n"
        "zookeeper.connect=localhost:2181\nzookeeper.connection.timeout.ms=18000\n"
    )
    return path


def doctor(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, object]]:
    done = run(capsys, "doctor", "--offline", "--json", *words)
    assert done.code == 2
    findings: list[dict[str, object]] = json.loads(done.out)["findings"]
    return findings


@pytest.mark.parametrize("given", ["-c", "directory", "-c without its directory"])
def test_the_doctor_has_one_finding(
    given: str, config: Path, directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if "without" in given:
        directory.rename(directory.with_name("elsewhere"))
    words = (str(directory),) if given == "directory" else ("-c", str(config))
    (finding,) = doctor(capsys, *words)
    assert finding["id"] == "zookeeper-mode"
    assert str(finding["remedy"]).startswith(REMEDY)
    shown = run(capsys, "doctor", "--offline", *words).out
    assert "No other check is about a node in ZooKeeper mode." in shown
    assert "Give " not in shown


@pytest.mark.parametrize("step", [("restart", "0"), ("start",), ("upgrade",)])
def test_no_step_is_safe_before_the_migration(
    step: tuple[str, ...], config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = doctor(capsys, "-c", str(config), "--before", *step)
    assert (first["id"], second["id"]) == (f"before-{step[0]}", "zookeeper-mode")
    assert MODE in str(first["evidence"])


@pytest.mark.parametrize("command", [("serve",), ("format", "--cluster-id", "4r7wkyKkSWiB3LPcgh31RQ")])
def test_a_file_of_zookeeper_mode_is_refused_in_one_sentence(
    command: tuple[str, ...], config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = run(capsys, *command, str(config))
    assert done.code == 1
    assert done.err == (
        f"kraft: error: zookeeper.connect=localhost:2181: this node is {MODE} ({config}:4)\n"
        f"hint: {REMEDY}, with Apache Kafka 3.9 (KIP-866).\n"
    )


@pytest.mark.parametrize("command", [("history",), ("dump",), ("check",), ("shell",), ("recover", "plan")])
def test_a_directory_of_zookeeper_mode_is_refused_in_one_sentence(
    command: tuple[str, ...], directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = run(capsys, *command, str(directory), *(["ls", "/"] if command == ("shell",) else []))
    assert done.code != 0
    assert f"this is the directory of a broker {MODE}" in done.err
    assert REMEDY in done.err
