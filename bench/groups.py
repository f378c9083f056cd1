"""Groups and transactions of a broker beside Apache Kafka's, in one run.

    python bench/groups.py [--targets ours,kafka] [--what join,heartbeat,…] [--reps 3] [--heat 2] [--requests 4000]
                           [--members 100] [--heap 1g] [--dir DIR] [--json]
    python bench/groups.py --what commit --reps 5         # for example: commits alone

Each target has a controller of ours and one broker, on loopback, with default settings but for a
`group.initial.rebalance.delay.ms` of 0; all targets are up at the same time. Before the first figure everything is done
--heat times, so that the compiler of the JVM is warm. The order of the targets changes with each repetition. The ratio
is that of the first target to the other, of the same repetition. Figures per CPU second count the processor time of the
broker processes alone, which includes the garbage collection and the compilers of a JVM: they hold on a busy machine,
and those per second do not. The clients speak Kafka's protocol from one thread; each has a connection of its own, and
one request under way.

join         fresh groups of one member, one after the other: from FindCoordinator until the first record of the topic
heartbeat    heartbeats of 16 members of 16 groups
commit       offsets of one partition, by 1, 16 and 128 members of as many groups
transaction  one record with acks=all and its commit, by 1 and 16 producers (transaction version 2)
share        one record by ShareFetch, and its ShareAcknowledge, by 1 and 16 members of as many share groups
rebalance    all members of one group join it again (classic), or join a fresh group until each has a partition

`join`, `commit`, `transaction` and `share` with one client pause for 5 ms before each, which is light load: their p50
counts.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from data_brokers.conversations import (
    GROUP,
    TRANSACTION,
    ClassicMember,
    ConsumerMember,
    Talk,
    TransactionalProducer,
    converse,
    finding,
    repeating,
)
from data_brokers.report import NAME_WIDTH, Figure, parse_options, report
from data_brokers.share_member import ShareMember
from data_brokers.wire import WireClient, batch_of, produce_frame
from quorums import KAFKA_VERSION

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from data_brokers.cluster import OURS, DataCluster

WHAT: Final = ("join", "heartbeat", "commit", "transaction", "share", "rebalance")
SETTINGS: Final = (
    "group.initial.rebalance.delay.ms=0",
    "offsets.topic.replication.factor=1",
    "transaction.state.log.replication.factor=1",
    "transaction.state.log.min.isr=1",
    "share.coordinator.state.topic.replication.factor=1",
    "share.coordinator.state.topic.min.isr=1",
)
PAUSE_SECONDS: Final = 0.005
HEARTS: Final = 16
COMMITTERS: Final = (1, 16, 128)
PRODUCERS: Final = (1, 16)
SHARERS: Final = (1, 16)
JOINS_PER_REQUEST: Final = 0.02
"""A join is some six requests, and leaves a group behind."""


class Bench:
    """One broker of each target, and what is measured on it."""

    def __init__(self, options: argparse.Namespace, root: Path, stack: ExitStack) -> None:
        self._requests: int = options.requests
        self._members: int = options.members
        self.clusters = [
            DataCluster(name, root / name, 1, options.heap, options.session, stack, settings=SETTINGS)
            for name in options.targets
        ]
        self._numbers = iter(range(1_000_000))
        self._filled: set[str] = set()
        """The makes of brokers that have records to share."""
        for cluster in self.clusters:
            cluster.create("read", 1)
            cluster.create("written", max(PRODUCERS))
            cluster.create("queue", max(SHARERS))
            cluster.create("shared", self._members)
            # Whoever asks first has the internal topics made.
            converse(cluster.address(cluster.first), [[finding("any", GROUP), finding("any", TRANSACTION)]])

    def _fresh(self, kind: str) -> str:
        return f"{kind}-{next(self._numbers)}"

    def figures(self, what: str, cluster: DataCluster) -> Iterator[tuple[str, float]]:
        """Measure one thing on one cluster."""
        measure: dict[str, Callable[[DataCluster], Iterator[tuple[str, float]]]] = {
            "join": self._join,
            "heartbeat": self._heartbeat,
            "commit": self._commit,
            "transaction": self._transaction,
            "share": self._share,
            "rebalance": self._rebalance,
        }
        return measure[what](cluster)

    def _load(
        self, cluster: DataCluster, what: str, lanes: Sequence[Iterable[Talk]], *, is_light: bool = False
    ) -> Iterator[tuple[str, float]]:
        """How many conversations go into a CPU second, and their p50 at light load, or how many go into a second."""
        cpu, began = cluster.cpu_seconds(), time.perf_counter()
        took = converse(cluster.address(cluster.first), lanes, PAUSE_SECONDS if is_light else 0.0)
        seconds, used = time.perf_counter() - began, max(0.01, cluster.cpu_seconds() - cpu)
        yield f"{what} per CPU s", len(took) / used
        if is_light:
            yield f"{what} p50, ms", 1000 * statistics.median(took)
        else:
            yield f"{what} per s", len(took) / seconds

    def _join(self, cluster: DataCluster) -> Iterator[tuple[str, float]]:
        count = max(4, int(self._requests * JOINS_PER_REQUEST))
        for kind, member in (("classic", ClassicMember), ("KIP-848", ConsumerMember)):
            talks = [member(self._fresh("join"), "read").reading() for _ in range(count)]
            yield from self._load(cluster, f"joins, {kind},", [talks], is_light=True)

    def _classic(self, cluster: DataCluster, count: int) -> list[ClassicMember]:
        """Members of as many groups."""
        members = [ClassicMember(self._fresh("classic"), "read") for _ in range(count)]
        converse(cluster.address(cluster.first), [[member.joining()] for member in members])
        return members

    def _repeated(self, cluster: DataCluster, frames: Sequence[bytes], requests: int) -> list[Iterable[Talk]]:
        """Lanes that repeat one request each, with the answer that the request has now."""
        with WireClient(cluster.address(cluster.first)) as client:
            answers = [client.ask(frame) for frame in frames]
            repeated = [client.ask(frame) for frame in frames]
        assert repeated == answers, "the same request has another answer"
        return [
            repeating(frame, answer, requests // len(frames)) for frame, answer in zip(frames, answers, strict=True)
        ]

    def _heartbeat(self, cluster: DataCluster) -> Iterator[tuple[str, float]]:
        classic = [member.heartbeat() for member in self._classic(cluster, HEARTS)]
        yield from self._load(cluster, "heartbeats, classic,", self._repeated(cluster, classic, self._requests))
        light = self._repeated(cluster, classic[:1], self._requests // 4)
        yield from self._load(cluster, "heartbeats, classic, light load,", light, is_light=True)
        members = [ConsumerMember(self._fresh("consumer"), "read") for _ in range(HEARTS)]
        converse(cluster.address(cluster.first), [[member.joining(), member.beat()] for member in members])
        consumers = [member.heartbeat() for member in members]
        yield from self._load(cluster, "heartbeats, KIP-848,", self._repeated(cluster, consumers, self._requests))

    def _commit(self, cluster: DataCluster) -> Iterator[tuple[str, float]]:
        for count in COMMITTERS:
            frames = [member.commit() for member in self._classic(cluster, count)]
            yield from self._load(cluster, f"commits by {count},", self._repeated(cluster, frames, self._requests))
            if count == 1:
                light = self._repeated(cluster, frames, self._requests // 4)
                yield from self._load(cluster, "commits, light load,", light, is_light=True)

    def _transaction(self, cluster: DataCluster) -> Iterator[tuple[str, float]]:
        for count in PRODUCERS:
            producers = [TransactionalProducer(self._fresh("id"), "written", number) for number in range(count)]
            converse(cluster.address(cluster.first), [[producer.starting()] for producer in producers])
            each = self._requests // 4 // count
            lanes = [producer.transactions(each) for producer in producers]
            yield from self._load(cluster, f"transactions by {count},", lanes)
            if count == 1:
                light = [producers[0].transactions(each // 2)]
                yield from self._load(cluster, "transactions, light load,", light, is_light=True)

    def _share(self, cluster: DataCluster) -> Iterator[tuple[str, float]]:
        self._fill(cluster)
        for count in SHARERS:
            members = self._sharers(cluster, count)
            each = self._requests // 4 // count
            lanes = [member.deliveries(each) for member in members]
            yield from self._load(cluster, f"shared records by {count},", lanes)
            if count == 1:
                [member] = self._sharers(cluster, 1)
                yield from self._load(
                    cluster, "shared records, light load,", [member.deliveries(each // 2)], is_light=True
                )

    def _sharers(self, cluster: DataCluster, count: int) -> list[ShareMember]:
        """Members of as many groups, each at a partition of its own, from its first record on."""
        members = [ShareMember(self._fresh("share"), "queue", number) for number in range(count)]
        converse(cluster.address(cluster.first), [[member.starting()] for member in members])
        return members

    def _fill(self, cluster: DataCluster) -> None:
        """Let there be a record for each delivery."""
        if cluster.make in self._filled:
            return
        self._filled.add(cluster.make)
        record = batch_of(1, 100)
        with WireClient(cluster.address(cluster.first)) as client:
            for number in range(max(SHARERS)):
                frame = produce_frame("queue", number, record, -1)
                for _ in range(self._requests // 4 // (1 if not number else max(SHARERS))):
                    client.produce(frame)

    def _rebalance(self, cluster: DataCluster) -> Iterator[tuple[str, float]]:
        address = cluster.address(cluster.first)
        group = self._fresh("many")
        crew = [ClassicMember(group, "shared") for _ in range(self._members)]
        converse(address, [[settling(member, crew)] for member in crew])
        yield from self._once(cluster, "classic", [[member.joining(1)] for member in crew])
        assert max(member.size for member in crew) == len(crew), "some members were left out"
        group = self._fresh("many")
        shared = [ConsumerMember(group, "shared") for _ in range(self._members)]
        yield from self._once(cluster, "KIP-848", [[sharing(member, shared)] for member in shared])

    def _once(self, cluster: DataCluster, kind: str, lanes: Sequence[Iterable[Talk]]) -> Iterator[tuple[str, float]]:
        cpu, began = cluster.cpu_seconds(), time.perf_counter()
        converse(cluster.address(cluster.first), lanes)
        yield f"rebalance of {len(lanes)}, {kind}, ms", 1000 * (time.perf_counter() - began)
        yield f"rebalance of {len(lanes)}, {kind}, CPU ms", 1000 * (cluster.cpu_seconds() - cpu)


def settling(member: ClassicMember, crew: Sequence[ClassicMember]) -> Talk:
    """Join until one generation has the whole crew."""
    while True:
        yield from member.joining()
        while not any(other.size == len(crew) and other.generation == member.generation for other in crew):
            answer = yield member.heartbeat()
            if member.must_rejoin(answer):
                break
        else:
            return


def sharing(member: ConsumerMember, crew: Sequence[ConsumerMember]) -> Talk:
    """Heartbeats until everyone of the crew has a partition."""
    while not all(other.partitions == 1 for other in crew):
        yield from member.beat()


def measure(options: argparse.Namespace, root: Path, out: Callable[[str], None]) -> list[Figure]:
    """Every figure of every repetition; each is printed at once."""
    figures: list[Figure] = []
    with ExitStack() as stack:
        bench = Bench(options, root, stack)
        for rep in range(-options.heat, options.reps):
            turn = rep % len(bench.clusters)
            for what in options.what:
                for cluster in bench.clusters[turn:] + bench.clusters[:turn]:
                    for name, value in bench.figures(what, cluster):
                        if rep >= 0:
                            figures.append(Figure(name, 1, cluster.make, value))
                            out(f"{rep + 1:4} {cluster.title:12}{name:{NAME_WIDTH}}{value:14,.2f}")
    return figures


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--heat", type=int, default=2, help="how often everything is done before the first figure")
    parser.add_argument("--requests", type=int, default=4000, help="requests of each figure")
    parser.add_argument("--members", type=int, default=100, help="members of the group that rebalances")
    return parse_options(parser, (OURS, "kafka"), WHAT)


def main() -> None:
    options = arguments()
    report(options, {"kafka": KAFKA_VERSION, "requests": options.requests}, measure)


if __name__ == "__main__":
    main()
