"""Instances of `JoinOrders.java` in one streams group, what they join, and what must come out."""

from __future__ import annotations

import random
import struct
from collections import Counter, defaultdict
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from support import TESTS
from support.interop.real_kafka import KafkaInstallation, Process, eventually
from support.scenarios.coordinator_client import COORDINATED, coordinate
from support.scenarios.scenario_cluster import Cluster, Kind
from transport.protocol.messages.streams_group_describe import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)

SOURCE: Final = TESTS / "interop" / "JoinOrders.java"
GROUP_ID: Final = "joined"
STREAMS: Final = Kind(
    "streams",
    settings=(
        *COORDINATED.settings,
        "group.streams.initial.rebalance.delay.ms=0",
        "group.streams.min.session.timeout.ms=6000",
        "group.streams.session.timeout.ms=6000",
        "group.streams.min.heartbeat.interval.ms=1000",
        "group.streams.heartbeat.interval.ms=1000",
        "group.streams.num.standby.replicas=1",
    ),
)
USERS: Final = 10
ORDERS: Final = 150
"""How many orders are made at once."""
SECONDS: Final = 240


class JoinedOrders:
    """The instances of the program, and a consumer of what they write."""

    def __init__(self, cluster: Cluster, kafka: KafkaInstallation, root: Path) -> None:
        self._cluster, self._kafka, self._root = cluster, kafka, root
        self._draws = random.Random(42)
        self.orders, self.payments = cluster.create_wide("orders", 2), cluster.create_wide("payments", 3)
        self.paid, self.counts = cluster.create_wide("paid", 2), cluster.create_wide("counts", 2)
        self.instances: dict[int, Process] = {}
        self._started = 0
        settings = {"bootstrap.servers": cluster.bootstrap, "log_level": 0}
        self._producer = Producer({**settings, "enable.idempotence": True})
        committed = {"group.id": "none", "isolation.level": "read_committed", "enable.auto.commit": False}
        self._consumer = Consumer({**settings, **committed})
        self._consumer.assign(
            [TopicPartition(topic.name, one, OFFSET_BEGINNING) for topic in (self.paid, self.counts) for one in (0, 1)]
        )
        self.expected: dict[str, str] = {}
        """The user and the amount of each order."""
        self._found: defaultdict[str, list[str]] = defaultdict(list)
        self._counted: defaultdict[str, list[int]] = defaultdict(list)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for process in self.instances.values():
            process.kill()
        self._consumer.close()

    def start(self) -> int:
        """Start one more instance, with two threads; returns its number."""
        self._started += 1
        topics = (one.name for one in (self.orders, self.payments, self.paid, self.counts))
        state = self._root / f"state-{self._started}"
        where = (self._cluster.bootstrap, GROUP_ID, *topics, str(state), "3", "num.stream.threads=2")
        command = self._kafka.command(str(SOURCE), *where)
        self.instances[self._started] = Process(command, self._root / f"joins-{self._started}.log")
        return self._started

    def kill(self, number: int) -> None:
        """End an instance without a word."""
        self.instances.pop(number).kill()

    def say(self) -> None:
        """Make orders and their payments, in an order of chance."""
        said: list[tuple[str, int, str]] = []
        for number in range(len(self.expected), len(self.expected) + ORDERS):
            user, amount = f"user-{self._draws.randrange(USERS)}", f"{self._draws.randrange(1000)}"
            self.expected[f"order-{number}"] = f"{user} {amount}"
            said += [(self.orders.name, number % 2, f"order-{number} {user}")]
            said += [(self.payments.name, number % 3, f"order-{number} {amount}")]
        self._draws.shuffle(said)
        for topic, partition, value in said:
            self._producer.produce(topic, value, partition=partition)
        assert self._producer.flush(SECONDS) == 0

    def wait_until_joined(self, what: str) -> None:
        """Wait until all that was said has come out."""
        eventually(self._is_joined, f"all is joined: {what}", SECONDS)

    def _is_joined(self) -> bool:
        for number, process in self.instances.items():
            assert process.popen.poll() is None, f"instance {number} ended:\n{process.text[-3000:]}"
        self._read()
        return min(sum(map(len, of.values())) for of in (self._found, self._counted)) >= len(self.expected)

    def _read(self) -> None:
        for one in self._consumer.consume(10_000, timeout=0.5):
            assert one.error() is None, one.error()
            key, value = one.key(), one.value()
            assert isinstance(key, bytes)
            assert isinstance(value, bytes)
            if one.topic() == self.paid.name:
                self._found[key.decode()].append(value.decode())
            else:
                self._counted[key.decode()].append(struct.unpack(">q", value)[0])

    def check(self) -> None:
        """Each order is joined with its payment once, and each user's orders are counted one by one."""
        self._read()
        assert self._found == {order: [both] for order, both in self.expected.items()}
        of_user = Counter(both.split()[0] for both in self.expected.values())
        assert self._counted == {user: list(range(1, count + 1)) for user, count in of_user.items()}

    def described(self) -> DescribedGroup:
        """The group as its coordinator describes it."""
        request = StreamsGroupDescribeRequest(group_ids=[GROUP_ID])
        answer = coordinate(
            self._cluster,
            GROUP_ID,
            request,
            0,
            StreamsGroupDescribeResponse,
            lambda answer: [one.error_code for one in answer.groups],
        )
        [group] = answer.groups
        return group

    def wait_until_stable(self, members: int) -> DescribedGroup:
        """Wait until the group has so many members, each with its target; returns it."""
        found: list[DescribedGroup] = []

        def is_stable() -> bool:
            found[:] = [self.described()]
            return found[0].group_state == "Stable" and len(found[0].members) == members

        eventually(is_stable, f"the group is stable with {members} members", SECONDS)
        return found[0]
