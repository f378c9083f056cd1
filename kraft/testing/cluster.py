"""The cluster of `kraft.testing`."""

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
from kraft.broker.server import BrokerServer
from kraft.client import Client, ConsumedRecord, Delivered, open_client
from kraft.config import Config
from kraft.controller.server import ControllerServer
from kraft.controller.topics.partition_updates import is_active
from kraft.invariants.disks import Ledger
from kraft.node.clock import NodeClock
from kraft.node.node import Node
from kraft.node.run import run_node
from kraft.node.state_machine_node import StateMachineNode
from kraft.partitions.replicas import ReplicaManager
from kraft.process.hosting import broker_with_data, host_controller, host_state_machine
from kraft.process.parts import ApplicationFactory
from kraft.quorum.values import LeaderAndEpoch
from kraft.quorum.voters import majority
from kraft.sim.nodes.broker_without_data import host_broker_without_data
from kraft.state_machine import StateMachine
from kraft.testing.broker import Broker
from kraft.testing.disks import DIRECTORY, PARTITION, batches_on, durable_on
from kraft.testing.records import RecordCheck
from kraft.testing.settings import coordinator_topics
from metadata_log.image import MetadataImage
from metadata_log.log.log_dir import format_directory
from metadata_log.log.quorum_state_file import read_quorum_state
from metadata_log.memory_disk import MemoryDisk
from metadata_log.types import NO_OFFSET, random_uuid
from transport.causes import one_cause
from transport.faults import NO_FAULTS, Faults
from transport.interface import Endpoint
from transport.memory import MemoryNetwork, MemoryTransport
from transport.protocol.broker_apis import ALL_APIS
from transport.protocol.broker_listener import AT_BROKERS

START_MS: Final = 1_700_000_000_000
"""The initial wall-clock time of each cluster, in milliseconds since 1970."""
FIRST_BROKER: Final = 101
_PORT: Final = 9093


class _Life:
    """One run of one node: from its start until a kill or a stop."""

    def __init__(self) -> None:
        self.scope = trio.CancelScope()
        self.ended = trio.Event()
        self.node: Node | None = None


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
        data: Whether the brokers hold records and serve producers and consumers.
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
        data: bool = False,
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
        self._has_data = data
        flush = self._settings.get("log.flush.interval.messages")
        self._records = RecordCheck(None if flush is None else int(flush))
        self._nursery: trio.Nursery | None = None

    # Lifecycle

    async def __aenter__(self) -> Cluster:
        """Format the disks and start each node."""
        if not trio.lowlevel.in_trio_run():
            raise RuntimeError(
                "a cluster in virtual time needs Trio's loop, as with kraft.testing.in_virtual_time; "
                "other tests take the fixture kafka or kafka_cluster"
            )
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
            format_directory(disk, DIRECTORY, node_id=node_id, cluster_id=cluster_id, rng=self._rng, now_ms=START_MS)
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
        self._look()
        life = _Life()
        node: Node = await self._nursery.start(self._live, node_id, life)
        return node

    async def _live(self, node_id: int, life: _Life, task_status: trio.TaskStatus[Node]) -> None:
        config, disk, host = self._config(node_id), self.disks[node_id], str(node_id)
        application = self._application if node_id in self.ids else host_broker_without_data
        transport = MemoryTransport(self.network, host=host)
        if self._has_data and node_id in self.brokers:
            application = broker_with_data(config, disk)
            transport = MemoryTransport(self.network, host=host, served=AT_BROKERS, requested=ALL_APIS)
        run = partial(
            run_node,
            config,
            transport=transport,
            disk=disk,
            rng=Random(self._rng.getrandbits(64)),
            clock=self._clock,
            application=application,
            inline_flush=True,
        )
        try:
            with life.scope:
                async with trio.open_nursery() as nursery:
                    node = life.node = await nursery.start(run)
                    self._lives[node_id] = life
                    if self._has_data and node_id in self.brokers:
                        self._records.started(node_id, _manager(node))
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
            self._look()
            self._changed.unpark_all()
            going = await node.wait_for_change()

    def _look(self) -> None:
        """Show the files and the claims of all running brokers with data to the record check."""
        if self._has_data:
            self._records.look(self.image, self.disks)

    def _note_election(self, node_id: int) -> None:
        """Record the contents of quorum-state, which survive the node."""
        election = read_quorum_state(self.disks[node_id], PARTITION)
        if election is not None:
            self._ledger.note_leader(node_id, election.leader_epoch, election.leader_id)
            self._ledger.note_vote(node_id, election.leader_epoch, election.voted_id)

    def _note_log(self, node_id: int) -> None:
        """Record the log, and its high watermark if the node runs."""
        life = self._lives.get(node_id)
        high_watermark = life.node.status().high_watermark if life and life.node else NO_OFFSET
        self._ledger.note_log(node_id, batches_on(self.disks[node_id]), high_watermark)

    def _config(self, node_id: int) -> Config:
        is_broker = node_id in self.brokers
        entries = {
            "process.roles": "broker" if is_broker else "controller",
            "node.id": str(node_id),
            "controller.quorum.voters": ",".join(f"{one}@{_host(one)}:{_PORT}" for one in self.ids),
            "controller.listener.names": "CONTROLLER",
            "listeners": f"{'PLAINTEXT' if is_broker else 'CONTROLLER'}://{_host(node_id)}:{_PORT}",
            "log.dirs": DIRECTORY,
            **(coordinator_topics(len(self.brokers)) if self._has_data else {}),
            **self._settings,
        }
        text = "".join(f"{key}={value}\n" for key, value in entries.items())
        return Config.parse(text, source=f"node {node_id}")

    async def kill(self, node_id: int, *, loses_power: bool = True) -> None:
        """End a node like a power failure: data without fsync is lost, or partly written.

        Args:
            node_id: The id of a controller or a broker.
            loses_power: Whether the power fails. Otherwise only the process ends, and what it has written remains.

        Raises:
            ValueError: The node is not running.
        """
        life = self._life(node_id)
        self._note_log(node_id)
        self._look()
        # The dying node keeps its old disk, so that its last writes do not reach the remaining one.
        disk = self.disks[node_id] = self.disks[node_id].fork()
        if loses_power:
            disk.crash(self._rng)
        else:
            disk.kill()
        self._records.ended(node_id, lost_power=loses_power, was_clean=False)
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
        self._records.ended(node_id, lost_power=False, was_clean=True)

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
        images = [one.controller.history.committed.stable for one in applications if isinstance(one, ControllerServer)]
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

    def client(self, host: str = "client") -> AbstractAsyncContextManager[Client]:
        """A client of these brokers, which hold data.

        Args:
            host: The name of the client's own host, which `network` can isolate.
        """
        addresses = [Endpoint(_host(broker_id), _PORT) for broker_id in self.brokers]
        transport = MemoryTransport(self.network, host=host, requested=ALL_APIS)
        rng = Random(self._rng.getrandbits(64))
        return open_client(addresses, transport=transport, rng=rng, start_ms=self._clock.now_ms())

    async def produce(self, topic: str, values: Iterable[bytes], *, partition: int | None = None) -> list[Delivered]:
        """Write records with acks=all by an idempotent producer, and wait for their acknowledgements.

        From then on, `check` requires these records at their offsets, unless an unclean election allows their loss.

        Args:
            topic: The name of the topic.
            values: The values of the records.
            partition: The number of the partition; None to let the producer select it.

        Returns:
            The partition and the offset of each record.

        Raises:
            kraft.client.ClientError: A record was refused, or not acknowledged in time.
        """
        sent, delivered = list(values), list[Delivered]()
        async with self.client("producer") as client, client.producer(topic) as producer:
            for delivery in [await producer.send(value, partition=partition) for value in sent]:
                delivered.append(await delivery.wait())
        self._look()
        for value, one in zip(sent, delivered, strict=True):
            self._records.acknowledged(topic, one.partition, one.offset, value)
        return delivered

    async def consume(self, topic: str) -> list[ConsumedRecord]:
        """Read a topic from its beginning to its present end; the records are in order within their partitions.

        Raises:
            kraft.client.ClientError: A partition was not served in time.
        """
        async with self.client("consumer") as client, client.consumer(topic) as consumer:
            return [record async for record in consumer]

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

        With brokers that hold data: replicas are equal below the high watermark, which falls only after an unclean
        election. What is committed is lost only by an unclean election, or by power failures of all members in sync,
        and is on every member of the ISR. The records of `produce` are at their offsets.

        Raises:
            InvariantViolated: An invariant does not hold.
        """
        for node_id in self._all_ids:
            self._note_election(node_id)
            self._note_log(node_id)
        if self._has_data:
            self._look()
            self._records.check()
        self._ledger.check_durable({node_id: durable_on(self.disks[node_id]) for node_id in self.ids})


def _manager(node: Node) -> ReplicaManager:
    application = node.application
    assert isinstance(application, BrokerServer), application
    assert isinstance(application.agent.replicas, ReplicaManager), application.agent.replicas
    return application.agent.replicas


def _host(node_id: int) -> str:
    return f"broker-{node_id}" if node_id >= FIRST_BROKER else f"controller-{node_id}"
