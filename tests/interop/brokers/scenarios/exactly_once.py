"""Copiers in transactions, and everything that they need, killed in turn: each record is copied exactly once.

The copiers are programs with librdkafka, in a classic group and in one of the consumer protocol. What dies, and when,
follows from a seed.
"""

from __future__ import annotations

import random
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from msgspec import Struct

from support.interop.real_kafka import Process, eventually
from support.scenarios.confluent_load import ConfluentLoad
from support.scenarios.coordinator_client import GROUP, TRANSACTION, coordinator_of
from support.scenarios.scenario_cluster import Cluster, Kind, Topic
from transactions_by_hand import wait_until_stable

COPIER: Final = Path(__file__).with_name("copier.py")
PROTOCOLS: Final = ("classic", "consumer")
MEMBERS: Final = 2
INPUTS: Final = 3
CATCH_UP_SECONDS: Final = 240
HUNG_SECONDS: Final = 30
"""A copier says something at least each time that a call of its client is over. librdkafka 2.16 waits for ever in
`send_offsets_to_transaction` where the broker that coordinated the group has left the metadata for a while: it asks no
broker for anything, and none owes it an answer.
"""
QUIET_SECONDS: Final = 10
"""A client that waits for a broker that it could ask asks again within this time."""
OF_PRODUCER: Final = re.compile(r"%\d\|([\d.]+)\|\w+\|rdkafka#producer-\d+\| \[thrd:(.*?)\]: (.*)")
SENT: Final = re.compile(r"Sent (\w+)Request \(.*CorrId (\d+)\)")
RECEIVED: Final = re.compile(r"Received (\w+)Response \(.*CorrId (\d+),")
LOST: Final = re.compile(r"Broker changed state \w+ -> (?:DOWN|TRY_CONNECT|INIT)")
ROUTINE: Final = {"ApiVersion", "Metadata", "GetTelemetrySubscriptions", "PushTelemetry"}
"""What a client asks whether it has anything to do or not."""
EXACTLY_ONCE: Final = Kind(
    "exactly-once",
    controllers=3,
    settings=(
        "group.initial.rebalance.delay.ms=0",
        "offsets.topic.num.partitions=3",
        "transaction.state.log.num.partitions=3",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms=1000",
        # A member of the consumer protocol has the session of its coordinator.
        "group.consumer.min.session.timeout.ms=6000",
        "group.consumer.session.timeout.ms=6000",
        "group.consumer.min.heartbeat.interval.ms=1000",
        "group.consumer.heartbeat.interval.ms=1000",
    ),
)


class Talk(Struct):
    """The open requests of a producer of librdkafka, as its log has them."""

    owed: dict[tuple[str, str], tuple[float, str]]
    """The time and the name of each request without an answer, by connection and number."""
    asked: tuple[float, str]
    """The last request that was not routine."""

    @classmethod
    def read(cls, lines: Iterable[str]) -> Talk:
        """The state after the last line."""
        talk = cls({}, (0.0, "nothing"))
        for line in lines:
            found = OF_PRODUCER.match(line)
            if found is None:
                continue
            at, connection, text = float(found[1]), found[2], found[3]
            if (sent := SENT.search(text)) is not None:
                talk.owed[connection, sent[2]] = at, sent[1]
                if sent[1] not in ROUTINE:
                    talk.asked = at, sent[1]
            elif (received := RECEIVED.search(text)) is not None:
                talk.owed.pop((connection, received[2]), None)
            elif LOST.search(text) is not None:
                talk.owed = {key: value for key, value in talk.owed.items() if key[0] != connection}
        return talk

    def fault_of_brokers(self, now: float) -> str | None:
        """Why it may be the brokers that keep a client waiting; None if they have nothing to tell it."""
        for at, name in self.owed.values():
            if now - at > QUIET_SECONDS:
                return f"{name} has had no answer for {now - at:.0f} s"
        at, name = self.asked
        return f"{name} was asked {now - at:.0f} s ago" if now - at < QUIET_SECONDS else None


class Copier(Struct):
    """A copier, which is started again as often as it ends."""

    command: list[str]
    output: Path
    log: Path
    process: Process
    ends: Counter[str]

    @property
    def transactions(self) -> int:
        """How many transactions it has committed, in all its lives."""
        return self._said("copied")

    @property
    def aborts(self) -> int:
        """How many transactions it has aborted itself, in all its lives."""
        return self._said("aborts")

    def _said(self, word: str) -> int:
        return sum(line.startswith(word) for line in self.output.read_text().splitlines())

    def kill(self) -> None:
        """End it in the middle of whatever it does."""
        self.process.kill()
        self.restart("killed")

    def end(self) -> None:
        """End its last life."""
        self.process.kill()

    def restart(self, why: str) -> None:
        """Start it again."""
        self.ends[why] += 1
        self.output.touch()
        self.process = Process(self.command, self.output)

    def attend(self) -> None:
        """Start it again if it has ended by itself, as a client does that was told to, or if its client hangs.

        Fails where a client waits and brokers may be the reason.
        """
        if self.process.popen.poll() is not None:
            words = re.findall(r"KafkaError\{.*?code=(\w+)", self.process.text)
            assert words, f"a copier ended:\n{self.process.text[-3000:]}"
            self.restart(words[-1])
        elif time.time() - self.output.stat().st_mtime > HUNG_SECONDS:
            with self.log.open(errors="replace") as lines:
                why = Talk.read(lines).fault_of_brokers(time.time())
            assert why is None, f"a copier waits: {why}; see {self.log}"
            self.process.kill()
            self.log.rename(self.log.with_suffix(f".hung-{self.ends['hung']}"))
            self.restart("hung")


def start(cluster: Cluster, stack: ExitStack, protocol: str, number: int, output: Topic, inputs: list[Topic]) -> Copier:
    """A copier to an output, in the group with the name of the output."""
    name = f"{output.name}-{number}"
    log = cluster.layout.root / f"{name}.client"
    places = [str(log), cluster.bootstrap, output.name, protocol, name, output.name, *(one.name for one in inputs)]
    command = [sys.executable, str(COPIER), *places]
    path = cluster.layout.root / f"{name}.log"
    copier = Copier(command, path, log, Process(command, path), Counter())
    stack.callback(copier.end)
    return copier


class Reader:
    """A reader of committed records, and what it has found up to now."""

    def __init__(self, cluster: Cluster, topic: Topic) -> None:
        settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "none", "isolation.level": "read_committed"}
        settings["log_level"] = "0"
        self._consumer = Consumer(settings)
        self._consumer.assign([TopicPartition(topic.name, 0, OFFSET_BEGINNING)])
        self.found: Counter[str] = Counter()

    def read(self) -> int:
        """Read on for a moment; returns the number of all records."""
        for one in self._consumer.consume(10_000, timeout=0.5):
            assert one.error() is None, one.error()
            self.found[(one.value() or b"").decode()] += 1
        return self.found.total()


class Faults:
    """Faults that kill one process after the other."""

    def __init__(
        self, cluster: Cluster, copiers: Mapping[Topic, list[Copier]], inputs: list[Topic], seed: int, away: float
    ) -> None:
        self._cluster = cluster
        self._away = away
        self._copiers = copiers
        self._outputs = list(copiers)
        self._topics = [*inputs, *self._outputs]
        self._draws = random.Random(seed)
        self._never = threading.Event()
        self._deck: list[str] = []
        """The kinds that have yet to come before all have come again."""
        self.done: Counter[str] = Counter()

    def one(self) -> None:
        """The next fault: the one who dies is away for a while, and has come back when it is over."""
        kinds: dict[str, Callable[[], None]] = {
            "coordinator of a group": lambda: self._broker(
                coordinator_of(self._cluster, self._draws.choice(self._outputs).name, GROUP)
            ),
            "coordinator of transactions": lambda: self._broker(
                coordinator_of(self._cluster, f"{self._draws.choice(self._outputs).name}-0", TRANSACTION)
            ),
            "leader of a topic": lambda: self._broker(self._cluster.leader(self._draws.choice(self._topics))),
            "controller": self._controller,
            "client": self._client,
        }
        if not self._deck:
            self._deck = self._draws.sample(sorted(kinds), len(kinds))
        name = self._deck.pop()
        self.done[name] += 1
        kinds[name]()

    def _broker(self, broker: int) -> None:
        self._cluster.kill(broker)
        if self._draws.random() < 0.5:
            self._client()
        self._never.wait(self._draws.uniform(0, self._away))  # How long it is away is what this tries.
        self._cluster.start(broker)
        self._cluster.wait_until_active(broker)
        for one in self._topics:
            self._cluster.wait_for_isr(one, *one.replicas)

    def _controller(self) -> None:
        self._cluster.kill_controller()
        self._never.wait(self._draws.uniform(0, self._away))
        self._cluster.start_controllers()

    def _client(self) -> None:
        self._draws.choice(self._copiers[self._draws.choice(self._outputs)]).kill()


class Copying(Struct):
    """The records copied to each output, and the processes that died."""

    records: int
    killed: dict[str, int]
    ends: dict[str, int]
    """Why lives of copiers ended: they were killed, or gave up with an error."""
    aborts: int
    """The transactions that living copiers aborted."""


def copy_under_faults(cluster: Cluster, seconds: float, *, seed: int = 42, away: float = 4) -> Copying:
    """Copy while one after the other dies; fails unless every record is in every output exactly once.

    Args:
        cluster: Where the records are.
        seconds: How long somebody dies now and then.
        seed: Decides who, and when.
        away: The longest time in seconds that a killed broker or controller stays away.
    """
    inputs = [cluster.create("in", min_insync_replicas="2") for _ in range(INPUTS)]
    outputs = {cluster.create(f"out-{one}", min_insync_replicas="2"): one for one in PROTOCOLS}
    with ExitStack() as stack:
        copiers = {
            output: [start(cluster, stack, protocol, number, output, inputs) for number in range(MEMBERS)]
            for output, protocol in outputs.items()
        }
        every = [one for members in copiers.values() for one in members]
        faults = Faults(cluster, copiers, inputs, seed, away)

        def transactions() -> dict[Topic, int]:
            for one in every:
                one.attend()
            return {output: sum(one.transactions for one in members) for output, members in copiers.items()}

        def go_on() -> None:
            before = transactions()
            eventually(
                lambda: all(count > before[one] for one, count in transactions().items()),
                f"each group goes on after {faults.done}",
                CATCH_UP_SECONDS,
            )

        with ExitStack() as writing:
            loads = [writing.enter_context(ConfluentLoad(cluster, one, per_second=60)) for one in inputs]
            go_on()
            begin = time.monotonic()
            while time.monotonic() - begin < seconds:
                faults.one()
                go_on()
        for load in loads:
            load.check()
        wanted = Counter(
            f"{one.name}:0:{offset}:{value.decode()}"
            for one, load in zip(inputs, loads, strict=True)
            for value, offset in load.acknowledged.items()
        )
        for output, members in copiers.items():
            reader = Reader(cluster, output)

            def is_whole(reader: Reader = reader, members: list[Copier] = members) -> bool:
                for one in members:
                    one.attend()
                return reader.read() >= wanted.total()

            eventually(is_whole, f"every record is in {output.name}", CATCH_UP_SECONDS)
            for one in members:
                assert one.process.stop() == 0, one.process.text[-3000:]
            reader.read()
            assert (reader.found - wanted, wanted - reader.found) == (Counter(), Counter()), "twice, or not at all"
            cluster.wait_for_equal_logs(output)
            end = cluster.batches(output.replicas[0], output)[-1].last_offset + 1
            wait_until_stable(cluster, output, end)
        ends = sum((one.ends for one in every), Counter[str]())
        return Copying(wanted.total(), dict(faults.done), dict(ends), sum(one.aborts for one in every))
