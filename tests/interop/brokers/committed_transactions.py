"""Transactions of Confluent's client, and what a reader finds of them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

import confluent_kafka

from our_brokers import OURS, THEIRS, OurBrokers
from support import TESTS
from support.interop.real_kafka import eventually

SECONDS = 60
SOURCE = TESTS / "interop" / "Transactions.java"
ENDS = ("commit", "abort", "commit", "abort")
TOPICS = {"ours-leads": [OURS, THEIRS], "kafkas-leads": [THEIRS, OURS]}


def values(ends: Sequence[str], number: int) -> list[str]:
    return [f"{ends[number]} {number} {at}" for at in range(3)]


def by_confluent(cluster: OurBrokers) -> None:
    """Transactions of version 1: the producer adds its partitions, and the leader asks the coordinator for them."""
    settings = {"bootstrap.servers": cluster.bootstrap, "transactional.id": "confluent", "log_level": 0}
    producer = confluent_kafka.Producer(settings)
    producer.init_transactions(SECONDS)
    for number, end in enumerate(ENDS):
        producer.begin_transaction()
        for topic in TOPICS:
            for value in values(ENDS, number):
                producer.produce(topic, value, partition=0)
        assert producer.flush(SECONDS) == 0
        (producer.commit_transaction if end == "commit" else producer.abort_transaction)(SECONDS)


def committed(cluster: OurBrokers, topic: str) -> list[str]:
    """The committed records up to the end of the partition, as a reader gets them."""
    settings = {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": "none",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
    }
    found: list[str] = []
    with closing(confluent_kafka.Consumer(settings)) as consumer:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])

        def at_end() -> bool:
            for one in consumer.consume(100, timeout=0.2):
                error, value = one.error(), one.value()
                if error is not None:
                    assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
                    return True
                found.append((value or b"").decode())
            return False

        eventually(at_end, f"the end of {topic}", SECONDS)
    return found
