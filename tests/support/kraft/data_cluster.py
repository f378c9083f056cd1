"""A controller and brokers with data in a thread of their own, for clients over TCP; brokers can be killed."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import trio

from kraft.admin import AdminClient, create_topic, open_admin
from kraft.config import Config
from kraft.node.broker_node import BrokerNode
from kraft.node.clock import NodeClock
from kraft.node.embed import tcp_transport
from kraft.node.node import Node
from kraft.node.run import run_node
from kraft.observer import read_image
from kraft.process.hosting import controller_of, node_with_data
from metadata_log.disk import DirectoryDisk, OsDisk
from metadata_log.image import MetadataImage
from metadata_log.log.log_dir import format_directory
from metadata_log.releases import LATEST_RELEASE, METADATA_VERSIONS, resolve_release
from support.eventually import pause
from support.loopback import free_ports
from transport.interface import Endpoint

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
CONTROLLER = 1
FIRST_BROKER = 101
PATIENCE_SECONDS = 60


class DataCluster:
    """The nodes, and what a test does to them from its own thread."""

    def __init__(
        self,
        directory: Path,
        brokers: int,
        combined: int,
        settings: dict[str, str],
        disk: DirectoryDisk | None = None,
        release: str = LATEST_RELEASE,
    ) -> None:
        self._release = release
        both = tuple(range(1, combined + 1))
        ids = both or (CONTROLLER, *range(FIRST_BROKER, FIRST_BROKER + brokers))
        ports = free_ports(len(ids) + len(both))
        self.ports = dict(zip(ids, ports[: len(ids)], strict=True))
        """The port of each node: of a broker that for clients."""
        self.controllers = dict(zip(both, ports[len(ids) :], strict=True)) or {CONTROLLER: self.ports[CONTROLLER]}
        """The port of each controller."""
        self.nodes: dict[int, Node] = {}
        self._disk = OsDisk() if disk is None else disk
        self._ended: dict[int, trio.Event] = {}
        self._configs = {node_id: self._config(directory, node_id, settings) for node_id in ids}
        self._lives: dict[int, trio.CancelScope] = {}
        self._failure: BaseException | None = None
        self._ready = threading.Event()
        self._token: trio.lowlevel.TrioToken
        self._nursery: trio.Nursery
        self._thread = threading.Thread(target=self._run, name="brokers")
        self._thread.start()
        assert self._ready.wait(PATIENCE_SECONDS)
        if self._failure is not None:
            raise self._failure

    @property
    def controller(self) -> Endpoint:
        """The address of the controller."""
        return Endpoint("127.0.0.1", min(self.controllers.items())[1])

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """The addresses of the brokers."""
        return tuple(
            Endpoint("127.0.0.1", port) for port in self.ports.values() if port not in self.controllers.values()
        )

    @property
    def bootstrap(self) -> str:
        """The value for `--bootstrap-server`."""
        return ",".join(map(str, self.endpoints))

    def _config(self, directory: Path, node_id: int, more: dict[str, str]) -> Config:
        roles = {
            "controller": f"CONTROLLER://127.0.0.1:{self.controllers.get(node_id)}",
            "broker": f"PLAINTEXT://127.0.0.1:{self.ports[node_id]}",
        }
        if node_id not in self.controllers:
            del roles["controller"]
        elif self.controllers[node_id] == self.ports[node_id]:
            del roles["broker"]
        settings = {
            "process.roles": ",".join(roles),
            "node.id": node_id,
            "controller.quorum.voters": ",".join(f"{one}@127.0.0.1:{at}" for one, at in self.controllers.items()),
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "listeners": ",".join(roles.values()),
            "controller.quorum.election.timeout.ms": 300,
            "controller.quorum.fetch.timeout.ms": 600,
            "controller.quorum.append.linger.ms": 0,
            "broker.heartbeat.interval.ms": 100,
            "broker.session.timeout.ms": 1_000,
            "log.dirs": directory / str(node_id),
            **more,
        }
        config = Config.parse("".join(f"{key}={value}\n" for key, value in settings.items()))
        format_directory(
            OsDisk(),
            config.metadata_log_dir,
            node_id=node_id,
            cluster_id=CLUSTER_ID,
            rng=Random(node_id),
            now_ms=1,
            release=self._release,
        )
        return config

    def _run(self) -> None:
        async def main() -> None:
            self._token = trio.lowlevel.current_trio_token()
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                for node_id in self._configs:
                    await nursery.start(self._live, node_id)
                await self._until(lambda image: all(not one.fenced for _, one in image.brokers.by_id.items()))
                for node in self.nodes.values():
                    if isinstance(node, BrokerNode):
                        await node.serves.wait()  # Its listeners open once it has read that it is not fenced.
                self._ready.set()
                await trio.sleep_forever()

        try:
            trio.run(main)
        except BaseException as failed:
            self._failure = failed
        finally:
            self._ready.set()

    async def _live(self, node_id: int, task_status: trio.TaskStatus[None]) -> None:
        config, disk = self._configs[node_id], self._disk
        ended = self._ended[node_id] = trio.Event()
        with trio.CancelScope() as self._lives[node_id]:
            async with trio.open_nursery() as nursery:
                self.nodes[node_id] = await nursery.start(
                    partial(
                        run_node,
                        config,
                        transport=tcp_transport(config, serves_clients=config.is_broker),
                        disk=disk,
                        rng=Random(node_id),
                        clock=NodeClock(),
                        application=node_with_data(config, disk) if config.is_broker else None,
                    )
                )
                task_status.started()
        ended.set()

    @property
    def _has_direct_controllers(self) -> bool:
        """Whether controllers answer clients (KIP-919), by the level that the cluster began with."""
        return METADATA_VERSIONS[resolve_release(self._release)] >= METADATA_VERSIONS["3.7-IV0"]

    def _image(self) -> MetadataImage:
        host = controller_of(self.nodes[min(self.controllers)].application)
        assert host is not None
        return host.committed_image()

    def open_admin(self) -> AbstractAsyncContextManager[AdminClient]:
        """A client of the controllers, through the brokers where controllers answer no clients."""
        if not self._has_direct_controllers:
            return open_admin(self.endpoints, forwarded=True)
        return open_admin([Endpoint("127.0.0.1", port) for port in self.controllers.values()])

    async def _until(self, wanted: Callable[[MetadataImage], bool]) -> MetadataImage:
        brokers = len(self.endpoints)
        async with self.open_admin() as admin:
            while True:
                image = await read_image(admin) if self._has_direct_controllers else self._image()
                if len(image.brokers.by_id) == brokers and wanted(image):
                    return image
                await pause()

    def do(self, work: Callable[..., Awaitable[Any]], *arguments: object) -> Any:
        """Run some work in the loop of the nodes, from another thread."""
        return trio.from_thread.run(work, *arguments, trio_token=self._token)

    def until(self, wanted: Callable[[MetadataImage], bool]) -> MetadataImage:
        """Wait until the metadata meets a condition."""
        found = self.do(self._until, wanted)
        assert isinstance(found, MetadataImage)
        return found

    def create_topic(self, name: str, partitions: int = 1, replicas: int = 1, **configs: str) -> None:
        """A topic with all its replicas in sync; underscores in names of settings stand for dots."""
        settings = {key.replace("_", "."): value for key, value in configs.items()}

        async def create() -> None:
            async with self.open_admin() as admin:
                await create_topic(admin, name, partitions=partitions, replication_factor=replicas, configs=settings)

        self.do(create)

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """The leader of a partition by the metadata."""
        return self.until(lambda image: topic in image.topics).topics[topic].partitions[partition].leader

    def kill(self, node_id: int) -> None:
        """End a node at once, without a graceful shutdown."""
        trio.from_thread.run_sync(self._lives[node_id].cancel, trio_token=self._token)
        self.do(self._ended[node_id].wait)

    def stop(self, node_id: int) -> None:
        """Shut a node down gracefully."""
        self.do(self.nodes[node_id].shutdown)
        self.do(self._ended[node_id].wait)

    def start(self, node_id: int) -> None:
        """Start a killed node again."""
        self.do(self._nursery.start, self._live, node_id)

    def end(self) -> None:
        """End all nodes at once."""
        trio.from_thread.run_sync(self._nursery.cancel_scope.cancel, trio_token=self._token)
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive()
        if self._failure is not None:
            raise self._failure


@contextmanager
def data_cluster(
    directory: Path, brokers: int = 1, combined: int = 0, *, release: str = LATEST_RELEASE, **settings: str
) -> Iterator[DataCluster]:
    """A running cluster, with so many nodes of both roles instead if `combined`; underscores stand for dots.

    `release` is what the directories are formatted for.
    """
    values = {key.replace("_", "."): value for key, value in settings.items()}
    cluster = DataCluster(directory, brokers, combined, values, release=release)
    try:
        yield cluster
    finally:
        cluster.end()


@contextmanager
def data_cluster_on(disk: DirectoryDisk, directory: Path, **settings: str) -> Iterator[DataCluster]:
    """A controller and a broker, both with this disk."""
    cluster = DataCluster(directory, 1, 0, {key.replace("_", "."): value for key, value in settings.items()}, disk)
    try:
        yield cluster
    finally:
        cluster.end()
