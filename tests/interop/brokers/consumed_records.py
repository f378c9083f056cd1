"""What a client of others reads from our brokers."""

from __future__ import annotations

from contextlib import closing

from kafka import KafkaConsumer, TopicPartition

from our_brokers import OurBrokers
from support.interop.real_kafka import eventually

SECONDS = 30


def consumed(brokers: OurBrokers, topic: str, count: int) -> list[tuple[int, bytes | None, bytes | None]]:
    """The first records of partition 0, from its start, as kafka-python sees them: offset, key, value."""
    with closing(KafkaConsumer(bootstrap_servers=brokers.bootstrap.split(","))) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek_to_beginning()
        found: list[tuple[int, bytes | None, bytes | None]] = []

        def enough() -> bool:
            for records in consumer.poll(timeout_ms=500).values():
                found.extend((one.offset, one.key, one.value) for one in records)
            return len(found) >= count

        eventually(enough, f"{count} records of {topic}", SECONDS)
        return found
