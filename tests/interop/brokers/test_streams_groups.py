"""Streams groups (KIP-1071) of our broker: a program of Kafka Streams runs on them, and Kafka's tools show them."""

from __future__ import annotations

import random
import struct
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from one_node import one_node
from support.interop.kafka_or_skip import with_programs_or_skipped
from support.interop.our_nodes import told
from support.interop.real_kafka import KafkaInstallation, Process, eventually

pytestmark = [pytest.mark.kafka, pytest.mark.soak]

SOURCE = Path(__file__).parents[1] / "WordCount.java"
PARTITIONS = 2
LINES = 50
WORDS = [f"word-{number}" for number in range(20)]
SECONDS = 180
GROUP = "words"


def test_each_word_is_counted_exactly_once_by_a_streams_group(kafka: KafkaInstallation, tmp_path: Path) -> None:
    """Two instances count; one of them ends, and the other goes on with its tasks."""
    program = with_programs_or_skipped(kafka)
    draws, said = random.Random(42), Counter[str]()
    counted: defaultdict[str, list[int]] = defaultdict(list)
    with one_node(kafka, tmp_path / "node", "ours", "group.streams.initial.rebalance.delay.ms=0") as (_, port):
        bootstrap = f"127.0.0.1:{port}"
        for topic in ("lines", "counts"):
            told("topics", "create", topic, "--partitions", str(PARTITIONS), "--bootstrap-server", bootstrap)
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "isolation.level": "read_committed"})
        consumer.assign([TopicPartition("counts", one, OFFSET_BEGINNING) for one in range(PARTITIONS)])
        producer = Producer({"bootstrap.servers": bootstrap})
        instances: dict[int, Process] = {}

        def start(number: int) -> None:
            arguments = (bootstrap, GROUP, "lines", "counts", str(tmp_path / f"state-{number}"), "streams", "1")
            instances[number] = Process(program.command(str(SOURCE), *arguments), tmp_path / f"streams-{number}.log")

        def say() -> None:
            for number in range(LINES):
                words = draws.choices(WORDS, k=5)
                said.update(words)
                producer.produce("lines", " ".join(words), partition=number % PARTITIONS)
            assert producer.flush(SECONDS) == 0

        def all_is_counted() -> bool:
            for number, process in instances.items():
                assert process.popen.poll() is None, f"instance {number} ended:\n{process.text[-3000:]}"
            for one in consumer.consume(10_000, timeout=0.5):
                key, value = one.key(), one.value()
                assert isinstance(key, bytes)
                assert isinstance(value, bytes)
                counted[key.decode()].append(struct.unpack(">q", value)[0])
            return sum(map(len, counted.values())) >= said.total()

        try:
            start(0)
            start(1)
            say()
            eventually(all_is_counted, "two instances have counted", SECONDS)
            described = told("groups", "describe", GROUP, "--bootstrap-server", bootstrap)
            instances.pop(0).kill()
            say()
            eventually(all_is_counted, "the other instance has counted", SECONDS)
            listed = told("groups", "list", "--bootstrap-server", bootstrap)
        finally:
            for process in instances.values():
                process.kill()
            consumer.close()
    assert counted == {word: list(range(1, count + 1)) for word, count in said.items()}
    assert GROUP in described
    assert "streams" in listed
