"""What a broker makes is freed without a collection of garbage, as those of `kraft serve` never look at survivors."""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kraft.config.group_settings import GroupConfig
from kraft.coordinators.groups.shard import GroupShard
from kraft.handling.coordinators import Counted
from kraft.node.gc_freeze import Survivors
from support.kraft.data_cluster import DataCluster, data_cluster

ROUNDS = 3
SECONDS = 60
SETTINGS = {
    # A collection of all that the tests before have left takes seconds, in which a broker says nothing.
    "broker.session.timeout.ms": "30000",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
OURS = ("kraft.", "metadata_log.", "transport.")


@contextmanager
def without_full_collections() -> Iterator[None]:
    """Let only young garbage be collected, and keep the rest for a look."""
    thresholds = gc.get_threshold()
    gc.collect()
    gc.set_threshold(1000, 10, 10**9)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


def old_garbage() -> Counter[str]:
    """The objects of our types in cycles that nothing refers to, and that have outlived a collection."""
    gc.collect(1)
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        names = (f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.garbage)
        return Counter(name for name in names if name.startswith(OURS))
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


def use(cluster: DataCluster, number: int) -> None:
    """Connections, topics, a group and a transaction that come and go."""
    to: dict[str, str | int | float | bool] = {"bootstrap.servers": cluster.bootstrap}
    admin, topic = AdminClient(to), f"topic-{number}"
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(SECONDS)
    producer = Producer(to | {"transactional.id": "id"})
    producer.init_transactions(SECONDS)
    protocol = ("classic", "consumer")[number % 2]
    consumer = Consumer(
        to | {"group.id": f"{protocol}-{number}", "auto.offset.reset": "earliest", "group.protocol": protocol}
    )
    consumer.subscribe([topic])
    producer.begin_transaction()
    producer.produce(topic, b"record")
    producer.commit_transaction(SECONDS)
    record = consumer.poll(SECONDS)
    assert record is not None
    assert record.value() == b"record"
    consumer.commit(message=record, asynchronous=False)
    consumer.close()
    admin.delete_topics([topic])[topic].result(SECONDS)


def test_nothing_that_clients_have_used_becomes_a_cycle(tmp_path: Path) -> None:
    with data_cluster(tmp_path, 1, 0, **SETTINGS) as cluster:
        use(cluster, 0)
        with without_full_collections():
            for number in range(1, 1 + ROUNDS):
                use(cluster, number)
            assert old_garbage() == Counter()


def test_an_unloaded_shard_of_groups_is_freed_at_once() -> None:
    shard = GroupShard(GroupConfig(), Counted())
    gone: list[weakref.ref[Any]] = [weakref.ref(shard), weakref.ref(shard.classic), weakref.ref(shard.consumer)]
    gc.disable()
    try:
        del shard
        assert [one() for one in gone] == [None, None, None]
    finally:
        gc.enable()


@pytest.fixture
def unfrozen() -> Iterator[None]:
    """The objects of other tests are collected as before."""
    gc.collect()
    yield
    gc.unfreeze()


class Cycle:
    """An object that refers to itself."""

    def __init__(self) -> None:
        self.itself = self


def cycles_among_unfrozen() -> list[Cycle]:
    return [one for one in gc.get_objects() if isinstance(one, Cycle)]


@pytest.mark.usefixtures("unfrozen")
def test_garbage_is_not_frozen_and_survivors_are() -> None:
    survivors = Survivors()
    assert gc.get_freeze_count() > 0
    survivor = Cycle()
    Cycle()
    survivors.freeze()
    assert cycles_among_unfrozen() == []
    gc.unfreeze()
    assert cycles_among_unfrozen() == [survivor]


@pytest.mark.usefixtures("unfrozen")
def test_cycles_that_outlived_a_second_are_freed_when_the_heap_has_grown() -> None:
    survivors = Survivors(growth=1, spare=2_000)
    lost = [Cycle()]
    watched = weakref.ref(lost[0])
    survivors.freeze()
    lost.clear()
    survivors.freeze()
    assert watched() is not None
    kept = [Cycle() for _ in range(3_000)]
    survivors.freeze()
    assert watched() is None
    assert len(kept) == 3_000
