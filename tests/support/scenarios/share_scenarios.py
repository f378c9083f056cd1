"""Share groups on brokers of any make: first members, transactions, members that die and freeze, coordinators and
leaders that move, restart and die.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from confluent_kafka import AcknowledgeType, Message, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from metadata_log.records.coordinator import CONSUMER_OFFSETS, decode_pair
from metadata_log.records.record import records
from support import ROOT
from support.interop.real_kafka import Process, eventually
from support.scenarios.coordinator_client import CoordinatorScenario, fresh
from support.scenarios.reassignment_scenarios import elect, reassign
from support.scenarios.scenario_cluster import SECONDS, Cluster, Kind, Topic
from transport.protocol.errors import Error
from transport.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
)
from transport.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from transport.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

STATES: Final = "__share_group_state"
GROUPS: Final = "__consumer_offsets"
LOCK_MS: Final = 15_000
UPGRADE: Final = 1
UNSAFE_DOWNGRADE: Final = 3


def sharing_for(lock_ms: int) -> Kind:
    """One coordinator of groups, and one of states; locks have this length, as no controller lets groups have less."""
    return Kind(
        "sharing",
        settings=(
            "offsets.topic.num.partitions=1",
            "transaction.state.log.num.partitions=1",
            "share.coordinator.state.topic.num.partitions=1",
            "share.coordinator.state.topic.replication.factor=3",
            "share.coordinator.state.topic.min.isr=1",
            "group.share.min.record.lock.duration.ms=1000",
            "group.share.heartbeat.interval.ms=500",
            "group.share.min.heartbeat.interval.ms=500",
            f"group.share.record.lock.duration.ms={lock_ms}",
        ),
    )


SHARING: Final = sharing_for(LOCK_MS)
"""Locks are longer than most scenarios wait."""
SHARE_SCENARIOS: Final[list[CoordinatorScenario]] = []


def sharing(
    plan_id: str, *, by_default: tuple[str, ...] = ()
) -> Callable[[Callable[[Cluster], None]], Callable[[Cluster], None]]:
    """Put a function into the list."""

    def listed(run: Callable[[Cluster], None]) -> Callable[[Cluster], None]:
        SHARE_SCENARIOS.append(CoordinatorScenario(plan_id, run, by_default))
        return run

    return listed


def configure(cluster: Cluster, group: str, **values: str) -> str:
    """Set the configuration of a group, which begins with what is there; returns the group."""
    values = {"share_auto_offset_reset": "earliest", **values}
    entries = [
        ConfigEntry(key.replace("_", "."), one, incremental_operation=AlterConfigOpType.SET)
        for key, one in values.items()
    ]
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=entries)
    for changed in admin.incremental_alter_configs([resource]).values():
        changed.result()
    return group


def produce(cluster: Cluster, topic: Topic, *values: int, **config: str) -> Producer:
    """Write numbers; a producer with a transaction has it open then."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, **{k.replace("_", "."): v for k, v in config.items()}})
    if config:
        producer.init_transactions(SECONDS)
        producer.begin_transaction()
    for value in values:
        producer.produce(topic.name, str(value).encode())
    assert producer.flush(SECONDS) == 0
    return producer


class Taking:
    """A member, and the numbers that it was given, with the counts of their deliveries."""

    def __init__(self, consumer: ShareConsumer) -> None:
        self.consumer = consumer
        self.given: dict[int, int] = {}

    def until(self, *values: int, kind: AcknowledgeType | None = AcknowledgeType.ACCEPT) -> dict[int, int]:
        """Poll until these have come, acknowledge each, and let the group know; returns the counts."""

        def has_come() -> bool:
            for record in self.consumer.poll(0.5) or ():
                self._take(record, kind)
            return self.given.keys() >= set(values)

        eventually(has_come, f"{values} have come, after {self.given}", SECONDS)
        if kind is not None:
            errors = self.consumer.commit_sync(SECONDS)
            assert not any(errors.values()), errors
        return {value: self.given.pop(value) for value in values}

    def _take(self, record: Message, kind: AcknowledgeType | None) -> None:
        assert record.error() is None, record.error()
        count = record.delivery_count()
        assert count is not None
        self.given[int(record.value() or b"")] = count
        if kind is not None:
            self.consumer.acknowledge(record, kind)

    def gets_nothing(self) -> None:
        """Nothing comes for a while."""
        assert not self.consumer.poll(2.0)


@contextmanager
def member(cluster: Cluster, topic: Topic, group: str) -> Iterator[Taking]:
    """A member that says how each record ended."""
    config = {"bootstrap.servers": cluster.bootstrap, "group.id": group, "share.acknowledgement.mode": "explicit"}
    consumer = ShareConsumer(config)
    consumer.subscribe([topic.name])
    try:
        yield Taking(consumer)
    finally:
        consumer.close()


class Worker:
    """A member in a process of its own."""

    def __init__(self, cluster: Cluster, topic: Topic, group: str, how: str) -> None:
        self.path: Path = cluster.layout.root / f"{fresh('worker')}.log"
        module = "support.scenarios.share_worker"
        command = [sys.executable, "-m", module, cluster.bootstrap, topic.name, group, how]
        self.process = Process(command, self.path, env={"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"})

    @property
    def lines(self) -> list[dict[str, Any]]:
        """What it has printed so far."""
        # The file is made when the first line comes.
        told = self.path.read_text().splitlines(keepends=True) if self.path.exists() else []
        return [json.loads(line) for line in told if line.startswith("{") and line.endswith("\n")]

    def wait_for(self, *values: int) -> None:
        """Wait until it was given these numbers."""
        eventually(lambda: {one.get("given") for one in self.lines} >= set(values), f"{values} are given", SECONDS)


def lag(cluster: Cluster, group: str) -> int:
    """How many records the group is not done with, as its coordinator knows; -1 while it does not know of all."""
    request = DescribeShareGroupOffsetsRequest([DescribeShareGroupOffsetsRequestGroup(group, None)])
    answer = cluster.ask(cluster.leader(internal(cluster, GROUPS)), request, 1, DescribeShareGroupOffsetsResponse)
    [described] = answer.groups
    lags = [part.lag for one in described.topics for part in one.partitions]
    return -1 if described.error_code or not lags or min(lags) < 0 else sum(lags)


def start_offset(cluster: Cluster, group: str, topic: Topic) -> int:
    """The start offset of the group in the topic, as its coordinator knows it."""
    request = DescribeShareGroupOffsetsRequest([DescribeShareGroupOffsetsRequestGroup(group, None)])
    answer = cluster.ask(cluster.leader(internal(cluster, GROUPS)), request, 1, DescribeShareGroupOffsetsResponse)
    [described] = answer.groups
    assert described.error_code == Error.NONE, described
    [offset] = [
        part.start_offset for one in described.topics if one.topic_name == topic.name for part in one.partitions
    ]
    return offset


def internal(cluster: Cluster, name: str) -> Topic:
    """A topic of coordinators, which exists."""
    eventually(lambda: name in cluster.image().topics.by_name, f"{name} exists", SECONDS)
    image = cluster.image().topics[name]
    return Topic(name, image.id, tuple(image.partitions[0].replicas))


def move(cluster: Cluster, topic: Topic, broker: int) -> None:
    """Let a broker lead the partition of a topic."""
    others = tuple(one for one in topic.replicas if one != broker)
    moved = reassign(cluster, topic, (broker, *others))
    cluster.wait_for_isr(moved, *moved.replicas)
    elect(cluster, moved)
    cluster.wait_for_leader(moved, broker)


@sharing("S01", by_default=("ours", "mixed-4.4"))
def a_first_member_gets_what_is_there_and_its_records_are_in_order(cluster: Cluster) -> None:
    topic, group = cluster.create("s01"), configure(cluster, fresh("g"))
    produce(cluster, topic, 1, 2, 3)
    with member(cluster, topic, group) as one:
        assert one.until(1, 2, 3) == {1: 1, 2: 1, 3: 1}
    # Members, the epoch, the target, its epoch, the assignment, the states; then the states that have begun.
    groups = internal(cluster, GROUPS)
    written: list[str] = []
    for each in cluster.batches(cluster.leader(groups), groups):
        for record in () if each.is_control else records(each):
            pair = decode_pair(CONSUMER_OFFSETS, record.key or b"", record.value)
            if pair is not None and getattr(pair.key, "group_id", "") == group:
                written.append(type(pair.key).__name__.removeprefix("ShareGroup").removesuffix("Key"))
    assert written[:7] == [
        "MemberMetadata",
        "Metadata",
        "TargetAssignmentMember",
        "TargetAssignmentMetadata",
        "CurrentMemberAssignment",
        "StatePartitionMetadata",
        "StatePartitionMetadata",
    ], written


@sharing("S14", by_default=("ours",))
def a_group_that_reads_what_is_committed_gets_nothing_aborted(cluster: Cluster) -> None:
    topic = cluster.create("s14")
    group = configure(cluster, fresh("g"), share_isolation_level="read_committed")
    produce(cluster, topic, 1)
    produce(cluster, topic, 2, transactional_id=fresh("t")).abort_transaction(SECONDS)
    produce(cluster, topic, 3, transactional_id=fresh("t")).commit_transaction(SECONDS)
    with member(cluster, topic, group) as one:
        assert one.until(1, 3) == {1: 1, 3: 1}
        one.gets_nothing()


@sharing("S15", by_default=("ours",))
def an_open_transaction_holds_such_a_group_up(cluster: Cluster) -> None:
    topic = cluster.create("s15")
    group = configure(cluster, fresh("g"), share_isolation_level="read_committed")
    produce(cluster, topic, 1)
    transaction = produce(cluster, topic, 2, transactional_id=fresh("t"))
    produce(cluster, topic, 3)
    with member(cluster, topic, group) as one:
        assert one.until(1) == {1: 1}
        one.gets_nothing()
        transaction.abort_transaction(SECONDS)
        assert one.until(3) == {3: 1}


@sharing("S20", by_default=("ours",))
def what_a_killed_member_had_comes_again_at_once(cluster: Cluster) -> None:
    topic, group = cluster.create("s20"), configure(cluster, fresh("g"))
    produce(cluster, topic, 1, 2)
    worker = Worker(cluster, topic, group, "hold")
    try:
        worker.wait_for(1, 2)
    finally:
        worker.process.kill()
    with member(cluster, topic, group) as one:
        assert one.until(1, 2) == {1: 2, 2: 2}


@sharing("S21")
def what_a_frozen_member_has_comes_again_when_its_lock_ends(cluster: Cluster) -> None:
    topic, group = cluster.create("s21"), configure(cluster, fresh("g"))
    produce(cluster, topic, 1)
    worker = Worker(cluster, topic, group, "hold")
    try:
        worker.wait_for(1)
        worker.process.signal(signal.SIGSTOP)
        with member(cluster, topic, group) as one:
            assert one.until(1) == {1: 2}
    finally:
        worker.process.signal(signal.SIGCONT)
        worker.process.kill()


def _goes_on(cluster: Cluster, end: Callable[[int], None]) -> None:
    """End each broker in turn: nothing is lost, counts go on, and nothing accepted comes again."""
    topic, group = cluster.create("s22"), configure(cluster, fresh("g"), share_delivery_count_limit="10")
    cluster.wait_for_isr(topic, *topic.replicas)
    seen = 0
    for broker in cluster.order:
        produce(cluster, topic, seen, seen + 1)
        with member(cluster, topic, group) as one:
            assert one.until(seen, kind=AcknowledgeType.RELEASE)[seen] == 1
            end(broker)
            counts = one.until(seen, seen + 1)
            assert 2 <= counts[seen] <= 4, counts
            cluster.start(broker)
            cluster.wait_until_active(broker)
            cluster.wait_for_isr(topic, *topic.replicas)
            states = internal(cluster, STATES)
            cluster.wait_for_isr(states, *states.replicas)
            one.gets_nothing()
        seen += 2


@sharing("S22")
def a_group_goes_on_when_leaders_and_coordinators_restart(cluster: Cluster) -> None:
    _goes_on(cluster, cluster.stop)


@sharing("S23")
def a_group_goes_on_when_leaders_and_coordinators_die(cluster: Cluster) -> None:
    _goes_on(cluster, cluster.kill)


@sharing("S30")
def a_delivery_goes_on_while_its_leader_and_its_coordinators_move_between_makes(cluster: Cluster) -> None:
    """Each make goes on with the logs of the other: with the group, the states, and the topic itself."""
    topic, group = cluster.create("s30"), configure(cluster, fresh("g"), share_delivery_count_limit="10")
    number = 0
    with member(cluster, topic, group) as one:
        for broker in (102, 101, 102, 103):
            produce(cluster, topic, number, number + 1, number + 2)
            # One is accepted, one is released, and one is on its way while everything moves.
            assert one.until(number) == {number: 1}
            move(cluster, internal(cluster, STATES), broker)
            move(cluster, internal(cluster, GROUPS), broker)
            move(cluster, topic, broker)
            one.given.pop(number, None)
            counts = one.until(number + 1, number + 2)
            assert max(counts.values()) <= 3, counts
            one.gets_nothing()
            assert start_offset(cluster, group, topic) <= number + 3
            number += 3
    with member(cluster, topic, group) as another:
        another.gets_nothing()


def set_level(cluster: Cluster, level: int) -> None:
    """Change share.version, up or down."""
    change = FeatureUpdateKey("share.version", level, upgrade_type=UPGRADE if level else UNSAFE_DOWNGRADE)
    answer = cluster.ask(cluster.alive[0], UpdateFeaturesRequest(60_000, [change]), 2, UpdateFeaturesResponse)
    assert answer.error_code == Error.NONE, answer


def heartbeat(cluster: Cluster, topic: Topic, group: str) -> Error:
    """The outcome of the first heartbeat of another member."""
    request = ShareGroupHeartbeatRequest(group, fresh("m"), 0, None, [topic.name])
    groups = internal(cluster, GROUPS)
    return Error.of(cluster.ask(cluster.leader(groups), request, 1, ShareGroupHeartbeatResponse).error_code)


@sharing("V01")
def a_group_with_members_goes_on_after_its_level_was_down(cluster: Cluster) -> None:
    """share.version goes to 0 and back to 1 with a member in the group, and what was written is there again."""
    topic, group = cluster.create("v01"), configure(cluster, fresh("g"))
    produce(cluster, topic, 1, 2, 3)
    with member(cluster, topic, group) as one:
        assert one.until(1, 2, 3, kind=None) == {1: 1, 2: 1, 3: 1}
        one.consumer.acknowledge_offset(topic.name, 0, 0)
        errors = one.consumer.commit_sync(SECONDS)
        assert not any(errors.values()), errors
        set_level(cluster, 0)
        try:
            eventually(
                lambda: heartbeat(cluster, topic, group) == Error.UNSUPPORTED_VERSION, "there are no groups", SECONDS
            )
        finally:
            set_level(cluster, 1)
        eventually(lambda: heartbeat(cluster, topic, group) == Error.NONE, "there are groups", SECONDS)
    with member(cluster, topic, group) as another:
        counts = another.until(2, 3)
        assert max(counts.values()) <= 2, counts
        assert 1 not in another.given
        another.gets_nothing()
