"""Share consumers of Kafka and of librdkafka at a broker of ours: each record once, redelivery, locks, the limit."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from typing import Final

import pytest
from confluent_kafka import AcknowledgeType, Message, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from one_node import one_node
from support.interop.kafka_tools import KafkaTools
from support.interop.real_kafka import KafkaInstallation
from support.share_consumers import member, polled

pytestmark = pytest.mark.kafka

SECONDS: Final = 40
VERIFIABLE: Final = "org.apache.kafka.tools.VerifiableShareConsumer"
CONSOLE: Final = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
GROUPS: Final = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
SETTINGS: Final = (
    "share.coordinator.state.topic.replication.factor=1",
    "share.coordinator.state.topic.min.isr=1",
    "group.share.min.record.lock.duration.ms=1000",
    "group.share.heartbeat.interval.ms=500",
    "group.share.min.heartbeat.interval.ms=500",
)


@pytest.fixture(scope="module")
def bootstrap(newer_kafka: KafkaInstallation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a node of ours."""
    with one_node(newer_kafka, tmp_path_factory.mktemp("shares") / "node", "ours", *SETTINGS) as (_, port):
        yield f"127.0.0.1:{port}"


def prepare(bootstrap: str, topic: str, group: str, count: int, **settings: str) -> None:
    """Make a topic with two partitions and as many records, and a group that begins at its start."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(topic, 2, 1)]).values():
        made.result()
    values = {"share.auto.offset.reset": "earliest"} | {key.replace("_", "."): one for key, one in settings.items()}
    entries = [ConfigEntry(key, one, incremental_operation=AlterConfigOpType.SET) for key, one in values.items()]
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=entries)
    for changed in admin.incremental_alter_configs([resource]).values():
        changed.result()
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        producer.produce(topic, str(number).encode(), partition=number % 2)
    assert producer.flush(SECONDS) == 0


def value_of(record: Message) -> int:
    """The number that a record holds."""
    return int(record.value() or b"")


def test_released_records_come_again_and_rejected_ones_do_not(bootstrap: str) -> None:
    prepare(bootstrap, "mixed", "g-mixed", 12)
    seen: Counter[int] = Counter()
    with member("mixed", {"bootstrap.servers": bootstrap, "group.id": "g-mixed"}) as consumer:

        def take(record: Message) -> None:
            number = value_of(record)
            seen[number] += 1
            kinds = (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT)
            kind = AcknowledgeType.ACCEPT if seen[number] > 1 else kinds[number % 3]
            consumer.acknowledge(record, kind)

        polled(consumer, lambda: sum(seen.values()) >= 16, take)
        consumer.commit_sync()
    assert seen == {number: 2 if number % 3 == 1 else 1 for number in range(12)}


def test_a_lock_ends_and_another_member_gets_the_record(bootstrap: str) -> None:
    prepare(bootstrap, "locked", "g-locked", 1, share_record_lock_duration_ms="1000")
    found: list[float] = []
    with member("locked", {"bootstrap.servers": bootstrap, "group.id": "g-locked"}) as first:
        polled(first, lambda: bool(found), lambda _: found.append(time.monotonic()))
        with member("locked", {"bootstrap.servers": bootstrap, "group.id": "g-locked"}) as second:

            def take(record: Message) -> None:
                found.append(time.monotonic())
                second.acknowledge(record, AcknowledgeType.ACCEPT)

            polled(second, lambda: len(found) > 1, take)
            second.commit_sync()
    assert found[1] - found[0] > 0.8


def test_a_record_is_delivered_as_often_as_the_limit_says(bootstrap: str) -> None:
    prepare(bootstrap, "bad", "g-bad", 2, share_delivery_count_limit="3")
    seen: Counter[int] = Counter()
    with member("bad", {"bootstrap.servers": bootstrap, "group.id": "g-bad"}) as consumer:

        def take(record: Message) -> None:
            seen[value_of(record)] += 1
            consumer.acknowledge(record, AcknowledgeType.RELEASE)

        polled(consumer, lambda: sum(seen.values()) >= 6, take)
        for _ in range(4):
            assert not consumer.poll(0.5)
    assert seen == {0: 3, 1: 3}


def test_kafkas_consumers_get_each_record_once(newer_kafka: KafkaInstallation, bootstrap: str) -> None:
    prepare(bootstrap, "once", "g-once", 50)
    with KafkaTools(newer_kafka) as tools:
        server = f"--bootstrap-server={bootstrap}"
        ran = tools.run(
            VERIFIABLE, server, "--topic=once", "--group-id=g-once", "--max-messages=50", "--acknowledgement-mode=sync"
        )
        assert ran.returncode == 0, ran.stderr
        events = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
        assert sum(one["count"] for one in events if one["name"] == "records_consumed") == 50, events
        acknowledged = [one for one in events if one["name"] == "offsets_acknowledged"]
        assert sum(one["count"] for one in acknowledged if one["success"]) == 50, events
        described = tools.run(GROUPS, server, "--describe", "--group=g-once")
        assert described.returncode == 0, described.stderr
        rows = [line.split() for line in described.stdout.splitlines() if line.startswith("g-once")]
        assert sorted((row[2], row[-1]) for row in rows) == [("0", "0"), ("1", "0")], described.stdout
        nothing = tools.run(CONSOLE, server, "--topic=once", "--group=g-once", "--timeout-ms=3000")
        assert [line for line in nothing.stdout.splitlines() if line.isdecimal()] == []


def test_a_console_consumer_that_releases_hands_on(newer_kafka: KafkaInstallation, bootstrap: str) -> None:
    prepare(bootstrap, "handed", "g-handed", 4)
    with KafkaTools(newer_kafka) as tools:
        for how in ("--release", "--reject"):
            ran = tools.run(
                CONSOLE,
                f"--bootstrap-server={bootstrap}",
                "--topic=handed",
                "--group=g-handed",
                "--max-messages=4",
                "--timeout-ms=20000",
                how,
            )
            found = sorted(line for line in ran.stdout.splitlines() if line.isdecimal())
            assert found == ["0", "1", "2", "3"], (how, ran.stdout, ran.stderr)
