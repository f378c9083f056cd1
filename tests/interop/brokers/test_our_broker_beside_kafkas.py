"""A broker of ours and a broker of Kafka 4.3.1 replicate each other's partitions, in both directions, byte for byte."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from broker_cluster import HEAP, SMALL_TOPICS, STARTED
from kafka import KafkaProducer
from kafka import admin as plain
from kafka_jars import KAFKA_VERSION, OLDER_VERSION
from our_brokers import OurBrokers, our_brokers
from our_nodes import told
from real_kafka import KafkaInstallation, Process, eventually, free_ports
from test_clients_on_our_broker import consumed

from metadata_log.records.batch import scan

pytestmark = pytest.mark.kafka
OURS, THEIRS = 101, 201
MESSAGES = 100
SECONDS = 60


def kafkas_broker(kafka: KafkaInstallation, cluster: OurBrokers) -> tuple[Process, int]:
    """Start a broker of Kafka beside ours; returns its process and port."""
    layout, [port] = cluster.layout, free_ports(1)
    path = layout.root / f"kafka-{THEIRS}.properties"
    lines = (
        "process.roles=broker",
        f"node.id={THEIRS}",
        f"log.dirs={cluster.log_dir(THEIRS)}",
        "controller.listener.names=CONTROLLER",
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        f"listeners=PLAINTEXT://127.0.0.1:{port}",
        f"controller.quorum.voters={layout.voters}",
        "broker.heartbeat.interval.ms=500",
        *SMALL_TOPICS,
    )
    path.write_text("".join(f"{line}\n" for line in lines))
    told("format", "-c", str(path), "--cluster-id", layout.cluster_id)
    command = kafka.command("kafka.Kafka", str(path), log="info", heap=HEAP)
    return Process(command, layout.root / f"kafka-{THEIRS}.log"), port


def batches(log_dir: Path, topic: str) -> list[bytes]:
    """The batches in the log of a replica, as they are on disk."""
    data = b"".join(path.read_bytes() for path in sorted((log_dir / f"{topic}-0").glob("*.log")))
    return [bytes(one.data) for one in scan(data)]


@pytest.mark.each_release
@pytest.mark.skipif(KAFKA_VERSION == OLDER_VERSION, reason="Kafka 3.9 is not tried as a broker of a mixed cluster")
def test_brokers_of_both_makes_follow_each_other_and_have_the_same_logs(kafka: KafkaInstallation, tmp_path: Path):
    with our_brokers(tmp_path, OURS) as cluster:
        process, port = kafkas_broker(kafka, cluster)
        try:
            process.wait_for(STARTED)
            cluster.wait_until_known(OURS, THEIRS)
            servers = [cluster.bootstrap, f"127.0.0.1:{port}"]
            topics = {"ours-leads": [OURS, THEIRS], "kafkas-leads": [THEIRS, OURS]}
            with closing(plain.KafkaAdminClient(bootstrap_servers=servers)) as admin:
                made = {name: {"assignments": {0: brokers}} for name, brokers in topics.items()}
                admin.create_topics(made, wait_for_metadata=True)
            with closing(KafkaProducer(bootstrap_servers=servers, acks="all", linger_ms=5)) as producer:
                for topic in topics:
                    sent = [producer.send(topic, value=b"v%d" % n, partition=0) for n in range(MESSAGES)]
                    assert [one.get(SECONDS).offset for one in sent] == list(range(MESSAGES))
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
            assert len(ours) > 0
