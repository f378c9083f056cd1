"""docs/howto/transport.md keeps its word: under a hundred lines, and a quorum runs over them.

The contract of transports is in `test_contract`.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import trio

from kraft.config import Config
from kraft.node.embed import open_node
from kraft.node.errors import NotLeader, OutcomeUnknown
from kraft.node.node import Node
from metadata_log.disk import OsDisk
from metadata_log.log.log_dir import format_directory
from support import ROOT
from unix_transport import unix_transport

PAGE = ROOT / "docs" / "howto" / "transport.md"
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
VOTERS = "1@one:1,2@two:1,3@three:1"


def config(node_id: int, directory: Path) -> Config:
    log_dir = str(directory / f"log-{node_id}")
    format_directory(OsDisk(), log_dir, node_id=node_id, cluster_id=CLUSTER_ID, rng=Random(node_id), now_ms=1)
    return Config.parse(
        f"process.roles=controller\nnode.id={node_id}\ncontroller.listener.names=CONTROLLER\n"
        f"controller.quorum.voters={VOTERS}\nlog.dirs={log_dir}\n"
        f"listeners=CONTROLLER://{VOTERS.split(',')[node_id - 1].split('@')[1]}\n"
        "controller.quorum.election.timeout.ms=500\ncontroller.quorum.fetch.timeout.ms=1000\n"
    )


async def live(
    node_id: int, directory: Path, nodes: dict[int, Node], *, task_status: trio.TaskStatus[trio.CancelScope]
) -> None:
    with trio.CancelScope() as life:
        async with open_node(config(node_id, directory), transport=unix_transport(directory)) as node:
            nodes[node_id] = node
            task_status.started(life)
            await trio.sleep_forever()


async def leader_of(nodes: dict[int, Node]) -> int:
    """The one of these nodes that another one takes for the leader."""
    witness = next(iter(nodes.values()))
    while (leader := await witness.wait_for_leader()).leader_id not in nodes:
        await witness.wait_for_change()
    return leader.leader_id


async def commit(nodes: dict[int, Node], value: bytes) -> int:
    """Append at the leader, and again if the leader changes meanwhile; returns the leader."""
    while True:
        leader = await leader_of(nodes)
        with suppress(NotLeader, OutcomeUnknown):
            await nodes[leader].append([value])
            return leader


async def read_until(node: Node, last: bytes) -> list[bytes]:
    """The committed values up to this one, each once."""
    values: dict[bytes, None] = {}
    async for batch in node.committed():
        values.update(dict.fromkeys(batch.values))
        if last in values:
            return list(values)
    raise AssertionError(f"the node ended after {values}")


async def test_a_quorum_elects_commits_and_fails_over_through_files() -> None:
    nodes: dict[int, Node] = {}
    with TemporaryDirectory() as folder, trio.fail_after(120):
        directory = Path(folder)
        async with trio.open_nursery() as nursery:
            lives = {one: await nursery.start(live, one, directory, nodes) for one in (1, 2, 3)}
            assert {"one:1", "two:1", "three:1"} <= set(os.listdir(directory))
            leader = await commit(nodes, b"before")
            lives[leader].cancel()
            del nodes[leader]
            await commit(nodes, b"after")
            for node in nodes.values():
                assert await read_until(node, b"after") == [b"before", b"after"]
            nursery.cancel_scope.cancel()


def test_the_page_shows_the_tested_transport() -> None:
    assert Path(__file__).with_name("unix_transport.py").read_text() in PAGE.read_text()
