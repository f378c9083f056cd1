"""`kraft quorum add | remove`: a quorum of one node grows and shrinks, over TCP."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.kraft.cli_serving import serving
from support.kraft.command_line import CLUSTER_ID, run
from support.loopback import free_ports


def dynamic_config(directory: Path, node_id: int, port: int, first_port: int) -> Path:
    directory.mkdir()
    path = directory / "node.properties"
    path.write_text(
        f"process.roles=controller\nnode.id={node_id}\ncontroller.listener.names=CONTROLLER\n"
        f"listeners=CONTROLLER://127.0.0.1:{port}\nlog.dirs={directory / 'log'}\n"
        f"controller.quorum.bootstrap.servers=127.0.0.1:{first_port}\n"
    )
    return path


def test_the_only_voter_is_replaced_by_another_node(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    first_port, second_port = free_ports(2)
    first = dynamic_config(tmp_path / "1", 1, first_port, first_port)
    second = dynamic_config(tmp_path / "2", 2, second_port, first_port)
    for config, how in ((first, "--standalone"), (second, "--no-initial-controllers")):
        assert run(capsys, "format", "-c", str(config), "-t", CLUSTER_ID, how).code == 0
    everywhere = ("--bootstrap-controller", f"127.0.0.1:{first_port},127.0.0.1:{second_port}", "--timeout", "30")
    with ExitStack() as running:
        running.enter_context(serving(first)).said("to=Leader")
        joined = running.enter_context(serving(second))
        joined.said("to=Follower")
        stranger = run(capsys, "quorum", "add", "3", *everywhere)
        assert stranger.code == 1
        assert "node 3 is no observer" in stranger.err
        added = run(capsys, "quorum", "add", "2", "--json", *everywhere)
        assert added.code == 0, added.err
        facts = json.loads(added.out)["added"]
        assert facts["endpoint"] == f"127.0.0.1:{second_port}"
        again = run(capsys, "quorum", "add", f"2@127.0.0.1:{second_port}", *everywhere)
        assert again.code == 1
        assert "node 2 votes already" in again.err
        removed = run(capsys, "quorum", "remove", "1", *everywhere)
        assert removed.code == 0, removed.err
        assert "Node 1 with directory" in removed.out
        joined.said("to=Leader")
        done = run(capsys, "quorum", "status", "--json", *everywhere)
        status = json.loads(done.out)
        assert status["currentVoters"] == [
            {"id": 2, "directoryId": facts["directoryId"], "endpoints": [f"CONTROLLER://127.0.0.1:{second_port}"]}
        ]


@pytest.mark.parametrize(
    ("command", "what"),
    [
        (("add", "127.0.0.1:9093"), "is neither ID nor ID@HOST:PORT"),
        (("add", "x@127.0.0.1:9093"), "is neither ID nor ID@HOST:PORT"),
        (("add", "4@127.0.0.1"), "is not host:port"),
        (("remove", "4", "--directory-id", "short"), "short"),
    ],
)
def test_an_invalid_voter_argument_is_refused(
    capsys: pytest.CaptureFixture[str], command: tuple[str, ...], what: str
) -> None:
    done = run(capsys, "quorum", *command, "--bootstrap-controller", "127.0.0.1:1")
    assert done.code == 2
    assert what in done.err
