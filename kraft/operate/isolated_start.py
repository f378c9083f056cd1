"""Starts controllers on copies of directories, on a network that no other node can reach.

The nodes are those that `kraft serve` runs. They elect, commit and replay; the directories themselves stay unchanged. A
controller of Apache Kafka starts so, too, as the only voter, at a port of the loopback address that no other node
knows.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Final

import trio
from msgspec import Struct

from kraft.config import Config, join_host_port
from kraft.controller.server import ControllerServer
from kraft.node.node import Node
from kraft.node.run import run_node
from kraft.operate.interrupts import run_tasks
from metadata_log.disk import Disk, OsDisk, make_directory
from metadata_log.errors import DirectoryError, MetadataLogError
from metadata_log.image import MetadataImage
from metadata_log.log.quorum_state_file import read_quorum_state
from metadata_log.reading.log_end import find_log_end
from metadata_log.reading.replay_log import replay
from metadata_log.types import PARTITION_DIRECTORY
from transport.causes import one_cause
from transport.memory import MemoryNetwork, MemoryTransport

_CHUNK_BYTES = 1 << 20
_SETTINGS = {
    "controller.quorum.election.timeout.ms": "300",
    "controller.quorum.election.backoff.max.ms": "100",
    "controller.quorum.fetch.timeout.ms": "600",
    "broker.session.timeout.ms": "600000",
}


class IsolatedNode(Struct, frozen=True, kw_only=True):
    """A controller to start: its directory, and the address that the voter set gives to it."""

    id: int
    directory: str
    listener: str
    host: str
    port: int


class Started(Struct, frozen=True, kw_only=True):
    """The result of the start: the leader, its epoch, and the image that it has applied.

    `log_end` is the end of the log before the start: the leader has committed everything below, and one own record.
    """

    leader_id: int
    epoch: int
    log_end: int
    image: MetadataImage


def start_isolated(nodes: Sequence[IsolatedNode], *, dynamic: bool, log_end: int, seconds: float, seed: int) -> Started:
    """Start controllers on copies of their directories, and wait until a leader has committed and applied the log.

    Args:
        nodes: The controllers; all voters, or a majority of them.
        dynamic: Whether the voters are in the log; else they are exactly `nodes`.
        log_end: The end of the log that the leader must commit.
        seconds: The time limit.
        seed: The seed of the election timeouts.

    Returns:
        The result.

    Raises:
        DirectoryError: No leader committed the log in time.
        MetadataLogError: A node refuses its directory.
        OSError: A disk failed.
    """
    with TemporaryDirectory(prefix="kraft-verify-") as below:
        copies = {node.id: f"{below}/node-{node.id}" for node in nodes}
        for node in nodes:
            copy_tree(OsDisk(), node.directory, copies[node.id])
        return run_tasks(_run, nodes, copies, dynamic, log_end, seconds, seed)


def copy_tree(disk: Disk, source: str, target: str) -> None:
    """Copy a directory and all below, but for lock files."""
    make_directory(disk, target)
    for name in disk.list(source):
        path = f"{source}/{name}"
        if name == ".lock":
            continue
        if os.path.isdir(path):
            copy_tree(disk, path, f"{target}/{name}")
            continue
        old, new = disk.open(path, writable=False), disk.open(f"{target}/{name}", create=True)
        try:
            for position in range(0, old.size(), _CHUNK_BYTES):
                new.append(old.pread(_CHUNK_BYTES, position))
        finally:
            old.close()
            new.close()


async def _run(
    nodes: Sequence[IsolatedNode], copies: dict[int, str], dynamic: bool, log_end: int, seconds: float, seed: int
) -> Started:
    network, rng = MemoryNetwork(seed), Random(seed)
    started: Started | None = None
    with one_cause():
        async with trio.open_nursery() as nursery:
            running: list[Node] = []
            for node in nodes:
                run = partial(
                    run_node,
                    _config(node, nodes, copies[node.id], dynamic=dynamic),
                    transport=MemoryTransport(network, host=node.host),
                    disk=OsDisk(),
                    rng=Random(rng.getrandbits(64)),
                )
                running.append(await nursery.start(run))
            with trio.move_on_after(seconds):
                started = await _committed(running, log_end)
            if started is None:
                states = ", ".join(f"node {node.status().node_id} is {node.status().state}" for node in running)
                raise DirectoryError(
                    f"no leader has committed the log up to offset {log_end} after {seconds:g} s: {states}",
                    where=nodes[0].directory,
                    hint="Do not start the controllers on these directories. Check them with `kraft check`.",
                )
            nursery.cancel_scope.cancel()
    assert started is not None
    return started


async def _committed(running: Sequence[Node], log_end: int) -> Started:
    """Wait for the leader that has committed and applied the log: each node reports its changes."""
    all_started: list[Started] = []
    async with trio.open_nursery() as nursery:

        async def watch(node: Node) -> None:
            while (started := _leader_of(node, log_end)) is None:
                if not await node.wait_for_change():
                    return
            all_started.append(started)
            nursery.cancel_scope.cancel()

        for node in running:
            nursery.start_soon(watch, node)
    if not all_started:
        raise DirectoryError("every node stopped before there was a leader", hint="Run `kraft check` on the result.")
    return all_started[0]


def _config(node: IsolatedNode, nodes: Sequence[IsolatedNode], directory: str, *, dynamic: bool) -> Config:
    voters = ",".join(f"{one.id}@{join_host_port(one.host, one.port)}" for one in nodes)
    servers = ",".join(join_host_port(one.host, one.port) for one in nodes)
    entries = {
        "process.roles": "controller",
        "node.id": str(node.id),
        "controller.listener.names": node.listener,
        "listeners": f"{node.listener}://{join_host_port(node.host, node.port)}",
        "listener.security.protocol.map": f"{node.listener}:PLAINTEXT",
        "log.dirs": directory,
        **({"controller.quorum.bootstrap.servers": servers} if dynamic else {"controller.quorum.voters": voters}),
        **_SETTINGS,
    }
    text = "".join(f"{key}={value}\n" for key, value in entries.items())
    return Config.parse(text, source=f"isolated node {node.id}")


def _leader_of(node: Node, log_end: int) -> Started | None:
    """The result, if the node leads, and has committed a record after `log_end` and applied everything below."""
    status, application = node.status(), node.application
    if (
        status.leader.leader_id != status.node_id
        or status.high_watermark <= log_end
        or status.applied_offset < log_end
        or not isinstance(application, ControllerServer)
    ):
        return None
    return Started(
        leader_id=status.node_id,
        epoch=status.leader.epoch,
        log_end=log_end,
        image=application.controller.history.committed.stable,
    )


MAIN_CLASS: Final = "kafka.Kafka"
NEW_RECORDS: Final = 4
"""An active controller has written so many records: its election, its registration, and NoOp records."""
_LOOK_SECONDS: Final = 0.2
_LAST_LINES: Final = 5


def start_kafka(java: str, jars: str, node: IsolatedNode, *, dynamic: bool, log_end: int, seconds: float) -> Started:
    """Start the only voter of a quorum as a controller of Apache Kafka, on a copy, until it has written records.

    Args:
        java: The path of the Java program.
        jars: The directory of Kafka's jars.
        node: The controller. Its address is replaced by one of the loopback interface.
        dynamic: Whether the voters are in the log.
        log_end: The end of the log before the start.
        seconds: The time limit.

    Returns:
        The epoch of the leader, and the image at the end of the log that it has written.

    Raises:
        DirectoryError: The controller ended, or did not lead in time; with the last lines that it printed.
        OSError: Java cannot be started.
    """
    with TemporaryDirectory(prefix="kraft-verify-") as below:
        copy = f"{below}/node-{node.id}"
        copy_tree(OsDisk(), node.directory, copy)
        properties = Path(below, "controller.properties")
        properties.write_text(_properties(node, copy, _free_port(), dynamic=dynamic))
        command = [java, "-Xmx512m", "-cp", f"{jars}/*", MAIN_CLASS, str(properties)]
        output = Path(below, "output")
        if run_tasks(_run_kafka, command, copy, output, log_end, seconds):
            return _result(node, copy, log_end)
        printed = " | ".join(output.read_text(errors="replace").splitlines()[-_LAST_LINES:])
        raise DirectoryError(
            f"Apache Kafka's controller {node.id} did not lead within {seconds:g} s; its last lines: {printed}",
            where=node.directory,
            hint="Do not start a controller on this directory. Check it with `kraft recover verify --offline`.",
        )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _properties(node: IsolatedNode, copy: str, port: int, *, dynamic: bool) -> str:
    quorum = (
        f"controller.quorum.bootstrap.servers=127.0.0.1:{port}"
        if dynamic
        else f"controller.quorum.voters={node.id}@127.0.0.1:{port}"
    )
    lines = (
        "process.roles=controller",
        f"node.id={node.id}",
        f"log.dirs={copy}",
        f"controller.listener.names={node.listener}",
        f"listener.security.protocol.map={node.listener}:PLAINTEXT",
        f"listeners={node.listener}://127.0.0.1:{port}",
        quorum,
    )
    return "".join(f"{line}\n" for line in lines)


async def _run_kafka(command: list[str], copy: str, output: Path, log_end: int, seconds: float) -> bool:
    """Run the controller until it has written records, or has ended, or time is up; returns whether it has written."""
    has_led = False
    with one_cause(), output.open("wb") as file:
        async with trio.open_nursery() as nursery:
            run = partial(
                trio.run_process, command, stdout=file, stderr=subprocess.STDOUT, check=False, cwd=os.path.dirname(copy)
            )
            process: trio.Process = await nursery.start(run)
            with trio.move_on_after(seconds):
                while process.returncode is None and not has_led:
                    end = find_log_end(OsDisk(), f"{copy}/{PARTITION_DIRECTORY}")
                    has_led = end.offset >= log_end + NEW_RECORDS
                    await trio.sleep(_LOOK_SECONDS)
            nursery.cancel_scope.cancel()
    return has_led


def _result(node: IsolatedNode, copy: str, log_end: int) -> Started:
    partition = f"{copy}/{PARTITION_DIRECTORY}"
    state = read_quorum_state(OsDisk(), partition)
    if state is None:
        raise MetadataLogError("the controller has left no quorum-state", where=partition)
    return Started(leader_id=node.id, epoch=state.leader_epoch, log_end=log_end, image=replay(copy))
