"""A broker of Kafka coordinates transactions and groups, a broker of ours leads the partitions, and both replicate."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import confluent_kafka
import pytest
from kafka import admin as plain

from support.interop.broker_cluster import SMALL_TOPICS, STARTED
from support.interop.our_brokers import OURS, THEIRS, OurBrokers, batches, kafkas_broker, our_brokers
from support.interop.real_kafka import KafkaInstallation, eventually

pytestmark = pytest.mark.kafka
SECONDS = 60
SOURCE = Path(__file__).parent.parent / "Transactions.java"
CONSUMER_PERFORMANCE = "org.apache.kafka.tools.ConsumerPerformance"
ENDS = ("commit", "abort", "commit", "abort")
TOPICS = {"ours-leads": [OURS, THEIRS], "kafkas-leads": [THEIRS, OURS]}
PARTITIONS = 3


def make_topics(servers: list[str]) -> None:
    """The topics of the test, and those of the coordinators on the broker of Kafka alone."""
    state = {
        "assignments": {number: [THEIRS] for number in range(PARTITIONS)},
        "configs": {"cleanup.policy": "compact"},
    }
    made = {name: {"assignments": {0: brokers}} for name, brokers in TOPICS.items()}
    with closing(plain.KafkaAdminClient(bootstrap_servers=servers)) as admin:
        admin.create_topics({"__transaction_state": state, "__consumer_offsets": state, **made}, wait_for_metadata=True)


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


def indexes(log_dir: Path, topic: str) -> list[bytes]:
    """The entries of aborted transactions, as they are on disk."""
    return [path.read_bytes() for path in sorted((log_dir / f"{topic}-0").glob("*.txnindex"))]


def test_transactions_end_as_their_producers_say_wherever_the_partition_is_led(
    kafka: KafkaInstallation, tmp_path: Path
) -> None:
    settings = tuple(one for one in SMALL_TOPICS if "partitions" in one)
    with our_brokers(tmp_path, OURS, settings=settings) as cluster:
        process, port = kafkas_broker(kafka, cluster)
        try:
            process.wait_for(STARTED)
            cluster.wait_until_known(OURS, THEIRS, beside=port)
            make_topics([cluster.bootstrap, f"127.0.0.1:{port}"])
            eventually(lambda: cluster.leader_of("__transaction_state") == THEIRS, "the coordinator leads", SECONDS)
            by_confluent(cluster)
            # Version 2: the leader adds the partitions, and each end of a transaction raises the epoch.
            done = kafka.run(str(SOURCE), cluster.bootstrap, "java", ",".join(ENDS), ",".join(TOPICS))
            assert done.returncode == 0, done.stderr
            expected = [value for number in (0, 2) for value in values(ENDS, number)]
            for topic in TOPICS:
                cluster.wait_until_in_sync(topic, 2)
                assert committed(cluster, topic) == [*expected, *expected], topic
            # The tool joins a group, which the broker of Kafka coordinates.
            flags = ("--topic=ours-leads", "--num-records=24", "--group=perf", "--timeout=60000")
            told = kafka.tool(CONSUMER_PERFORMANCE, f"--bootstrap-server={cluster.bootstrap}", *flags)
            assert int(told.splitlines()[-1].split(",")[4]) == 24, told
            cluster.stop(OURS)
        finally:
            process.kill()
        for topic in TOPICS:
            ours, theirs = (cluster.log_dir(broker) for broker in (OURS, THEIRS))
            assert batches(ours, topic) == batches(theirs, topic)
            assert indexes(ours, topic) == indexes(theirs, topic)
            assert len(b"".join(indexes(ours, topic))) == 4 * 34
