"""Throttles of leaders: a follower that is not in sync gets so many bytes a second, or nothing (KIP-73)."""

from __future__ import annotations

import pytest

from kraft.partitions.replicas.throttles import LEADER_RATE, LEADER_REPLICAS
from kraft.wire import Answer
from metadata_log.records import metadata as records
from support.broker.request_brokers import Brokers, NewTopic, batch, epoch_of, fetch, only_partition, produce, topic_id
from transport.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState

KEY = (topic_id(1), 0)
RATE = 50_000
"""Bytes a second."""
BATCH = batch(b"x" * 5_000)
BATCHES = 100


def as_102(offset: int, wait_ms: int = 0) -> FetchRequest:
    wanted = FetchPartition(
        partition=0, current_leader_epoch=0, fetch_offset=offset, last_fetched_epoch=0, partition_max_bytes=6_000
    )
    return FetchRequest(
        replica_state=ReplicaState(102, epoch_of(102)),
        max_wait_ms=wait_ms,
        min_bytes=1,
        topics=[FetchTopic(topic_id=KEY[0], partitions=[wanted])],
    )


def leader(
    replicas: str = "*", *, bound: int | None = RATE, name: str = "101", isr: tuple[int, ...] = (101,)
) -> Brokers:
    """101 leads, has 500 kB, and 102 is not in sync."""
    brokers = Brokers([NewTopic("t", KEY[0], ((101, 102),), {LEADER_REPLICAS: replicas})])
    value = None if bound is None else str(bound)
    brokers.change(
        records.PartitionChangeRecord(partition_id=0, topic_id=KEY[0], isr=isr),
        records.ConfigRecord(resource_type=4, resource_name=name, name=LEADER_RATE, value=value),
    )
    for _ in range(BATCHES):
        brokers.ask(101, produce(KEY, BATCH, acks=1))
    return brokers


def fetched_in(brokers: Brokers, seconds: int) -> int:
    """The batches that 102 gets with ten requests a second, at most one in each."""
    at = 0
    for _ in range(seconds * 10):
        brokers.now_ms += 100
        data = only_partition(brokers.ask(101, as_102(at)))
        assert (data.error_code, data.high_watermark >= 0) == (0, True)
        at += len(data.records) // len(BATCH)
    return at


@pytest.mark.parametrize(("replicas", "name"), [("*", "101"), ("0:101", ""), ("1:101,0:102,0:101", "101")])
def test_a_follower_that_is_behind_gets_the_rate(replicas: str, name: str) -> None:
    got = fetched_in(leader(replicas, name=name, bound=20_000), 20)
    assert got * len(BATCH) == pytest.approx(20 * 20_000, rel=0.1)


@pytest.mark.parametrize(
    ("replicas", "bound", "name", "isr"),
    [
        ("*", None, "101", (101,)),
        ("*", 1, "102", (101,)),
        ("0:102,1:101", 1, "101", (101,)),
        ("", 1, "101", (101,)),
        ("*", 1, "101", (101, 102)),
    ],
)
def test_others_get_a_batch_each_time(replicas: str, bound: int | None, name: str, isr: tuple[int, ...]) -> None:
    brokers = leader(replicas, bound=bound, name=name, isr=isr)
    assert fetched_in(brokers, 5) == 50


def test_consumers_are_not_held_back() -> None:
    brokers = leader(bound=1)
    assert fetched_in(brokers, 2) == 1
    # The only member of the ISR has everything, so that the watermark is at the end.
    assert len(only_partition(brokers.ask(101, fetch((KEY, 0)))).records) > 50 * len(BATCH)


def test_a_fetch_that_is_held_back_waits_and_ends_without_records() -> None:
    brokers = leader(bound=1)
    assert fetched_in(brokers, 1) == 1
    _, outcome = brokers.send(101, as_102(1, wait_ms=500))
    assert outcome is None
    brokers.ask(101, produce(KEY, BATCH, acks=1))
    assert brokers.poll(101, after_ms=400) == []
    [answer] = brokers.poll(101, after_ms=200)
    assert isinstance(answer, Answer)
    assert only_partition(answer.message).records == b""


def test_a_fetch_that_waits_gets_records_once_the_throttle_is_gone() -> None:
    brokers = leader(bound=1)
    assert fetched_in(brokers, 1) == 1
    brokers.send(101, as_102(1, wait_ms=500))
    brokers.change(records.ConfigRecord(resource_type=4, resource_name="101", name=LEADER_RATE, value=None))
    [answer] = brokers.poll(101, after_ms=500)
    assert isinstance(answer, Answer)
    assert len(only_partition(answer.message).records) == len(BATCH)


@pytest.mark.parametrize(("replicas", "is_counted"), [("*", True), ("0:102", False)])
def test_only_throttled_partitions_are_counted(replicas: str, is_counted: bool) -> None:
    brokers = leader(replicas, bound=None)
    fetched_in(brokers, 2)
    rate = brokers.managers[101].hosting.leader_throttle.bytes_per_second(brokers.now_ms)
    assert (rate > RATE * 0.9) is is_counted


def test_a_deleted_list_frees_the_partition() -> None:
    brokers = leader(bound=1)
    assert fetched_in(brokers, 1) == 1
    brokers.change(records.ConfigRecord(resource_type=2, resource_name="t", name=LEADER_REPLICAS, value=None))
    assert fetched_in(brokers, 1) == 10
