"""The steps of the tour with brokers: registration, leadership of a new topic, failure and return of a broker, as the
metadata log has them; then a producer with acks=all, a consumer and a group of two work while nodes are killed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

import trio

from kraft.admin import AdminClient
from kraft.admin.topics import create_topic
from kraft.client import (
    Beginning,
    Client,
    ClientError,
    ConsumerSettings,
    Delivery,
    GroupConsumer,
    GroupSettings,
    ProducerSettings,
)
from kraft.controller.topics.partition_updates import is_active
from kraft.local.local_cluster import LocalCluster, NodeProcess
from kraft.observer.live_image import read_image
from metadata_log.image import MetadataImage, Partition
from transport.interface import Endpoint

TOPIC_PARTITIONS: Final = 6
MAX_REPLICAS: Final = 3
POLL_SECONDS: Final = 0.05

Seen = tuple[str, dict[str, Any]]
"""The observation of a step, as text and as JSON fields."""


class StepFailed(Exception):
    """The observation differs from the requirement."""


class BrokerTour:
    """The shared state of these steps: the cluster, a client, and their topic.

    Args:
        cluster: The nodes.
        admin: A client of the controllers.
        topic: The name of the topic.
        coordinator: Tells the address of the broker that coordinates the group.
    """

    def __init__(
        self, cluster: LocalCluster, admin: AdminClient, topic: str, coordinator: Callable[[], Endpoint]
    ) -> None:
        self._coordinator = coordinator
        self._cluster = cluster
        self._admin = admin
        self._topic = topic
        self._victim: NodeProcess | None = None

    async def register(self) -> Seen:
        """Each broker is registered and unfenced."""
        ids = [node.id for node in self._cluster.brokers]
        image = await self._until(lambda image: all(is_active(image, one) for one in ids))
        epochs = {one: image.brokers.by_id[one].epoch for one in ids}
        took_ms = round((time.monotonic() - self._cluster.started_at) * 1000)
        return (
            f"brokers {_listed(ids)} are registered and unfenced, {took_ms:,} ms after the start of the processes",
            {"brokers": ids, "epochs": list(epochs.values()), "ms": took_ms},
        )

    async def create(self) -> Seen:
        """A new topic: each partition has a leader and all its replicas in sync."""
        replicas = min(MAX_REPLICAS, len(self._cluster.brokers))
        await create_topic(self._admin, self._topic, partitions=TOPIC_PARTITIONS, replication_factor=replicas)
        partitions = await self._partitions(lambda one: one.leader >= 0 and set(one.isr) == set(one.replicas))
        leads = Counter(one.leader for one in partitions)
        shares = ", ".join(f"{broker}: {count}" for broker, count in sorted(leads.items()))
        facts = {
            "topic": self._topic,
            "partitions": TOPIC_PARTITIONS,
            "replicas": replicas,
            "leaders": dict(leads),
        }
        return (
            f"a topic of {TOPIC_PARTITIONS} partitions, {replicas} replicas each, all in sync; leaders: {shares}",
            facts,
        )

    async def lose(self) -> Seen:
        """`kill -9` of the group's coordinator: in-sync replicas take over, if there are other brokers."""
        before = (await read_image(self._admin)).topics[self._topic].partitions
        coordinator = self._coordinator()
        victim = self._victim = next(node for node in self._cluster.brokers if node.endpoint == coordinator)
        leader, led = victim.id, sum(one.leader == victim.id for one in before)
        pid = victim.pid
        started = time.monotonic()
        await victim.kill()
        after = await self._partitions(lambda one: leader != one.leader and leader not in one.isr)
        took_ms = round((time.monotonic() - started) * 1000)
        leaderless = sum(one.leader < 0 for one in after)
        for old, new in zip(before, after, strict=True):
            if new.leader >= 0 and new.leader not in old.isr:
                raise StepFailed(f"broker {new.leader} leads without having been in sync: {old}, then {new}")
        if leaderless and len(self._cluster.brokers) > 1:
            raise StepFailed(f"{leaderless} partitions have no leader")
        return (
            f"kill -9 of broker {leader} (pid {pid}), which coordinates the group: fenced when its session was over,"
            f" and its {led} leaderships moved to others in sync, after {took_ms:,} ms",
            {"killed": leader, "moved": led - leaderless, "ms": took_ms},
        )

    async def come_back(self) -> Seen:
        """The broker returns with a new epoch, and is in sync again for each partition."""
        victim = self._victim
        assert victim is not None, "no broker was killed"
        old_epoch = (await read_image(self._admin)).brokers.by_id[victim.id].epoch
        started = time.monotonic()
        await victim.start()
        await self._partitions(lambda one: one.leader >= 0 and set(one.isr) == set(one.replicas))
        took_ms = round((time.monotonic() - started) * 1000)
        epoch = (await read_image(self._admin)).brokers.by_id[victim.id].epoch
        if epoch <= old_epoch:
            raise StepFailed(f"broker {victim.id} is back with epoch {epoch}, after {old_epoch}")
        return (
            f"broker {victim.id} is back with epoch {epoch} (it was {old_epoch}), and in sync for all "
            f"{TOPIC_PARTITIONS} partitions after {took_ms:,} ms",
            {"broker": victim.id, "epoch": epoch, "ms": took_ms},
        )

    async def _partitions(self, wanted: Callable[[Partition], bool]) -> tuple[Partition, ...]:
        """The partitions of the topic, once all of them meet the condition."""
        image = await self._until(
            lambda image: self._topic in image.topics and all(map(wanted, image.topics[self._topic].partitions))
        )
        return image.topics[self._topic].partitions

    async def _until(self, wanted: Callable[[MetadataImage], bool]) -> MetadataImage:
        while not wanted(image := await read_image(self._admin)):  # noqa: ASYNC110  # it is elsewhere
            await trio.sleep(POLL_SECONDS)
        return image


def _listed(ids: list[int]) -> str:
    return ", ".join(map(str, ids))


PARTITIONS: Final = 3
MEMBERS: Final = 2
HEARTBEAT_MS: Final = 500
FIRST_RECORDS: Final = 100
RECORDS_PER_SECOND: Final = 200
PATIENCE_MS: Final = 120_000
"""The time-out of the client, longer than that of any tour: the deadline of a step ends it."""


class RecordTour:
    """A stream of numbered records through one topic, from the step `write` to the step `read`: to a consumer, and to a
    group of two.
    """

    def __init__(self, admin: AdminClient, client: Client, topic: str, *, brokers: int) -> None:
        self._admin = admin
        self._client = client
        self._topic = topic
        self._replicas = min(MAX_REPLICAS, brokers)
        self._has_begun = trio.Event()
        self._is_wanted = True
        self._sent: list[Delivery] = []
        self._is_flushed = trio.Event()
        self._read: dict[int, list[int]] = {}
        self._shares: tuple[Counter[int], ...] = tuple(Counter() for _ in range(MEMBERS))
        """How often each member of the group has got each record."""
        self._members: list[GroupConsumer] = []
        self._changed = trio.Event()
        self._failure: ClientError | None = None
        self._longest_s = 0.0
        self._last_read = time.monotonic()

    async def run(self) -> None:
        """Produce and consume from the step `write` on, until cancelled."""
        await self._has_begun.wait()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._produce)
                nursery.start_soon(self._consume)
                for share in self._shares:
                    nursery.start_soon(self._take_part, share)
        except* ClientError as failed:
            cause: BaseException = failed
            while isinstance(cause, BaseExceptionGroup):
                cause = cause.exceptions[0]
            assert isinstance(cause, ClientError), cause
            self._failure = cause
            self._note()

    async def write(self) -> Seen:
        """The first records are acknowledged by all replicas in sync, and come out of the topic."""
        least = max(1, self._replicas - 1)
        await create_topic(
            self._admin,
            self._topic,
            partitions=PARTITIONS,
            replication_factor=self._replicas,
            configs={"min.insync.replicas": str(least)},
        )
        began = time.monotonic()
        self._has_begun.set()
        while self._count() < FIRST_RECORDS:
            await self._wait()
        took_ms = round((time.monotonic() - began) * 1000)
        return (
            f"{self._count():,} records with acks=all, {self._replicas} replicas, at least {least} in sync: written and"
            f" read after {took_ms:,} ms; {RECORDS_PER_SECOND} a second from now on",
            {"topic": self._topic, "records": self._count(), "minInSync": least, "ms": took_ms},
        )

    async def share(self) -> Seen:
        """Two members of a group have divided the partitions, and each has got records."""
        began = time.monotonic()
        while not all(self._shares) or not all(one.assigned for one in self._members):
            await self._wait()
        took_ms = round((time.monotonic() - began) * 1000)
        divided = [list(one.assigned or ()) for one in self._members]
        return (
            f"a group of {MEMBERS} members has divided the partitions: {' and '.join(map(str, divided))}; both have got"
            f" records, after {took_ms:,} ms",
            {"group": self._topic, "coordinator": str(self.coordinator), "assigned": divided, "ms": took_ms},
        )

    @property
    def coordinator(self) -> Endpoint:
        """The address of the broker that coordinates the group."""
        endpoint = next((one.coordinator for one in self._members if one.coordinator is not None), None)
        if endpoint is None:
            raise StepFailed("no member of the group knows its coordinator")
        return endpoint

    async def read(self) -> Seen:
        """Each acknowledged record comes out of the topic, once and in the order of its partition; the group gets it at
        least once.
        """
        self._is_wanted = False
        while not self._is_flushed.is_set() or self._count() < len(self._sent):
            await self._wait()
        while len(self._shares[0].keys() | self._shares[1].keys()) < len(self._sent):
            await self._wait()
        again = sum(share.total() for share in self._shares) - len(self._sent)
        expected = _by_partition(self._sent)
        for partition, numbers in sorted(expected.items()):
            if self._read.get(partition) != numbers:
                lost = set(numbers) - set(self._read.get(partition, ()))
                raise StepFailed(
                    f"partition {partition} of {self._topic} lacks {len(lost):,} acknowledged records"
                    if lost
                    else f"partition {partition} of {self._topic} has records twice or in another order"
                )
        longest_ms = round(self._longest_s * 1000)
        return (
            f"all {len(self._sent):,} acknowledged records were read, each once and in order; the longest silence was"
            f" {longest_ms:,} ms; the group got all of them, {again:,} of them twice",
            {"acknowledged": len(self._sent), "read": self._count(), "longestMs": longest_ms, "again": again},
        )

    async def _produce(self) -> None:
        settings = ProducerSettings(timeout_ms=PATIENCE_MS)
        async with self._client.producer(self._topic, settings) as producer:
            while self._is_wanted:
                number = len(self._sent)
                self._sent.append(await producer.send(b"%d" % number, partition=number % PARTITIONS))
                await trio.sleep(0 if number < FIRST_RECORDS else 1 / RECORDS_PER_SECOND)
            await producer.flush()
            for delivery in self._sent:
                await delivery.wait()
        self._is_flushed.set()
        self._note()

    async def _consume(self) -> None:
        settings = ConsumerSettings(start=Beginning(), follows=True, timeout_ms=PATIENCE_MS)
        async with self._client.consumer(self._topic, settings) as consumer:
            self._last_read = time.monotonic()
            while records := await consumer.batch():
                now = time.monotonic()
                self._longest_s, self._last_read = max(self._longest_s, now - self._last_read), now
                for record in records:
                    self._read.setdefault(record.partition, []).append(int(record.value or b""))
                self._note()

    async def _take_part(self, share: Counter[int]) -> None:
        settings = GroupSettings(heartbeat_interval_ms=HEARTBEAT_MS, timeout_ms=PATIENCE_MS)
        async with self._client.group(self._topic, self._topic, settings) as member:
            self._members.append(member)
            while records := await member.batch():
                share.update(int(record.value or b"") for record in records)
                self._note()

    def _count(self) -> int:
        return sum(map(len, self._read.values()))

    def _note(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def _wait(self) -> None:
        if self._failure is not None:
            raise StepFailed(str(self._failure))
        await self._changed.wait()
        if self._failure is not None:
            raise StepFailed(str(self._failure))


def _by_partition(sent: Sequence[Delivery]) -> dict[int, list[int]]:
    """The numbers of the acknowledged records of each partition, in order."""
    return {partition: list(range(partition, len(sent), PARTITIONS)) for partition in range(PARTITIONS)}
