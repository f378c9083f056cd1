"""Brokers with data beside Apache Kafka's, in one run: start, produce, consume, latency, memory, cost of a batch.

    python bench/produce.py [--targets ours,kafka] [--brokers 1,3] [--what start,produce,…]
                            [--client java|confluent|franz] [--reps 3] [--megabytes 64] [--heat 256] [--heap 1g]
                            [--dir DIR] [--json]
    python bench/produce.py --what produce,consume --reps 5         # for example: throughput alone

Each target has a controller of ours and its brokers, with default settings, on loopback; all targets of a round are up
at the same time. Before the first figure each broker takes --heat MiB and serves them again, so that the compiler of
the JVM is warm. The order of the targets changes with each repetition. The ratio is that of the first target to the
other, of the same repetition. Figures per CPU second count the processor time of the broker processes alone, which
include the garbage collection and the compilers of a JVM: they hold on a busy machine, and those per second do not.

start       the first broker stops and starts; a client that tries every millisecond gets the first acknowledgement
produce     records of 1 KiB in batches of 64 KiB, acks=1 (three brokers: acks=all), one partition
consume     the same records again, with an assigned partition: by confluent-kafka, or by franz-go if that produces
latency     acks=all, one record of 1 KiB, one connection, a pause of 5 ms between two requests
memory      resident memory of a broker before and after it leads so many partitions, each with one record
partitions  CPU time of a broker for a Produce of one batch with one record of 1 KiB, round-robin over the partitions
length      the same, and for a Fetch of 64 KiB in the middle, with a short log and with a long one of small segments
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from data_brokers.report import NAME_WIDTH, Figure, parse_options, report
from data_brokers.wire import ACKS_ALL, WireClient, batch_of, fetch_frame, produce_frame
from quorums import KAFKA_VERSION

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from data_brokers.clients import MIB, RECORD_BYTES, ConfluentProducer, JavaProducer, consume
from data_brokers.cluster import OURS, DataCluster
from data_brokers.franz_client import FranzClient

from support.interop.real_kafka import KafkaInstallation

WHAT: Final = ("start", "produce", "consume", "latency", "memory", "partitions", "length")
WITH_ONE: Final = frozenset({"start", "memory", "partitions", "length"})
"""What is measured with one broker only."""
PAUSE_SECONDS: Final = 0.005
LEAST_HEAT_RECORDS: Final = 64


class Bench:
    """The clusters with one number of brokers, and what is measured on them."""

    def __init__(self, options: argparse.Namespace, brokers: int, root: Path, stack: ExitStack) -> None:
        self._options = options
        self._brokers = brokers
        self._client: JavaProducer | ConfluentProducer | FranzClient = ConfluentProducer()
        self._consume_all = consume
        if options.client == "franz":
            self._client = franz = stack.enter_context(FranzClient())
            self._consume_all = franz.consume
        elif options.client == "java" and set(options.what) & {"produce", "consume"}:
            self._client = stack.enter_context(JavaProducer(KafkaInstallation.find()))
        self.clusters = [
            DataCluster(name, root / f"{name}-{brokers}", brokers, options.heap, options.session, stack)
            for name in options.targets
        ]
        self._names = iter(range(1_000_000))
        self._acks = "1" if brokers == 1 else "all"

    def _topic(self, cluster: DataCluster, partitions: int = 1) -> str:
        name = f"bench-{next(self._names)}"
        cluster.create(name, partitions)
        return name

    def heat(self) -> None:
        """Load every broker for a while, before the first figure."""
        records = max(LEAST_HEAT_RECORDS, int(self._options.heat * MIB / RECORD_BYTES))
        for cluster in self.clusters:
            topic = self._topic(cluster)
            self._client.produce(cluster.bootstrap, topic, records, self._acks)
            self._consume_all(cluster.bootstrap, topic, records)

    def figures(self, what: str, cluster: DataCluster) -> Iterator[tuple[str, float]]:
        """Measure one thing on one cluster."""
        measure: dict[str, Callable[[DataCluster], Iterator[tuple[str, float]]]] = {
            "start": self._start,
            "produce": self._produce,
            "consume": self._consume,
            "latency": self._latency,
            "memory": self._memory,
            "partitions": self._partitions,
            "length": self._length,
        }
        return measure[what](cluster)

    def _start(self, cluster: DataCluster) -> Iterator[tuple[str, float]]:
        seconds, cpu = cluster.first_record(self._topic(cluster))
        yield "start to first record, ms", 1000 * seconds
        yield "start to first record, CPU ms", 1000 * cpu

    @property
    def _records(self) -> int:
        return int(self._options.megabytes * MIB / RECORD_BYTES)

    def _produce(self, cluster: DataCluster) -> Iterator[tuple[str, float]]:
        topic, before = self._topic(cluster), cluster.cpu_seconds()
        rate = self._client.produce(cluster.bootstrap, topic, self._records, self._acks)
        yield "produce, MiB/s", rate
        yield "produce, MiB per CPU s", self._options.megabytes / max(0.01, cluster.cpu_seconds() - before)

    def _consume(self, cluster: DataCluster) -> Iterator[tuple[str, float]]:
        topic = self._topic(cluster)
        self._client.produce(cluster.bootstrap, topic, self._records, self._acks)
        before = cluster.cpu_seconds()
        rate = self._consume_all(cluster.bootstrap, topic, self._records)
        yield "consume, MiB/s", rate
        yield "consume, MiB per CPU s", self._options.megabytes / max(0.01, cluster.cpu_seconds() - before)

    def _latency(self, cluster: DataCluster) -> Iterator[tuple[str, float]]:
        frame = produce_frame(self._topic(cluster), 0, batch_of(1, RECORD_BYTES), ACKS_ALL)
        took: list[float] = []
        before = cluster.cpu_seconds()
        with WireClient(cluster.address(cluster.first)) as client:
            for _ in range(self._options.requests):
                time.sleep(PAUSE_SECONDS)
                began = time.perf_counter()
                client.produce(frame)
                took.append(time.perf_counter() - began)
        took.sort()
        yield "acks=all p50, ms", 1000 * statistics.median(took)
        yield "acks=all p99, ms", 1000 * took[int(0.99 * (len(took) - 1))]
        yield "acks=all, CPU us of a request", 1e6 * (cluster.cpu_seconds() - before) / len(took)

    def _memory(self, cluster: DataCluster) -> Iterator[tuple[str, float]]:
        yield "memory before, MiB", cluster.resident_bytes() / MIB
        self._topic(cluster, self._options.partitions)
        yield f"memory with {self._options.partitions:,} more partitions, MiB", cluster.resident_bytes() / MIB

    def _partitions(self, cluster: DataCluster) -> Iterator[tuple[str, float]]:
        most = self._options.partitions
        for count in sorted({1, max(1, most // 10), most}):
            topic = self._topic(cluster, count)
            batch = batch_of(1, RECORD_BYTES)
            frames = [produce_frame(topic, number, batch, 1) for number in range(count)]
            yield f"produce to {count:,} partitions, CPU us of a batch", self._cpu_of(cluster, frames)

    def _length(self, cluster: DataCluster) -> Iterator[tuple[str, float]]:
        topic = self._topic(cluster)
        produced = [produce_frame(topic, 0, batch_of(1, RECORD_BYTES), 1)]
        yield "produce to a short log, CPU us of a batch", self._cpu_of(cluster, produced)
        fetched = [fetch_frame(topic, 0, self._options.requests // 2, 64 * 1024)]
        yield "fetch 64 KiB of a short log, CPU us", self._cpu_of(cluster, fetched, is_fetch=True)
        for _ in range(4):
            # As many records again and again in larger batches: the log is then some hundred times as long.
            self._client.produce(cluster.bootstrap, topic, self._records, self._acks)
        yield "produce to a long log, CPU us of a batch", self._cpu_of(cluster, produced)
        yield "fetch 64 KiB of a long log, CPU us", self._cpu_of(cluster, fetched, is_fetch=True)

    def _cpu_of(self, cluster: DataCluster, frames: list[bytes], *, is_fetch: bool = False) -> float:
        """The CPU microseconds of the brokers for a request, of the requests that cycle over the frames."""
        count: int = self._options.requests
        with WireClient(cluster.address(cluster.first)) as client:
            before = cluster.cpu_seconds()
            for number in range(count):
                frame = frames[number % len(frames)]
                if is_fetch:
                    assert client.fetch(frame) > 0, "the answer has no records"
                else:
                    client.produce(frame)
            return 1e6 * (cluster.cpu_seconds() - before) / count


def measure(options: argparse.Namespace, root: Path, out: Callable[[str], None]) -> list[Figure]:
    """Every figure of every repetition; each is printed at once."""
    figures: list[Figure] = []
    for brokers in options.brokers:
        chosen = [what for what in options.what if brokers == 1 or what not in WITH_ONE]
        if not chosen:
            continue
        with ExitStack() as stack:
            bench = Bench(options, brokers, root, stack)
            bench.heat()
            # The starts come last: each leaves a broker with a young JVM.
            for group in ([what for what in chosen if what != "start"], [what for what in chosen if what == "start"]):
                for rep in range(options.reps):
                    turn = rep % len(bench.clusters)
                    for what in group:
                        for cluster in bench.clusters[turn:] + bench.clusters[:turn]:
                            for name, value in bench.figures(what, cluster):
                                figures.append(Figure(name, brokers, cluster.make, value))
                                out(f"{rep + 1:4} {cluster.title:12}{name:{NAME_WIDTH}}{value:14,.2f}")
    return figures


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = lambda text: [int(each) for each in text.split(",")]  # noqa: E731
    parser.add_argument("--brokers", type=numbers, default=[1, 3], help="how many brokers each target has")
    parser.add_argument(
        "--client", choices=("java", "confluent", "franz"), default="java", help="what produces at full load"
    )
    parser.add_argument("--megabytes", type=float, default=64.0, help="MiB of records of each run of full load")
    parser.add_argument("--heat", type=float, default=256.0, help="MiB of records for each target at first")
    parser.add_argument("--requests", type=int, default=2000, help="requests of each figure of one request")
    parser.add_argument("--partitions", type=int, default=1000, help="the largest number of partitions")
    return parse_options(parser, (OURS, "kafka"), WHAT)


def main() -> None:
    options = arguments()
    more = {"kafka": KAFKA_VERSION, "heat_mib": options.heat, "megabytes": options.megabytes, "client": options.client}
    report(options, more, measure)


if __name__ == "__main__":
    main()
