"""Consumers of other projects in groups, at brokers of ours: they read, commit, share, and go on after a restart."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, Producer
from data_cluster import FIRST_BROKER, DataCluster, data_cluster
from kafka import KafkaConsumer

SECONDS = 60
RECORDS = 20
SETTINGS = {"group.initial.rebalance.delay.ms": "200", "offsets.topic.num.partitions": "4"}


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
