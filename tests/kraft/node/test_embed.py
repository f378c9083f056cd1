"""`open_node`: a replicated log inside of one's own program, over real TCP and real files, with its metrics."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trio

import kraft
import kraft.asyncio
import kraft.sync
from embedded_quorum import CLUSTER_ID, configs, leader_of, quorum
from kraft.node.embed import open_node
from kraft.node.errors import NodeStopped, NotLeader
from kraft.node.node import Node
from metadata_log.errors import DirectoryError
from support.loopback import free_ports
from transport.tcp import TcpTransport


async def values_of(node: Node, count: int) -> list[bytes]:
    """The first so many committed values."""
    values: list[bytes] = []
    async for batch in node.committed():
        values.extend(batch.values)
        if len(values) >= count:
            break
    return values


async def test_three_nodes_over_tcp_commit_and_serve_reads(tmp_path: Path) -> None:
    with trio.fail_after(60):
        async with quorum(configs(tmp_path, free_ports(3))) as nodes:
            leader = await leader_of(nodes)
            first = await leader.append([b"one", b"two"])
            second = await leader.append([b"three"])
            assert second >= first + 2
            for node in nodes:
                assert await values_of(node, 3) == [b"one", b"two", b"three"]
            follower = next(node for node in nodes if node is not leader)
            with pytest.raises(NotLeader) as refused:
                await follower.append([b"four"])
            assert refused.value.leader.leader_id == leader.status().node_id


async def test_a_restarted_quorum_keeps_its_log_and_accepts_appends(tmp_path: Path) -> None:
    ports = free_ports(3)
    with trio.fail_after(30):
        async with quorum(configs(tmp_path, ports)) as nodes:
            leader = await leader_of(nodes)
            async with trio.open_nursery() as nursery:
                for number in range(200):
                    nursery.start_soon(leader.append, [b"%d" % number])
        async with quorum(configs(tmp_path, ports)) as nodes:
            leader = await leader_of(nodes)
            await leader.append([b"last"])
            found = await values_of(nodes[0], 201)
        assert sorted(found[:-1], key=int) == [b"%d" % number for number in range(200)]
        assert found[-1] == b"last"


async def test_no_descriptor_is_open_after_the_block(tmp_path: Path) -> None:
    before = sorted(os.listdir("/proc/self/fd"))
    with trio.fail_after(60):
        async with quorum(configs(tmp_path, free_ports(3))) as nodes:
            await (await leader_of(nodes)).append([b"x"])
    assert len(os.listdir("/proc/self/fd")) == len(before)


async def test_an_append_to_a_stopped_node_raises_node_stopped(tmp_path: Path) -> None:
    with trio.fail_after(60):
        async with quorum(configs(tmp_path, free_ports(1))) as nodes:
            await nodes[0].wait_for_leader()
            await nodes[0].append([b"x"])
        with pytest.raises(NodeStopped):
            await nodes[0].append([b"y"])


async def test_a_directory_in_use_is_refused_and_left_alone(tmp_path: Path) -> None:
    config = configs(tmp_path, free_ports(1))[0]
    other = configs(tmp_path, free_ports(1))[0]
    with trio.fail_after(60):
        async with open_node(config) as node:
            await node.wait_for_leader()
            with pytest.raises(DirectoryError, match=r"node 1 of this directory runs already \(this process\)"):
                async with open_node(other):
                    pytest.fail("a second node opened a directory in use")
            assert await node.append([b"still here"]) >= 0


async def test_a_port_in_use_is_one_plain_error(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, trio.fail_after(60):
        config = configs(tmp_path, [taken.getsockname()[1]])[0]
        with pytest.raises(OSError, match="Address already in use") as refused:
            async with open_node(config):
                pytest.fail("the node listens at a port in use")
    assert refused.value.__notes__ == ["hint: Another process listens there: stop it, or choose another port."]


async def test_an_unformatted_directory_is_one_plain_error(tmp_path: Path) -> None:
    config = configs(tmp_path, free_ports(1))[0]
    os.remove(tmp_path / "node-1" / "meta.properties")
    with trio.fail_after(60), pytest.raises(DirectoryError):
        async with open_node(config, transport=TcpTransport()):
            pytest.fail("the node runs without a formatted directory")


@pytest.mark.parametrize("below", ["", "/node-1"])
async def test_a_file_in_place_of_a_directory_is_one_plain_error(below: str, tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.touch()
    config = configs(tmp_path, free_ports(1), **{"log.dirs": f"{file}{below}"})[0]
    wanted = "a log directory is wanted, and this is a file"
    with pytest.raises(DirectoryError, match=wanted) as refused:
        kraft.format(config, CLUSTER_ID)
    assert (refused.value.where, refused.value.hint) == (
        str(file),
        "Name a directory, which need not exist yet, or move the file away.",
    )
    with pytest.raises(DirectoryError, match=wanted):
        async with kraft.create_store(f"{file}{below}"):
            pytest.fail("the node runs in a file")
    if not below:
        with pytest.raises(DirectoryError, match=wanted):
            async with open_node(config):
                pytest.fail("the node runs in a file")


def test_no_node_runs_without_its_assertions() -> None:
    """Under python -O an invariant would break in silence, and the log with it."""
    code = (
        "import trio, kraft\n"
        "from kraft.config import Config\n"
        "text = 'process.roles=controller\\nnode.id=1\\ncontroller.quorum.voters=1@127.0.0.1:1\\n'\n"
        "text += 'controller.listener.names=CONTROLLER\\nlisteners=CONTROLLER://127.0.0.1:0\\n'\n"
        "async def main():\n"
        "    async with kraft.open_node(Config.parse(text)):\n"
        "        pass\n"
        "trio.run(main)\n"
    )
    done = subprocess.run([sys.executable, "-O", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "NodeError: a node does not run under python -O" in done.stderr


def test_a_name_in_place_of_a_configuration_is_not_formatted() -> None:
    name: Any = "c1.properties"
    with pytest.raises(TypeError, match=r"format takes a Config, as Config.load\(path\) .* make it, not 'c1.prop"):
        kraft.format(name, "4L6g3nShT-eMCtK--X86sw")


def test_a_directory_in_place_of_a_configuration_is_refused_with_the_remedy() -> None:
    directory: Any = "folder"
    remedy = r"not with 'folder': kraft.create\(directory\) .* Config.load\(path\)"
    for module in (kraft, kraft.asyncio, kraft.sync):
        with pytest.raises(TypeError, match=remedy):
            module.open_node(directory)
    with pytest.raises(TypeError, match=remedy), kraft.sync.open_store(directory):
        raise AssertionError("a store was opened")


# A program hears of the metrics of the node that it embeds.


async def test_a_program_hears_of_the_metrics_of_its_node(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    heard: list[Mapping[str, float]] = []
    twice = trio.Event()

    def tell(values: Mapping[str, float]) -> None:
        heard.append(values)
        if len(heard) == 2:
            twice.set()
        raise ZeroDivisionError("a bug of the program")

    with trio.fail_after(60), caplog.at_level(logging.WARNING):
        settings = {"controller.quorum.election.timeout.ms": "150"}
        monitor = kraft.metrics_hook(tell, every_s=0.05)
        async with kraft.create(f"{tmp_path}/1", node_id=1, monitor=monitor, settings=settings) as node:
            await node.append([b"x"])
            await twice.wait()
            assert await node.append([b"the node lives"]) > 0
    assert "a bug of the program" in caplog.text
    last = heard[-1]
    assert last['kraft_node_info{node_id="1"}'] == 1
    assert last["kraft_has_quorum"] == 1
    assert all(isinstance(value, float | int) for value in last.values())
