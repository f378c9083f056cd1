"""A cluster on this machine: one `kraft serve` process for each node, with real files and real ports."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from random import Random, SystemRandom
from typing import Final

import trio

from kraft.config import UsageError
from kraft.config.data_settings import replicas_of_internal_topics
from kraft.config.errors import CommandFailed
from kraft.config.node_settings import BROKER, CONTROLLER
from metadata_log.disk import OsDisk
from metadata_log.java_properties import setting
from metadata_log.log.log_dir import format_directory, read_meta_properties
from metadata_log.log.quorum_state_file import StoredElection, write_quorum_state
from metadata_log.types import PARTITION_DIRECTORY, random_uuid
from transport.interface import Endpoint

HOST: Final = "127.0.0.1"
STOP_SECONDS: Final = 10.0
"""A graceful shutdown of a controller takes at most five seconds; after this time the node is killed."""
FIRST_BROKER: Final = 101
"""The first broker id, since each node of a cluster needs its own id."""


class NodeProcess:
    """One node: its files, and its process while it runs."""

    def __init__(self, role: str, node_id: int, endpoint: Endpoint, home: Path) -> None:
        self.role = role
        self.id = node_id
        self.endpoint = endpoint
        self.directory = home / f"{role}-{node_id}"
        self.config_path = home / f"{role}-{node_id}.properties"
        self.log_path = home / f"{role}-{node_id}.log"
        self.process: trio.Process | None = None
        self._wanted = False
        """Whether the process is expected to run: it was started, and not ended by this program."""

    @property
    def partition(self) -> str:
        """The directory of the node's metadata log."""
        return str(self.directory / PARTITION_DIRECTORY)

    @property
    def pid(self) -> int | None:
        """The process id, while the process runs."""
        return self.process.pid if self.process is not None and self.is_running else None

    @property
    def is_running(self) -> bool:
        """Whether the process runs."""
        return self.process is not None and self.process.poll() is None

    @property
    def has_died(self) -> bool:
        """Whether the process ended unexpectedly."""
        return self._wanted and not self.is_running

    def ending(self) -> str:
        """A text for the end of the process."""
        code = None if self.process is None else self.process.poll()
        if code is None:
            return "not started" if self.process is None else "running"
        return f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def last_words(self) -> str:
        """The last line in the node's log."""
        lines = self.log_path.read_text("utf-8", "replace").splitlines() if self.log_path.exists() else []
        return lines[-1] if lines else "the node logged nothing"

    async def start(self) -> None:
        """Start the process, which logs to its file and ends with this process."""
        assert not self.is_running, f"node {self.id} runs already"
        # -P: a folder named kraft in the current directory must not shadow this program.
        command = [sys.executable, "-P", "-m", "kraft", "serve", "-c", str(self.config_path), "--until-stdin-closes"]
        with self.log_path.open("ab") as log:
            # The nodes get a session of their own: Ctrl-C in the terminal must reach only this process.
            self.process = await trio.lowlevel.open_process(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
            )
        self._wanted = True

    async def kill(self) -> None:
        """`kill -9`: no graceful shutdown, no flush."""
        assert self.process is not None, f"node {self.id} does not run"
        self._wanted = False
        self.process.kill()
        await self.process.wait()

    async def stop(self) -> bool:
        """Send SIGTERM, and kill after ten seconds. Returns whether the process ended by itself with exit code 0."""
        if self.process is None:
            return True
        self._wanted = False
        if self.process.poll() is None:
            self.process.terminate()
            with trio.move_on_after(STOP_SECONDS):
                await self.process.wait()
            if self.process.poll() is None:
                await self.kill()
        return self.process.returncode == 0


class LocalCluster:
    """The nodes, in ascending order of id, and the folder with all their files."""

    def __init__(self, home: Path, cluster_id: str, nodes: tuple[NodeProcess, ...]) -> None:
        self.home = home
        self.cluster_id = cluster_id
        self.nodes = nodes
        self.started_at = time.monotonic()

    @property
    def bootstrap(self) -> str:
        """The value for `--bootstrap-controller`."""
        return ",".join(str(node.endpoint) for node in self.controllers)

    @property
    def bootstrap_servers(self) -> str:
        """The value for `--bootstrap-server`; empty without brokers."""
        return ",".join(str(node.endpoint) for node in self.brokers)

    @property
    def controllers(self) -> tuple[NodeProcess, ...]:
        """The voters."""
        return tuple(node for node in self.nodes if node.role == CONTROLLER)

    @property
    def brokers(self) -> tuple[NodeProcess, ...]:
        """The brokers."""
        return tuple(node for node in self.nodes if node.role == BROKER)

    def node(self, node_id: int) -> NodeProcess:
        """The node with this id."""
        return next(node for node in self.nodes if node.id == node_id)

    def check(self) -> None:
        """Raise `CommandFailed` if a node has died."""
        for node in self.nodes:
            if node.has_died:
                raise CommandFailed(
                    f"node {node.id} {node.ending()}: {node.last_words()}", hint=f"Its log is {node.log_path}."
                )

    async def stop(self) -> dict[int, bool]:
        """Shut each node down gracefully, brokers first while controllers can answer; returns which ended cleanly."""
        clean: dict[int, bool] = {}

        async def end(node: NodeProcess) -> None:
            clean[node.id] = await node.stop()

        for nodes in (self.brokers, self.controllers):
            async with trio.open_nursery() as nursery:
                for node in nodes:
                    nursery.start_soon(end, node)
        return clean


@asynccontextmanager
async def run_cluster(
    home: Path, *, controllers: int, brokers: int, port_base: int | None
) -> AsyncIterator[LocalCluster]:
    """Format directories if necessary, start each node, and stop all of them at the end in any case."""
    cluster = prepare_cluster(home, controllers=controllers, brokers=brokers, port_base=port_base)
    try:
        for node in cluster.nodes:
            await node.start()
        yield cluster
    finally:
        with trio.CancelScope(shield=True):
            await cluster.stop()


def prepare_cluster(home: Path, *, controllers: int, brokers: int, port_base: int | None) -> LocalCluster:
    """Write configurations and format directories; a reused folder keeps its cluster and its log.

    With `port_base`, node N listens on that port + N; otherwise on free ports.
    """
    if "," in str(home):
        raise UsageError("a comma in the path of a log directory is not possible", where=str(home))
    home.mkdir(parents=True, exist_ok=True)
    roles = dict.fromkeys(range(1, controllers + 1), CONTROLLER)
    roles |= dict.fromkeys(range(FIRST_BROKER, FIRST_BROKER + brokers), BROKER)
    ports = [port_base + node_id for node_id in roles] if port_base is not None else _free_ports(len(roles))
    nodes = tuple(
        NodeProcess(role, node_id, Endpoint(HOST, port), home)
        for (node_id, role), port in zip(roles.items(), ports, strict=True)
    )
    disk, rng = OsDisk(), Random(SystemRandom().getrandbits(128))
    known = [meta for node in nodes if (meta := read_meta_properties(disk, str(node.directory))) is not None]
    cluster_id = known[0].cluster_id if known else str(random_uuid(rng))
    for node in nodes:
        node.config_path.write_text(_properties(node, nodes), "utf-8")
        format_directory(
            disk,
            str(node.directory),
            node_id=node.id,
            cluster_id=cluster_id,
            rng=rng,
            now_ms=time.time_ns() // 1_000_000,
            ignore_formatted=True,
        )
    cluster = LocalCluster(home, cluster_id, nodes)
    if not known:
        _call_first_election(disk, cluster.controllers)
    return cluster


def _call_first_election(disk: OsDisk, controllers: Sequence[NodeProcess]) -> None:
    """Let one controller begin as a candidate that ended: it asks for votes at once, and no election timeout passes."""
    first, voters = controllers[0], tuple(one.id for one in controllers)
    write_quorum_state(disk, first.partition, StoredElection(leader_epoch=1, voted_id=first.id, current_voters=voters))


def _properties(node: NodeProcess, nodes: Sequence[NodeProcess]) -> str:
    is_broker = node.role == BROKER
    settings = {
        "process.roles": node.role,
        "node.id": str(node.id),
        "controller.listener.names": "CONTROLLER",
        "listeners": f"{'PLAINTEXT' if is_broker else 'CONTROLLER'}://{node.endpoint}",
        "controller.quorum.voters": ",".join(f"{one.id}@{one.endpoint}" for one in nodes if one.role == CONTROLLER),
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": os.fspath(node.directory.absolute()),
    }
    if is_broker:
        brokers = sum(one.role == BROKER for one in nodes)
        settings |= {
            "broker.heartbeat.interval.ms": "500",
            # As in the files that come with Kafka: nobody waits for further members of a group.
            "group.initial.rebalance.delay.ms": "0",
            **replicas_of_internal_topics(brokers),
        }
    else:
        settings |= {"controller.quorum.append.linger.ms": "0", "broker.session.timeout.ms": "3000"}
    return "".join(setting(key, value) + "\n" for key, value in settings.items())


def _free_ports(count: int) -> list[int]:
    """Free ports; the sockets stay open during the selection, so that the ports differ."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((HOST, 0))
        return [int(one.getsockname()[1]) for one in sockets]
