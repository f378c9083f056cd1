"""What is forgotten, and when: offsets in every state of a group, groups with open transactions, topics made again
under a name, and what several members share.
"""

from __future__ import annotations

import pytest

from kraft.config.group_settings import GroupConfig
from kraft.coordinators.groups.offsets import delete_group, expired, of_deleted_topics
from kraft.coordinators.groups.state import replay_groups
from kraft.coordinators.runtime.shard import Record
from metadata_log.records.consumer_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from metadata_log.types import Uuid
from support.broker.consumer_world import World, image_of, topic_id
from support.broker.shard_world import Shard
from transport.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

MINUTE_MS = 60_000
PLACE = "rx-1", 0
PRODUCER = 7


def partition() -> Shard:
    """A partition whose offsets live for ten minutes."""
    shard = Shard()
    shard.settings = GroupConfig(retention_minutes=10, initial_rebalance_delay_ms=0)
    shard.image = image_of({"rx-1": 1, "a": 1})
    shard.restart()
    return shard


def write(shard: Shard, record: Record, producer_id: int = -1) -> None:
    shard.state = replay_groups(shard.state, record, len(shard.log), producer_id)
    shard.log.append(record)


def commit(
    shard: Shard, topic: str = "rx-1", *, expires_ms: int = -1, producer_id: int = -1, of: Uuid = Uuid.ZERO
) -> None:
    value = OffsetCommitValue(5, -1, "", shard.now_ms, expires_ms, of)
    write(shard, Record(OffsetCommitKey("g", topic, 0), value), producer_id)


def old(shard: Shard, *places: tuple[str, int]) -> list[str]:
    """What a sweep over the group would forget."""
    records = expired("g", places or (PLACE,), shard.shard.classic, shard.settings, shard.context(), are_last=True)
    return [type(one.key).__name__ for one in records]


def is_old_after(shard: Shard, ms: int) -> None:
    """The offsets are forgotten after so long, and not a moment before."""
    shard.now_ms += ms - 1
    assert old(shard) == []
    shard.now_ms += 1
    assert "OffsetCommitKey" in old(shard)


def test_offsets_of_an_empty_group_are_old_since_the_group_is_empty() -> None:
    shard = partition()
    commit(shard)
    shard.now_ms += 8 * MINUTE_MS
    empty = GroupMetadataValue("consumer", 3, None, None, shard.now_ms, ())
    write(shard, Record(GroupMetadataKey("g"), empty))
    shard.restart()
    is_old_after(shard, 10 * MINUTE_MS)


def test_offsets_without_a_group_are_old_since_their_commit() -> None:
    shard = partition()
    commit(shard)
    is_old_after(shard, 10 * MINUTE_MS)


@pytest.mark.parametrize("minutes", [2, 20])
def test_offsets_with_a_time_of_their_own_live_so_long(minutes: int) -> None:
    shard = partition()
    commit(shard, expires_ms=shard.now_ms + minutes * MINUTE_MS)
    is_old_after(shard, minutes * MINUTE_MS)


def test_a_group_stays_while_a_transaction_has_offsets_of_it() -> None:
    shard = partition()
    commit(shard)
    commit(shard, "a", producer_id=PRODUCER)
    shard.now_ms += 10 * MINUTE_MS
    assert old(shard) == ["OffsetCommitKey"], "the group has more to come"


def join(shard: Shard, member_id: str, **wish: object) -> None:
    request = ConsumerGroupHeartbeatRequest("g", member_id, 0, None, None, 30_000, **wish, topic_partitions=[])  # type: ignore[arg-type]  # names or an expression
    shard.ask(request, 1)
    shard.wait(1000)


@pytest.mark.parametrize("wish", [{"subscribed_topic_names": ["rx-1"]}, {"subscribed_topic_regex": "rx-.*"}])
def test_offsets_that_a_member_wants_stay(wish: dict[str, object]) -> None:
    """By a name or by an expression; of a topic that nobody wants they go."""
    shard = partition()
    join(shard, "one", **wish)
    commit(shard)
    commit(shard, "a")
    shard.now_ms += 20 * MINUTE_MS
    assert old(shard) == []
    assert old(shard, PLACE, ("a", 0)) == ["OffsetCommitKey"]


@pytest.mark.parametrize("leaves", [True, False], ids=["leaves", "is silent"])
def test_who_goes_leaves_an_expression_to_the_others(*, leaves: bool) -> None:
    world = World({"rx-1": 2})
    world.join("one", subscribed_topic_regex="rx-.*")
    world.join("two", subscribed_topic_regex="rx-.*")
    world.wait(30_000)
    world.send("two", world.member("two").epoch)
    if leaves:
        world.send("one", -1)
    else:
        world.wait(20_000)
    assert set(world.groups["g"].members) == {"two"}
    assert set(world.groups["g"].resolved) == {"rx-.*"}
    world.send("two", -1)
    assert not world.groups["g"].resolved


def test_a_topic_made_again_keeps_the_offsets_of_its_own() -> None:
    shard = partition()
    gone, present = topic_id("gone"), topic_id("rx-1")
    deleted = {"rx-1": gone}
    for of, is_forgotten in ((gone, True), (present, False), (Uuid.ZERO, True)):
        commit(shard, of=of)
        found = of_deleted_topics("g", [PLACE], deleted, shard.context())
        assert bool(found) == is_forgotten, of


def test_a_deleted_group_has_no_offsets_in_open_transactions() -> None:
    shard = partition()
    commit(shard)
    commit(shard, "a", producer_id=PRODUCER)
    shard.take(delete_group("g", shard.shard.classic, shard.context()))
    assert not shard.state.is_known("g", PLACE)
    assert not shard.state.is_known("g", ("a", 0))
    assert "g" not in shard.state.groups
