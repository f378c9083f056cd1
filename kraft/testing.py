"""A cluster of real nodes inside one test: memory network, memory disks, virtual time (Kafka: `RaftClientTestContext`).

Run a test under Trio's `MockClock` with autojump: a minute of elections then takes a moment. With `brokers`, the
cluster has broker agents. They register, lead, follow and shut down gracefully like Kafka's brokers, but hold no data.

    async with Cluster(controllers=3, seed=7) as cluster:
        leader = await cluster.leader()
        cluster.network.partition({leader}, cluster.others(leader))
        await cluster.leader(among=cluster.others(leader))
        cluster.check()

    async with Cluster(controllers=3, state_machine=Counter) as cluster:
        assert await cluster.machine(1).submit(Add(5)) == 5

    async with Cluster(controllers=3, brokers=3, seed=7) as cluster:
        await cluster.create_topic("orders", partitions=6, replication_factor=3)
        cluster.brokers[101].pause()
        await cluster.wait_for_image(lambda image: image.topics["orders"].partitions[0].isr == (102, 103))
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from random import Random
from types import TracebackType
from typing import Any, Final

import trio

from kraft.admin import AdminClient, open_admin
from kraft.admin.topics import create_topic
from kraft.broker import BrokerAgent
from kraft.config import Config
from kraft.controller.topics.partition_updates import is_active
from kraft.invariants.disks import Ledger
from kraft.invariants.violation import InvariantViolated
from kraft.node.clock import NodeClock
from kraft.node.node import Node
from kraft.node.run import run_node
from kraft.node.state_machine_node import StateMachineNode
from kraft.quorum.values import LeaderAndEpoch
from kraft.quorum.voters import majority
from kraft.replica.hosts.broker_host import BrokerHost, host_broker
from kraft.replica.hosts.controller_host import ControllerHost, host_controller
from kraft.replica.hosts.state_machine_host import host_state_machine
from kraft.replica.interface.application import ApplicationFactory
from kraft.state_machine import StateMachine
from metadata_log.image import MetadataImage
from metadata_log.log.log_dir import format_directory
from metadata_log.log.quorum_state_file import read_quorum_state
from metadata_log.memory_disk import MemoryDisk
from metadata_log.reading.damage import Damage
from metadata_log.reading.reader import read_log
from metadata_log.records.batch import RecordBatch
from metadata_log.types import METADATA_PARTITION, METADATA_TOPIC, NO_OFFSET, random_uuid
from transport.causes import one_cause
from transport.faults import NO_FAULTS, Faults
from transport.interface import Endpoint
from transport.memory import MemoryNetwork, MemoryTransport

__all__ = ["Broker", "Cluster"]

START_MS: Final = 1_700_000_000_000
"""The initial wall-clock time of each cluster, in milliseconds since 1970."""
FIRST_BROKER: Final = 101
_PORT: Final = 9093
_DIRECTORY: Final = "/kraft"
_PARTITION: Final = f"{_DIRECTORY}/{METADATA_TOPIC}-{METADATA_PARTITION}"


class _Life:
    """One run of one node: from its start until a kill or a stop."""

    def __init__(self) -> None:
        self.scope = trio.CancelScope()
        self.ended = trio.Event()
        self.node: Node | None = None


class Broker:
    """One broker of a cluster, running or not; `id` is its node id."""

    def __init__(self, cluster: Cluster, broker_id: int) -> None:
        self.id = broker_id
        self._cluster = cluster

    @property
    def agent(self) -> BrokerAgent:
        """The agent of the broker while the broker runs, for inspection only.

        Raises:
            ValueError: The broker is not running.
        """
        application = self._cluster.node(self.id).application
        assert isinstance(application, BrokerHost), application
        return application.agent

    def pause(self) -> None:
        """Cut the broker off from the network until `resume`, as if its process were suspended."""
        self._cluster.network.isolate(self.id)

    def resume(self) -> None:
        """Reconnect the broker; this also heals each other network cut that affects it."""
        self._cluster.network.heal(self.id)

    async def kill(self) -> None:
        """End the broker like a power failure.

        Raises:
            ValueError: The broker is not running.
        """
        await self._cluster.kill(self.id)

    async def stop(self) -> None:
        """Shut the broker down gracefully: its leaderships move first.

        Raises:
            ValueError: The broker is not running.
        """
        await self._cluster.stop(self.id)

    async def restart(self) -> None:
        """Start the broker with the contents of its disk.

        Raises:
            ValueError: The broker is running.
        """
        await self._cluster.restart(self.id)


class Cluster:
    """A cluster of controllers that elect, commit and fail over, and of brokers; use it with `async with`.

    The same seed draws the same timeouts and faults, but Trio does not guarantee the same order of tasks. Use
    `kraft.sim` for traces that repeat exactly.

    Args:
        controllers: The number of controllers; their ids are 1, 2 and so on. The ids also name the hosts of `network`.
        brokers: The number of brokers; their ids are 101, 102 and so on.
        seed: The seed of the random numbers for timeouts and faults.
        faults: The faults of the network.
        settings: Kafka properties for each node.
        application: The factory of the controllers' application; by default Kafka's controller.
        state_machine: The factory of a state machine, which replaces `application`.
    """

    def __init__(
        self,
        controllers: int = 3,
        brokers: int = 0,
        seed: int = 7,
        *,
        faults: Faults = NO_FAULTS,
        settings: Mapping[str, str] | None = None,
        application: ApplicationFactory = host_controller,
        state_machine: Callable[[], StateMachine[Any, Any]] | None = None,
    ) -> None:
        self.ids = tuple(range(1, controllers + 1))
        """The ids of the controllers."""
        self.brokers = {one: Broker(self, one) for one in range(FIRST_BROKER, FIRST_BROKER + brokers)}
        self.network = MemoryNetwork(seed, faults)
        self.disks: dict[int, MemoryDisk] = {}
        """The disk of each node, running or not."""
        self._rng = Random(f"cluster {seed}")
        self._settings = dict(settings or {})
        self._application = application if state_machine is None else host_state_machine(state_machine)
        self._lives: dict[int, _Life] = {}
        self._changed = trio.lowlevel.ParkingLot()
        self._ledger = Ledger(self.ids)
        self._nursery: trio.Nursery | None = None

    # Lifecycle

    async def __aenter__(self) -> Cluster:
        """Format the disks and start each node."""
        self._opened = self._open()
        return await self._opened.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """Cancel each node. Raises the exception that ended a node, if there is one."""
        return await self._opened.__aexit__(kind, error, trace)

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[Cluster]:
        self._clock = NodeClock(START_MS)
        cluster_id = str(random_uuid(self._rng))
        for node_id in self._all_ids:
            disk = self.disks[node_id] = MemoryDisk()
            format_directory(disk, _DIRECTORY, node_id=node_id, cluster_id=cluster_id, rng=self._rng, now_ms=START_MS)
        with one_cause():
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                for node_id in self._all_ids:
                    await self.restart(node_id)
                yield self
                nursery.cancel_scope.cancel()

    async def restart(self, node_id: int) -> Node:
        """Start a node with the contents of its disk.

        Args:
            node_id: The id of a controller or a broker.

        Returns:
            The running node.

        Raises:
            ValueError: The node is running.
        """
        if node_id in self._lives:
            raise ValueError(f"node {node_id} is running")
        assert self._nursery is not None, "the cluster is not running: use `async with`"
        life = _Life()
        node: Node = await self._nursery.start(self._live, node_id, life)
        return node

    async def _live(self, node_id: int, life: _Life, task_status: trio.TaskStatus[Node]) -> None:
        run = partial(
            run_node,
            self._config(node_id),
            transport=MemoryTransport(self.network, host=str(node_id)),
            disk=self.disks[node_id],
            rng=Random(self._rng.getrandbits(64)),
            clock=self._clock,
            application=self._application if node_id in self.ids else host_broker,
            inline_flush=True,
        )
        try:
            with life.scope:
                async with trio.open_nursery() as nursery:
                    node = life.node = await nursery.start(run)
                    self._lives[node_id] = life
                    task_status.started(node)
                    await self._watch(node_id, node)
        finally:
            if self._lives.get(node_id) is life:
                del self._lives[node_id]
            life.ended.set()
            self._changed.unpark_all()

    async def _watch(self, node_id: int, node: Node) -> None:
        """Record leaders and votes until the node ends."""
        going = True
        while going:
            leader = node.status().leader
            self._ledger.note_leader(node_id, leader.epoch, leader.leader_id)
            self._note_election(node_id)
            self._changed.unpark_all()
            going = await node.wait_for_change()

    def _note_election(self, node_id: int) -> None:
        """Record the contents of quorum-state, which survive the node."""
        election = read_quorum_state(self.disks[node_id], _PARTITION)
        if election is not None:
            self._ledger.note_leader(node_id, election.leader_epoch, election.leader_id)
            self._ledger.note_vote(node_id, election.leader_epoch, election.voted_id)

    def _note_log(self, node_id: int) -> None:
        """Record the log, and its high watermark if the node runs."""
        life = self._lives.get(node_id)
        high_watermark = life.node.status().high_watermark if life and life.node else NO_OFFSET
        self._ledger.note_log(node_id, _batches(self.disks[node_id]), high_watermark)

    def _config(self, node_id: int) -> Config:
        is_broker = node_id in self.brokers
        entries = {
            "process.roles": "broker" if is_broker else "controller",
            "node.id": str(node_id),
            "controller.quorum.voters": ",".join(f"{one}@{_host(one)}:{_PORT}" for one in self.ids),
            "controller.listener.names": "CONTROLLER",
            "listeners": f"{'PLAINTEXT' if is_broker else 'CONTROLLER'}://{_host(node_id)}:{_PORT}",
            "log.dirs": _DIRECTORY,
            **self._settings,
        }
        text = "".join(f"{key}={value}\n" for key, value in entries.items())
        return Config.parse(text, source=f"node {node_id}")

    async def kill(self, node_id: int) -> None:
        """End a node like a power failure: data without fsync is lost, or partly written.

        Args:
            node_id: The id of a controller or a broker.

        Raises:
            ValueError: The node is not running.
        """
        life = self._life(node_id)
        self._note_log(node_id)
        # The dying node keeps its old disk, so that its last writes do not reach the remaining one.
        disk = self.disks[node_id] = self.disks[node_id].fork()
        disk.crash(self._rng)
        life.scope.cancel()
        await life.ended.wait()

    async def stop(self, node_id: int) -> None:
        """Shut a node down gracefully: a leader transfers its leadership first.

        Args:
            node_id: The id of a controller or a broker.

        Raises:
            ValueError: The node is not running.
        """
        life = self._life(node_id)
        await self.node(node_id).shutdown()
        await life.ended.wait()

    # State

    @property
    def _all_ids(self) -> tuple[int, ...]:
        return (*self.ids, *self.brokers)

    @property
    def running(self) -> tuple[int, ...]:
        """The ids of the running nodes, brokers included."""
        return tuple(sorted(self._lives))

    def node(self, node_id: int) -> Node:
        """A running node.

        Raises:
            ValueError: The node is not running.
        """
        node = self._life(node_id).node
        assert node is not None
        return node

    def machine(self, node_id: int) -> StateMachineNode[Any, Any]:
        """A running node of a cluster with `state_machine`.

        Raises:
            ValueError: The node is not running.
        """
        node = self.node(node_id)
        assert isinstance(node, StateMachineNode), f"node {node_id} has no state machine"
        return node

    def _life(self, node_id: int) -> _Life:
        if node_id not in self._lives:
            raise ValueError(f"node {node_id} is not running")
        return self._lives[node_id]

    def others(self, *node_ids: int) -> tuple[int, ...]:
        """The ids of all other controllers, running or not."""
        return tuple(node_id for node_id in self.ids if node_id not in node_ids)

    async def leader(self, among: Iterable[int] | None = None) -> int:
        """Wait for a leader that accepts requests and that a majority knows.

        Args:
            among: The acceptable leaders; by default all controllers.

        Returns:
            The id of the leader.
        """
        wanted = tuple(self.ids if among is None else among)
        while (leader_id := self._leader(wanted)) is None:
            await self._changed.park()
        return leader_id

    def _leader(self, wanted: Sequence[int]) -> int | None:
        known: dict[LeaderAndEpoch, int] = {}
        for node_id, life in self._lives.items():
            if life.node is not None and node_id in self.ids:
                leader = life.node.status().leader
                known[leader] = known.get(leader, 0) + 1
        for leader, count in known.items():
            led_by = self._lives.get(leader.leader_id)
            is_active = led_by is not None and led_by.node is not None and led_by.node.is_active
            if is_active and leader.leader_id in wanted and count >= majority(len(self.ids)):
                return leader.leader_id
        return None

    async def append(self, values: Sequence[bytes]) -> int:
        """Append to the raw log of the leader (`application=host_raw_log`); see `Node.append`.

        From then on, `check` requires these values at this offset.

        Args:
            values: The values of the records.

        Returns:
            The offset of the first record.
        """
        offset = await self.node(await self.leader()).append(values)
        self._ledger.note_acknowledged(offset, values)
        return offset

    def admin(self, host: str = "admin") -> AbstractAsyncContextManager[AdminClient]:
        """A client of these controllers.

        Args:
            host: The name of the client's own host, which `network` can isolate.
        """
        addresses = [Endpoint(_host(node_id), _PORT) for node_id in self.ids]
        return open_admin(addresses, transport=MemoryTransport(self.network, host=host))

    @property
    def image(self) -> MetadataImage:
        """The newest committed metadata of a running controller; empty with another application."""
        applications = [self.node(node_id).application for node_id in self.ids if node_id in self._lives]
        images = [one.controller.history.committed.stable for one in applications if isinstance(one, ControllerHost)]
        return max(images, key=lambda image: image.end.offset, default=MetadataImage())

    async def wait_for_image(self, wanted: Callable[[MetadataImage], bool]) -> MetadataImage:
        """Wait until the committed metadata meets a condition.

        Args:
            wanted: The condition.

        Returns:
            The first image that meets the condition.
        """
        while not wanted(image := self.image):
            await self._changed.park()
        return image

    async def wait_for_brokers(self) -> None:
        """Wait until each running broker is registered, unfenced and not in controlled shutdown."""
        brokers = [one for one in self.brokers if one in self._lives]
        await self.wait_for_image(lambda image: all(is_active(image, one) for one in brokers))

    async def create_topic(
        self, name: str, *, partitions: int = 1, replication_factor: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic after `wait_for_brokers`; returns once a controller's committed metadata contains it.

        Args:
            name: The name of the topic.
            partitions: The number of partitions.
            replication_factor: The number of replicas of each partition.
            configs: The settings of the topic.

        Raises:
            kraft.admin.AdminError: The controllers refuse the topic or do not answer in time.
        """
        await self.wait_for_brokers()
        async with self.admin() as admin:
            await create_topic(
                admin, name, partitions=partitions, replication_factor=replication_factor, configs=configs
            )
        await self.wait_for_image(lambda image: name in image.topics)

    async def wait_for_offset(self, offset: int, *node_ids: int) -> None:
        """Wait until the high watermark of each node is at least `offset`.

        Args:
            offset: The offset to reach.
            node_ids: The nodes; by default all running ones.
        """
        while any(self.node(node_id).status().high_watermark < offset for node_id in node_ids or self.running):
            await self._changed.park()

    def check(self) -> None:
        """Check the safety invariants over all logs and quorum states so far.

        Each epoch has at most one leader, and each voter votes at most once in an epoch. Committed records are never
        lost or changed, and are durable on a majority. Logs agree below the high watermark, and wherever they share an
        epoch and an offset. The values passed to `append` are at the returned offsets.

        Raises:
            InvariantViolated: An invariant does not hold.
        """
        for node_id in self._all_ids:
            self._note_election(node_id)
            self._note_log(node_id)
        self._ledger.check_durable({node_id: _durable(self.disks[node_id]) for node_id in self.ids})


def _host(node_id: int) -> str:
    return f"broker-{node_id}" if node_id >= FIRST_BROKER else f"controller-{node_id}"


def _batches(disk: MemoryDisk) -> list[RecordBatch]:
    if not disk.exists(_PARTITION):
        return []
    batches = []
    for found in read_log(disk, _PARTITION):
        if isinstance(found, Damage):
            raise InvariantViolated(str(found))
        batches.append(found)
    return batches


def _durable(disk: MemoryDisk) -> list[RecordBatch]:
    """The log that would remain after a power failure now."""
    after = disk.fork()
    after.crash()
    return _batches(after)
