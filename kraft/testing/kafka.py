"""Kafka for tests that know nothing of Trio: a `LiveCluster` in a thread, behind plain functions.

Every method may be called from any thread and from any event loop; it blocks until what it does is done.

    with Kafka() as kafka:
        kafka.create_topic("orders", partitions=3)
        kafka.produce("orders", ["three apples"])
        assert [record.value for record in kafka.consume("orders")] == [b"three apples"]
"""

from __future__ import annotations

import inspect
import shutil
import tempfile
import time
import warnings
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, wraps
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Self, TypeVar

from msgspec.structs import replace

from kraft.testing.faults import CLIENTS as ALL_CLIENTS
from kraft.testing.faults import FailNext, Faults, api_key, bounds_of, error_of, from_zero_on, name_of, sides
from kraft.testing.identities import MECHANISMS, Account, Accounts, Authority
from kraft.testing.live import LOOK_SECONDS, SECURITY, Layout, LiveCluster, open_cluster
from kraft.testing.log_lines import Call, LogLines
from kraft.testing.registry import RegistryBeside
from kraft.testing.settings import settings_of, unknown_settings
from kraft.trio_thread import TrioThread
from metadata_log.disk import Disk
from metadata_log.image import MetadataImage, Partition
from metadata_log.records.record import Header
from transport.protocol.errors import Error

if TYPE_CHECKING:
    # A start needs none of these: what uses them loads them.
    from kraft.client import ConsumedRecord, Delivered
    from kraft.testing.expected import Given
    from kraft.testing.share_groups import DeliveredRecord, ShareGroup

T = TypeVar("T")
P = ParamSpec("P")
SECONDS: Final = 10.0
"""How long a call waits for a condition, unless it is told another time."""
JUMP: Final = "clock.jump"
FARTHEST_SECONDS: Final = 10 * 365 * 86_400
"""Ten years: the times of a jump are far from what a record can hold."""
REGISTRY: Final = "REGISTRY"
"""The name of the schema registry among the ports."""


def _noted(method: Callable[Concatenate[Kafka, P], T]) -> Callable[Concatenate[Kafka, P], T]:
    """A method that breaks, mends or moves something: each call of it is a line of the log."""
    name = JUMP if method.__name__ == "_jump" else method.__name__
    parameters = tuple(inspect.signature(method).parameters)[1:]

    @wraps(method)
    def run(self: Kafka, /, *args: P.args, **kwargs: P.kwargs) -> T:
        given = (*map(repr, args), *(f"{key}={value!r}" for key, value in kwargs.items()))
        self.log.note(name, f"{name}({', '.join(given)})", dict(zip(parameters, args, strict=False)) | kwargs)
        return method(self, *args, **kwargs)

    return run


class Kafka:
    """A cluster of real nodes in this process, which serves any client over TCP. Also a context manager.

    Args:
        brokers: The number of brokers.
        controllers: The number of controllers; 0 for one node with both roles.
        settings: Kafka properties for each node.
        security: The protocol of `bootstrap_servers` and `client_config`; the listeners of the others are there, too.
        auto_create: Whether a client that names a topic creates it.
        seed: The seed of everything that is random: elections, ids, faults.
        ports: Ports of clients' listeners by protocol, for the first broker, and that of the schema registry as
                REGISTRY; all others come from the system.
        directory: Where the nodes keep their data; a cluster that was there goes on. By default they keep it in memory.
    """

    def __init__(
        self,
        *,
        brokers: int = 1,
        controllers: int = 0,
        settings: Mapping[str, str] | None = None,
        security: str = "PLAINTEXT",
        auto_create: bool = True,
        seed: int = 0,
        ports: Mapping[str, int] | None = None,
        directory: str | Path | None = None,
    ) -> None:
        if security not in SECURITY:
            raise ValueError(f"there is no security protocol {security!r}; there are {', '.join(SECURITY)}")
        self.layout = Layout(
            brokers=brokers,
            controllers=controllers,
            settings=settings_of({} if settings is None else settings),
            auto_create=auto_create,
            seed=seed,
            ports=ports or {},
            directory="" if directory is None else str(Path(directory).absolute()),
        )
        if "," in self.layout.directory:
            raise ValueError(f"a comma in the path of a log directory is not possible: {self.layout.directory}")
        self.security = security
        self.seed = seed
        self.accounts = Accounts()
        self.tls = Authority(lambda: self._directory)
        """The authority that has signed the certificates of the brokers: `tls.ca_file`, `tls.ca_pem`, `tls.context`."""
        self.log = LogLines()
        """The last lines of the nodes' logs."""
        self._files: Path | None = None
        try:
            self._thread = TrioThread(open_cluster(self.layout, self.accounts, self.tls), self.log.thread)
            self._cluster: LiveCluster = self._thread.value
        except BaseException:
            self.log.close()
            raise
        self._registry = RegistryBeside(self._cluster, self.layout.ports.get(REGISTRY, 0))
        self._warn()

    def _warn(self) -> None:
        """Tell of settings that no node reads; what makes errors of warnings ends the cluster."""
        try:
            for unknown in unknown_settings(self._cluster.warnings):
                warnings.warn(unknown, stacklevel=3)
        except UserWarning:
            self.close()
            raise

    @property
    def _directory(self) -> Path:
        if self._files is None:
            self._files = Path(tempfile.mkdtemp(prefix="trio-kraft-"))
        return self._files

    def close(self) -> None:
        """End every node and the thread, and remove what was written. A second call does nothing."""
        self._thread.stop()
        self.log.close()
        if self._files is not None:
            shutil.rmtree(self._files, ignore_errors=True)
            self._files = None

    def __enter__(self) -> Self:
        """The cluster itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
        self.close()

    # Addresses and identities

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of the brokers, for `bootstrap.servers`."""
        return self.get_bootstrap_server()

    def get_bootstrap_server(self, security: str | None = None) -> str:
        """As `bootstrap_servers`, as a method like that of `KafkaContainer`; for another protocol if one is named."""
        return ",".join(map(str, self._cluster.endpoints(security or self.security)))

    @property
    def schema_registry_url(self) -> str:
        """The address of a schema registry of this cluster, which starts when it is first asked for.

        Raises:
            ModuleNotFoundError: The extra `registry` is not installed.
        """
        return self._call(self._registry.url)

    def stop_schema_registry(self) -> None:
        """End the schema registry, which knows everything again when its address is asked for the next time."""
        self._call(self._registry.stop)

    def sasl(self, user: str, password: str | None = None) -> Account:
        """A user that can log in from now on, with PLAIN and with SCRAM."""
        if not isinstance(user, str) or not user:
            raise ValueError(f"the name of a user is a text, and not {user!r}")
        return self.accounts.account(user, password)

    def client_config(
        self,
        client: str,
        *,
        security: str | None = None,
        user: str | None = None,
        mechanism: str = "PLAIN",
        certificate: str | None = None,
    ) -> dict[str, Any]:
        """The settings with which a client reaches the cluster, in the client's own keys.

        Args:
            client: `kafka-python`, `confluent-kafka`, `librdkafka`, `aiokafka`, `java` or `franz-go` (the options of
                `kgo`).
            security: The protocol; by default the one of this cluster.
            user: The user that logs in, with SASL; `client` by default.
            mechanism: The mechanism of SASL.
            certificate: The name in a certificate of the client, with TLS; by default the client shows none.
        """
        from kraft.testing.client_configs import CLIENTS, Access

        if client not in CLIENTS:
            raise ValueError(f"there is no client {client!r} here; there are {', '.join(CLIENTS)}")
        if mechanism not in MECHANISMS:
            raise ValueError(f"there is no mechanism {mechanism!r} here; there are {', '.join(MECHANISMS)}")
        wanted = security or self.security
        access = Access(
            servers=self.get_bootstrap_server(wanted),
            security=wanted,
            authority=self.tls,
            account=self.sasl(user or "client") if wanted.startswith("SASL") else None,
            mechanism=mechanism,
            certificate=None if certificate is None else self.tls.certificate(certificate),
        )
        return CLIENTS[client](access)

    # What runs

    @property
    def broker_ids(self) -> tuple[int, ...]:
        """The ids of all brokers, running or not."""
        return self.layout.broker_ids

    @property
    def controller_ids(self) -> tuple[int, ...]:
        """The ids of all controllers, running or not."""
        return self.layout.controller_ids

    @property
    def cluster_id(self) -> str:
        """The id of the cluster, which the seed decides."""
        return self._cluster.cluster_id

    @property
    def running(self) -> tuple[int, ...]:
        """The ids of the nodes that run."""
        return self._cluster.running

    def failure_of(self, node_id: int) -> Exception | None:
        """The failure that has ended a node by itself, such as a full disk; None for a node that runs or was ended by
        the test.
        """
        return self._cluster.ended_by.get(node_id)

    @property
    def image(self) -> MetadataImage:
        """The committed metadata: topics, leaders, ISRs, configurations, ACLs."""
        return self._cluster.image

    def leader(self, topic: str, partition: int = 0) -> int:
        """The broker that leads a partition; -1 for none. Raises ValueError for a partition that does not exist."""
        return self._partition(topic, partition).leader

    def isr(self, topic: str, partition: int = 0) -> tuple[int, ...]:
        """The replicas of a partition that are in sync. Raises ValueError for a partition that does not exist."""
        return tuple(self._partition(topic, partition).isr)

    def _partition(self, topic: str, partition: int) -> Partition:
        topics = self.image.topics
        if topic not in topics:
            raise ValueError(f"there is no topic {topic!r}; there are {', '.join(sorted(topics)) or 'none'}")
        partitions = topics[topic].partitions
        if not 0 <= partition < len(partitions):
            raise ValueError(f"topic {topic} has no partition {partition}; it has {len(partitions)}")
        return partitions[partition]

    def is_fenced(self, broker_id: int) -> bool:
        """Whether the controllers count a broker as dead."""
        return self._cluster.is_fenced(broker_id)

    @property
    def active_controller(self) -> int | None:
        """The controller that decides; None during an election."""
        return self._cluster.active_controller

    def described(self) -> str:
        """The cluster in a few lines: what repeats it, and how it is now."""
        cluster = self._cluster
        lines = [f"seed {self.seed}, cluster {cluster.cluster_id}, active controller {self.active_controller}"]
        for node_id in self.layout.ids:
            state = "runs" if node_id in self.running else f"does not run {cluster.ended_by.get(node_id, '')}".rstrip()
            is_fenced = node_id in self.broker_ids and self.is_fenced(node_id)
            lines.append(f"node {node_id} {state}{' and is fenced' if is_fenced else ''}")
        for topic in self.image.topics.by_id.values():
            parts = [f"{at}: leader {one.leader} ISR {list(one.isr)}" for at, one in enumerate(topic.partitions)]
            lines.append(f"topic {topic.name}: {', '.join(parts[:8])}{' …' if len(parts) > 8 else ''}")
        return "\n".join(lines)

    def picture(self, since: float = 0.0, *, title: str = "A cluster of a test") -> str:
        """The story of the cluster, as an HTML page that needs no network: a lane for each node.

        Args:
            since: The time from which on it is shown, in seconds since 1970.
            title: The title of the page.
        """
        from kraft.sim.pictures.diagram import render_page
        from kraft.testing.picture import changes_in, drawing_of, on_the_wall

        async def log() -> tuple[Disk, str, float]:
            return *self._cluster.newest_log(), self._cluster.clock.ahead_ms / 1000

        happened = self.log.happened
        jumps = [(one.at, one.arguments["seconds"]) for one in happened if isinstance(one, Call) and one.name == JUMP]
        disk, directory, ahead = self._call(log)
        until = time.time()
        # The nodes' clock counts in ms: what is in the log has happened, also in the millisecond that has not ended.
        changes = [
            replace(one, at=min(on_the_wall(one.at, jumps, ahead), until)) for one in changes_in(disk, directory)
        ]
        drawing = drawing_of(
            [*happened, *changes],
            node_ids=self.layout.ids,
            since=max(since, min((one.at for one in happened), default=0.0)),
            until=until,
            title=title,
            verdict="; ".join(self.described().splitlines()),
        )
        return render_page(drawing)

    def wait_until(self, condition: Callable[[Kafka], object], *, seconds: float = SECONDS) -> None:
        """Wait until a condition holds; it is tried again and again.

        Raises:
            TimeoutError: The condition did not hold in time.
        """
        until = time.monotonic() + seconds
        while not condition(self):
            if time.monotonic() >= until:
                raise TimeoutError(f"the condition did not hold within {seconds:g} s")
            # Whatever changes it is anywhere: in the metadata, or in the program of the test.
            time.sleep(LOOK_SECONDS)

    # Topics and records

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int | None = None,
        config: Mapping[str, str | int] | None = None,
    ) -> None:
        """Create a topic; returns once every broker that serves knows it.

        Args:
            name: The name of the topic.
            partitions: The number of partitions.
            replication_factor: The number of replicas; by default 3, or as many as there are brokers.
            config: Settings of the topic.
        """
        from kraft.admin import SomeRefused, create_topic

        if not isinstance(name, str):
            raise TypeError(f"the name of a topic is a text, and not {name!r}")
        replicas = replication_factor or min(3, self.layout.brokers)
        configs = {key: str(value) for key, value in (config or {}).items()}

        async def create() -> None:
            async with self._cluster.admin() as admin:
                try:
                    await create_topic(admin, name, partitions=partitions, replication_factor=replicas, configs=configs)
                except SomeRefused as refused:
                    if refused.refused[name].error is Error.TOPIC_ALREADY_EXISTS:
                        refused.add_note("Another test may have created it: call reset() first, or take another name.")
                    raise
            await self._cluster.wait_until_known(lambda image: name in image.topics)

        self._call(create)

    def delete_topic(self, *names: str) -> None:
        """Delete topics; returns once no broker that serves knows them.

        A consumer of librdkafka that goes on keeps its offset in a topic that is made again under the name, and so
        passes over as many records as it had read of the former one. `reset` lets it begin anew.
        """
        from kraft.admin import delete_topics

        async def delete() -> None:
            async with self._cluster.admin() as admin:
                await delete_topics(admin, names)
            await self._cluster.wait_until_known(lambda image: not any(name in image.topics for name in names))

        self._call(delete)

    def produce(
        self,
        topic: str,
        values: Iterable[Given],
        *,
        partition: int | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp_ms: int | None = None,
    ) -> list[Delivered]:
        """Write records with acks=all, and wait for their acknowledgements.

        Args:
            topic: The name of the topic.
            values: Values, or pairs of a key and a value; a text is written as UTF-8.
            partition: The partition; by default the key decides.
            headers: The headers of each record.
            timestamp_ms: The time of each record in ms since 1970; by default now.

        Returns:
            The partition and the offset of each record.
        """
        from kraft.testing.expected import pair_of, several

        wanted = [pair_of(one) for one in several(values)]
        kept = tuple(Header(key, value) for key, value in (headers or {}).items())

        async def produce() -> list[Delivered]:
            async with self._cluster.client() as client, client.producer(topic) as producer:
                sent = [
                    await producer.send(value, key=key, partition=partition, headers=kept, timestamp_ms=timestamp_ms)
                    for key, value in wanted
                ]
                return [await one.wait() for one in sent]

        return self._call(produce)

    def consume(
        self, topic: str, *, count: int | None = None, committed: bool = True, seconds: float = SECONDS
    ) -> list[ConsumedRecord]:
        """Read a topic from its beginning, without a group.

        Args:
            topic: The name of the topic.
            count: Wait for so many records; by default read to the present end.
            committed: Whether to leave out the records of aborted and open transactions.
            seconds: How long to wait for `count` records.

        Returns:
            The records, in order within their partitions. Fewer than `count` after the time.
        """
        from kraft.testing import looking

        if count is None:
            return self._call(looking.read, self._cluster, topic, committed)
        return self._call(lambda: looking.follow(self._cluster, topic, committed, count=count, seconds=seconds))

    @_noted
    def reset(self) -> None:
        """Begin anew on the same ports: no topic, group, ACL, setting or transaction is left, and no fault.

        All connections of clients end.
        """

        async def reset() -> None:
            has_registry = await self._registry.stop()
            await self._cluster.reset()
            if has_registry:
                await self._registry.url()

        self._call(reset)

    # Assertions

    @contextmanager
    def assert_produces(
        self,
        topic: str,
        expected: Sequence[Given] | None = None,
        *,
        count: int | None = None,
        in_order: bool = True,
        committed: bool = True,
        seconds: float = SECONDS,
    ) -> Iterator[list[ConsumedRecord]]:
        """Require that the block writes these records to a topic, and no others.

        Args:
            topic: The name of the topic, which may not exist before.
            expected: The values, or pairs of a key and a value.
            count: Their number, where the records do not matter; 0 for none.
            in_order: Whether they come in this order, which only one partition guarantees.
            committed: Whether records of aborted and open transactions are left out.
            seconds: How long to wait for the records at the end of the block.

        Yields:
            A list, in which the records are after the block.
        """
        from kraft.testing import looking
        from kraft.testing.expected import difference, listed, several

        if (expected is None) is (count is None):
            raise ValueError("say what is expected: either records or their count")
        several(expected or ())
        wanted = len(expected) if expected is not None else count or 0
        starts = self._call(looking.ends, self._cluster, topic)
        records: list[ConsumedRecord] = []
        yield records
        records += self._call(
            lambda: looking.written_since(
                self._cluster, topic, starts, committed=committed, count=wanted, seconds=seconds
            )
        )
        if expected is None:
            if len(records) != wanted:
                raise AssertionError(f"{topic} got {len(records)} records, and not {wanted}:\n{listed(records)}")
        elif lines := difference(expected, records, in_order=in_order):
            raise AssertionError(
                f"{topic} did not get the records that were expected (- expected, + written):\n{lines}"
            )

    @contextmanager
    def assert_consumed(self, group: str, topic: str, *, seconds: float = SECONDS) -> Iterator[None]:
        """Require that a group has committed everything in a topic, at the end of the block.

        Args:
            group: The name of the group.
            topic: The name of the topic.
            seconds: How long to wait at the end of the block.
        """
        from kraft.testing import looking
        from kraft.testing.expected import behind

        yield
        lags = self._call(lambda: looking.lags(self._cluster, group, topic, seconds=seconds))
        if lines := behind(topic, lags):
            raise AssertionError(f"group {group} has not consumed all of {topic}:\n{lines}")

    # Nodes that fail

    @_noted
    def kill(self, node_id: int, *, loses_power: bool = False) -> None:
        """End a node like `kill -9`; with `loses_power` also what it had not flushed is lost."""
        self._call(lambda: self._cluster.kill(node_id, loses_power=loses_power))

    @_noted
    def stop(self, node_id: int) -> None:
        """Shut a node down gracefully: its leaderships move first."""
        self._call(self._cluster.stop, node_id)

    @_noted
    def restart(self, node_id: int) -> None:
        """Start a node with what is on its disk, after `kill` if it runs; a broker serves again when this returns."""
        self._faults(node_id)

        async def restart() -> None:
            if node_id in self._cluster.running:
                await self._cluster.kill(node_id)
            await self._cluster.start(node_id)
            if node_id in self.broker_ids:
                await self._cluster.wait_until_serving(node_id)

        self._call(restart)

    @_noted
    def pause(self, node_id: int) -> None:
        """Let a node neither hear nor say anything until `resume`, as a process that is stopped by a signal."""

        def pause() -> None:
            self._cluster.life(node_id)
            self._faults(node_id).is_paused = True

        self._do(pause)

    @_noted
    def resume(self, node_id: int) -> None:
        """Let a paused node go on with all that it has missed."""
        self._faults(node_id)
        self._do(lambda: self._cluster.resume(node_id))

    # The network

    @_noted
    def partition(self, one: Iterable[int | str], other: Iterable[int | str] | None = None) -> None:
        """Cut the network between two sides, in both directions.

        Args:
            one: Nodes of one side.
            other: Nodes of the other side, where `"clients"` are all clients; by default all other nodes.
        """
        side = sides(one)
        rest = [node_id for node_id in self.layout.ids if node_id not in side] if other is None else sides(other)
        for host in (*side, *rest):
            if host != ALL_CLIENTS:
                self._faults(host)

        self._do(lambda: self._cluster.wires.plan.partition(side, rest))

    @_noted
    def delay(self, node_id: int, milliseconds: int | Sequence[int], *, to: int | None = None) -> None:
        """Let messages to a node take longer.

        Args:
            node_id: The node.
            milliseconds: How long, or the least and the most, of which each message draws one.
            to: Delay the messages between the node and this other one; by default those of clients to the node.
        """
        bounds = bounds_of(milliseconds)
        faults = self._faults(node_id)
        if to is None:
            faults.request_delay_ms = bounds
        else:
            self._faults(to)
            self._do(lambda: self._cluster.wires.plan.slow_down(node_id, to, bounds))

    @_noted
    def throttle(self, milliseconds: int, *, node_id: int | None = None) -> None:
        """Answer clients with this throttle time, as for a client above its quota (KIP-219); 0 ends that."""
        from_zero_on("milliseconds", milliseconds)
        for one in self._brokers(node_id):
            one.throttle_ms = milliseconds

    @_noted
    def break_connection(self, *, after_bytes: int = 0, node_id: int | None = None) -> None:
        """Break a connection of a client in the middle of an answer, after so many bytes of answers from now on.

        Each broker does so once, or only the one that is named.
        """
        from_zero_on("after_bytes", after_bytes)
        for one in self._brokers(node_id):
            one.break_after = after_bytes

    @_noted
    def heal(self) -> None:
        """End all faults of network, disks and requests, and let paused nodes go on; nodes that ended stay so."""
        self._do(self._cluster.heal)

    # Disks

    @_noted
    def slow_disk(self, node_id: int, milliseconds: int) -> None:
        """Let a broker take longer for what it appends: clients wait for it, and as a follower it falls behind."""
        self._faults(node_id).disk_delay_ms = from_zero_on("milliseconds", milliseconds)

    @_noted
    def full_disk(self, node_id: int, *, free_bytes: int = 0) -> None:
        """Let no more than so many bytes be written at a node. A broker without a disk ends, as in Kafka."""
        self._faults(node_id)
        from_zero_on("free_bytes", free_bytes)
        self._do(lambda: self._cluster.fill(node_id, free_bytes))

    # Requests

    @_noted
    def fail_next(
        self,
        api: str | int,
        error: str | int | Error,
        times: int = 1,
        *,
        topic: str | None = None,
        node_id: int | None = None,
    ) -> None:
        """Let the next requests of clients fail: each gets the error, and nothing else happens.

        Args:
            api: The API by Kafka's name, such as `Produce`.
            error: The error by Kafka's name, such as `NOT_ENOUGH_REPLICAS`.
            times: How many requests fail, at all brokers together.
            topic: Only requests that name this topic.
            node_id: Only at this broker.
        """
        if not isinstance(times, int) or times < 1:
            raise ValueError(f"times is a whole number, 1 or more, and not {times!r}")
        rule = FailNext(api=api_key(api), error=error_of(error), times=times, topic=topic, node_id=node_id)
        self._brokers(node_id)

        def fail() -> None:
            if not self._cluster.can_fail(rule.api):
                raise ValueError(
                    f"requests of {name_of(rule.api)} cannot fail as a whole; those of Produce, Fetch and others can"
                )
            self._cluster.wires.failures.append(rule)

        self._do(fail)

    # Leaders, coordinators, groups

    @_noted
    def move_leader(self, topic: str, partition: int = 0, to: int | None = None) -> int:
        """Let another replica lead a partition, by an election as an administrator starts it.

        Args:
            topic: The name of the topic.
            partition: The number of the partition.
            to: The new leader, a replica in sync; by default another one, in order.

        Returns:
            The new leader.
        """
        from kraft.testing import leaders

        self._partition(topic, partition)
        return self._call(leaders.move_leader, self._cluster, topic, partition, to)

    def coordinator(self, group: str) -> int:
        """The broker that coordinates a group; -1 for none."""
        from kraft.testing import leaders

        place = leaders.coordinator_place(self.image, group)
        return -1 if place is None else self.leader(*place)

    @_noted
    def move_coordinator(self, group: str, to: int | None = None) -> int:
        """Let another broker coordinate a group; returns its id."""
        from kraft.testing import leaders

        place = leaders.coordinator_place(self.image, group)
        if place is None:
            raise ValueError("no group was ever used, so that nothing coordinates one")
        return self.move_leader(*place, to)

    @_noted
    def rebalance(self, group: str) -> None:
        """Let each member of a group join again, by the answer to its next heartbeat."""
        from kraft.testing import leaders

        self._call(leaders.rebalance, self._cluster, group, self.coordinator(group))

    # Share groups

    def share_group(self, name: str) -> ShareGroup:
        """A share group, which need not exist yet: its settings, its lag, and what becomes of records in it."""
        from kraft.testing.share_groups import ShareGroup

        if not isinstance(name, str) or not name:
            raise ValueError(f"the name of a share group is a text, and not {name!r}")
        return ShareGroup(name, self._cluster, self._call, self.expire_locks)

    def deliveries(self, group: str, topic: str) -> list[DeliveredRecord]:
        """Each record of a topic, how often it was delivered in a share group, and how that ended."""
        return self.share_group(group).deliveries(topic)

    @_noted
    def expire_locks(self, group: str) -> None:
        """Let the locks of all records in a share group end, as the clock of the nodes goes ahead by their duration.

        Sessions of members and what else is shorter end, too, as after `clock.jump`. The records come again, with the
        next delivery count, unless it was the last one; what their members say about them is refused.
        """
        from kraft.testing import share_groups

        seconds = share_groups.lock_seconds(self._cluster, group, self.layout.settings)
        self._do(lambda: self._cluster.jump(seconds))

    # Time

    @cached_property
    def clock(self) -> Clock:
        """The clock of all nodes."""
        return Clock(self._jump)

    @_noted
    def _jump(self, seconds: float) -> None:
        self._do(lambda: self._cluster.jump(seconds))

    # Within

    def _faults(self, node_id: int | str) -> Faults:
        known = self._cluster.faults
        if not isinstance(node_id, int) or node_id not in known:
            raise ValueError(f"there is no node {node_id!r}; there are {', '.join(map(str, known))}")
        return known[node_id]

    def _brokers(self, node_id: int | None) -> list[Faults]:
        if node_id is not None and node_id not in self.broker_ids:
            raise ValueError(f"there is no broker {node_id}; there are {', '.join(map(str, self.broker_ids))}")
        return [self._faults(one) for one in (self.broker_ids if node_id is None else (node_id,))]

    def _call(self, function: Callable[..., Awaitable[T]], *args: Any) -> T:
        return self._thread.call(function, *args)

    def _do(self, action: Callable[[], None]) -> None:
        """Do something in the thread of the nodes."""

        async def do() -> None:
            action()

        self._thread.call(do)


class Clock:
    """The clock of the nodes of a cluster."""

    def __init__(self, jump: Callable[[float], None]) -> None:
        self._jump = jump

    def jump(self, seconds: float) -> None:
        """Move the clock ahead: sessions, transactions and retention run out at once."""
        if not isinstance(seconds, int | float) or not 0 <= seconds <= FARTHEST_SECONDS:
            raise ValueError(f"a clock jumps ahead only, by at most {FARTHEST_SECONDS:,} seconds, and not {seconds!r}")
        self._jump(seconds)
