"""A cluster that serves any client over TCP: all its nodes in one Trio loop, with their disks in memory.

The nodes are those of production, with real elections, fencing and replicas in sync. Only their disks are in memory, so
that nothing waits for an fsync and nothing stays behind, unless the `Layout` has a directory. `kraft.testing.kafka`
runs such a cluster in a thread, for tests that know nothing of Trio.
"""

from __future__ import annotations

import logging
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, contextmanager
from functools import partial
from random import Random, SystemRandom
from typing import TYPE_CHECKING, Any, Final

import trio
from msgspec import Struct
from msgspec.structs import replace

from kraft.broker.server import BrokerServer
from kraft.config import Config
from kraft.controller.topics.partition_updates import is_active
from kraft.node.embed import tcp_transport
from kraft.node.logging import NodeLog
from kraft.node.node import Node
from kraft.node.run import run_node
from kraft.node.users import NodeUsers
from kraft.process.hosting import broker_of, controller_of
from kraft.security.contexts import LoadedTls
from kraft.testing.faults import Faults, FaultyTransport, JumpingClock, Wires
from kraft.testing.identities import HOST, MECHANISMS, Accounts, Authority, TlsWhenNeeded
from kraft.testing.settings import coordinator_topics
from metadata_log.disk import OsDisk, make_directory, remove_tree
from metadata_log.image import MetadataImage
from metadata_log.java_properties import setting
from metadata_log.log.log_dir import format_directory, read_meta_properties
from metadata_log.log.quorum_state_file import StoredElection, write_quorum_state
from metadata_log.memory_disk import MemoryDisk
from metadata_log.types import NO_NODE, PARTITION_DIRECTORY, random_uuid
from transport.faults import FaultPlan
from transport.interface import Endpoint
from transport.tls import Tls

if TYPE_CHECKING:
    from kraft.admin import AdminClient
    from kraft.client import Client

DIRECTORY: Final = "/kafka"
"""The log directory of each node, on a disk in memory."""
FIRST_BROKER: Final = 101
CONTROLLER: Final = "CONTROLLER"
INTERNAL: Final = "INTERNAL"
"""The listener of brokers for each other."""
SECURITY: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""The listeners of clients, by their protocols."""
LOOK_SECONDS: Final = 0.01
"""How often a condition is looked at of which nobody tells."""
_LATEST: Final[Mapping[str, str]] = {
    # Failures are noticed soon. Kafka's defaults make a test of a fail-over wait for ten seconds and more.
    "controller.quorum.election.timeout.ms": "150",
    "controller.quorum.fetch.timeout.ms": "750",
    "controller.quorum.request.timeout.ms": "750",
    "controller.quorum.append.linger.ms": "0",
    "broker.session.timeout.ms": "1500",
    "broker.heartbeat.interval.ms": "150",
    # As in the files that come with Kafka: nobody waits for further members of a group.
    "group.initial.rebalance.delay.ms": "0",
    # Members of KIP-848 hear of each other with their next heartbeat, which is five seconds away in Kafka.
    "group.consumer.min.heartbeat.interval.ms": "250",
    "group.consumer.heartbeat.interval.ms": "250",
    # Everybody may do everything until a test creates ACLs; a client without login is always an administrator.
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "allow.everyone.if.no.acl.found": "true",
}


class Layout(Struct, frozen=True, kw_only=True):
    """The parts of a cluster.

    Args:
        brokers: The number of brokers.
        controllers: The number of controllers; 0 for one node with both roles.
        settings: Kafka properties for each node.
        auto_create: Whether a client that names a topic creates it.
        seed: The seed of everything that is random: elections, ids, faults.
        ports: The ports of clients' listeners by protocol, for the first broker; others come from the system.
        directory: The directory in which each node has one; it is used again if a cluster was there. Empty for disks in
            memory.
    """

    brokers: int = 1
    controllers: int = 0
    settings: Mapping[str, str] = {}
    auto_create: bool = True
    seed: int = 0
    ports: Mapping[str, int] = {}
    directory: str = ""

    def directory_of(self, node_id: int) -> str:
        """The log directory of a node."""
        return f"{self.directory}/node-{node_id}" if self.directory else DIRECTORY

    @property
    def controller_ids(self) -> tuple[int, ...]:
        """The ids of the controllers."""
        return tuple(range(1, max(self.controllers, 1) + 1))

    @property
    def broker_ids(self) -> tuple[int, ...]:
        """The ids of the brokers."""
        return tuple(range(FIRST_BROKER, FIRST_BROKER + self.brokers)) if self.controllers else (1,)

    @property
    def ids(self) -> tuple[int, ...]:
        """The ids of all nodes."""
        return tuple(dict.fromkeys((*self.controller_ids, *self.broker_ids)))


class NodeDown(Exception):
    """A node that does not run was asked for something."""


class _Life:
    """One run of one node."""

    def __init__(self, transport: FaultyTransport) -> None:
        self.transport = transport
        self.scope = trio.CancelScope()
        self.ended = trio.Event()
        self.node: Node | None = None


class LiveCluster:
    """The nodes of a `Layout`. Use `open_cluster`.

    Args:
        layout: What the cluster consists of.
        accounts: The users that log in with SASL.
        authority: What has signed the certificates of the brokers.
    """

    def __init__(self, layout: Layout, accounts: Accounts, authority: Authority) -> None:
        for name, number in (("brokers", layout.brokers), ("controllers", layout.controllers)):
            if not isinstance(number, int):
                raise TypeError(f"{name} is a whole number, and not {number!r}")
        if layout.brokers < 1 or layout.controllers < 0 or (not layout.controllers and layout.brokers > 1):
            given = f"brokers={layout.brokers} and controllers={layout.controllers}"
            raise ValueError(
                f"a cluster has a broker, and several brokers have at least one controller, and not {given}"
            )
        self.layout = layout
        self.rng = Random(f"live cluster {layout.seed}")
        self.wires = Wires(FaultPlan(Random(f"wires {layout.seed}")), (CONTROLLER, INTERNAL))
        self.faults = {node_id: Faults() for node_id in layout.ids}
        self.ended_by: dict[int, Exception] = {}
        """The failures that ended nodes, by id."""
        self.disks: dict[int, MemoryDisk | OsDisk] = {}
        self.cluster_id = str(random_uuid(self.rng))
        for node_id in layout.ids if layout.directory else ():
            meta = read_meta_properties(OsDisk(), layout.directory_of(node_id))
            if meta is not None:
                # The seed would draw the ids anew that are on the disk.
                self.cluster_id, self.rng = meta.cluster_id, Random(SystemRandom().getrandbits(128))
        self._accounts = accounts
        self._tls = TlsWhenNeeded([one for one in SECURITY if one.endswith("SSL")], authority.server)
        self._lives: dict[int, _Life] = {}
        self._ports: dict[tuple[int, str], int] = {}
        self._configs: dict[int, Config] = {}
        self._changed = trio.Event()
        self._nursery: trio.Nursery | None = None

    # Lifecycle

    async def run_in(self, nursery: trio.Nursery) -> None:
        """Start all nodes as tasks of this nursery; returns once every broker serves."""
        self._nursery = nursery
        self.clock = JumpingClock()
        await self._begin()

    async def _begin(self) -> None:
        for node_id in self.layout.ids:
            # All of them before a node starts: a wrong setting is one error, and not one of each node.
            if node_id not in self._configs:
                self._configs[node_id] = self._config(node_id)
        controllers = self.layout.controller_ids
        brokers = [one for one in self.layout.broker_ids if one not in controllers]
        formatted = [self._format(node_id) for node_id in self.layout.ids]
        is_new = all(formatted)
        first = self.rng.choice(controllers)
        if is_new and len(controllers) > 1:
            self._call_first_election(first)
        await self._start_all(controllers)
        if is_new and brokers:
            await self._tell_the_leader(first, brokers)
        await self._start_all(brokers)
        await self.wait_until_serving()

    async def _start_all(self, node_ids: Sequence[int]) -> None:
        async with trio.open_nursery() as nursery:
            for node_id in node_ids:
                nursery.start_soon(self.start, node_id)

    def _format(self, node_id: int) -> bool:
        """Format the directory of a node; returns whether it is new."""
        disk = self.disks[node_id] = OsDisk() if self.layout.directory else MemoryDisk()
        return format_directory(
            disk,
            self.layout.directory_of(node_id),
            node_id=node_id,
            cluster_id=self.cluster_id,
            rng=self.rng,
            now_ms=self.clock.now_ms(),
            is_controller=node_id in self.layout.controller_ids,
            ignore_formatted=True,
        )

    def _call_first_election(self, node_id: int) -> None:
        """Let a controller begin as one that ended when it had stood for the first election: it asks for votes at once.

        Otherwise every controller of a new cluster waits for its election timeout, and nobody does anything.
        """
        self._store(node_id, StoredElection(leader_epoch=1, voted_id=node_id))

    async def _tell_the_leader(self, controller: int, brokers: Sequence[int]) -> None:
        """Let brokers begin as ones that a controller has told who leads: they register at once.

        Otherwise each of them finds no controller at its start, and asks the next time after Kafka's 100 ms.
        """
        async for known in self.node(controller).leaders():
            if known.leader_id != NO_NODE:
                for node_id in brokers:
                    self._store(node_id, StoredElection(leader_epoch=known.epoch, leader_id=known.leader_id))
                return

    def _store(self, node_id: int, election: StoredElection) -> None:
        """Write what a node that has not started yet knows of the election."""
        disk, partition = self.disks[node_id], f"{self.layout.directory_of(node_id)}/{PARTITION_DIRECTORY}"
        make_directory(disk, partition)
        write_quorum_state(disk, partition, replace(election, current_voters=self.layout.controller_ids))

    async def reset(self) -> None:
        """Begin anew with empty disks, on the same ports: no topic, group, ACL or transaction is left, and no fault."""
        for node_id in list(self._lives):
            self._lives[node_id].scope.cancel()
        while self._lives:
            await self._changed.wait()
        self.ended_by.clear()
        self.heal()
        self.wires.forget_shares()
        for node_id, disk in self.disks.items():
            if isinstance(disk, OsDisk):
                remove_tree(disk, self.layout.directory_of(node_id))
        await self._begin()

    async def beside(self, task: Callable[..., Awaitable[object]]) -> Any:
        """Start a task that ends with the cluster; returns what it reports once it has started."""
        assert self._nursery is not None, "the cluster is not open"
        return await self._nursery.start(task)

    async def start(self, node_id: int) -> None:
        """Start a node with the contents of its disk."""
        if node_id in self._lives:
            raise ValueError(f"node {node_id} is running")
        assert self._nursery is not None, "the cluster is not open"
        self.ended_by.pop(node_id, None)
        await self._nursery.start(self._live, node_id)

    async def _live(self, node_id: int, task_status: trio.TaskStatus[None]) -> None:
        config = self._configs[node_id]
        users = NodeUsers(config)
        users.sasl = self._accounts.added_to(users.sasl)
        transport = tcp_transport(
            config,
            tls=LoadedTls(Tls(listeners=self._tls)),
            users=users,
            serves_clients=config.is_broker,
            make=partial(FaultyTransport, node_id=node_id, wires=self.wires, faults=self.faults[node_id]),
        )
        assert isinstance(transport, FaultyTransport)
        run = partial(
            run_node,
            config,
            transport=transport,
            users=users,
            disk=self.disks[node_id],
            rng=Random(self.rng.getrandbits(64)),
            clock=self.clock,
            inline_flush=not self.layout.directory,
        )
        life = _Life(transport)
        self._lives[node_id] = life
        try:
            with life.scope:
                async with trio.open_nursery() as nursery:
                    node = life.node = await nursery.start(run)
                    transport.broker = lambda: broker_of(node.application)
                    task_status.started()
        except Exception as failed:
            # As the end of a process: the other nodes go on.
            if life.node is None:
                raise
            self.ended_by[node_id] = failed
            NodeLog(node_id, self.clock.now_ms).write("ended", {"failure": repr(failed)}, logging.ERROR)
        finally:
            del self._lives[node_id]
            life.ended.set()
            self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def kill(self, node_id: int, *, loses_power: bool = False) -> None:
        """End a node like `kill -9`, or like a power failure, which loses what was not flushed."""
        life = self.life(node_id)
        disk = self.disks[node_id]
        if isinstance(disk, MemoryDisk):
            # The dying node keeps its old disk, so that its last writes do not reach the remaining one.
            disk = self.disks[node_id] = disk.fork()
            if loses_power:
                disk.crash(self.rng)
            else:
                disk.kill()
        elif loses_power:
            raise ValueError("only a disk in memory can lose what was not flushed")
        life.scope.cancel()
        await life.ended.wait()

    async def stop(self, node_id: int) -> None:
        """Shut a node down gracefully."""
        life = self.life(node_id)
        assert life.node is not None
        await life.node.shutdown()
        await life.ended.wait()

    # What goes wrong

    def heal(self) -> None:
        """End all faults of network, disks and requests, and let paused nodes go on; nodes that ended stay so."""
        self.wires.plan.heal()
        self.wires.failures.clear()
        for node_id, disk in self.disks.items():
            if isinstance(disk, MemoryDisk):
                disk.free_bytes = None
            self.resume(node_id)
            self.faults[node_id].heal()

    def fill(self, node_id: int, free_bytes: int) -> None:
        """Let no more than so many bytes be written at a node."""
        disk = self.disks[node_id]
        if not isinstance(disk, MemoryDisk):
            raise ValueError("only a disk in memory can be full on purpose")
        disk.free_bytes = free_bytes

    def can_fail(self, api: int) -> bool:
        """Whether requests of an API have an answer with an error."""
        from kraft.testing.refusals import can_be_refused

        for node_id in self.layout.broker_ids:
            life = self._lives.get(node_id)
            if life is not None and life.node is not None:
                return can_be_refused(self.broker(node_id).requests.table, api)
        raise NodeDown("no broker runs")

    def resume(self, node_id: int) -> None:
        """Let a paused node go on."""
        faults = self.faults[node_id]
        if faults.is_paused:
            faults.is_paused = False
            if node_id in self._lives:
                self._lives[node_id].transport.resume()

    def jump(self, seconds: float) -> None:
        """Let the clocks of all nodes jump ahead."""
        self.clock.ahead_ms += int(seconds * 1000)
        for life in self._lives.values():
            life.transport.wake()

    # What runs

    @property
    def running(self) -> tuple[int, ...]:
        """The nodes that run."""
        return tuple(self._lives)

    def life(self, node_id: int) -> _Life:
        """The run of a node; raises `NodeDown`."""
        if node_id not in self.layout.ids:
            raise NodeDown(f"there is no node {node_id!r}; there are {', '.join(map(str, self.layout.ids))}")
        if node_id not in self._lives:
            why = f": {self.ended_by[node_id]!r}" if node_id in self.ended_by else ""
            raise NodeDown(f"node {node_id} does not run{why}")
        return self._lives[node_id]

    def node(self, node_id: int) -> Node:
        """A node that runs."""
        node = self.life(node_id).node
        if node is None:
            raise NodeDown(f"node {node_id} is starting")
        return node

    def broker(self, node_id: int) -> BrokerServer:
        """The broker of a node that runs."""
        broker = broker_of(self.node(node_id).application)
        if broker is None:
            raise ValueError(f"node {node_id} is no broker")
        return broker

    @property
    def image(self) -> MetadataImage:
        """The newest committed metadata of a controller that runs."""
        return max(self._images().values(), key=_end, default=MetadataImage())

    def newest_log(self) -> tuple[MemoryDisk | OsDisk, str]:
        """The controller's log directory with the newest committed metadata; of a disk in memory a copy."""
        images = self._images()
        newest = max(images, key=lambda one: _end(images[one]), default=self.layout.controller_ids[0])
        disk = self.disks[newest]
        return disk.fork() if isinstance(disk, MemoryDisk) else disk, self.layout.directory_of(newest)

    def _images(self) -> dict[int, MetadataImage]:
        """The committed image of each controller that runs."""
        images = {}
        for node_id in self.layout.controller_ids:
            life = self._lives.get(node_id)
            host = None if life is None or life.node is None else controller_of(life.node.application)
            if host is not None:
                images[node_id] = host.controller.history.committed.stable
        return images

    @property
    def active_controller(self) -> int | None:
        """The controller that decides; None during an election."""
        active = [one for one, life in list(self._lives.items()) if life.node is not None and life.node.is_active]
        return active[0] if len(active) == 1 else None

    async def wait_until_serving(self, *node_ids: int) -> None:
        """Wait until these brokers, or all that run, are unfenced and accept connections, and every broker names them.

        librdkafka waits for ever when the first broker that it asks, right after a start, names no broker at all.
        """
        started = node_ids or tuple(one for one in self.layout.broker_ids if one in self._lives)
        for node_id in started:
            life = self.life(node_id)
            await self._until_opened(life)
            self.life(node_id)
        await self.wait_until_known(lambda image: all(is_active(image, one) for one in started))

    async def _until_opened(self, life: _Life) -> None:
        async with trio.open_nursery() as nursery:

            async def ended() -> None:
                await life.ended.wait()
                nursery.cancel_scope.cancel()

            nursery.start_soon(ended)
            await life.transport.has_opened.wait()
            nursery.cancel_scope.cancel()

    async def wait_until_known(self, holds: Callable[[MetadataImage], bool]) -> None:
        """Wait until this holds for the metadata of every broker that serves.

        A broker that hangs, or that the controllers count as dead, is not waited for.
        """
        for broker_id in self.layout.broker_ids:
            while (node := self._serving(broker_id)) is not None and not holds(
                self.broker(broker_id).committed_image()
            ):
                with trio.move_on_after(LOOK_SECONDS):
                    if not await node.wait_for_change():
                        break

    def _serving(self, broker_id: int) -> Node | None:
        life = self._lives.get(broker_id)
        if life is None or self.faults[broker_id].is_paused or self.is_fenced(broker_id):
            return None
        return life.node

    def is_fenced(self, broker_id: int) -> bool:
        """Whether the controllers count a broker as dead."""
        return not is_active(self.image, broker_id)

    # Addresses

    def endpoints(self, security: str) -> tuple[Endpoint, ...]:
        """The addresses of the brokers for clients with this protocol."""
        if security not in SECURITY:
            raise ValueError(f"there is no security protocol {security!r}; there are {', '.join(SECURITY)}")
        return tuple(Endpoint(HOST, self._ports[one, security]) for one in self.layout.broker_ids)

    @property
    def controllers(self) -> tuple[Endpoint, ...]:
        """The addresses of the controllers."""
        return tuple(Endpoint(HOST, self._ports[one, CONTROLLER]) for one in self.layout.controller_ids)

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings about the configuration of a broker."""
        return self._configs[self.layout.broker_ids[0]].warnings

    def admin(self) -> AbstractAsyncContextManager[AdminClient]:
        """A client of the controllers."""
        from kraft.admin import open_admin

        return open_admin(self.controllers)

    def client(self) -> AbstractAsyncContextManager[Client]:
        """A client of the brokers, which may do everything."""
        from kraft.client import open_client

        rng = Random(self.rng.getrandbits(64))
        return open_client(self.endpoints("PLAINTEXT"), rng=rng, start_ms=self.clock.now_ms())

    @contextmanager
    def reserved_ports(self) -> Iterator[None]:
        """Choose a port for each listener, and keep it for this cluster, also while its node does not run.

        On Linux a socket that is bound and does not listen keeps others away from its port, and lets a node listen
        there. Elsewhere somebody else may get the port of a node that does not run.
        """
        with ExitStack() as held:
            sockets = []
            for node_id in self.layout.ids:
                for name in self._listeners(node_id):
                    wanted = self.layout.ports.get(name, 0) if node_id == self.layout.broker_ids[0] else 0
                    one = held.enter_context(socket.socket())
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    one.bind((HOST, wanted))
                    sockets.append(one)
                    port = self._ports[node_id, name] = int(one.getsockname()[1])
                    if name in self.wires.for_nodes:
                        self.wires.nodes[port] = node_id
            if sys.platform != "linux":
                held.close()
            yield

    def _listeners(self, node_id: int) -> tuple[str, ...]:
        roles = [CONTROLLER] if node_id in self.layout.controller_ids else []
        return (*roles, INTERNAL, *SECURITY) if node_id in self.layout.broker_ids else tuple(roles)

    def _config(self, node_id: int) -> Config:
        """The configuration of a node; raises `ConfigError` for a wrong setting of the layout."""
        config = Config.parse(self._properties(node_id), source=f"node {node_id}")
        if any(config.tls.outgoing.values()):
            raise ValueError("nodes of a test reach each other without TLS: leave inter.broker.listener.name out")
        return config

    def _properties(self, node_id: int) -> str:
        layout = self.layout
        names = self._listeners(node_id)
        settings = {
            "process.roles": ",".join(
                role
                for role, ids in (("broker", layout.broker_ids), ("controller", layout.controller_ids))
                if node_id in ids
            ),
            "node.id": str(node_id),
            "controller.quorum.voters": ",".join(
                f"{one}@{HOST}:{self._ports[one, CONTROLLER]}" for one in layout.controller_ids
            ),
            "controller.listener.names": CONTROLLER,
            "listeners": ",".join(f"{name}://{HOST}:{self._ports[node_id, name]}" for name in names),
            "listener.security.protocol.map": ",".join(
                f"{name}:{name if name in SECURITY else 'PLAINTEXT'}" for name in (CONTROLLER, INTERNAL, *SECURITY)
            ),
            "log.dirs": layout.directory_of(node_id),
            **_LATEST,
        }
        if node_id in layout.broker_ids:
            settings |= {
                "inter.broker.listener.name": INTERNAL,
                "auto.create.topics.enable": str(layout.auto_create).lower(),
                **coordinator_topics(layout.brokers),
                # The certificate is made when a client needs it; nothing reads this file.
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": "made-when-needed.pem",
                "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            }
            for name in SECURITY:
                for mechanism in MECHANISMS if name.startswith("SASL") else ():
                    kind = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
                    settings[f"listener.name.{name.lower()}.{mechanism.lower()}.sasl.jaas.config"] = (
                        f"org.apache.kafka.common.security.{kind}LoginModule required;"
                    )
        settings |= layout.settings
        return "".join(setting(key, value) + "\n" for key, value in settings.items())


def _end(image: MetadataImage) -> int:
    return image.end.offset


@asynccontextmanager
async def open_cluster(layout: Layout, accounts: Accounts, authority: Authority) -> AsyncIterator[LiveCluster]:
    """A cluster for the duration of the block, which begins once every broker serves."""
    cluster = LiveCluster(layout, accounts, authority)
    with cluster.reserved_ports():
        async with trio.open_nursery() as nursery:
            await cluster.run_in(nursery)
            yield cluster
            if layout.directory:
                for node_id in cluster.running:
                    await cluster.stop(node_id)
            nursery.cancel_scope.cancel()
