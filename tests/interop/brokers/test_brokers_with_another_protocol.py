"""Brokers reach each other by SASL_SSL, and controllers in the clear: brokers of ours, and with one of Kafka."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer
from kafka import admin as plain

from our_brokers import THEIRS, OurBrokers, batches, kafkas_broker, our_brokers
from support.interop.broker_cluster import SMALL_TOPICS, STARTED
from support.interop.certificates import Stores, issue
from support.interop.real_kafka import KafkaInstallation, eventually

OURS = (101, 102, 103)
RECORDS = 100
SECONDS = 60
MAP = "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,BROKERS:SASL_SSL"
LISTENER = ",BROKERS://127.0.0.1:0"
LOGIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required"
    ' username="broker" password="b-secret" user_broker="b-secret" user_alice="a-secret";'
)


def secured(stores: Path) -> tuple[str, ...]:
    """The settings of a broker that reaches others by SASL_SSL with these stores."""
    prefix = "listener.name.brokers"
    return (
        MAP,
        "inter.broker.listener.name=BROKERS",
        "sasl.mechanism.inter.broker.protocol=PLAIN",
        f"{prefix}.sasl.enabled.mechanisms=PLAIN",
        f"{prefix}.plain.sasl.jaas.config={LOGIN}",
        f"{prefix}.ssl.keystore.type=PEM",
        f"{prefix}.ssl.keystore.location={stores / 'node.pem'}",
        f"{prefix}.ssl.truststore.type=PEM",
        f"{prefix}.ssl.truststore.location={stores / 'node.trust.pem'}",
        # A certificate for the connections to controllers would be none that anyone trusts.
        "ssl.keystore.location=/nowhere.pem",
    )


def replicated(cluster: OurBrokers, servers: list[str], topics: dict[str, list[int]]) -> None:
    """Make topics with these replicas, and write records that all replicas acknowledge."""
    with closing(plain.KafkaAdminClient(bootstrap_servers=servers)) as admin:
        made = {name: {"assignments": {0: brokers}} for name, brokers in topics.items()}
        admin.create_topics(made, wait_for_metadata=True)
    written(servers, topics)
    for topic, brokers in topics.items():
        cluster.wait_until_in_sync(topic, len(brokers))


def written(servers: list[str], topics: dict[str, list[int]]) -> None:
    """Write records to topics, all acknowledged by all replicas; in a transaction, whose markers go between brokers."""
    settings = {"bootstrap.servers": ",".join(servers), "acks": "all", "message.timeout.ms": 30_000}
    producer = Producer({**settings, "transactional.id": "writer"})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    errors = list[object]()
    for topic in topics:
        for number in range(RECORDS):
            producer.produce(topic, b"%d" % number, partition=0, on_delivery=lambda error, _: errors.append(error))
    producer.commit_transaction(SECONDS)
    assert errors == [None] * RECORDS * len(topics)


@pytest.mark.soak
def test_brokers_replicate_by_sasl_ssl_while_controllers_are_in_the_clear(tmp_path: Path) -> None:
    stores = tmp_path / "stores"
    Stores(stores, issue())
    settings = (*secured(stores), "min.insync.replicas=3", *SMALL_TOPICS)
    topics = {f"of-{one}": [one, *(other for other in OURS if other != one)] for one in OURS}
    with our_brokers(tmp_path, *OURS, settings=settings, listeners=LISTENER) as cluster:
        servers = cluster.bootstrap.split(",")
        replicated(cluster, servers, topics)
        Stores(stores, issue(days=50))
        for process in cluster.processes.values():
            process.wait_for("stores-replaced")
        cluster.stop(OURS[0])
        cluster.start(OURS[0])
        for topic in topics:
            cluster.wait_until_in_sync(topic, len(OURS))
        written(servers, topics)
        for broker in OURS:
            cluster.stop(broker)
        for topic in topics:
            logs = [batches(cluster.log_dir(broker), topic) for broker in OURS]
            assert logs[0] == logs[1] == logs[2], topic


@pytest.mark.soak
@pytest.mark.kafka
@pytest.mark.each_release
def test_a_broker_of_kafka_and_two_of_ours_replicate_by_sasl_ssl(kafka: KafkaInstallation, tmp_path: Path) -> None:
    stores = tmp_path / "stores"
    Stores(stores, issue())
    first, second = OURS[:2]
    topics = {"ours-leads": [first, second, THEIRS], "kafkas-leads": [THEIRS, first, second]}
    settings = (*secured(stores), "min.insync.replicas=3", *SMALL_TOPICS)
    with our_brokers(tmp_path, first, second, settings=settings, listeners=LISTENER, release=kafka.release) as cluster:
        process, port = kafkas_broker(kafka, cluster, secured(stores), LISTENER)
        try:
            process.wait_for(STARTED)
            cluster.wait_until_known(first, second, THEIRS, beside=port)
            replicated(cluster, [*cluster.bootstrap.split(","), f"127.0.0.1:{port}"], topics)
            eventually(lambda: cluster.leader_of("kafkas-leads") == THEIRS, "the broker of Kafka leads", SECONDS)
            cluster.stop(first)
            cluster.stop(second)
        finally:
            process.kill()
        for topic in topics:
            logs = [batches(cluster.log_dir(broker), topic) for broker in (first, second, THEIRS)]
            assert logs[0] == logs[1] == logs[2], topic
