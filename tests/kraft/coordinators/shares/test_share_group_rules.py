"""Rules of share groups, one by one, in virtual time."""

from __future__ import annotations

from typing import Final

import pytest

from kraft.access.errors import ApiError
from kraft.coordinators.groups.shares.states import FROM_BEGIN
from kraft.coordinators.groups.state import share_group
from kraft.coordinators.runtime.shard import Record
from kraft.limits import HEARTBEAT_PARTITIONS, SHARE_PARTITIONS_PER_GROUP
from metadata_log.records.consumer_offsets import (
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    ShareGroupMemberMetadataKey,
)
from metadata_log.serde.codec import finished
from support.broker.share_world import TYPES, ShareWorld, plain
from transport.protocol.errors import Error
from transport.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

INTERVAL_MS: Final = 1000
SESSION_MS: Final = 45_000
RETRY_MS: Final = 30_000


def kinds(world: ShareWorld) -> list[str]:
    """The types of the records of each operation, a tombstone with a `-` after it."""
    return [" ".join(f"{TYPES[type(one.key)]}{'-' if one.value is None else ''}" for one in of) for of in world.batches]


def refusal(world: ShareWorld, member_id: str, epoch: int, names: list[str] | None = None, **fields: str) -> Error:
    with pytest.raises(ApiError) as refused:
        world.send(member_id, epoch, names, **fields)
    return refused.value.error


def stable(*members: str, topics: tuple[str, ...] = ("a",), **settings: int) -> ShareWorld:
    """A group of which each member has its partitions."""
    world = ShareWorld(**settings)
    for name in topics:
        world.topic(name, 2)
    for member_id in members:
        world.send(member_id, 0, list(topics))
        world.answer()
    for _ in range(2):
        world.wait(INTERVAL_MS)
        for member_id in members:
            world.send(member_id, world.group().members[member_id].epoch)
    world.batches.clear()
    return world


def test_a_state_that_could_not_begin_is_asked_for_again() -> None:
    world = ShareWorld()
    world.topic("a", 1)
    world.send("m", 0, ["a"])
    world.answer(is_done=False)
    assert not world.group().states.initializing
    world.send("m", 2)
    assert len(world.asked) == 1
    world.answer()
    assert [one.name for one in world.group().states.initialized.values()] == ["a"]


def test_the_partitions_by_which_a_topic_grows_begin_at_their_first_record() -> None:
    world = stable("m")
    world.topic("a", 3)
    world.send("m", 3)
    (asked,) = world.asked
    assert [(one.partition, one.start_offset) for one in asked.beginnings] == [(2, FROM_BEGIN)]


def test_the_last_member_leaves_an_empty_group_whose_states_stay() -> None:
    world = stable("m")
    assert world.send("m", -1).member_epoch == -1
    group = world.group()
    assert (group.state, group.epoch, group.assignment_epoch, group.metadata_hash) == ("Empty", 4, 4, 0)
    assert kinds(world) == ["14- 13- 10- 11 12"]
    assert group.states.initialized
    again = world.send("m", 0, ["a"])
    assert again.member_epoch == 5
    assert again.assignment is not None
    assert [one.partitions for one in again.assignment.topic_partitions] == [[0, 1]], "its states are there"


def test_before_4_4_an_empty_group_keeps_its_assignment_epoch() -> None:
    world = ShareWorld(level=30)
    world.topic("a", 1)
    world.send("m", 0, ["a"])
    world.batches.clear()
    world.send("m", -1)
    assert kinds(world) == ["14- 13- 10- 11"]
    assert (world.group().epoch, world.group().assignment_epoch) == (3, 2)


def test_several_members_may_have_the_same_partition() -> None:
    world = stable("m", "n", "o", topics=("a",))
    held = [sorted(one.assigned.values()) for one in world.group().members.values()]
    assert all(held)
    assert sorted(number for one in held for numbers in one for number in numbers) in (
        [0, 0, 1, 1],
        [0, 0, 1],
        [0, 1, 1],
    )


def test_a_group_of_another_type_is_no_share_group() -> None:
    world = ShareWorld()
    for key, value in (
        (GroupMetadataKey(group="classic"), GroupMetadataValue()),
        (ConsumerGroupMetadataKey("consumer"), ConsumerGroupMetadataValue(epoch=2)),
    ):
        world.state = world.shard.replay(world.state, Record(key, value), 0, -1)
    for group_id in ("classic", "consumer"):
        assert refusal(world, "m", 0, ["a"], group_id=group_id) is Error.GROUP_ID_NOT_FOUND
        assert refusal(world, "m", 2, group_id=group_id) is Error.GROUP_ID_NOT_FOUND


def test_a_settled_group_writes_nothing() -> None:
    world = stable("m", "n")
    for _ in range(3):
        world.wait(5000)
        for member_id in ("m", "n"):
            world.send(member_id, world.group().members[member_id].epoch)
    assert world.batches == []
    world.topic("other", 5)
    world.send("m", world.group().members["m"].epoch)
    assert world.batches == [], "a topic that nobody wants"


def test_a_deleted_topic_has_no_states_at_once_and_another_epoch_at_the_next_heartbeat() -> None:
    world = stable("m", topics=("a", "b"))
    topic_id = world.topic("b", 0)
    assert kinds(world) == ["15"]
    assert topic_id not in world.group().states.initialized
    world.wait(INTERVAL_MS)
    given = world.send("m", 3)
    assert given.member_epoch == 4
    assert given.assignment is not None
    assert [one.partitions for one in given.assignment.topic_partitions] == [[0, 1]]


def test_settings_of_a_group_are_in_effect_at_once() -> None:
    world = stable("m")
    world.configure("g", share_heartbeat_interval_ms="7000", share_session_timeout_ms="50000")
    assert world.send("m", 3).heartbeat_interval_ms == 7000
    world.wait(SESSION_MS + 4000)
    assert world.group().members
    world.wait(1000)
    assert not world.group().members
    world.configs("g", {"share.assignment.interval.ms": "0"})
    world.send("m", 0, ["a"])
    assert world.send("n", 0, ["a"]).member_epoch == world.group().epoch


def test_another_broker_goes_on_with_members_states_and_times() -> None:
    world = stable("m", "n")
    world.topic("a", 3)
    world.send("m", world.group().members["m"].epoch)
    assert world.group().states.initializing
    before = world.group()
    world.restart()
    assert plain(
        [Record(ShareGroupMemberMetadataKey("g", one.member_id), one.subscription()) for one in before.members.values()]
    ) == plain(
        [
            Record(ShareGroupMemberMetadataKey("g", one), world.group().members[one].subscription())
            for one in before.members
        ]
    )
    assert (world.group().epoch, world.group().states, dict(world.group().targets)) == (
        before.epoch,
        before.states,
        dict(before.targets),
    )
    world.send("m", before.members["m"].epoch)
    assert not world.asked, "the broker before may have asked"
    world.wait(RETRY_MS)
    world.send("m", world.group().members["m"].epoch)
    world.send("n", world.group().members["n"].epoch)
    assert len(world.asked) == 1
    world.wait(SESSION_MS)
    assert not world.group().members, "each member has had its full time"


def test_a_large_heartbeat_is_the_same_in_portions() -> None:
    world = ShareWorld()
    world.topic("wide", HEARTBEAT_PARTITIONS)
    request = ShareGroupHeartbeatRequest("g", "m", 0, None, ["wide"])
    assert world.shard.shares.is_much(None, request, world.image)
    wire = world.wire(request)
    portions = world.shard.share_heartbeating(wire, world.context())
    assert portions is not None
    count = sum(1 for _ in portions)
    assert count >= 5
    assert share_group(world.state, "g") is None, "nothing shows before the last portion"
    again = world.shard.share_heartbeating(wire, world.context())
    assert again is not None
    world.take(finished(again))
    world.answer()
    for _ in range(2):
        world.wait(INTERVAL_MS)
        world.send("m", world.group().members["m"].epoch)
    (assigned,) = world.group().members["m"].assigned.values()
    assert len(assigned) == HEARTBEAT_PARTITIONS
    settled = ShareGroupHeartbeatRequest("g", "m", 3, None, None)
    assert not world.shard.shares.is_much(world.group(), settled, world.image), "most heartbeats are little work"


def test_a_share_group_has_states_for_so_many_partitions() -> None:
    world = ShareWorld()
    world.topic("a", SHARE_PARTITIONS_PER_GROUP - 1)
    world.topic("b", 3)
    world.send("m", 0, ["a", "b"])
    (asked,) = world.asked
    assert len(asked.beginnings) == SHARE_PARTITIONS_PER_GROUP
    world.answer()
    world.send("m", 2)
    assert not world.asked, "there is no room for more"
