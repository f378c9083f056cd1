"""A broker of Kafka coordinates transactions and groups, a broker of ours leads the partitions, and both replicate."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from kafka import admin as plain

from committed_transactions import ENDS, SECONDS, SOURCE, TOPICS, by_confluent, committed, values
from our_brokers import OURS, THEIRS, batches, kafkas_broker, our_brokers
from support.interop.broker_cluster import SMALL_TOPICS, STARTED
from support.interop.real_kafka import KafkaInstallation, eventually

pytestmark = pytest.mark.kafka
CONSUMER_PERFORMANCE = "org.apache.kafka.tools.ConsumerPerformance"
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
