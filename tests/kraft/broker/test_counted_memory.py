"""What clients make a coordinator keep is counted at what it takes: by its own count, and as Python allocates it."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from typing import Final

import pytest

from kraft.coordinators.groups.consumer import groups
from kraft.coordinators.groups.shard import GroupShard
from kraft.coordinators.runtime.settings import Status
from kraft.coordinators.runtime.timers import Timers
from metadata_log.records.metadata import PartitionChangeRecord
from support.broker.request_brokers import topic_id
from support.hostile.coordinated import BROKER, ORDERS, Coordinator
from transport.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from transport.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from transport.protocol.messages.init_producer_id import InitProducerIdRequest
from transport.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from transport.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

LONG: Final = 3000
"""The characters of a long name."""
LEAST, MOST = 0.95, 6.0
"""How much may be counted of what was allocated. Short and wide texts are counted as if they were wider."""
LOGS: Final = ("memory_disk", "/log/")
"""Whose allocations are those of the disk in memory."""


def name(number: int, letter: str = "x") -> str:
    """A long name of its own, as a text of its own, as it comes from the wire."""
    return f"{number:06}{letter * (LONG // len(letter.encode()))}".encode().decode()


def joins(broker: Coordinator, group: str, **fields: object) -> None:
    made = {"protocols": [JoinGroupRequestProtocol("range", b"")], "group_instance_id": None, **fields}
    broker.ask(
        JoinGroupRequest(
            group_id=group,
            session_timeout_ms=1_000_000,
            rebalance_timeout_ms=1_000_000,
            protocol_type="consumer",
            **made,  # type: ignore[arg-type]
        ),
        client_id=str(fields.get("group_instance_id") or name(0)),
    )


def members(broker: Coordinator, at: int) -> None:
    """A member with a long id, client id and instance in a group with a long name, which waits for the others."""
    joins(broker, name(at % 3), group_instance_id=name(at))


def wide_members(broker: Coordinator, at: int) -> None:
    joins(broker, "g", group_instance_id=name(at, "xxx\U0001f600"))


def ids(broker: Coordinator, at: int) -> None:
    """A member id that is given out, in a group of its own."""
    joins(broker, name(at))


def small_groups(broker: Coordinator, at: int) -> None:
    joins(broker, f"g{at}", group_instance_id="i")


def protocols(broker: Coordinator, at: int) -> None:
    listed = [JoinGroupRequestProtocol(f"p{number}", bytes(20)) for number in range(100)]
    joins(broker, f"g{at % 3}", group_instance_id=f"i{at}", protocols=listed)


def metadata(broker: Coordinator, at: int) -> None:
    joins(broker, f"g{at % 3}", group_instance_id=f"i{at}", protocols=[JoinGroupRequestProtocol("p", bytes(LONG))])


def commits(broker: Coordinator, group: str, text: str) -> None:
    parts = [OffsetCommitRequestPartition(number, 1, committed_metadata=text) for number in range(3)]
    broker.ask(OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic("orders", ORDERS, parts)]))


def offsets(broker: Coordinator, at: int) -> None:
    commits(broker, f"g{at}", "")


def told_offsets(broker: Coordinator, at: int) -> None:
    commits(broker, name(at), f"{at}" + "\u20ac" * 500)


def subscribers(broker: Coordinator, at: int) -> None:
    """A member of the consumer protocol with everything as long as it may be."""
    consumes(broker, name(at % 3), name(at), [name(number) for number in range(3)], name(at))


def few_subscribers(broker: Coordinator, at: int) -> None:
    consumes(broker, f"g{at % 10}", f"m{at}", ["orders"], None)


def many_names(broker: Coordinator, at: int) -> None:
    consumes(broker, "g", f"m{at}", [f"t{number}".encode().decode() for number in range(300)], None)


def consumes(broker: Coordinator, group: str, member: str, topics: list[str], instance: str | None) -> None:
    broker.ask(
        ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=member,
            instance_id=instance,
            rack_id=instance,
            rebalance_timeout_ms=10_000,
            subscribed_topic_names=topics,
            topic_partitions=[],
        ),
        client_id=member,
    )


def transacts(broker: Coordinator, transactional_id: str) -> None:
    asked = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=10_000, producer_id=-1, producer_epoch=-1
    )
    told = broker.ask(asked)
    told = told if told.error_code == 0 else broker.ask(asked)
    assert told.error_code == 0, told
    broker.ask(
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id.encode().decode(),
            v3_and_below_producer_id=told.producer_id,
            v3_and_below_producer_epoch=told.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic("orders", [0, 1, 2])],
        ),
        3,
    )


def transactions(broker: Coordinator, at: int) -> None:
    transacts(broker, name(at))


def short_transactions(broker: Coordinator, at: int) -> None:
    transacts(broker, f"t{at}")


MAKING: Final[dict[Callable[[Coordinator, int], None], int]] = {
    members: 30,
    wide_members: 30,
    ids: 30,
    small_groups: 100,
    protocols: 30,
    metadata: 30,
    offsets: 100,
    told_offsets: 20,
    subscribers: 20,
    few_subscribers: 30,
    many_names: 10,
    transactions: 15,
    short_transactions: 15,
}
"""What is made, and how often."""


def counted(broker: Coordinator) -> int:
    """The memory that the coordinators count."""
    group, transaction = broker.requests.groups.partitions[0], broker.requests.transactions.partitions[0]
    assert isinstance(group.shard, GroupShard)
    return group.state.bytes + group.shard.classic.bytes + transaction.state.bytes


def allocated(work: Callable[[], None]) -> int:
    """The bytes that some work has allocated and keeps, but for those of logs."""
    gc.collect()
    tracemalloc.start()
    try:
        work()
        gc.collect()
        kept = tracemalloc.take_snapshot().statistics("filename")
    finally:
        tracemalloc.stop()
    return sum(one.size for one in kept if not any(log in one.traceback[0].filename for log in LOGS))


@pytest.mark.parametrize("make", MAKING, ids=lambda one: one.__name__)
def test_what_is_kept_is_counted_at_what_it_takes(make: Callable[[Coordinator, int], None]) -> None:
    broker = Coordinator()
    for at in range(3):
        make(broker, at)
    before = counted(broker)

    def work() -> None:
        for at in range(3, 3 + MAKING[make]):
            make(broker, at)
        broker.answers.clear()

    taken = allocated(work)
    found = counted(broker) - before
    assert LEAST * taken <= found <= MOST * taken, (found, taken)


@pytest.mark.parametrize("make", [members, subscribers, told_offsets, transactions], ids=lambda one: one.__name__)
def test_what_was_loaded_is_counted_at_what_it_takes(make: Callable[[Coordinator, int], None]) -> None:
    """Each record brings texts of its own."""
    broker = Coordinator()
    for at in range(MAKING[make]):
        make(broker, at)
    broker.answers.clear()

    def work() -> None:
        for number in (1, 2):
            broker.brokers.change(PartitionChangeRecord(partition_id=0, topic_id=topic_id(number), leader=BROKER))
        broker.settle()
        while not all(one.partitions[0].status is Status.ACTIVE for one in runtimes):
            broker.settle()

    runtimes = broker.requests.groups, broker.requests.transactions
    taken = allocated(work)
    assert counted(broker) >= LEAST * taken > 0


def test_nothing_is_counted_of_what_is_gone() -> None:
    broker = Coordinator()
    for at in range(10):
        ids(broker, at)
    assert counted(broker) > 10 * LONG
    assert isinstance(broker.requests.groups.partitions[0].shard, GroupShard)
    live = broker.requests.groups.partitions[0].shard.classic
    broker.brokers.now_ms += 2_000_000
    broker.settle()
    assert not live.live
    assert live.bytes == 0


def test_a_cancelled_timer_holds_no_key() -> None:
    timers = Timers()

    def work() -> None:
        for at in range(60):
            timers.set(name(at), 10**9 + at)
            timers.cancel(name(at))

    assert allocated(work) < 60 * LONG / 2
    assert len(timers) == 0


def test_what_was_looked_at_of_groups_that_ended_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "LOOKS_NOTED_BYTES", 10 * LONG)
    broker = Coordinator()
    for at in range(40):
        consumes(broker, name(at), "m", ["orders"], None)
    shard = broker.requests.groups.partitions[0].shard
    assert isinstance(shard, GroupShard)
    assert 0 < sum(map(len, shard.consumer._seen)) <= 11 * LONG
