"""`kraft serve`: a node from its configuration, its graceful shutdown, and all errors before a node runs."""

from __future__ import annotations

import gc
import json
import logging
import re
import resource
import signal
import socket
from pathlib import Path

import pytest

from kraft.config.keys import STANDARD_AUTHORIZER
from metadata_log.disk import OsDisk
from support.kraft.cli_serving import formatted, serving
from support.kraft.command_line import CLUSTER_ID, run, write_config
from support.loopback import free_ports


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_node_leads_and_resigns_when_it_is_stopped(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, number: signal.Signals
) -> None:
    config = formatted(capsys, tmp_path, controller_quorum_election_timeout_ms="100")
    with serving(config) as node:
        address = node.said("listening").split("on=")[1].strip()
        node.said("to=Leader")
        done = run(capsys, "quorum", "status", "--bootstrap-controller", address, "--json")
        assert done.code == 0
        status = json.loads(done.out)
        assert (status["clusterId"], status["leaderId"], status["maxFollowerLag"]) == (CLUSTER_ID, 1, 0)
        assert status["currentVoters"] == [{"id": 1, "endpoints": [f"CONTROLLER://{address}"]}]
        node.process.send_signal(number)
        assert "stopping" in node.said(f"on={number.name}")
        node.said("stopped node=1")
        assert node.process.wait() == 0


def test_a_node_stops_when_its_parent_process_dies(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A quickstart that is killed with -9 must leave no process behind."""
    config = formatted(capsys, tmp_path)
    with serving(config, "--until-stdin-closes") as node:
        node.said("listening")
        assert node.process.stdin is not None
        node.process.stdin.close()
        assert node.process.wait() == 0


def test_a_node_raises_its_limit_of_open_files_as_far_as_it_may(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """As the JVM does. A broker with some hundred partitions has more files than a shell allows by default."""
    config = formatted(capsys, tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, hard), hard))
    try:
        with serving(config) as node:
            node.said("listening")
            assert resource.prlimit(node.process.pid, resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_an_open_listener_without_acls_is_warned_of_once(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = formatted(capsys, tmp_path, controller_quorum_election_timeout_ms="100")
    port = int(re.findall(r"^listeners=.*:(\d+)$", config.read_text(), re.MULTILINE)[0])
    everywhere = ("--override", f"listeners=CONTROLLER://0.0.0.0:{port}")
    authorizer = (
        "--override",
        f"authorizer.class.name={STANDARD_AUTHORIZER}",
        "--override",
        "super.users=User:ANONYMOUS",
    )
    for more, times in ((everywhere, 1), ((*everywhere, *authorizer), 0), ((), 0)):
        with serving(config, *more) as node:
            node.said("to=Leader")
            node.process.send_signal(signal.SIGTERM)
            assert node.process.wait() == 0
            lines = [line for line in node.everything() if " warning unprotected " in line]
        assert len(lines) == times, lines
        assert all(f"listeners=CONTROLLER://0.0.0.0:{port} " in line for line in lines)


def refused(capsys: pytest.CaptureFixture[str], config: Path, *more: str) -> str:
    done = run(capsys, "serve", "-c", str(config), *more)
    assert done.code == 1
    errors = [line for line in done.err.splitlines() if line.startswith("kraft: error: ")]
    assert len(errors) == 1
    assert done.err.splitlines()[-1].startswith("hint: ")
    return errors[0]


def test_a_port_in_use_is_one_clear_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = formatted(capsys, tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        said = refused(capsys, config, "--override", f"listeners=CONTROLLER://{address}")
    assert said == f"kraft: error: cannot listen on {address}: Address already in use"


def test_a_locked_directory_is_one_clear_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = formatted(capsys, tmp_path)
    lock = OsDisk().lock(str(tmp_path / "log/.lock"))
    said = refused(capsys, config)
    lock.release()
    assert said == f"kraft: error: node 1 of this directory runs already (this process) ({tmp_path}/log)"


def test_a_node_that_runs_already_is_told_by_its_process(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Its port is in use, which tells less."""
    config = formatted(capsys, tmp_path)
    with serving(config) as node:
        node.said("to=Leader")
        said = refused(capsys, config)
        assert said == (
            f"kraft: error: node 1 of this directory runs already (pid {node.process.pid}) ({tmp_path}/log)"
        )


def test_a_command_within_a_test_leaves_the_settings_of_its_process(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    root = logging.getLogger()
    before = (root.handlers[:], root.level, gc.get_threshold())
    config = write_config(tmp_path, port=free_ports(1)[0])
    assert "not formatted" in refused(capsys, config)
    assert (root.handlers, root.level, gc.get_threshold()) == before


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"leaderId":1,"leaderEpoch":1,"votedId":-1,"data_version":7}', "7"),
        ("", "quorum-state"),
        ("{", "quorum-state"),
    ],
)
def test_a_quorum_state_that_cannot_be_read_stops_the_node(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, said: str
) -> None:
    """Guessing would be voting twice."""
    config = formatted(capsys, tmp_path)
    partition = tmp_path / "log/__cluster_metadata-0"
    partition.mkdir(exist_ok=True)
    (partition / "quorum-state").write_text(text)
    assert said in refused(capsys, config)
    assert (partition / "quorum-state").read_text() == text


def test_the_directory_of_another_node_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = formatted(capsys, tmp_path)
    more = ["--override", "node.id=2", "--override", "controller.quorum.voters=2@127.0.0.1:1"]
    assert "belongs to node 1, not to node 2" in refused(capsys, config, *more)
