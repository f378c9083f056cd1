"""Consumers of other projects in groups, at brokers of ours: they read, commit, share, and go on after a restart."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer

from kraft.handling.coordinators import GROUP, coordinator_of
from support.kraft.data_cluster import FIRST_BROKER, DataCluster, data_cluster

SECONDS = 60
RECORDS = 20
SETTINGS: dict[str, Any] = {"group.initial.rebalance.delay.ms": "200", "offsets.topic.num.partitions": "4"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataCluster]:
    """One broker."""
    settings = SETTINGS | {"offsets.topic.replication.factor": "1"}
    with data_cluster(tmp_path_factory.mktemp("brokers"), brokers=1, **settings) as running:
        yield running


def produce(cluster: DataCluster, topic: str, numbers: range) -> None:
    """Write numbers to a topic."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in numbers:
        producer.produce(topic, str(number).encode(), partition=number % 2)
    assert producer.flush(SECONDS) == 0


def with_kafka_python(cluster: DataCluster, topic: str, group: str, count: int) -> list[int]:
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=cluster.bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    found: list[int] = []
    end = time.monotonic() + SECONDS
    while len(found) < count and time.monotonic() < end:
        for records in consumer.poll(timeout_ms=500).values():
            found += [int(one.value) for one in records]
    consumer.commit()
    consumer.close()
    return found


def with_confluent(cluster: DataCluster, topic: str, group: str, count: int) -> list[int]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    found: list[int] = []
    end = time.monotonic() + SECONDS
    while len(found) < count and time.monotonic() < end:
        record = consumer.poll(0.5)
        if record is not None and record.error() is None:
            found.append(int(record.value() or b""))
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


def with_aiokafka(cluster: DataCluster, topic: str, group: str, count: int) -> list[int]:
    async def consume() -> list[int]:
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=cluster.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        await consumer.start()
        found: list[int] = []
        try:
            while len(found) < count:
                found.append(int((await asyncio.wait_for(consumer.getone(), SECONDS)).value))
            await consumer.commit()
        finally:
            await consumer.stop()
        return found

    return asyncio.run(consume())


CLIENTS: dict[str, Callable[[DataCluster, str, str, int], list[int]]] = {
    "kafka-python": with_kafka_python,
    "confluent-kafka": with_confluent,
    "aiokafka": with_aiokafka,
}


@pytest.mark.parametrize("client", CLIENTS)
def test_a_group_goes_on_where_it_was(cluster: DataCluster, client: str) -> None:
    """After a restart of the client, and after a kill of the broker that coordinates it."""
    topic, consume = f"t-{client}", CLIENTS[client]
    cluster.create_topic(topic, 2, 1)
    produce(cluster, topic, range(RECORDS))
    assert sorted(consume(cluster, topic, f"g-{client}", RECORDS)) == list(range(RECORDS))
    produce(cluster, topic, range(RECORDS, 2 * RECORDS))
    assert sorted(consume(cluster, topic, f"g-{client}", RECORDS)) == list(range(RECORDS, 2 * RECORDS))
    cluster.kill(FIRST_BROKER)
    cluster.start(FIRST_BROKER)
    produce(cluster, topic, range(2 * RECORDS, 3 * RECORDS))
    assert sorted(consume(cluster, topic, f"g-{client}", RECORDS)) == list(range(2 * RECORDS, 3 * RECORDS))


def member(
    cluster: DataCluster, group: str, topic: str, found: dict[int, list[str]], name: str, stop: threading.Event
) -> None:
    """Read in a group until it is time to stop, and commit what was read."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 300,
        }
    )
    consumer.subscribe([topic])
    while not stop.is_set():
        record = consumer.poll(0.2)
        if record is not None and record.error() is None:
            found.setdefault(int(record.value() or b""), []).append(name)
            consumer.commit(message=record, asynchronous=False)
    consumer.close()


def test_two_members_share_a_topic_and_go_on_when_their_coordinator_is_killed(tmp_path: Path) -> None:
    with data_cluster(tmp_path, brokers=3, **SETTINGS) as cluster:
        cluster.create_topic("shared", 2, 3)
        produce(cluster, "shared", range(RECORDS))
        found: dict[int, list[str]] = {}
        stop = threading.Event()
        threads = [
            threading.Thread(target=member, args=(cluster, "pair", "shared", found, name, stop)) for name in "ab"
        ]
        try:
            for thread in threads:
                thread.start()
            until(lambda: len(found) == RECORDS)
            image = cluster.until(lambda image: "__consumer_offsets" in image.topics)
            coordinator = coordinator_of(image, GROUP, "pair", "PLAINTEXT")
            assert coordinator is not None
            cluster.kill(coordinator[0].id)
            produce(cluster, "shared", range(RECORDS, 2 * RECORDS))
            until(lambda: len(found) == 2 * RECORDS)
            # A member that missed its session on a busy machine joins again; then each has one partition.
            rounds = itertools.count(2)

            def is_shared() -> bool:
                last = next(rounds) * RECORDS
                produce(cluster, "shared", range(last, last + RECORDS))
                until(lambda: len(found) == last + RECORDS)
                return {name for number in range(last, last + RECORDS) for name in found[number]} == {"a", "b"}

            until(is_shared)
        finally:
            stop.set()
            for thread in threads:
                thread.join(SECONDS)


def until(reached: Callable[[], bool]) -> None:
    """Wait for something that clients do in threads of their own."""
    end = time.monotonic() + SECONDS
    while not reached():
        assert time.monotonic() < end
        threading.Event().wait(0.05)
