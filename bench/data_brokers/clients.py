"""Clients that produce and consume at full speed: Kafka's own performance tool, and confluent-kafka."""

from __future__ import annotations

import re
import time
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition

from support.interop.kafka_tools import KafkaTools
from support.interop.real_kafka import KafkaInstallation

PRODUCER_TOOL: Final = "org.apache.kafka.tools.ProducerPerformance"
RECORD_BYTES: Final = 1024
BATCH_BYTES: Final = 64 * 1024
MIB: Final = 1 << 20
LINGER_MS: Final = 10
ANSWER_SECONDS: Final = 120.0
_RATE: Final = re.compile(r"^\d+ records sent, [\d.,]+ records/sec \(([\d.]+) MB/sec\)", re.MULTILINE)


class JavaProducer:
    """Kafka's `kafka-producer-perf-test`, in one JVM for all runs, so that it is equally warm for all brokers."""

    name = "java"

    def __init__(self, kafka: KafkaInstallation) -> None:
        self._tools = KafkaTools(kafka)

    def __enter__(self) -> JavaProducer:
        self._tools.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._tools.__exit__(None, None, None)

    def produce(self, bootstrap: str, topic: str, records: int, acks: str) -> float:
        """Produce so many records of 1 KiB in batches of 64 KiB; returns the MiB per second."""
        done = self._tools.run(
            PRODUCER_TOOL,
            *(f"--topic={topic}", f"--num-records={records}", f"--record-size={RECORD_BYTES}", "--throughput=-1"),
            *("--command-property", f"bootstrap.servers={bootstrap}", f"acks={acks}", f"batch.size={BATCH_BYTES}"),
            *(f"linger.ms={LINGER_MS}", "buffer.memory=67108864", "enable.idempotence=false"),
        )
        found = _RATE.findall(done.stdout)
        assert done.returncode == 0, done.stdout + done.stderr
        assert found, done.stdout + done.stderr
        return float(found[-1])


class ConfluentProducer:
    """librdkafka below confluent-kafka, with the same sizes."""

    name = "confluent"

    def produce(self, bootstrap: str, topic: str, records: int, acks: str) -> float:
        """As `JavaProducer.produce`."""
        failed: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failed.append(error)

        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": acks,
                "batch.size": BATCH_BYTES,
                "linger.ms": LINGER_MS,
                "queue.buffering.max.messages": 200_000,
            }
        )
        value = b"x" * RECORD_BYTES
        began = time.perf_counter()
        for _ in range(records):
            while True:
                try:
                    producer.produce(topic, value, on_delivery=delivered)
                except BufferError:
                    producer.poll(0.1)
                else:
                    break
            producer.poll(0)
        left = producer.flush(ANSWER_SECONDS)
        took = time.perf_counter() - began
        assert not left, f"{left} records are not acknowledged"
        assert not failed, failed[0]
        return records * RECORD_BYTES / MIB / took


def consume(bootstrap: str, topic: str, records: int) -> float:
    """Read so many records of an assigned partition from its beginning; returns the MiB per second.

    Kafka's `kafka-consumer-perf-test` joins a group, and a broker of ours coordinates none yet.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "queued.max.messages.kbytes": 65_536,
            "fetch.message.max.bytes": MIB,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        began, count, size = time.perf_counter(), 0, 0
        deadline = time.monotonic() + ANSWER_SECONDS
        while count < records:
            assert time.monotonic() < deadline, f"{count} of {records} records in {ANSWER_SECONDS:g} s"
            for message in consumer.consume(10_000, 1.0):
                if (error := message.error()) is not None:
                    # librdkafka looks for the coordinator of its group, which it does not need for assigned partitions.
                    assert error.code() == KafkaError.INVALID_REQUEST, error
                    continue
                count += 1
                size += len(message.value() or b"")
        return size / MIB / (time.perf_counter() - began)
    finally:
        consumer.close()
