"""Clients with a group or a transactional id end, or name the cause, at brokers that coordinate neither."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import InvalidRequestError as AioInvalid
from broker_cluster import CONSOLE_CONSUMER
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from data_cluster import DataCluster, data_cluster
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import InvalidRequestError
from kafka.errors import KafkaError as PythonError
from real_kafka import KafkaInstallation

SECONDS = 20


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataCluster]:
    with data_cluster(tmp_path_factory.mktemp("brokers"), brokers=1) as running:
        running.create_topic("t", 1, 1)
        yield running


@pytest.fixture(autouse=True)
def in_time() -> Iterator[None]:
    before = time.monotonic()
    yield
    assert time.monotonic() - before < SECONDS


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.WARNING, "kraft.node")
    return caplog


def of_broker(lines: pytest.LogCaptureFixture, name: str) -> int:
    return sum("no-coordinator" in text and name in text for text in lines.messages)


def test_kafka_python(cluster: DataCluster, lines: pytest.LogCaptureFixture) -> None:
    consumer = KafkaConsumer("t", bootstrap_servers=cluster.bootstrap, group_id="g-python")
    with pytest.raises(InvalidRequestError):
        next(consumer)
    consumer.close(autocommit=False)
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap, transactional_id="x-python")
    with pytest.raises(PythonError, match="InvalidRequest"):
        producer.init_transactions()
    producer.close(timeout=1)
    assert of_broker(lines, "GROUP:g-python") == 1


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_librdkafka(cluster: DataCluster, lines: pytest.LogCaptureFixture, protocol: str) -> None:
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": f"g-{protocol}", "group.protocol": protocol}
    )
    consumer.subscribe(["t"])
    told = consumer.poll(SECONDS)
    assert told is not None
    error = told.error()
    assert error is not None
    assert error.code() == KafkaError.INVALID_REQUEST
    assert "No broker here coordinates groups or transactions" in error.str()
    consumer.poll(1.2)  # it asks again, and the broker repeats nothing
    consumer.close()
    assert of_broker(lines, f"GROUP:g-{protocol}") <= 1  # one a second for all groups


def test_librdkafka_names_the_error_of_a_transaction(cluster: DataCluster) -> None:
    """It asks until the time-out of the caller, after which nothing but the cause is left."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "x-confluent"})
    with pytest.raises(KafkaException) as failed:
        producer.init_transactions(3)
    assert failed.value.args[0].code() == KafkaError.INVALID_REQUEST


def test_aiokafka(cluster: DataCluster) -> None:
    async def consume() -> None:
        consumer = AIOKafkaConsumer("t", bootstrap_servers=cluster.bootstrap, group_id="g-aio")
        try:
            await consumer.start()
            await consumer.getone()
        finally:
            await consumer.stop()

    async def produce() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, transactional_id="x-aio")
        try:
            await producer.start()
        finally:
            await producer.stop()

    for client in (consume, produce):
        with pytest.raises(AioInvalid):
            asyncio.run(client())


@pytest.mark.kafka
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_consumer_of_kafka(cluster: DataCluster, kafka: KafkaInstallation, protocol: str) -> None:
    done = kafka.run(
        CONSOLE_CONSUMER,
        *("--bootstrap-server", cluster.bootstrap, "--topic", "t", "--group", f"g-java-{protocol}"),
        *("--command-property", f"group.protocol={protocol}"),
        timeout=60,
    )
    assert "InvalidRequestException" in done.stderr + done.stdout
