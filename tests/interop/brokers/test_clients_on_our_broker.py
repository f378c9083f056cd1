"""Clients of every make produce to a broker of ours and consume; a restart, clean or not, keeps the records."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from random import Random

import confluent_kafka
import pytest
from kafka import KafkaProducer
from kafka import admin as plain

from consumed_records import SECONDS, consumed
from our_brokers import OurBrokers, our_brokers
from support.interop.broker_cluster import CONSOLE_CONSUMER, TOPIC_TOOL
from support.interop.kafka_tools import KafkaTools
from support.interop.real_kafka import KafkaInstallation, eventually

BROKER = 101
MESSAGES = 100
CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
GET_OFFSETS = "org.apache.kafka.tools.GetOffsetShell"


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OurBrokers]:
    with our_brokers(tmp_path_factory.mktemp("data"), BROKER) as brokers:
        yield brokers


def make_topic(brokers: OurBrokers, topic: str, replication_factor: int = 1, **configs: str) -> None:
    with closing(plain.KafkaAdminClient(bootstrap_servers=brokers.bootstrap.split(","))) as admin:
        made = {"num_partitions": 1, "replication_factor": replication_factor, "configs": configs}
        admin.create_topics({topic: made}, wait_for_metadata=True)


@pytest.mark.parametrize("codec", [None, "gzip"])
def test_kafka_python_consumes_what_it_produced_with_each_codec(brokers: OurBrokers, codec: str | None):
    topic = f"python-{codec}"
    make_topic(brokers, topic)
    producer = KafkaProducer(bootstrap_servers=[brokers.bootstrap], acks="all", compression_type=codec, linger_ms=20)
    with closing(producer):
        sent = [producer.send(topic, key=b"k%d" % n, value=b"v%d" % n, partition=0) for n in range(MESSAGES)]
        assert [one.get(SECONDS).offset for one in sent] == list(range(MESSAGES))
    assert consumed(brokers, topic, MESSAGES) == [(n, b"k%d" % n, b"v%d" % n) for n in range(MESSAGES)]


@pytest.mark.parametrize(("acks", "codec"), [("all", "lz4"), ("1", "zstd"), ("0", "snappy")])
def test_librdkafka_produces_with_each_acks_and_consumes(brokers: OurBrokers, acks: str, codec: str):
    topic = f"confluent-{acks}"
    make_topic(brokers, topic)
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": brokers.bootstrap,
            "acks": acks,
            "enable.idempotence": acks == "all",
            "compression.type": codec,
        }
    )
    failures: list[object] = []

    def delivered(bad: object, _: object) -> None:
        if bad is not None:
            failures.append(bad)

    for number in range(MESSAGES):
        producer.produce(topic, f"v{number}", partition=0, on_delivery=delivered)
    assert producer.flush(SECONDS) == 0
    assert failures == []
    # Without a coordinator a commit at the end would wait for the session timeout.
    settings = {"bootstrap.servers": brokers.bootstrap, "group.id": "none", "enable.auto.commit": False}
    consumer = confluent_kafka.Consumer(settings)
    with closing(consumer):
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        found: list[bytes | None] = []

        def enough() -> bool:
            found.extend(one.value() for one in consumer.consume(MESSAGES, timeout=0.5) if one.error() is None)
            return len(found) >= MESSAGES

        eventually(enough, "all records", SECONDS)
        assert found == [f"v{number}".encode() for number in range(MESSAGES)]


def test_a_record_of_twenty_megabytes_is_produced_and_consumed(brokers: OurBrokers):
    """Kafka's limit for a request is socket.request.max.bytes, 100 MiB by default."""
    make_topic(brokers, "large", 1, **{"max.message.bytes": "30000000"})
    value = Random(1).randbytes(20_000_000)
    producer = confluent_kafka.Producer({"bootstrap.servers": brokers.bootstrap, "message.max.bytes": 30_000_000})
    producer.produce("large", value, partition=0)
    assert producer.flush(SECONDS) == 0
    settings = {"bootstrap.servers": brokers.bootstrap, "group.id": "none", "enable.auto.commit": False}
    with closing(confluent_kafka.Consumer(settings)) as consumer:
        consumer.assign([confluent_kafka.TopicPartition("large", 0, 0)])
        found = consumer.poll(SECONDS)
        assert found is not None
        if (error := found.error()) is not None:
            # librdkafka looks for the coordinator of its group, which it does not need for assigned partitions.
            assert error.code() == confluent_kafka.KafkaError.INVALID_REQUEST
            found = consumer.poll(SECONDS)
        assert found is not None
        assert found.error() is None
        assert found.value() == value


@pytest.mark.kafka
def test_the_console_tools_of_kafka_produce_idempotently_and_consume(kafka: KafkaInstallation, brokers: OurBrokers):
    server = f"--bootstrap-server={brokers.bootstrap}"
    lines = [f"line {number}" for number in range(MESSAGES)]
    with KafkaTools(kafka) as tools:
        made = tools.run(TOPIC_TOOL, server, "--create", "--topic=console", "--partitions=1", "--replication-factor=1")
        assert made.returncode == 0, made.stderr
        text = "".join(f"{line}\n" for line in lines)
        sent = tools.run(CONSOLE_PRODUCER, server, "--topic=console", stdin=text)
        assert sent.returncode == 0, sent.stderr
        read = tools.run(
            CONSOLE_CONSUMER,
            server,
            "--topic=console",
            "--partition=0",
            "--offset=earliest",
            f"--max-messages={MESSAGES}",
            "--timeout-ms=30000",
        )
        assert read.stdout.splitlines() == lines, read.stderr
        offsets = tools.run(GET_OFFSETS, server, "--topic=console")
        assert offsets.stdout.split() == [f"console:0:{MESSAGES}"], offsets.stderr


@pytest.mark.parametrize("way", ["stop", "kill"])
def test_records_survive_the_restart_of_the_broker(brokers: OurBrokers, way: str):
    topic = f"restart-{way}"
    make_topic(brokers, topic)
    with closing(KafkaProducer(bootstrap_servers=[brokers.bootstrap], acks="all")) as producer:
        for number in range(MESSAGES):
            producer.send(topic, value=b"v%d" % number, partition=0)
        producer.flush(SECONDS)
    if way == "stop":
        brokers.stop(BROKER)
        assert (brokers.log_dir(BROKER) / ".kafka_cleanshutdown").exists()
    else:
        brokers.kill(BROKER)
    brokers.start(BROKER)
    assert [value for _, _, value in consumed(brokers, topic, MESSAGES)] == [b"v%d" % n for n in range(MESSAGES)]
