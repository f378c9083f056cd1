"""Does a client with a quota of bytes get that? Brokers beside Apache Kafka's, with the same clients at the same time.

    python bench/quotas.py [--targets ours,kafka] [--what rdkafka,java-write,java-read] [--reps 3] [--rate 1000000]
                           [--seconds 55] [--skip 13] [--heap 512m] [--dir DIR] [--json]

Each target has a controller of ours and one broker, and a quota of --rate bytes a second for each client id, in either
direction. A client writes or reads as fast as it can. The first --skip seconds do not count: brokers of either make let
a new client have the bytes of ten seconds at once. When these leave the eleven windows, it may have as much again: so
a quick client has bursts every eleven seconds, and --seconds are a multiple of that. A figure is the bytes of values a
second in that time, divided by the rate. Records are of 1 KiB, in batches of at most 16 KiB, so that what the quota
counts is some 1 % more.

rdkafka     confluent-kafka writes, and another client of it reads an assigned partition
java-write  kafka-producer-perf-test
java-read   kafka-consumer-perf-test
"""

from __future__ import annotations

import argparse
import re
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Final

from data_brokers.report import NAME_WIDTH, Figure, parse_options, report
from quorums import KAFKA_VERSION

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from data_brokers.clients import PRODUCER_TOOL, ConfluentProducer
from data_brokers.cluster import OURS, DataCluster

from support.interop.kafka_tools import KafkaTools
from support.interop.real_kafka import KafkaInstallation
from support.wire import ask
from transport.protocol.messages import alter_client_quotas as altering

WHAT: Final = ("rdkafka", "java-write", "java-read")
CONSUMER_TOOL: Final = "org.apache.kafka.tools.ConsumerPerformance"
RECORD_BYTES: Final = 1024
BURST_SECONDS: Final = 12
SETTINGS: Final = (
    *("offsets.topic.replication.factor=1", "offsets.topic.num.partitions=1", "group.initial.rebalance.delay.ms=0"),
)
MIB: Final = 1 << 20
INTERVAL_SECONDS: Final = 5
_SENT: Final = re.compile(r"^(\d+) records sent, ([\d.]+) records/sec \([\d.]+ MB/sec\), .*max latency", re.MULTILINE)
_READ: Final = re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}), \d+, ([\d.]+),", re.MULTILINE)
Samples = list[tuple[float, float]]
"""Times in seconds, and the bytes until then."""


class Bench:
    """The clusters, and what is measured on them."""

    def __init__(self, options: argparse.Namespace, root: Path, stack: ExitStack) -> None:
        self._options = options
        self.clusters = [
            DataCluster(name, root / name, 1, options.heap, options.session, stack, settings=SETTINGS)
            for name in options.targets
        ]
        self._tools = {
            one.make: stack.enter_context(KafkaTools(KafkaInstallation.find(KAFKA_VERSION)))
            for one in self.clusters
            if any(what.startswith("java") for what in options.what)
        }
        self._names = iter(range(1_000_000))
        for cluster in self.clusters:
            cluster.create("full", 1)
            ConfluentProducer().produce(cluster.bootstrap, "full", self._records, "1")
            _bound(cluster, options.rate)

    @property
    def _length(self) -> float:
        return float(self._options.skip + self._options.seconds)

    @property
    def _records(self) -> int:
        """More than a client may have in the time."""
        return int((self._length + BURST_SECONDS) * 1.2 * self._options.rate / RECORD_BYTES)

    def figures(self, what: str, cluster: DataCluster) -> dict[str, float]:
        """Measure one kind of clients on one cluster: the rates, as parts of the quota."""
        if what == "rdkafka":
            with ThreadPoolExecutor(2) as both:
                written, read = both.submit(self._write, cluster), both.submit(self._read, cluster)
                return {"written by librdkafka": self._rate(written.result()), "read by it": self._rate(read.result())}
        if what == "java-write":
            return {"written by kafka-producer-perf-test": self._rate(self._java_write(cluster))}
        return {"read by kafka-consumer-perf-test": self._rate(self._java_read(cluster))}

    def _rate(self, samples: Samples) -> float:
        began = samples[0][0] + self._options.skip
        counted = [one for one in samples if began <= one[0] <= began + self._options.seconds + INTERVAL_SECONDS / 2]
        (first, before), (last, after) = counted[0], counted[-1]
        return (after - before) / (last - first) / float(self._options.rate)

    def _client(self) -> str:
        return f"limited-{next(self._names)}"

    def _write(self, cluster: DataCluster) -> Samples:
        topic = f"t-{next(self._names)}"
        cluster.create(topic, 1)
        samples: Samples = [(time.monotonic(), 0)]

        def delivered(error: KafkaError | None, message: Message) -> None:
            assert error is None, error
            samples.append((time.monotonic(), samples[-1][1] + len(message.value() or b"")))

        producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "client.id": self._client(),
                "batch.size": 16_384,
                "linger.ms": 5,
                "queue.buffering.max.messages": 2_000,
            }
        )
        value, until = b"x" * RECORD_BYTES, samples[0][0] + self._length
        while time.monotonic() < until:
            try:
                producer.produce(topic, value, partition=0, on_delivery=delivered)
            except BufferError:
                producer.poll(0.05)
            producer.poll(0)
        producer.flush(60)
        return samples

    def _read(self, cluster: DataCluster) -> Samples:
        consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "client.id": self._client(),
                "group.id": "bench",
                "enable.auto.commit": False,
            }
        )
        consumer.assign([TopicPartition("full", 0, OFFSET_BEGINNING)])
        samples: Samples = [(time.monotonic(), 0)]
        until = samples[0][0] + self._length
        while time.monotonic() < until:
            size = sum(len(one.value() or b"") for one in consumer.consume(10_000, 0.05) if one.error() is None)
            samples.append((time.monotonic(), samples[-1][1] + size))
        consumer.close()
        return samples

    def _java_write(self, cluster: DataCluster) -> Samples:
        topic = f"t-{next(self._names)}"
        cluster.create(topic, 1)
        records = int((self._length + BURST_SECONDS) * self._options.rate / RECORD_BYTES)
        told = self._run(
            cluster,
            PRODUCER_TOOL,
            *(f"--topic={topic}", f"--num-records={records}", f"--record-size={RECORD_BYTES}", "--throughput=-1"),
            *("--command-property", f"bootstrap.servers={cluster.bootstrap}", f"client.id={self._client()}"),
            # Otherwise so many records wait that the lines tell of bursts; and no record may expire.
            *("buffer.memory=1048576", "delivery.timeout.ms=600000", "max.block.ms=600000"),
        )
        samples: Samples = [(0.0, 0.0)]
        for count, a_second in _SENT.findall(told)[:-1]:  # The last line is of the whole run.
            at, size = samples[-1]
            # A line comes with the first record after an interval, which may have waited for long.
            samples.append((at + int(count) / max(0.1, float(a_second)), size + int(count) * RECORD_BYTES))
        return samples

    def _java_read(self, cluster: DataCluster) -> Samples:
        records = int((self._length + BURST_SECONDS) * self._options.rate / RECORD_BYTES)
        client = self._client()
        told = self._run(
            cluster,
            CONSUMER_TOOL,
            *("--topic=full", f"--num-records={records}", f"--bootstrap-server={cluster.bootstrap}"),
            *(f"--group={client}", "--show-detailed-stats", f"--reporting-interval={INTERVAL_SECONDS * 1000}"),
            *("--timeout=60000", "--command-property", f"client.id={client}"),
        )
        found = [
            (datetime.strptime(at, "%Y-%m-%d %H:%M:%S:%f").timestamp(), float(size) * MIB)
            for at, size in _READ.findall(told)
        ]
        assert found, told
        return found

    def _run(self, cluster: DataCluster, tool: str, *words: str) -> str:
        done = self._tools[cluster.make].run(tool, *words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def _bound(cluster: DataCluster, rate: float) -> None:
    """Give every client id this quota, in either direction."""
    entity = [altering.AlterClientQuotasRequestEntityData("client-id", None)]
    ops = [altering.OpData(key, rate) for key in ("producer_byte_rate", "consumer_byte_rate")]
    request = altering.AlterClientQuotasRequest([altering.AlterClientQuotasRequestEntryData(entity, ops)])
    (answer,) = ask(cluster.address(cluster.first)[1], request, 1, altering.AlterClientQuotasResponse).entries
    assert answer.error_code == 0, answer


def measure(options: argparse.Namespace, root: Path, out: Callable[[str], None]) -> list[Figure]:
    """Every figure of every repetition; each is printed at once. All targets have their clients at the same time."""
    figures: list[Figure] = []
    telling = threading.Lock()
    with ExitStack() as stack:
        bench = Bench(options, root, stack)
        for rep in range(options.reps):
            for what in options.what:

                def one(cluster: DataCluster, what: str = what, rep: int = rep) -> None:
                    for name, value in bench.figures(what, cluster).items():
                        with telling:
                            figures.append(Figure(name, 1, cluster.make, value))
                            out(f"{rep + 1:4} {cluster.title:12}{name:{NAME_WIDTH}}{value:14,.3f}")

                with ThreadPoolExecutor(len(bench.clusters)) as all_at_once:
                    list(all_at_once.map(one, bench.clusters))
    return figures


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=1e6, help="bytes a second of each client")
    parser.add_argument("--seconds", type=float, default=55.0, help="how long is measured")
    parser.add_argument("--skip", type=float, default=13.0, help="how long clients work before that")
    return parse_options(parser, (OURS, "kafka"), WHAT)


def main() -> None:
    options = arguments()
    report(options, {"kafka": KAFKA_VERSION, "rate": options.rate, "seconds": options.seconds}, measure)


if __name__ == "__main__":
    main()
