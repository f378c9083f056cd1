"""Drawn faults on controllers and brokers while an idempotent producer writes, and how long each message waited."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Final, Literal

from confluent_kafka import KafkaError, Message, Producer
from msgspec import Struct

from support.interop.broker_cluster import BROKERS, NO_LEADER, BrokerCluster
from support.interop.load import PARTITIONS, READ_SECONDS, Worker
from support.interop.real_kafka import Process, eventually

Way = Literal["kill", "term", "stop"]
Target = Literal["leader", "follower", "two controllers", "broker", "leader and broker"]
WAYS: Final[tuple[Way, ...]] = ("kill", "term", "stop")
TARGETS: Final[tuple[Target, ...]] = ("leader", "follower", "two controllers", "broker", "leader and broker")
SETTINGS: Final = ("leader.imbalance.check.interval.seconds=10", "leader.imbalance.per.broker.percentage=0")
"""Leaderships return soon, so that each broker leads a partition when its turn comes."""
HEAL_SECONDS: Final = 180
END_SECONDS: Final = 60
WAIT_WORTH_TELLING: Final = 1.0
PAUSE_SECONDS: Final = 0.005


class Fault(Struct, frozen=True):
    """One fault, by role rather than by node, so that the same faults can be drawn for any cluster.

    `way` is `kill` (SIGKILL, then a restart), `term` (SIGTERM, then a restart) or `stop` (SIGSTOP, then SIGCONT).
    """

    target: Target
    way: Way
    broker: int
    down_seconds: float
    calm_seconds: float

    def __str__(self) -> str:
        broker = f" {self.broker}" if "broker" in self.target else ""
        return f"{self.way} {self.target}{broker}, {self.down_seconds:.1f} s"


def draw_faults(seed: int, count: int) -> list[Fault]:
    """The same faults for the same seed. Each combination of target and way comes up before one repeats."""
    rng = Random(seed)
    faults: list[Fault] = []
    while len(faults) < count:
        combinations = [(target, way) for target in TARGETS for way in WAYS]
        rng.shuffle(combinations)
        for target, way in combinations:
            down, calm = rng.uniform(0.5, 12), rng.uniform(0.5, 3)
            faults.append(Fault(target, way, rng.choice(BROKERS), down, calm))
    return faults[:count]


class Wait(Struct, frozen=True):
    """A message that was acknowledged late: when the producer took the message, and for how long it waited."""

    sent_at: float
    seconds: float


class Producing:
    """Numbered messages, idempotent and with acks=all; which of them were acknowledged, and after how long."""

    def __init__(self, cluster: BrokerCluster, topic: str) -> None:
        self._topic = topic
        self._next = 0
        self._pause = threading.Event()
        self.acknowledged: list[int] = []
        self.refused: Counter[str] = Counter()
        self.waits: list[Wait] = []
        """The longest wait of each group of messages that were acknowledged together and late."""
        self.longest = 0.0
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": READ_SECONDS * 1000,
                "log_level": 0,
            }
        )

    @property
    def sent(self) -> int:
        """How many messages the producer took."""
        return self._next

    def one(self) -> None:
        """Send the next number."""
        number, sent_at = self._next, time.monotonic()

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.refused[error.name()] += 1
                return
            self.acknowledged.append(number)
            self._note(sent_at, time.monotonic() - sent_at)

        self._next += 1
        self._producer.produce(self._topic, str(number).encode(), on_delivery=delivered)
        self._producer.poll(0)
        self._pause.wait(PAUSE_SECONDS)

    def _note(self, sent_at: float, seconds: float) -> None:
        self.longest = max(self.longest, seconds)
        if seconds < WAIT_WORTH_TELLING:
            return
        last = self.waits[-1] if self.waits else None
        if last is not None and sent_at < last.sent_at + last.seconds:
            if seconds > last.seconds:
                self.waits[-1] = Wait(sent_at, seconds)
        else:
            self.waits.append(Wait(sent_at, seconds))

    def finish(self) -> None:
        """Wait for the answers to all that was sent."""
        left = self._producer.flush(READ_SECONDS)
        assert left == 0, f"{left} messages were neither acknowledged nor refused"

    @contextmanager
    def running(self) -> Iterator[Producing]:
        """Send until the block ends, and then wait for the last answers."""
        with Worker(self.one):
            self.wait_for_progress()
            yield self
            self.wait_for_progress()
        self.finish()

    def wait_for_progress(self) -> None:
        """Wait until more messages are acknowledged."""
        wanted = len(self.acknowledged) + 20
        eventually(lambda: len(self.acknowledged) >= wanted, "messages are acknowledged", READ_SECONDS)


class Report(Struct, frozen=True):
    """The results of the faults. `late` has the fault during which each late message was sent, longest wait first."""

    make: str
    seconds: float
    faults: int
    acknowledged: int
    longest: float
    late: list[tuple[float, str]]
    ended_by_themselves: int

    def __str__(self) -> str:
        rows = "\n".join(f"  waited {seconds:5.1f} s  {fault}" for seconds, fault in self.late[:12])
        return (
            f"{self.make}: {self.faults} faults in {self.seconds:.0f} s, {self.acknowledged} records acknowledged, "
            f"longest wait {self.longest:.1f} s, {len(self.late)} waits above {WAIT_WORTH_TELLING:.0f} s, "
            f"controllers that ended by themselves: {self.ended_by_themselves}\n{rows}"
        )


class Chaos:
    """Applies faults to a cluster, one after the other; each is healed, and the cluster is whole, before the next."""

    def __init__(self, cluster: BrokerCluster, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._calm = threading.Event()
        self.began: list[tuple[float, Fault]] = []
        self.ended_by_themselves = 0

    def apply(self, fault: Fault) -> None:
        """Let the fault happen, wait, heal, and wait until all replicas are in sync again."""
        controllers, brokers = self._chosen(fault)
        self.began.append((time.monotonic(), fault))
        processes = [*(self._cluster.controllers.processes[one] for one in controllers)]
        processes += [self._cluster.brokers[one] for one in brokers]
        for process in processes:
            process.signal({"kill": signal.SIGKILL, "term": signal.SIGTERM, "stop": signal.SIGSTOP}[fault.way])
        self._calm.wait(fault.down_seconds)
        if fault.way == "stop":
            for process in processes:
                process.signal(signal.SIGCONT)
        else:
            for process in processes:
                process.wait(END_SECONDS)
            if controllers:
                self._cluster.controllers.start(*controllers)
            self._cluster.start_broker(*brokers)
            self._cluster.wait_until_started(*brokers)
        eventually(self._is_whole, f"the cluster is whole after: {fault}", HEAL_SECONDS)
        self._calm.wait(fault.calm_seconds)

    def _chosen(self, fault: Fault) -> tuple[list[int], list[int]]:
        leader = self._cluster.leader()
        followers = [node for node in self._cluster.layout.ports if node != leader]
        match fault.target:
            case "leader":
                return [leader], []
            case "follower":
                return [followers[0]], []
            case "two controllers":
                return [leader, followers[0]], []
            case "broker":
                return [], [fault.broker]
            case "leader and broker":
                return [leader], [fault.broker]

    def _is_whole(self) -> bool:
        """Whether each replica is in sync. A controller that ended by itself is started again and counted."""
        for node, process in list(self._cluster.controllers.processes.items()):
            if process.popen.poll() is not None:
                self.ended_by_themselves += 1
                self._cluster.controllers.start(node)
        self._restart_ended_brokers()
        image = self._cluster.image()
        if any(image.brokers.by_id[broker].fenced for broker in BROKERS):
            return False
        partitions = image.topics[self._topic].partitions
        return all(sorted(one.isr) == sorted(one.replicas) and one.leader != NO_LEADER for one in partitions)

    def _restart_ended_brokers(self) -> None:
        """A broker of Kafka ends when no controller answers in time at its start."""
        ended: list[int] = [one for one, process in self._cluster.brokers.items() if _has_ended(process)]
        self._cluster.start_broker(*ended)

    def during(self, moment: float) -> str:
        """The last fault that began before this moment."""
        before = [(began, fault) for began, fault in self.began if began <= moment + 1]
        return f"{before[-1][1]} (sent {moment - before[-1][0]:+.1f} s after it began)" if before else "no fault"


def _has_ended(process: Process) -> bool:
    return process.popen.poll() is not None


def survive(cluster: BrokerCluster, faults: list[Fault], topic: str) -> tuple[Report, list[int]]:
    """Produce through all these faults; the report, and the numbers that were acknowledged.

    Fails if a message is refused: an idempotent producer that waits long enough is never told an error.
    """
    producing, chaos = Producing(cluster, topic), Chaos(cluster, topic)
    began = time.monotonic()
    with producing.running():
        for fault in faults:
            chaos.apply(fault)
            producing.wait_for_progress()
    assert not producing.refused, f"refused: {dict(producing.refused)}"
    late = sorted(((one.seconds, chaos.during(one.sent_at)) for one in producing.waits), reverse=True)
    report = Report(
        make=cluster.make,
        seconds=time.monotonic() - began,
        faults=len(faults),
        acknowledged=len(producing.acknowledged),
        longest=producing.longest,
        late=late,
        ended_by_themselves=chaos.ended_by_themselves,
    )
    return report, producing.acknowledged


assert len(BROKERS) == PARTITIONS
"""Each broker leads one partition, so that each fault of a broker is felt."""
