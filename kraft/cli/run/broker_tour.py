"""The steps of the tour with brokers: registration, leadership of a new topic, failure and return of a broker.

The steps read the cluster's state from the metadata log, as a broker does.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import trio

from kraft.admin import AdminClient
from kraft.admin.topics import create_topic
from kraft.controller.topics.partition_updates import is_active
from kraft.local.local_cluster import LocalCluster, NodeProcess
from kraft.observer.live_image import read_image
from metadata_log.image import MetadataImage, Partition

PARTITIONS: Final = 6
MAX_REPLICAS: Final = 3
POLL_SECONDS: Final = 0.05

Seen = tuple[str, dict[str, Any]]
"""The observation of a step, as text and as JSON fields."""


class StepFailed(Exception):
    """The observation differs from the requirement."""


class BrokerTour:
    """The shared state of these steps: the cluster, a client, and their topic."""

    def __init__(self, cluster: LocalCluster, admin: AdminClient, topic: str) -> None:
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
        await create_topic(self._admin, self._topic, partitions=PARTITIONS, replication_factor=replicas)
        partitions = await self._partitions(lambda one: one.leader >= 0 and set(one.isr) == set(one.replicas))
        leads = Counter(one.leader for one in partitions)
        shares = ", ".join(f"{broker}: {count}" for broker, count in sorted(leads.items()))
        facts = {"topic": self._topic, "partitions": PARTITIONS, "replicas": replicas, "leaders": dict(leads)}
        return f"a topic of {PARTITIONS} partitions, {replicas} replicas each, all in sync; leaders: {shares}", facts

    async def lose(self) -> Seen:
        """`kill -9` of the broker with the most leaderships: in-sync replicas take over, if there are other brokers."""
        before = (await read_image(self._admin)).topics[self._topic].partitions
        leader, led = Counter(one.leader for one in before).most_common(1)[0]
        victim = self._victim = self._cluster.node(leader)
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
            f"kill -9 of broker {leader} (pid {pid}): fenced when its session was over, and its {led} leaderships moved"
            f" to others in sync, after {took_ms:,} ms",
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
            f"broker {victim.id} is back with epoch {epoch} (it was {old_epoch}), and in sync for all {PARTITIONS}"
            f" partitions after {took_ms:,} ms",
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
