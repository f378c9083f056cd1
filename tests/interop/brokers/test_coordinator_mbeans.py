"""The metrics of the coordinators have the names, the tags and, at rest, the values of Apache Kafka's."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kraft.metrics.kafka import KAFKA_METRICS
from monitored_node import values_after
from support.interop.mbeans import OF_COORDINATORS, Key, same
from support.interop.real_kafka import KafkaInstallation

pytestmark = pytest.mark.kafka
RECORDS = 30
ROWS = [one for one in KAFKA_METRICS if one.type in OF_COORDINATORS]
OF_THE_MOMENT = {
    *("partition-load-time-avg", "partition-load-time-max", "offset-commit-count", "group-completed-rebalance-count"),
    *("consumer-group-rebalance-count", "request-total", "response-total"),
    *("group-count", "classic-group-count", "consumer-group-count", "NumGroups", "NumGroupsEmpty"),
}
"""What depends on the pace of a client; and the groups, at which Kafka looks once a minute."""


def use(address: str) -> None:
    """A group of each protocol that has read everything and left, and a committed transaction."""
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result()
    producer = Producer({"bootstrap.servers": address, "transactional.id": "t"})
    producer.init_transactions()
    producer.begin_transaction()
    for _ in range(RECORDS):
        producer.produce("orders", value=b"v")
    producer.commit_transaction()
    for protocol in ("classic", "consumer"):
        consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": protocol,
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe(["orders"])
        count = 0
        while count < RECORDS:
            record = consumer.poll(30)
            assert record is not None
            count += record.error() is None
        consumer.commit(asynchronous=False)
        consumer.close()


def values(kafka: KafkaInstallation, root: Path, make: str) -> dict[Key, str]:
    """The values of the coordinators of a node with both roles after the same use."""
    found = values_after(kafka, root, make, use)
    return {key: value for key, value in found.items() if key.type in OF_COORDINATORS}


def test_the_coordinators_have_the_metrics_of_kafkas(newer_kafka: KafkaInstallation, tmp_path: Path) -> None:
    theirs, ours = (values(newer_kafka, tmp_path / make, make) for make in ("kafka", "ours"))
    print(theirs)
    assert {(one.type, one.name) for one in theirs} == {(one.type, one.name) for one in ROWS}
    assert ours.keys() == theirs.keys()
    unlike = {key: (ours[key], theirs[key]) for key in ours if not same(ours[key], theirs[key])}
    assert {key.name for key in unlike} <= OF_THE_MOMENT, unlike
