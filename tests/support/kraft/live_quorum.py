"""Real controllers and broker agents over TCP, in a thread of this process: for a screen with a loop of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from threading import Event, Thread
from typing import Any

import trio

from kraft.admin import open_admin
from kraft.admin.topics import create_topic
from kraft.config import Config
from kraft.node.clock import NodeClock
from kraft.node.embed import tcp_transport
from kraft.node.metrics.monitor import Monitor
from kraft.node.run import run_node
from metadata_log.disk import OsDisk
from metadata_log.log.log_dir import format_directory
from support.loopback import free_ports
from transport.interface import Endpoint

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
CONTROLLERS = (1, 2, 3)
BROKERS = (101, 102)
START_SECONDS = 60


class LiveQuorum:
    """Three controllers with metrics listeners, and two broker agents. Use `live_quorum`."""

    def __init__(self, directory: Path) -> None:
        ids = (*CONTROLLERS, *BROKERS)
        ports = free_ports(2 * len(CONTROLLERS) + len(BROKERS))
        self.ports = dict(zip(ids, ports, strict=False))
        self.metrics = dict(zip(CONTROLLERS, ports[len(ids) :], strict=True))
        self.endpoints = tuple(Endpoint("127.0.0.1", self.ports[one]) for one in CONTROLLERS)
        self._configs = {one: self._config(directory, one) for one in ids}
        self._lives: dict[int, trio.CancelScope] = {}
        self._token: trio.lowlevel.TrioToken | None = None
        self._nursery: trio.Nursery | None = None
        self._ready = Event()
        self._failure: BaseException | None = None

    def _config(self, directory: Path, node_id: int) -> Config:
        role = "controller" if node_id in CONTROLLERS else "broker"
        listener = "CONTROLLER" if node_id in CONTROLLERS else "PLAINTEXT"
        voters = ",".join(f"{one}@127.0.0.1:{self.ports[one]}" for one in CONTROLLERS)
        settings = {
            "process.roles": role,
            "node.id": node_id,
            "controller.listener.names": "CONTROLLER",
            "listeners": f"{listener}://127.0.0.1:{self.ports[node_id]}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "controller.quorum.voters": voters,
            "controller.quorum.election.timeout.ms": 300,
            "controller.quorum.fetch.timeout.ms": 600,
            "broker.heartbeat.interval.ms": 200,
            "broker.session.timeout.ms": 1_500,
            "log.dirs": directory / str(node_id),
        }
        if node_id in CONTROLLERS:
            settings["kraft.metrics.listener"] = self.metrics[node_id]
        config = Config.parse("".join(f"{key}={value}\n" for key, value in settings.items()))
        format_directory(
            OsDisk(), config.metadata_log_dir, node_id=node_id, cluster_id=CLUSTER_ID, rng=Random(node_id), now_ms=1
        )
        return config

    def _run(self) -> None:
        async def main() -> None:
            self._token = trio.lowlevel.current_trio_token()
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                for node_id in self._configs:
                    await nursery.start(self._live, node_id)
                self._ready.set()
                await trio.sleep_forever()

        try:
            trio.run(main)
        except BaseException as failed:
            self._failure = failed
        finally:
            self._ready.set()

    async def _live(self, node_id: int, task_status: trio.TaskStatus[None]) -> None:
        config, clock = self._configs[node_id], NodeClock()
        with trio.CancelScope() as self._lives[node_id]:
            async with trio.open_nursery() as nursery:
                await nursery.start(
                    partial(
                        run_node,
                        config,
                        transport=tcp_transport(config),
                        disk=OsDisk(),
                        rng=Random(node_id),
                        clock=clock,
                        application=None,
                        monitor=Monitor(config, clock) if node_id in CONTROLLERS else None,
                    )
                )
                task_status.started()

    def do(self, work: Callable[..., Awaitable[Any]], *arguments: object) -> Any:
        """Run some work in the loop of the nodes, from another thread."""
        return trio.from_thread.run(work, *arguments, trio_token=self._token)

    def kill(self, node_id: int) -> None:
        """End a node at once, without a graceful shutdown."""
        trio.from_thread.run_sync(self._lives[node_id].cancel, trio_token=self._token)

    def create_topic(self, name: str, partitions: int, **configs: str) -> None:
        """A topic with a replica on each broker."""

        async def create() -> None:
            async with open_admin(self.endpoints, timeout_ms=START_SECONDS * 1000) as admin:
                await create_topic(admin, name, partitions=partitions, replication_factor=len(BROKERS), configs=configs)

        self.do(create)

    def leader(self) -> int:
        """The leader as the controllers name it."""

        async def ask() -> int:
            async with open_admin(self.endpoints, timeout_ms=START_SECONDS * 1000) as admin:
                return (await admin.describe_quorum()).leader_id

        found: int = self.do(ask)
        return found


@contextmanager
def live_quorum(directory: Path) -> Iterator[LiveQuorum]:
    """Nodes that run until the block ends."""
    quorum = LiveQuorum(directory)
    thread = Thread(target=quorum._run, daemon=True)
    thread.start()
    try:
        assert quorum._ready.wait(START_SECONDS)
        assert quorum._failure is None, quorum._failure
        yield quorum
    finally:
        if quorum._token is not None and quorum._nursery is not None and thread.is_alive():
            quorum._token.run_sync_soon(quorum._nursery.cancel_scope.cancel)
        thread.join(START_SECONDS)
    assert quorum._failure is None, quorum._failure
