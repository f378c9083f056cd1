"""Clients with a transactional id end, or name the cause, at brokers that coordinate no transactions."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import InvalidRequestError as AioInvalid
from confluent_kafka import KafkaError, KafkaException, Producer
from data_cluster import DataCluster, data_cluster
from kafka import KafkaProducer
from kafka.errors import KafkaError as PythonError

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
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap, transactional_id="x-python")
    with pytest.raises(PythonError, match="InvalidRequest"):
        producer.init_transactions()
    producer.close(timeout=1)
    assert of_broker(lines, "TRANSACTIONAL_ID:x-python") == 1


def test_librdkafka_names_the_error_of_a_transaction(cluster: DataCluster) -> None:
    """It asks until the time-out of the caller, after which nothing but the cause is left."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "x-confluent"})
    with pytest.raises(KafkaException) as failed:
        producer.init_transactions(3)
    assert failed.value.args[0].code() == KafkaError.INVALID_REQUEST


def test_aiokafka(cluster: DataCluster) -> None:
    async def produce() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, transactional_id="x-aio")
        try:
            await producer.start()
        finally:
            await producer.stop()

    with pytest.raises(AioInvalid):
        asyncio.run(produce())
