"""A quorum of nodes that are embedded in one program."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random

import trio

from kraft.config import Config
from kraft.node.embed import open_node
from kraft.node.node import Node
from kraft.process.hosting import host_controller
from metadata_log.disk import OsDisk
from metadata_log.log.log_dir import format_directory

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"


def configs(directory: Path, ports: list[int], **settings: str) -> list[Config]:
    """The configurations of a quorum on this machine, its directories formatted."""
    voters = ",".join(f"{node_id}@127.0.0.1:{port}" for node_id, port in enumerate(ports, 1))
    result = []
    for node_id, port in enumerate(ports, 1):
        log_dir = str(directory / f"node-{node_id}")
        entries = {
            "process.roles": "controller",
            "node.id": str(node_id),
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "listeners": f"CONTROLLER://127.0.0.1:{port}",
            "log.dirs": log_dir,
            "controller.quorum.append.linger.ms": "0",
            "controller.quorum.election.timeout.ms": "150",
            "controller.quorum.fetch.timeout.ms": "400",
            **settings,
        }
        format_directory(
            OsDisk(),
            log_dir,
            node_id=node_id,
            cluster_id=CLUSTER_ID,
            rng=Random(node_id),
            now_ms=1_700_000_000_000,
            ignore_formatted=True,
        )
        result.append(Config.parse("".join(f"{key}={value}\n" for key, value in entries.items())))
    return result


@asynccontextmanager
async def quorum(some: list[Config]) -> AsyncIterator[list[Node]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(open_node(config)) for config in some]


async def leader_of(nodes: list[Node]) -> Node:
    """The node that all of them take for the leader."""
    while True:
        leaders = [await node.wait_for_leader() for node in nodes]
        if len(set(leaders)) == 1:
            return next(node for node in nodes if node.status().node_id == leaders[0].leader_id)
        await nodes[0].wait_for_change()


UNHURRIED = {"controller.quorum.election.timeout.ms": "500", "controller.quorum.fetch.timeout.ms": "2000"}
"""So that a busy machine does not make elections."""


async def serve(config: Config, *, task_status: trio.TaskStatus[tuple[Node, trio.CancelScope]]) -> None:
    with trio.CancelScope() as life:
        async with open_node(config, application=host_controller) as node:
            task_status.started((node, life))
            await trio.sleep_forever()
