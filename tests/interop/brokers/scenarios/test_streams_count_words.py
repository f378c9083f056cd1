"""Kafka Streams counts words exactly once while an instance of it and the broker that coordinates it die."""

from __future__ import annotations

import random
import struct
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from support.interop.kafka_or_skip import with_programs_or_skipped
from support.interop.real_kafka import KafkaInstallation, Process, eventually
from support.scenarios.coordinator_client import COORDINATED, GROUP, coordinator_of
from support.scenarios.scenario_cluster import MAKES, Cluster, Topic, scenario_cluster

pytestmark = [pytest.mark.kafka, pytest.mark.soak]
SOURCE = Path(__file__).parents[2] / "WordCount.java"
PARTITIONS = 2
LINES = 300
WORDS = [f"word-{number}" for number in range(20)]
SECONDS = 240


class Counts:
    """The committed counts of each word, in the order in which they were written."""

    def __init__(self, cluster: Cluster, topic: Topic) -> None:
        settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "none", "isolation.level": "read_committed"}
        self._consumer = Consumer({**settings, "enable.auto.commit": False, "log_level": 0})
        self._consumer.assign([TopicPartition(topic.name, one, OFFSET_BEGINNING) for one in range(PARTITIONS)])
        self.of_word: defaultdict[str, list[int]] = defaultdict(list)

    def read(self) -> int:
        """Read on for a moment; returns how many counts there are in all."""
        for one in self._consumer.consume(10_000, timeout=0.5):
            assert one.error() is None, one.error()
            key, value = one.key(), one.value()
            assert isinstance(key, bytes)
            assert isinstance(value, bytes)
            self.of_word[key.decode()].append(struct.unpack(">q", value)[0])
        return sum(map(len, self.of_word.values()))


@pytest.mark.parametrize("make", MAKES)
def test_each_word_is_counted_exactly_once(make: str, tmp_path: Path, kafka: KafkaInstallation) -> None:
    with_streams = with_programs_or_skipped(kafka)
    draws = random.Random(42)
    said: Counter[str] = Counter()
    instances: dict[int, Process] = {}
    with scenario_cluster(tmp_path, MAKES[make], kafka, COORDINATED) as cluster:
        lines = cluster.create_wide("lines", PARTITIONS)
        output = cluster.create_wide("counts", PARTITIONS)
        counts = Counts(cluster, output)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "log_level": 0})

        def start(number: int) -> None:
            command = with_streams.command(
                str(SOURCE), cluster.bootstrap, "words", lines.name, output.name, str(tmp_path / f"state-{number}")
            )
            instances[number] = Process(command, tmp_path / f"streams-{number}.log")

        def say() -> None:
            for number in range(LINES):
                words = draws.choices(WORDS, k=5)
                said.update(words)
                producer.produce(lines.name, " ".join(words), partition=number % PARTITIONS)
            assert producer.flush(SECONDS) == 0

        def all_is_counted() -> bool:
            for number, process in instances.items():
                assert process.popen.poll() is None, f"instance {number} ended:\n{process.text[-3000:]}"
            return counts.read() >= said.total()

        try:
            start(0)
            start(1)
            say()
            eventually(all_is_counted, "two instances have counted", SECONDS)
            say()
            instances.pop(0).kill()
            eventually(all_is_counted, "the other instance has counted", SECONDS)
            start(0)
            for victim in (lambda: coordinator_of(cluster, "words", GROUP), lambda: cluster.leader(output)):
                say()
                broker = victim()
                cluster.kill(broker)
                say()
                eventually(all_is_counted, f"all is counted without broker {broker}", SECONDS)
                cluster.start(broker)
                cluster.wait_until_active(broker)
                for topic in (lines, output):
                    cluster.wait_for_isr(topic, *topic.replicas)
            for process in instances.values():
                process.stop()
        finally:
            for process in instances.values():
                process.kill()
        counts.read()
        assert counts.of_word == {word: list(range(1, count + 1)) for word, count in said.items()}
