"""The metrics of clients with a quota have the names and the tags of Apache Kafka's."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from monitored_node import values_after
from support.eventually import eventually
from support.interop.mbeans import Key
from support.interop.real_kafka import KafkaInstallation
from support.wire import ask
from transport.protocol.messages import alter_client_quotas as altering
from transport.protocol.messages import describe_client_quotas as describing

pytestmark = pytest.mark.kafka
CLIENT = "bounded"
KINDS = ("Produce", "Fetch")
BYTES_PER_SECOND = 100e6


def use(address: str) -> None:
    """A client with a quota writes and reads a record."""
    port = int(address.rpartition(":")[2])
    entity = [altering.AlterClientQuotasRequestEntityData("client-id", CLIENT)]
    ops = [altering.OpData(key, BYTES_PER_SECOND) for key in ("producer_byte_rate", "consumer_byte_rate")]
    request = altering.AlterClientQuotasRequest([altering.AlterClientQuotasRequestEntryData(entity, ops)])
    (answer,) = ask(port, request, 1, altering.AlterClientQuotasResponse).entries
    assert answer.error_code == 0, answer
    eventually(lambda: bool(quotas(port)), "the broker knows the quotas")
    producer = Producer({"bootstrap.servers": address, "client.id": CLIENT})
    producer.produce("t", value=b"v" * 1000)
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": address, "client.id": CLIENT, "group.id": "g"})
    consumer.assign([TopicPartition("t", 0, 0)])
    record = consumer.poll(30)
    assert record is not None
    assert record.error() is None
    consumer.close()


def quotas(port: int) -> list[describing.EntryData]:
    """All quotas that a broker knows."""
    request = describing.DescribeClientQuotasRequest(components=[], strict=False)
    return ask(port, request, 1, describing.DescribeClientQuotasResponse).entries or []


def keys(kafka: KafkaInstallation, root: Path, make: str) -> set[Key]:
    """The metrics of both quotas."""
    return {key for key in values_after(kafka, root, make, use) if key.type in KINDS}


def test_clients_with_quotas_have_the_metrics_of_kafkas(newer_kafka: KafkaInstallation, tmp_path: Path) -> None:
    theirs, ours = (keys(newer_kafka, tmp_path / make, make) for make in ("kafka", "ours"))
    tags = (("client_id", CLIENT),)
    assert ours == {Key(kind, name, tags) for kind in KINDS for name in ("byte-rate", "throttle-time")}
    assert ours <= theirs
