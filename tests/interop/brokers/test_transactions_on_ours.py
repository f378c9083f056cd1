"""Transactions with brokers of ours alone: they coordinate, lead and replicate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from committed_transactions import ENDS, SECONDS, SOURCE, TOPICS, by_confluent, committed, values
from our_brokers import OurBrokers, our_brokers
from support.interop.real_kafka import KafkaInstallation

PAIR = tuple(TOPICS)


def settings_for(brokers: int) -> tuple[str, ...]:
    """The settings of the internal topics in a cluster of so many brokers."""
    copies = min(brokers, 3)
    return (
        "transaction.state.log.num.partitions=3",
        "offsets.topic.num.partitions=3",
        f"transaction.state.log.replication.factor={copies}",
        f"transaction.state.log.min.isr={min(copies, 2)}",
        f"offsets.topic.replication.factor={copies}",
        "group.initial.rebalance.delay.ms=0",
    )


@contextmanager
def coordinated(root: Path, brokers: Sequence[int], more: tuple[str, ...] = ()) -> Iterator[OurBrokers]:
    """Brokers of ours with two topics."""
    with our_brokers(root, *brokers, settings=(*settings_for(len(brokers)), *more)) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        made = admin.create_topics([NewTopic(topic, 1, len(brokers)) for topic in PAIR])
        for done in made.values():
            done.result(SECONDS)
        yield cluster


@pytest.mark.parametrize("brokers", [(1001,), (1001, 1002, 1003)])
def test_librdkafka_commits_and_aborts(tmp_path: Path, brokers: Sequence[int]) -> None:
    with coordinated(tmp_path, brokers) as cluster:
        by_confluent(cluster)
        expected = [value for number in (0, 2) for value in values(ENDS, number)]
        for topic in PAIR:
            assert committed(cluster, topic) == expected


@pytest.mark.kafka
@pytest.mark.parametrize("brokers", [(1001,), (1001, 1002, 1003)])
def test_the_producer_of_kafka_commits_and_aborts(
    kafka: KafkaInstallation, tmp_path: Path, brokers: Sequence[int]
) -> None:
    with coordinated(tmp_path, brokers) as cluster:
        done = kafka.run(str(SOURCE), cluster.bootstrap, "java", ",".join(ENDS), ",".join(TOPICS))
        assert done.returncode == 0, done.stderr
        expected = [value for number in (0, 2) for value in values(ENDS, number)]
        for topic in PAIR:
            assert committed(cluster, topic) == expected


def copying(cluster: OurBrokers, name: str, count: int, abort_every: int) -> None:
    """Consume, transform and produce in transactions until so many records are done; some transactions are aborted."""
    settings = {"bootstrap.servers": cluster.bootstrap}
    consumer = confluent_kafka.Consumer(
        {
            **settings,
            "group.id": "copies",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    producer = confluent_kafka.Producer({**settings, "transactional.id": name})
    producer.init_transactions(SECONDS)
    consumer.subscribe([PAIR[0]])
    done, number = 0, 0
    with closing(consumer):
        while done < count:
            taken = [one for one in consumer.consume(7, timeout=1) if one.error() is None]
            if not taken:
                continue
            number += 1
            producer.begin_transaction()
            for one in taken:
                producer.produce(PAIR[1], b"copy of " + (one.value() or b""))
            places = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), SECONDS)
            if number % abort_every == 0:
                producer.abort_transaction(SECONDS)
                for place in consumer.committed(consumer.assignment(), SECONDS):
                    consumer.seek(confluent_kafka.TopicPartition(place.topic, place.partition, max(place.offset, 0)))
            else:
                producer.commit_transaction(SECONDS)
                done += len(taken)


def test_consume_transform_produce_is_exactly_once(tmp_path: Path) -> None:
    count = 60
    with coordinated(tmp_path, (1001, 1002, 1003)) as cluster:
        producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap})
        for number in range(count):
            producer.produce(PAIR[0], str(number))
        assert producer.flush(SECONDS) == 0
        copying(cluster, "copier", count, abort_every=3)
        assert committed(cluster, PAIR[1]) == [f"copy of {number}" for number in range(count)]


def test_no_transaction_is_torn_while_coordinators_are_killed(tmp_path: Path) -> None:
    """Each of the brokers is killed once; the producer goes on, and every transaction is there as a whole or not at
    all.
    """
    brokers = (1001, 1002, 1003)
    with coordinated(tmp_path, brokers) as cluster:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": cluster.bootstrap, "transactional.id": "survivor", "log_level": 0}
        )
        producer.init_transactions(SECONDS)
        done: list[str] = []
        for number in range(12):
            producer.begin_transaction()
            for topic in PAIR:
                producer.produce(topic, str(number))
            assert producer.flush(SECONDS) == 0
            if number % 4 == 1:
                cluster.kill(brokers[number // 4])
            for _ in range(100):
                try:
                    producer.commit_transaction(SECONDS)
                    break
                except confluent_kafka.KafkaException as failed:
                    if not failed.args[0].retriable():
                        raise
            done.append(str(number))
            if number % 4 == 3:
                cluster.start(brokers[number // 4])
                for topic in PAIR:
                    cluster.wait_until_in_sync(topic, 3)
        for topic in PAIR:
            assert committed(cluster, topic) == done
