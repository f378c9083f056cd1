"""Our member of a share group on a broker of Kafka 4.4.0: acknowledgements of each kind, and locks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
import trio
from confluent_kafka import AcknowledgeType, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from kraft.client import AcquireMode, Client, ConsumedRecord, ShareSettings, open_client
from kraft.client.questions import Questions
from kraft.client.share_groups import start_offsets
from one_node import one_node
from support.interop.real_kafka import KafkaInstallation
from support.kraft.share_words import say_each_word
from transport.interface import Endpoint

pytestmark = pytest.mark.kafka
SETTINGS = (
    "share.coordinator.state.topic.replication.factor=1",
    "share.coordinator.state.topic.min.isr=1",
    "share.coordinator.state.topic.num.partitions=4",
    "group.share.min.record.lock.duration.ms=1000",
)
EXPLICIT = ShareSettings(explicit=True)


@pytest.fixture(scope="module")
def address(newer_kafka: KafkaInstallation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with one_node(newer_kafka, tmp_path_factory.mktemp("kafka") / "node", "theirs", *SETTINGS) as (_, port):
        yield f"127.0.0.1:{port}"


def prepare(address: str, topic: str, count: int, partitions: int = 2, **settings: str) -> None:
    """Make a topic with so many records, and a group of the same name that begins at its start."""
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result()
    values = {"share.auto.offset.reset": "earliest"} | {key.replace("_", "."): one for key, one in settings.items()}
    entries = [ConfigEntry(key, one, incremental_operation=AlterConfigOpType.SET) for key, one in values.items()]
    for changed in admin.incremental_alter_configs(
        [ConfigResource(ResourceType.GROUP, topic, incremental_configs=entries)]
    ).values():
        changed.result()
    producer = Producer({"bootstrap.servers": address})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=number % partitions)
    assert producer.flush(30) == 0


def opened(address: str) -> Endpoint:
    host, _, port = address.partition(":")
    return Endpoint(host, int(port))


async def lags(client: Client, group: str) -> list[int | None]:
    return [one.lag for one in (await start_offsets(Questions(client, 30_000), group)).values()]


async def each_word(address: str) -> Counter[int]:
    """Accept, release and reject, until everything is done."""
    async with open_client([opened(address)]) as client, client.share("words", "words", EXPLICIT) as consumer:
        seen = await say_each_word(consumer, 16)
        assert await lags(client, "words") == [0, 0]
    return seen


def test_kafka_takes_each_word_about_a_record(address: str) -> None:
    prepare(address, "words", 12)
    assert trio.run(each_word, address) == {number: 2 if number % 3 == 1 else 1 for number in range(12)}


async def renewals(address: str) -> None:
    """Hold one record for three locks; the other one goes to the next member."""
    async with open_client([opened(address)]) as client, client.share("renewed", "renewed", EXPLICIT) as one:
        held = list(await one.batch())
        while len(held) < 2:
            held += await one.batch()
        kept, lost = held
        assert kept.partition == lost.partition
        async with client.share("renewed", "renewed", EXPLICIT) as other:
            again: list[ConsumedRecord] = []
            while not again:
                one.renew(kept)
                assert await one.commit() == ()
                with trio.move_on_after(0.5):
                    again += await other.batch()
            assert [(each.offset, each.delivery_count) for each in again] == [(lost.offset, 2)]
        one.accept(kept)
        assert await one.commit() == ()


def test_kafka_renews_locks_and_lets_them_end(address: str) -> None:
    prepare(address, "renewed", 2, 1, share_record_lock_duration_ms="5000")
    trio.run(renewals, address)


async def limited(address: str) -> list[int]:
    """Read with an implicit acceptance, a few records at a time, and leave the last ones."""
    settings = ShareSettings(mode=AcquireMode.RECORD_LIMIT, max_records=3)
    found: list[int] = []
    async with open_client([opened(address)]) as client, client.share("limited", "limited", settings) as consumer:
        while len(found) < 10:
            records = await consumer.batch()
            assert len(records) <= 3
            found += [int(one.value or b"") for one in records]
    return found


def test_what_our_member_gives_back_kafkas_member_gets(address: str) -> None:
    prepare(address, "limited", 10)
    found = trio.run(limited, address)
    assert sorted(found) == list(range(10))
    config = {"bootstrap.servers": address, "group.id": "limited", "share.acknowledgement.mode": "explicit"}
    consumer = ShareConsumer(config)
    consumer.subscribe(["limited"])
    again: list[int] = []
    try:
        for _ in range(60):
            for record in consumer.poll(0.5) or ():
                assert record.error() is None, record.error()
                again.append(int(record.value() or b""))
                consumer.acknowledge(record, AcknowledgeType.ACCEPT)
            if again:
                break
        consumer.commit_sync()
    finally:
        consumer.close()
    assert set(again) == set(found[-len(again) :])
    assert 1 <= len(again) <= 3
