"""A broker of ours and a broker of Kafka replicate each other's partitions, in both directions, byte for byte."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer
from kafka import KafkaProducer
from kafka import admin as plain

from consumed_records import consumed
from metadata_log.records.batch import scan
from our_brokers import OURS, THEIRS, batches, kafkas_broker, our_brokers
from support.interop.broker_cluster import STARTED
from support.interop.real_kafka import KafkaInstallation, eventually

pytestmark = pytest.mark.kafka
MESSAGES = 100
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SECONDS = 60


def produce(servers: list[str], codec: str, topics: Iterable[str]) -> None:
    """Messages of an idempotent producer with a codec, all acknowledged."""
    settings = {"acks": "all", "enable.idempotence": True, "compression.type": codec, "linger.ms": 5}
    producer = Producer({"bootstrap.servers": ",".join(servers), **settings})
    errors = list[object]()

    def delivered(error: object, _: object) -> None:
        errors.append(error)

    for topic in topics:
        for number in range(MESSAGES // len(CODECS)):
            producer.produce(topic, b"%d " % number * 50, partition=0, on_delivery=delivered)
    assert producer.flush(SECONDS) == 0
    assert not any(errors)


@pytest.mark.each_release
def test_brokers_of_both_makes_follow_each_other_and_have_the_same_logs(kafka: KafkaInstallation, tmp_path: Path):
    with our_brokers(tmp_path, OURS, release=kafka.release) as cluster:
        process, port = kafkas_broker(kafka, cluster)
        try:
            process.wait_for(STARTED)
            cluster.wait_until_known(OURS, THEIRS, beside=port)
            servers = [cluster.bootstrap, f"127.0.0.1:{port}"]
            topics = {"ours-leads": [OURS, THEIRS], "kafkas-leads": [THEIRS, OURS]}
            with closing(plain.KafkaAdminClient(bootstrap_servers=servers)) as admin:
                made = {name: {"assignments": {0: brokers}} for name, brokers in topics.items()}
                admin.create_topics(made, wait_for_metadata=True)
            for codec in CODECS:
                produce(servers, codec, topics)
            for topic, (leader, _) in topics.items():
                assert cluster.leader_of(topic) == leader
                cluster.wait_until_in_sync(topic, 2)
                assert len(consumed(cluster, topic, MESSAGES)) == MESSAGES

            cluster.stop(OURS)
            eventually(lambda: cluster.leader_of("ours-leads") == THEIRS, "the broker of Kafka leads", SECONDS)
            with closing(KafkaProducer(bootstrap_servers=servers[1:], acks="all", linger_ms=5)) as producer:
                sent = [producer.send("ours-leads", value=b"later", partition=0) for _ in range(MESSAGES)]
                assert [one.get(SECONDS).offset for one in sent] == list(range(MESSAGES, 2 * MESSAGES))
            cluster.start(OURS)
            for topic in topics:
                cluster.wait_until_in_sync(topic, 2)
            cluster.stop(OURS)
        finally:
            process.kill()
        for topic in topics:
            ours, theirs = batches(cluster.log_dir(OURS), topic), batches(cluster.log_dir(THEIRS), topic)
            assert ours == theirs
            written = list(scan(b"".join(ours)))
            assert {one.codec for one in written if one.producer_id >= 0} == {*CODECS}
