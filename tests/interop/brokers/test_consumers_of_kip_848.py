"""librdkafka's consumers with `group.protocol=consumer`, at brokers of ours."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from support.interop.kafka_tools import KafkaTools
from support.interop.real_kafka import KafkaInstallation
from support.kraft.data_cluster import FIRST_BROKER, DataCluster, data_cluster

SECONDS = 60
PARTITIONS = 4
RECORDS = 40
SETTINGS: dict[str, Any] = {
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataCluster]:
    """One broker."""
    with data_cluster(tmp_path_factory.mktemp("brokers"), brokers=1, **SETTINGS) as running:
        yield running


def produce(cluster: DataCluster, topic: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in numbers:
        producer.produce(topic, str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(SECONDS) == 0


def consumer_of(cluster: DataCluster, topic: str, group: str, **settings: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
    )
    consumer.subscribe([topic])
    return consumer


def consume(consumers: list[Consumer], count: int, *, owned: int = 0) -> list[int]:
    """Poll until so many records came, and every consumer owns so many partitions."""
    found: list[int] = []
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        for one in consumers:
            record = one.poll(0.1)
            if record is not None and record.error() is None:
                found.append(int(record.value() or b""))
        if len(found) >= count and all(len(one.assignment()) >= owned for one in consumers):
            return found
    raise AssertionError((found, [one.assignment() for one in consumers]))


def test_a_group_goes_on_where_it_was(cluster: DataCluster) -> None:
    """After a restart of the client, and after a kill of the broker that coordinates it."""
    cluster.create_topic("one", PARTITIONS, 1)
    for begin in range(0, 3 * RECORDS, RECORDS):
        produce(cluster, "one", range(begin, begin + RECORDS))
        consumer = consumer_of(cluster, "one", "g-one")
        assert sorted(consume([consumer], RECORDS)) == list(range(begin, begin + RECORDS))
        consumer.commit(asynchronous=False)
        consumer.close()
        if begin == RECORDS:
            cluster.kill(FIRST_BROKER)
            cluster.start(FIRST_BROKER)


def test_two_members_share_and_one_takes_over(cluster: DataCluster) -> None:
    cluster.create_topic("two", PARTITIONS, 1)
    first = consumer_of(cluster, "two", "g-two", group_instance_id="i1")
    consume([first], 0, owned=PARTITIONS)
    second = consumer_of(cluster, "two", "g-two", group_instance_id="i2", group_remote_assignor="range")
    consume([first, second], 0, owned=PARTITIONS // 2)
    assert len(first.assignment()) == len(second.assignment()) == PARTITIONS // 2
    produce(cluster, "two", range(RECORDS))
    assert sorted(consume([first, second], RECORDS)) == list(range(RECORDS))
    first.commit(asynchronous=False)
    second.commit(asynchronous=False)
    second.unsubscribe()
    second.close()
    first.unsubscribe()
    first.close()


def test_a_regular_expression(cluster: DataCluster) -> None:
    cluster.create_topic("rx-1", PARTITIONS, 1)
    consumer = consumer_of(cluster, "^rx-.*", "g-rx")
    consume([consumer], 0, owned=PARTITIONS)
    consumer.close()


def test_a_member_is_killed_and_the_broker_too(cluster: DataCluster) -> None:
    """The coordinator loads the group; its members go on with the epochs that they had."""
    cluster.create_topic("three", PARTITIONS, 1)
    consumers = [consumer_of(cluster, "three", "g-three") for _ in range(2)]
    consume(consumers, 0, owned=PARTITIONS // 2)
    before = [one.assignment() for one in consumers]
    cluster.kill(FIRST_BROKER)
    cluster.start(FIRST_BROKER)
    produce(cluster, "three", range(RECORDS))
    assert sorted(consume(consumers, RECORDS)) == list(range(RECORDS))
    assert [one.assignment() for one in consumers] == before
    for one in consumers:
        one.close()


@pytest.mark.kafka
def test_kafkas_own_consumer_and_tool(cluster: DataCluster, kafka: KafkaInstallation) -> None:
    """The Java consumer reads with the protocol, and `kafka-consumer-groups.sh` shows the group."""
    cluster.create_topic("java", PARTITIONS, 1)
    produce(cluster, "java", range(RECORDS))
    server = f"--bootstrap-server={cluster.bootstrap}"
    with KafkaTools(kafka) as tools:
        ran = tools.run(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *(server, "--topic=java", "--group=g-java", f"--max-messages={RECORDS}", "--timeout-ms=60000"),
            *("--command-property=group.protocol=consumer", "--command-property=auto.offset.reset=earliest"),
        )
        assert sorted(map(int, ran.stdout.split())) == list(range(RECORDS)), ran.stderr
        tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
        shown = tools.run(tool, server, "--describe", "--group=g-java", "--state")
        assert "Empty" in shown.stdout, shown
        shown = tools.run(tool, server, "--describe", "--group=g-java", "--offsets")
        assert shown.stdout.count("g-java") == PARTITIONS, shown
        shown = tools.run(tool, server, "--delete", "--group=g-java")
        assert "successful" in shown.stdout, shown
