"""Long work of a group coordinator takes many turns: each poll writes and answers a bounded number of things."""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import Final

import pytest

from kraft import limits
from kraft.config.group_settings import GroupConfig
from kraft.coordinators.groups import state
from kraft.coordinators.groups.consumer import hashing
from kraft.coordinators.groups.consumer.group import ConsumerGroup
from kraft.coordinators.groups.consumer.replaying import GroupKey
from kraft.coordinators.groups.offsets import Commit, Committer, commit
from kraft.coordinators.groups.shard import GroupShard
from kraft.coordinators.runtime.budget import Budget
from kraft.coordinators.runtime.shard import Context, CoordinatorResult
from kraft.coordinators.runtime.weights import text_bytes
from kraft.limits import COMMITS_PER_STEP, COORDINATOR_UNITS_PER_TURN, OFFSETS_PER_TRANSACTION
from kraft.partitions.log.transaction_markers import TransactionMarker
from metadata_log.image import Broker, TopicImage
from metadata_log.image.persistent_map import Map
from metadata_log.records.batch_builder import write_batch
from metadata_log.records.consumer_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from metadata_log.records.coordinator import encode_key, encode_value
from metadata_log.records.metadata import FeatureLevelRecord, PartitionChangeRecord, RemoveTopicRecord
from metadata_log.records.record import Record
from metadata_log.serde import Message
from support.broker.consumer_world import World, places
from support.broker.group_clients import GROUPS, GROUPS_KEY, ORDERS, REPLICATED, GroupBrokers, committing, joining
from support.broker.operations import Doing
from support.broker.request_brokers import topic_id
from transport.protocol.errors import Error
from transport.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from transport.protocol.messages.delete_groups import DeleteGroupsRequest
from transport.protocol.messages.list_groups import ListGroupsRequest

MOST: Final = COORDINATOR_UNITS_PER_TURN + COMMITS_PER_STEP
"""What a poll may write: its last portion may begin just before the units are used up."""
MINUTE_MS: Final = 60_000


class Turns(GroupBrokers):
    """Brokers of which each poll is measured."""

    written: int = 0
    """The most records that a poll has written."""
    answered: int = 0

    def load(self, *pairs: tuple[Message, Message]) -> None:
        """Write records, and load the partition again."""
        part, now_ms = self.brokers.part(101, GROUPS_KEY), self.brokers.now_ms
        for begin in range(0, len(pairs), 5000):
            data = write_batch(
                [
                    Record(at, now_ms, 0, encode_key(key), encode_value(value))
                    for at, (key, value) in enumerate(pairs[begin : begin + 5000])
                ],
                epoch=part.leader_epoch,
            )
            self.brokers.managers[101].leaders.append(part, data, now_ms, is_client=False)
        self.lead(101)
        self.settle()

    def lead(self, broker_id: int) -> None:
        self.brokers.change(PartitionChangeRecord(partition_id=0, topic_id=GROUPS.id, leader=broker_id))

    def settle(self, ms: int = 0) -> int:
        """Poll until nothing is due within a time, and return how often."""
        requests, brokers = self.brokers.requests[101], self.brokers
        end_ms, polls = brokers.now_ms + ms, 0
        due_ms = brokers.now_ms
        while due_ms <= max(end_ms, brokers.now_ms + 2):
            brokers.now_ms = max(due_ms, brokers.now_ms)
            part = brokers.part(101, GROUPS_KEY)
            before = part.log.end_offset
            found = brokers.poll(101)
            self.take(found)
            self.written = max(self.written, part.log.end_offset - before)
            self.answered = max(self.answered, len(found))
            polls += 1
            due_ms = requests.agenda.deadline_ms
        brokers.now_ms = max(brokers.now_ms, end_ms)
        return polls


def offsets(group_id: str, count: int, now_ms: int) -> list[tuple[Message, Message]]:
    """The records of a group without members, with so many offsets."""
    group = GroupMetadataValue(protocol=None, leader=None, current_state_timestamp=now_ms)
    return [
        (GroupMetadataKey(group_id), group),
        *(
            (OffsetCommitKey(group_id, "orders", at), OffsetCommitValue(at, commit_timestamp=now_ms))
            for at in range(count)
        ),
    ]


def groups_of(turns: Turns) -> int:
    return len(turns.ask(ListGroupsRequest()).groups)


def test_the_offsets_of_a_large_group_expire_in_portions_and_then_the_group() -> None:
    turns = Turns(GROUPS, ORDERS, retention_minutes=1, retention_check_ms=2 * MINUTE_MS)
    now_ms = turns.brokers.now_ms
    turns.load(*offsets("large", 4 * COMMITS_PER_STEP, now_ms), *offsets("small", 1, now_ms))
    assert groups_of(turns) == 2
    end = turns.brokers.part(101, GROUPS_KEY).log.end_offset
    turns.settle(3 * MINUTE_MS)
    assert groups_of(turns) == 0
    assert turns.brokers.part(101, GROUPS_KEY).log.end_offset == end + 4 * COMMITS_PER_STEP + 3
    assert turns.written <= COMMITS_PER_STEP


def test_the_offsets_of_a_deleted_topic_are_forgotten_in_portions() -> None:
    turns = Turns(GROUPS, ORDERS)
    now_ms = turns.brokers.now_ms
    many = [one for at in range(MOST) for one in offsets(f"g{at}", 2, now_ms)]
    turns.load(*many, *offsets("large", 3 * COMMITS_PER_STEP, now_ms))
    end = turns.brokers.part(101, GROUPS_KEY).log.end_offset
    turns.brokers.change(RemoveTopicRecord(topic_id=topic_id(2)))
    turns.settle()
    assert turns.brokers.part(101, GROUPS_KEY).log.end_offset == end + 2 * MOST + 3 * COMMITS_PER_STEP
    assert turns.written <= MOST


def test_a_group_with_more_offsets_than_a_batch_holds_is_deleted_in_portions() -> None:
    """As one batch this was too large, and answered with UNKNOWN_SERVER_ERROR."""
    turns = Turns(GROUPS, ORDERS)
    turns.load(*offsets("large", 16_500, turns.brokers.now_ms))
    end = turns.brokers.part(101, GROUPS_KEY).log.end_offset
    number = turns.send(DeleteGroupsRequest(["large"]), 2)
    turns.settle()
    (result,) = turns.answers.pop(number).results
    assert result.error_code == Error.NONE
    assert groups_of(turns) == 0
    assert turns.brokers.part(101, GROUPS_KEY).log.end_offset == end + 16_500 + 1
    assert turns.written <= 2 * COMMITS_PER_STEP


def waiting(count: int) -> tuple[Turns, list[int]]:
    """A broker with so many commits that its followers do not have."""
    turns = Turns(REPLICATED, ORDERS, commit_timeout_ms=MINUTE_MS)
    return turns, [turns.send(committing(at, f"g{at % 7}")) for at in range(count)]


def test_very_many_commits_are_answered_in_portions_and_in_order() -> None:
    turns, numbers = waiting(2100)
    turns.brokers.replicate(GROUPS_KEY)
    polls = turns.settle()
    assert list(turns.answers) == numbers
    assert {one.topics[0].partitions[0].error_code for one in turns.answers.values()} == {0}
    assert polls >= 3
    assert turns.answered <= COORDINATOR_UNITS_PER_TURN


def test_very_many_commits_time_out_in_portions() -> None:
    turns, numbers = waiting(2100)
    polls = turns.settle(MINUTE_MS)
    assert list(turns.answers) == numbers
    codes = {one.topics[0].partitions[0].error_code for one in turns.answers.values()}
    assert codes == {Error.COORDINATOR_NOT_AVAILABLE}
    assert polls >= 3
    assert turns.answered <= COORDINATOR_UNITS_PER_TURN


def test_a_coordinator_that_resigns_answers_in_portions_also_when_it_is_back_at_once() -> None:
    turns, numbers = waiting(2100)
    turns.lead(102)
    turns.take(turns.brokers.poll(101))
    assert len(turns.answers) < len(numbers)
    turns.lead(101)
    turns.settle()
    assert list(turns.answers) == numbers
    codes = {one.topics[0].partitions[0].error_code for one in turns.answers.values()}
    assert codes == {Error.NOT_COORDINATOR}
    assert turns.answered <= COORDINATOR_UNITS_PER_TURN


def test_the_timers_of_large_groups_are_set_in_portions_after_a_load() -> None:
    turns = Turns(GROUPS, ORDERS)
    members = tuple(
        MemberMetadata(member_id=f"m{at}", client_id="c", client_host="/h", session_timeout=10_000) for at in range(500)
    )
    value = GroupMetadataValue(protocol_type="consumer", generation=1, protocol="range", leader="m0", members=members)
    turns.load(*((GroupMetadataKey(f"g{at}"), value) for at in range(20)))
    one = turns.brokers.requests[101].groups.partitions[0]
    assert len(one.timers) == 1 + 20 * 500
    turns.lead(101)
    turns.take(turns.brokers.poll(101))
    one, most = turns.brokers.requests[101].groups.partitions[0], 0
    while len(one.timers) < 1 + 20 * 500:
        before = len(one.timers)
        turns.brokers.poll(101, after_ms=1)
        one = turns.brokers.requests[101].groups.partitions[0]
        most = max(most, len(one.timers) - before)
    assert most <= 10 * 500


def committing_in(committer: Committer, some: list[Commit], shard: GroupShard, context: Context) -> CoordinatorResult:
    """The operation that commits offsets."""
    return commit(committer, some, shard.classic, GroupConfig(), context)


def test_a_transaction_has_a_bounded_number_of_offsets() -> None:
    """Its marker commits all of them at once."""
    turns = Turns(GROUPS, ORDERS)
    runtime = turns.brokers.requests[101].groups
    results: list[dict[tuple[str, int], Error]] = []
    committer = Committer("g", -1, "", None, 3, producer=(77, 0))
    for begin in range(0, OFFSETS_PER_TRANSACTION + COMMITS_PER_STEP, COMMITS_PER_STEP):
        some = [Commit("orders", ORDERS.id, at, 9, -1, "") for at in range(begin, begin + COMMITS_PER_STEP)]
        runtime.write(0, Doing(partial(committing_in, committer, some), results), turns.brokers.now_ms)
        turns.settle()
    assert all(set(one.values()) == {Error.NONE} for one in results[:-1])
    assert set(results[-1].values()) == {Error.INVALID_COMMIT_OFFSET_SIZE}


def held(turns: Turns) -> int:
    """The memory of the groups, as they count it."""
    one = turns.brokers.requests[101].groups.partitions[0]
    assert isinstance(one.shard, GroupShard)
    return one.state.bytes + one.shard.classic.bytes


def test_a_broker_counts_what_groups_take_and_forgets_it_with_them() -> None:
    turns = Turns(GROUPS, ORDERS, retention_minutes=1, retention_check_ms=2 * MINUTE_MS)
    turns.commit(1, "simple", metadata="x" * 1000)
    assert held(turns) > 2000
    before = held(turns)
    turns.commit(2, "simple", metadata="y" * 100)
    assert held(turns) == before - 900
    members = turns.stable(3, "g")
    turns.member("g", protocols=(("range", b"s" * 5000),))
    assert held(turns) > before + 3 * 2800 + 5000
    turns.lead(101)
    turns.settle()
    assert turns.beat(members[0], 1, "g") == 0
    turns.leave(*((one, None) for one in members), group_id="g")
    turns.settle(10 * MINUTE_MS)
    assert groups_of(turns) == 0
    assert held(turns) == 0


@pytest.mark.parametrize("is_commit", [True, False])
def test_offsets_of_a_transaction_are_counted_once(*, is_commit: bool) -> None:
    turns = Turns(GROUPS, ORDERS)
    turns.commit(1, metadata="abc")
    before = held(turns)
    runtime = turns.brokers.requests[101].groups
    committer = Committer("g", -1, "", None, 3, producer=(77, 0))
    some = [Commit("orders", ORDERS.id, 0, 9, -1, "x" * 50), Commit("orders", ORDERS.id, 1, 9, -1, "x")]
    runtime.write(0, Doing(partial(committing_in, committer, some)), 0)
    turns.settle()
    assert held(turns) == before + 2 * 400 + text_bytes("x" * 50) + text_bytes("x")
    marker = TransactionMarker(producer_id=77, producer_epoch=0, is_commit=is_commit, coordinator_epoch=0)
    runtime.append_marker(turns.brokers.part(101, GROUPS_KEY), marker, 0)
    assert held(turns) == before + (400 + text_bytes("x") + 47 if is_commit else 0)


def test_without_room_there_are_no_new_groups_and_members_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = Turns(GROUPS, ORDERS)
    (member_id,) = turns.stable(1, "g")
    assert turns.commit(1, "simple", metadata="x" * 200) == 0
    monkeypatch.setattr(limits, "GROUP_STATE_BYTES", 0)
    assert turns.ask(joining("new")).error_code == Error.COORDINATOR_NOT_AVAILABLE
    assert turns.ask(joining("g")).error_code == Error.GROUP_MAX_SIZE_REACHED
    long = turns.ask(joining("g", member_id=member_id, protocols=(("range", b"m" * 1000),)))
    assert long.error_code == Error.GROUP_MAX_SIZE_REACHED
    assert turns.beat(member_id, 1) == 0
    assert turns.commit(2, "new") == Error.COORDINATOR_NOT_AVAILABLE
    assert turns.commit(2, "simple") == 0
    assert turns.commit(2, "simple", metadata="x" * 200) == Error.OFFSET_METADATA_TOO_LARGE
    assert turns.commit(3, "g", generation=1, member_id=member_id) == Error.INVALID_COMMIT_OFFSET_SIZE


def test_a_budget_is_renewed_with_each_turn() -> None:
    budget = Budget()
    budget.take(COORDINATOR_UNITS_PER_TURN - 1)
    assert not budget.is_spent
    budget.take()
    assert budget.is_spent
    budget.renew()
    assert not budget.is_spent


class Portions(World):
    """Consumer groups of which it is counted how many topics each operation hashes."""

    def __init__(self, patch: pytest.MonkeyPatch, topics: int) -> None:
        super().__init__({f"t{number}": 1 for number in range(topics)})
        self.hashed, self.most = 0, 0
        right = hashing.topic_hash

        def counted(topic: TopicImage, brokers: Map[int, Broker]) -> Generator[None, None, int]:
            self.hashed += 1
            return right(topic, brokers)

        patch.setattr(hashing, "topic_hash", counted)

    def take(self, operation: CoordinatorResult) -> None:
        self.most, self.hashed = max(self.most, self.hashed), 0
        super().take(operation)


def test_the_topics_of_an_expression_are_hashed_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Portions(monkeypatch, 1000)
    world.join("one", subscribed_topic_regex="t.*")
    world.wait(1000)
    told = world.send("one", 1)
    found = places(told)
    assert found is not None
    assert (told.member_epoch, len(found)) == (2, 1000)
    assert 0 < world.most <= hashing.HASHES_PER_STEP


def test_a_record_of_a_consumer_group_is_replayed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = Turns(GROUPS, ORDERS)
    turns.brokers.change(FeatureLevelRecord(name="group.version", feature_level=1))
    turns.settle()
    replayed: list[Message] = []
    right = state.replay

    def counted(known: ConsumerGroup | None, key: GroupKey, value: Message | None) -> ConsumerGroup | None:
        replayed.append(key)
        return right(known, key, value)

    monkeypatch.setattr(state, "replay", counted)
    member = str(topic_id(7))
    joins = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id=member,
        rebalance_timeout_ms=MINUTE_MS,
        subscribed_topic_names=["orders"],
        topic_partitions=[],
    )
    assert turns.ask(joins, 1).member_epoch == 2
    assert turns.ask(ConsumerGroupHeartbeatRequest(group_id="g", member_id=member, member_epoch=-1), 1).error_code == 0
    assert not replayed
    before = turns.brokers.requests[101].groups.partitions[0].state
    turns.lead(101)
    turns.settle()
    after = turns.brokers.requests[101].groups.partitions[0].state
    assert replayed
    assert (after.groups, after.bytes) == (before.groups, before.bytes)
