"""The programs of each client on the fixture: six uses of Kafka, whose outcome is the same for every client.

A client gets its configuration from `client_config`, and a topic that does not exist. It creates the topic with two
partitions, writes three records to partition 0 with times a second apart, reads them in a group, goes back to offset 1,
asks for the offset of a time between the first two, aborts one transaction and commits another, and deletes the topic.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AioTopic
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PlainPartition
from kafka.admin import KafkaAdminClient

Config = dict[str, Any]
Outcome = dict[str, Any]
SECONDS: Final = 20
VALUES: Final = (b"one", b"two", b"three")
EXPECTED: Final[Outcome] = {
    "partitions": 2,
    "offsets": [0, 1, 2],
    "group": ["one", "two", "three"],
    "sought": "two",
    "at_time": 1,
    "committed": "kept",
    "is_deleted": True,
}


def times_ms() -> list[int]:
    """The times of the three records."""
    now = int(time.time() * 1000)
    return [now - 2000, now - 1000, now]


def confluent_kafka(config: Config, topic: str) -> Outcome:
    admin = AdminClient(config)
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(SECONDS)
    times, offsets = times_ms(), list[int]()
    producer = Producer(config)
    for value, at in zip(VALUES, times, strict=True):
        producer.produce(
            topic, value, partition=0, timestamp=at, on_delivery=lambda _, sent: offsets.append(sent.offset() or 0)
        )
    producer.flush(SECONDS)
    described = admin.list_topics(topic, timeout=SECONDS).topics[topic]
    outcome: Outcome = {"offsets": offsets, "partitions": len(described.partitions)}

    consumer = Consumer({**config, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])

    def values(count: int) -> list[str]:
        found: list[Message] = []
        while len(found) < count:
            found += consumer.consume(1, SECONDS)
        return [(one.value() or b"").decode() for one in found]

    outcome["group"] = values(3)
    consumer.commit(asynchronous=False)
    consumer.seek(TopicPartition(topic, 0, 1))
    outcome["sought"] = values(1)[0]
    outcome["at_time"] = consumer.offsets_for_times([TopicPartition(topic, 0, times[0] + 500)], SECONDS)[0].offset

    writer = Producer({**config, "transactional.id": topic})
    writer.init_transactions(SECONDS)
    for text, end in (("dropped", writer.abort_transaction), ("kept", writer.commit_transaction)):
        writer.begin_transaction()
        writer.produce(topic, text, partition=0)
        writer.flush(SECONDS)
        end(SECONDS)
    consumer.seek(TopicPartition(topic, 0, 3))
    outcome["committed"] = values(1)[0]
    consumer.close()

    admin.delete_topics([topic])[topic].result(SECONDS)
    return outcome | {"is_deleted": topic not in admin.list_topics(timeout=SECONDS).topics}


def kafka_python(config: Config, topic: str) -> Outcome:
    times, place = times_ms(), PlainPartition(topic, 0)
    with closing(KafkaAdminClient(**config)) as admin:
        admin.create_topics({topic: {"num_partitions": 2, "replication_factor": 1}}, wait_for_metadata=True)
        with closing(KafkaProducer(**config)) as producer:
            sent = [
                producer.send(topic, value, partition=0, timestamp_ms=at)
                for value, at in zip(VALUES, times, strict=True)
            ]
            outcome: Outcome = {"offsets": [one.get(SECONDS).offset for one in sent]}
            outcome["partitions"] = len(producer.partitions_for(topic))

        reads = {"group_id": topic, "auto_offset_reset": "earliest", "enable_auto_commit": False}
        with closing(KafkaConsumer(topic, **config, **reads, isolation_level="read_committed")) as consumer:
            outcome["group"] = [next(consumer).value.decode() for _ in VALUES]
            consumer.commit()
            consumer.seek(place, 1)
            outcome["sought"] = next(consumer).value.decode()
            outcome["at_time"] = consumer.offsets_for_times({place: times[0] + 500})[place].offset

            with closing(KafkaProducer(**config, transactional_id=topic)) as writer:
                writer.init_transactions()
                for value, end in ((b"dropped", writer.abort_transaction), (b"kept", writer.commit_transaction)):
                    writer.begin_transaction()
                    writer.send(topic, value, partition=0).get(SECONDS)
                    end()
            consumer.seek(place, 3)
            outcome["committed"] = next(consumer).value.decode()
        admin.delete_topics([topic])
        return outcome | {"is_deleted": topic not in admin.list_topics()}


def aiokafka(config: Config, topic: str) -> Outcome:
    return asyncio.run(_aiokafka(config, topic))


async def _aiokafka(config: Config, topic: str) -> Outcome:
    times, place = times_ms(), AioPartition(topic, 0)
    admin = AIOKafkaAdminClient(**config)
    await admin.start()
    await admin.create_topics([AioTopic(topic, 2, 1)])
    async with AIOKafkaProducer(**config) as producer:
        sent = [
            await producer.send_and_wait(topic, value, partition=0, timestamp_ms=at)
            for value, at in zip(VALUES, times, strict=True)
        ]
        outcome: Outcome = {"offsets": [one.offset for one in sent]}
        outcome["partitions"] = len(await producer.partitions_for(topic))

    reads = {"group_id": topic, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    async with AIOKafkaConsumer(topic, **config, **reads, isolation_level="read_committed") as consumer:
        outcome["group"] = [(await consumer.getone()).value.decode() for _ in VALUES]
        await consumer.commit()
        consumer.seek(place, 1)
        outcome["sought"] = (await consumer.getone()).value.decode()
        outcome["at_time"] = (await consumer.offsets_for_times({place: times[0] + 500}))[place].offset

        async with AIOKafkaProducer(**config, transactional_id=topic) as writer:
            for value, end in ((b"dropped", writer.abort_transaction), (b"kept", writer.commit_transaction)):
                await writer.begin_transaction()
                await writer.send_and_wait(topic, value, partition=0)
                await end()
        consumer.seek(place, 3)
        outcome["committed"] = (await consumer.getone()).value.decode()
    await admin.delete_topics([topic])
    outcome["is_deleted"] = topic not in await admin.list_topics()
    await admin.close()
    return outcome


PYTHON: Final[dict[str, Callable[[Config, str], Outcome]]] = {
    "aiokafka": aiokafka,
    "confluent-kafka": confluent_kafka,
    "kafka-python": kafka_python,
}
"""The clients that run in the process of the test."""


def asked(config: Config, topic: str) -> str:
    """The standard input of a program in another language; it answers with the outcome in JSON."""
    return json.dumps({"config": config, "topic": topic, "times": times_ms()})
