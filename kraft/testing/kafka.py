"""Kafka for tests that know nothing of Trio: a `LiveCluster` in a thread, behind plain functions.

Every method may be called from any thread and from any event loop; it blocks until what it does is done.

    with Kafka() as kafka:
        kafka.create_topic("orders", partitions=3)
        kafka.produce("orders", ["three apples"])
        assert [record.value for record in kafka.consume("orders")] == [b"three apples"]
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from difflib import ndiff
from functools import cached_property
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Final, TypeVar

import trio

from kraft.admin import (
    AdminClient,
    ElectionType,
    TopicPartition,
    alter_reassignments,
    create_topic,
    delete_topics,
    elect_leaders,
    open_admin,
)
from kraft.broker.handling.coordinators import GROUP, TOPICS, partition_of
from kraft.client import Client, ConsumedRecord, ConsumerSettings, Delivered, Isolation, open_client
from kraft.client.groups import LATEST, committed_offsets, describe_group, list_offsets
from kraft.client.questions import Questions
from kraft.testing.background import TrioThread
from kraft.testing.client_configs import CLIENTS, Access
from kraft.testing.faults import CLIENTS as ALL_CLIENTS
from kraft.testing.faults import FailNext, Faults, api_key, error_of
from kraft.testing.identities import MECHANISMS, Account, Accounts, Authority
from kraft.testing.live import SECURITY, Layout, LiveCluster, open_cluster
from kraft.testing.log_lines import THREAD, LogLines
from kraft.testing.refusals import can_be_refused
from metadata_log.image import MetadataImage
from metadata_log.records.record import Header
from transport.protocol.apis import ApiKey
from transport.protocol.errors import Error

T = TypeVar("T")
SECONDS: Final = 10.0
"""How long a call waits for a condition, unless it is told another time."""
_QUESTION_MS: Final = 10_000
Value = str | bytes | None
Given = Value | tuple[Value, Value]
"""A value, or a key with a value."""


class Kafka:
    """A cluster of real nodes in this process, which serves any client over TCP. Also a context manager.

    Args:
        brokers: The number of brokers.
        controllers: The number of controllers; 0 for one node with both roles.
        settings: Kafka properties for each node.
        security: The protocol of `bootstrap_servers` and `client_config`; the listeners of the others are there, too.
        auto_create: Whether a client that names a topic creates it.
        seed: The seed of everything that is random: elections, ids, faults.
        ports: Ports of clients' listeners by protocol, for the first broker; all others come from the system.
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
    ) -> None:
        if security not in SECURITY:
            raise ValueError(f"there is no security protocol {security!r}; there are {', '.join(SECURITY)}")
        self.layout = Layout(
            brokers=brokers,
            controllers=controllers,
            settings={key: str(value) for key, value in (settings or {}).items()},
            auto_create=auto_create,
            seed=seed,
            ports=ports or {},
        )
        self.security = security
        self.seed = seed
        self.accounts = Accounts()
        self.tls = Authority(lambda: self._directory)
        """The authority that has signed the certificates of the brokers: `tls.ca_file`, `tls.ca_pem`, `tls.context`."""
        self.log = LogLines()
        """The last lines of the nodes' logs."""
        self.schema_registry_url: str | None = None
        """The address of a schema registry; None without one."""
        self._files: Path | None = None
        try:
            self._thread = TrioThread(open_cluster(self.layout, self.accounts, self.tls), THREAD)
        except BaseException:
            self.log.close()
            raise
        self._cluster: LiveCluster = self._thread.value

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

    def __enter__(self) -> Kafka:
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

    def sasl(self, user: str, password: str | None = None) -> Account:
        """A user that can log in from now on, with PLAIN and with SCRAM."""
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
        """What a client needs to reach the cluster, in the client's own keys.

        Args:
            client: `kafka-python`, `confluent-kafka`, `librdkafka`, `aiokafka`, `java` or `franz-go` (the options of
                `kgo`).
            security: The protocol; by default the one of this cluster.
            user: The user that logs in, with SASL; `client` by default.
            mechanism: The mechanism of SASL.
            certificate: The name in a certificate of the client, with TLS; by default the client shows none.
        """
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

    @property
    def image(self) -> MetadataImage:
        """The committed metadata: topics, leaders, ISRs, configurations, ACLs."""
        return self._cluster.image

    def leader(self, topic: str, partition: int = 0) -> int:
        """The broker that leads a partition; -1 for none."""
        return self.image.topics[topic].partitions[partition].leader

    def isr(self, topic: str, partition: int = 0) -> tuple[int, ...]:
        """The replicas of a partition that are in sync."""
        return tuple(self.image.topics[topic].partitions[partition].isr)

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
            state = "runs" if node_id in self.running else f"does not run {cluster.failures.get(node_id, '')}".rstrip()
            is_fenced = node_id in self.broker_ids and self.is_fenced(node_id)
            lines.append(f"node {node_id} {state}{' and is fenced' if is_fenced else ''}")
        for topic in self.image.topics.by_id.values():
            parts = [f"{at}: leader {one.leader} ISR {list(one.isr)}" for at, one in enumerate(topic.partitions)]
            lines.append(f"topic {topic.name}: {', '.join(parts[:8])}{' …' if len(parts) > 8 else ''}")
        return "\n".join(lines)

    def wait_until(self, condition: Callable[[Kafka], object], *, seconds: float = SECONDS) -> None:
        """Wait until a condition holds, which is looked at again and again.

        Raises:
            TimeoutError: The condition did not hold in time.
        """
        until = time.monotonic() + seconds
        while not condition(self):
            if time.monotonic() >= until:
                raise TimeoutError(f"the condition did not hold within {seconds:g} s")
            # Whatever changes it is anywhere: in the metadata, or in the program of the test.
            time.sleep(_LOOK_SECONDS)

    # Topics and records

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int | None = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic; returns once every broker that runs knows it.

        Args:
            name: The name of the topic.
            partitions: The number of partitions.
            replication_factor: The number of replicas; by default 3, or as many as there are brokers.
            config: Settings of the topic.
        """
        replicas = replication_factor or min(3, self.layout.brokers)

        async def create() -> None:
            async with self._admin() as admin:
                await create_topic(admin, name, partitions=partitions, replication_factor=replicas, configs=config)
            await self._until_known(lambda image: name in image.topics)

        self._call(create)

    def delete_topic(self, *names: str) -> None:
        """Delete topics; returns once no broker that runs knows them."""

        async def delete() -> None:
            async with self._admin() as admin:
                await delete_topics(admin, names)
            await self._until_known(lambda image: not any(name in image.topics for name in names))

        self._call(delete)

    async def _until_known(self, holds: Callable[[MetadataImage], bool]) -> None:
        for broker_id in self.layout.broker_ids:
            while broker_id in self._cluster.running and not holds(self._cluster.broker(broker_id).committed_image()):
                await self._cluster.node(broker_id).wait_for_change()

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
        wanted = [_pair(one) for one in values]
        kept = tuple(Header(key, value) for key, value in (headers or {}).items())

        async def produce() -> list[Delivered]:
            async with self._client() as client, client.producer(topic) as producer:
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
        settings = ConsumerSettings(follows=count is not None, isolation=Isolation(committed))

        async def consume() -> list[ConsumedRecord]:
            found: list[ConsumedRecord] = []
            async with self._client() as client, client.consumer(topic, settings) as consumer:
                with trio.move_on_after(seconds if count is not None else float("inf")):
                    while (count is None or len(found) < count) and (some := await consumer.batch()):
                        found += some
            return found

        return self._call(consume)

    def reset(self) -> None:
        """Begin anew on the same ports: no topic, group, ACL, setting or transaction is left, and no fault.

        All connections of clients end.
        """
        self._call(self._cluster.reset)

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
        if (expected is None) is (count is None):
            raise ValueError("say what is expected: either records or their count")
        wanted = len(expected) if expected is not None else count or 0
        starts = self._call(self._ends, topic)
        found: list[ConsumedRecord] = []
        yield found
        found += self._call(self._written_since, topic, starts, wanted, committed, seconds)
        if expected is None:
            if len(found) != wanted:
                raise AssertionError(f"{topic} got {len(found)} records, and not {wanted}:\n{_lines(found)}")
            return
        pairs = [_pair(one) for one in expected]
        has_keys = any(isinstance(one, tuple) for one in expected)
        are = [(one.key if has_keys else None, one.value) for one in found]
        before, after = ([_text(one) for one in some] for some in (pairs, are))
        if not in_order:
            before, after = sorted(before), sorted(after)
        if before != after:
            raise AssertionError(
                f"{topic} did not get the records that were expected (- expected, + written):\n"
                + "\n".join(line.rstrip() for line in ndiff(before, after) if not line.startswith("?"))
            )

    async def _ends(self, topic: str) -> dict[int, int]:
        """The end of each partition; empty for a topic that does not exist."""
        async with self._client() as client:
            ask = Questions(client, _QUESTION_MS)
            view = (await ask.cluster((topic,))).topics.get(topic)
            if view is None:
                return {}
            found = await list_offsets(ask, {(topic, one): LATEST for one in view.partitions})
            return {number: offset for (_, number), (_, offset) in found.items()}

    async def _written_since(
        self, topic: str, starts: Mapping[int, int], wanted: int, committed: bool, seconds: float
    ) -> list[ConsumedRecord]:
        """The records behind these offsets, once there are so many or the time is over; more if there are more."""
        ends = trio.current_time() + seconds
        while True:
            found = [one for one in await self._read(topic, committed) if one.offset >= starts.get(one.partition, 0)]
            if len(found) >= wanted or trio.current_time() >= ends:
                return found
            await trio.sleep(_LOOK_SECONDS)

    async def _read(self, topic: str, committed: bool) -> list[ConsumedRecord]:
        if topic not in self._cluster.image.topics:
            return []
        settings = ConsumerSettings(isolation=Isolation(committed))
        async with self._client() as client, client.consumer(topic, settings) as consumer:
            return [record async for record in consumer]

    @contextmanager
    def assert_consumed(self, group: str, topic: str, *, seconds: float = SECONDS) -> Iterator[None]:
        """Require that a group has committed everything in a topic, at the end of the block.

        Args:
            group: The name of the group.
            topic: The name of the topic.
            seconds: How long to wait at the end of the block.
        """
        yield
        lags = self._call(self._lags_until_zero, group, topic, seconds)
        if any(committed != end for committed, end in lags.values()):
            lines = [
                f"  {topic}-{number}: committed {'nothing' if committed is None else committed} of {end}"
                f"{'' if committed == end else f', {end - (committed or 0)} behind'}"
                for number, (committed, end) in lags.items()
            ]
            raise AssertionError(f"group {group} has not consumed all of {topic}:\n" + "\n".join(lines))

    async def _lags_until_zero(self, group: str, topic: str, seconds: float) -> dict[int, tuple[int | None, int]]:
        until = trio.current_time() + seconds
        while True:
            lags = await self._lags(group, topic)
            is_done = all(committed == end for committed, end in lags.values())
            if is_done or trio.current_time() >= until:
                return lags
            await trio.sleep(_LOOK_SECONDS)

    async def _lags(self, group: str, topic: str) -> dict[int, tuple[int | None, int]]:
        """By partition with records, what is committed and where the partition ends."""
        ends = await self._ends(topic)
        async with self._client() as client:
            ask = Questions(client, _QUESTION_MS)
            known = await committed_offsets(ask, group, await ask.cluster())
        committed = {number: one.offset for (name, number), one in known.items() if name == topic}
        return {
            number: (committed.get(number), end) for number, end in sorted(ends.items()) if end or number in committed
        }

    # Nodes that fail

    def kill(self, node_id: int, *, loses_power: bool = False) -> None:
        """End a node like `kill -9`; with `loses_power` also what it had not flushed is lost."""
        self._call(lambda: self._cluster.kill(node_id, loses_power=loses_power))

    def stop(self, node_id: int) -> None:
        """Shut a node down gracefully: its leaderships move first."""
        self._call(self._cluster.stop, node_id)

    def restart(self, node_id: int) -> None:
        """Start a node with what is on its disk, after `kill` if it runs; a broker serves again when this returns."""

        async def restart() -> None:
            if node_id in self._cluster.running:
                await self._cluster.kill(node_id)
            await self._cluster.start(node_id)
            if node_id in self.broker_ids:
                await self._cluster.wait_until_serving(node_id)

        self._call(restart)

    def pause(self, node_id: int) -> None:
        """Let a node neither hear nor say anything until `resume`, as a process that is stopped by a signal."""

        async def pause() -> None:
            self._cluster.life(node_id)
            self._faults(node_id).is_paused = True

        self._call(pause)

    def resume(self, node_id: int) -> None:
        """Let a paused node go on with all that it has missed."""

        async def resume() -> None:
            self._faults(node_id).is_paused = False
            if node_id in self._cluster.running:
                self._cluster.life(node_id).transport.resume()

        self._call(resume)

    # The network

    def partition(self, one: Iterable[int | str], other: Iterable[int | str] | None = None) -> None:
        """Cut the network between two sides, in both directions.

        Args:
            one: Nodes of one side.
            other: Nodes of the other side, where `"clients"` are all clients; by default all other nodes.
        """
        side = list(one)
        rest = [node_id for node_id in self.layout.ids if node_id not in side] if other is None else list(other)
        for host in (*side, *rest):
            if host != ALL_CLIENTS:
                self._faults(host)

        async def cut() -> None:
            self._cluster.wires.plan.partition(side, rest)

        self._call(cut)

    def delay(self, node_id: int, milliseconds: float | tuple[int, int], *, to: int | None = None) -> None:
        """Let messages to a node take longer.

        Args:
            node_id: The node.
            milliseconds: How long, or the least and the most, of which each message draws one.
            to: Delay the messages between the node and this other one; by default those of clients to the node.
        """
        bounds = milliseconds if isinstance(milliseconds, tuple) else (int(milliseconds), int(milliseconds))
        faults = self._faults(node_id)

        async def delay() -> None:
            if to is None:
                faults.request_delay_ms = bounds
            else:
                self._cluster.wires.plan.slow_down(node_id, to, bounds)

        self._call(delay)

    def throttle(self, milliseconds: int, *, node_id: int | None = None) -> None:
        """Answer clients with this throttle time, as for a client above its quota (KIP-219); 0 ends that."""

        async def throttle() -> None:
            for one in self._brokers(node_id):
                self._faults(one).throttle_ms = milliseconds

        self._call(throttle)

    def break_connection(self, *, after_bytes: int = 0, node_id: int | None = None) -> None:
        """Break one connection of a client in the middle of an answer, after so many bytes of answers from now on."""

        async def break_connection() -> None:
            for one in self._brokers(node_id):
                self._faults(one).break_after = after_bytes

        self._call(break_connection)

    def heal(self) -> None:
        """End all faults of network, disks and requests, and let paused nodes go on; nodes that ended stay so."""

        async def heal() -> None:
            self._cluster.wires.plan.heal()
            for node_id, faults in self._cluster.faults.items():
                was_paused = faults.is_paused
                faults.heal()
                faults.failures.clear()
                self._cluster.disks[node_id].free_bytes = None
                if was_paused and node_id in self._cluster.running:
                    self._cluster.life(node_id).transport.resume()

        self._call(heal)

    # Disks

    def slow_disk(self, node_id: int, milliseconds: int) -> None:
        """Let a broker take longer for what it appends: producers wait for it, and as a follower it falls behind."""
        self._faults(node_id).disk_delay_ms = milliseconds

    def full_disk(self, node_id: int, *, free_bytes: int = 0) -> None:
        """Let no more than so many bytes be written at a node. A broker without a disk ends, as in Kafka."""
        self._faults(node_id)

        async def fill() -> None:
            self._cluster.disks[node_id].free_bytes = free_bytes

        self._call(fill)

    # Requests

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
            times: How many requests fail, at each broker.
            topic: Only requests that name this topic.
            node_id: Only at this broker.
        """
        key, code = api_key(api), error_of(error)

        async def fail() -> None:
            for one in self._brokers(node_id):
                requests = self._cluster.broker(one).requests
                if requests is None or not can_be_refused(requests.table, key):
                    raise ValueError(f"requests of {api} cannot fail as a whole")
                self._faults(one).failures.append(FailNext(api=key, error=code, times=times, topic=topic))

        self._call(fail)

    # Leaders, coordinators, groups

    def move_leader(self, topic: str, partition: int = 0, to: int | None = None) -> int:
        """Let another replica lead a partition, by an election as an administrator starts it.

        Args:
            topic: The name of the topic.
            partition: The number of the partition.
            to: The new leader, a replica in sync; by default another one, in order.

        Returns:
            The new leader.
        """
        return self._call(lambda: self._move_leader(topic, partition, to))

    async def _move_leader(self, topic: str, partition: int, to: int | None) -> int:
        cluster = self._cluster

        def now() -> Any:
            return cluster.image.topics[topic].partitions[partition]

        state = now()
        others = [one for one in state.isr if one != state.leader]
        if to is None:
            if not others:
                raise ValueError(f"no other replica of {topic}-{partition} is in sync")
            to = others[0]
        elif to not in state.isr:
            raise ValueError(f"broker {to} is no replica of {topic}-{partition} in sync, which are {list(state.isr)}")
        place = TopicPartition(topic, partition)
        async with self._admin() as admin:
            await alter_reassignments(admin, {place: [to, *[one for one in state.replicas if one != to]]})
            await self._until_known(lambda image: image.topics[topic].partitions[partition].replicas[0] == to)
            await elect_leaders(admin, ElectionType.PREFERRED, [place])
        wanted = to
        await self._until_known(lambda image: image.topics[topic].partitions[partition].leader == wanted)
        return wanted

    def coordinator(self, group: str) -> int:
        """The broker that coordinates a group; -1 for none."""
        topic = TOPICS[GROUP]
        if topic not in self.image.topics:
            return -1
        return self.leader(topic, partition_of(group, len(self.image.topics[topic].partitions)))

    def move_coordinator(self, group: str, to: int | None = None) -> int:
        """Let another broker coordinate a group; returns its id."""
        topic = TOPICS[GROUP]
        if topic not in self.image.topics:
            raise ValueError(f"no group was ever used, so that {topic} does not exist")
        return self.move_leader(topic, partition_of(group, len(self.image.topics[topic].partitions)), to)

    def rebalance(self, group: str) -> None:
        """Let each member of a group join again, by the answer to its next heartbeat."""

        async def rebalance() -> None:
            async with self._client() as client:
                found = await describe_group(Questions(client, _QUESTION_MS), group)
            members = {one.id for one in found.members}
            if not members:
                raise ValueError(f"group {group} has no members")
            for api, error in (
                (ApiKey.HEARTBEAT, Error.REBALANCE_IN_PROGRESS),
                (ApiKey.CONSUMER_GROUP_HEARTBEAT, Error.FENCED_MEMBER_EPOCH),
            ):
                rule = FailNext(api=api, error=error, times=len(members), group=group, members=set(members))
                self._faults(self.coordinator(group)).failures.append(rule)

        self._call(rebalance)

    # Time

    def jump(self, seconds: float) -> None:
        """Let the clocks of all nodes jump ahead: sessions, transactions and retention run out at once."""

        async def jump() -> None:
            self._cluster.clock.ahead_ms += int(seconds * 1000)
            for node_id in self._cluster.running:
                self._cluster.life(node_id).transport.wake()

        self._call(jump)

    @cached_property
    def clock(self) -> Clock:
        """The clock of all nodes."""
        return Clock(self)

    # Within

    def _faults(self, node_id: int | str) -> Faults:
        known = self._cluster.faults
        if not isinstance(node_id, int) or node_id not in known:
            raise ValueError(f"there is no node {node_id}; there are {', '.join(map(str, known))}")
        return known[node_id]

    def _brokers(self, node_id: int | None) -> tuple[int, ...]:
        if node_id is None:
            return tuple(one for one in self.broker_ids if one in self._cluster.running)
        self._cluster.life(node_id)
        return (node_id,)

    @asynccontextmanager
    async def _admin(self) -> AsyncIterator[AdminClient]:
        async with open_admin(self._cluster.controllers) as admin:
            yield admin

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[Client]:
        rng = Random(self._cluster.rng.getrandbits(64))
        async with open_client(
            self._cluster.endpoints("PLAINTEXT"), rng=rng, start_ms=self._cluster.clock.now_ms()
        ) as client:
            yield client

    def _call(self, function: Callable[..., Awaitable[T]], *args: Any) -> T:
        return self._thread.call(function, *args)


class Clock:
    """The clock of the nodes of a cluster."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka

    def jump(self, seconds: float) -> None:
        """Let it jump ahead; see `Kafka.jump`."""
        self._kafka.jump(seconds)


_LOOK_SECONDS: Final = 0.01


def _bytes(value: Value) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _pair(given: Given) -> tuple[bytes | None, bytes | None]:
    key, value = given if isinstance(given, tuple) else (None, given)
    return _bytes(key), _bytes(value)


def _text(pair: tuple[bytes | None, bytes | None]) -> str:
    key, value = pair
    return repr(value) if key is None else f"{key!r}: {value!r}"


def _lines(found: Sequence[ConsumedRecord]) -> str:
    return "\n".join(f"  {one.partition}@{one.offset} {_text((one.key, one.value))}" for one in found)
