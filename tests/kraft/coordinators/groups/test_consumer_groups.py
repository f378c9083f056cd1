"""Consumer groups (KIP-848), by the scenes that were seen at brokers of Kafka 4.3.1."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from kraft.access.errors import ApiError
from kraft.coordinators.groups.consumer.embedded import EmbeddedError, subscription_of
from kraft.coordinators.groups.consumer.group import GroupState
from kraft.coordinators.groups.consumer.member import MemberState
from kraft.limits import NAMED_TOPICS
from kraft.supported_features import GROUPS_OF_4_4
from metadata_log.image.features import FeaturesImage
from metadata_log.serde import encode
from support.broker.consumer_world import World, count, image_of, places
from transport.protocol.errors import Error
from transport.protocol.messages.consumer_protocol import ConsumerProtocolSubscription


def refused(call: Any, *args: Any, **fields: Any) -> Error:
    with pytest.raises(ApiError) as caught:
        call(*args, **fields)
    return caught.value.error


def settled(world: World, *member_ids: str) -> None:
    """All members do what they are told, until the group is stable."""
    for _ in range(20):
        world.wait(1000)
        for member_id in member_ids:
            member = world.member(member_id)
            owned = {topic.lstrip(b"\x01").decode(): sorted(of) for topic, of in member.assigned.items()}
            world.send(member_id, member.epoch, owned)
        if world.state() is GroupState.STABLE:
            return
    raise AssertionError(world.groups["g"])


def test_two_members_share_as_at_a_broker_of_kafka() -> None:
    """The partitions of the first one are given up before the second one gets them; the records are those of Kafka."""
    world = World({"a": 6, "b": 4})
    first = world.join("one", "a", "b")
    assert (first.member_epoch, count(first), first.heartbeat_interval_ms) == (2, 10, 5000)
    world.wait(1000)
    second = world.join("two", "a", "b")
    assert (second.member_epoch, places(second)) == (3, {})
    assert world.member("two").state is MemberState.UNRELEASED_PARTITIONS
    assert world.state() is GroupState.RECONCILING
    told = world.send("one", 2)
    assert (told.member_epoch, count(told)) == (2, 5)
    kept = places(told)
    assert world.send("one", 2).assignment is None
    confirmed = world.send("one", 2, kept)
    assert (confirmed.member_epoch, confirmed.assignment) == (3, None)
    gained = world.send("two", 3)
    assert (gained.member_epoch, count(gained)) == (3, 5)
    assert world.state() is GroupState.STABLE
    world.send("one", -1)
    assert world.groups["g"].epoch == 4
    world.wait(1000)
    rest = world.send("two", 3)
    assert (rest.member_epoch, count(rest)) == (4, 10)
    assert world.batches == ["5 3 7 6 8", "5 3 7 7 6 8", "8", "8", "8", "8- 7- 5- 3", "7 6 8"]


def test_a_target_is_not_computed_again_within_the_assignment_interval() -> None:
    """A second member joins at the old assignment epoch, with nothing, until a heartbeat a second later."""
    world = World({"a": 4})
    world.join("one", "a")
    world.wait(500)
    second = world.join("two", "a")
    assert (second.member_epoch, places(second)) == (2, {})
    assert world.member("two").state is MemberState.STABLE
    group = world.groups["g"]
    assert (group.state, group.epoch, group.assignment_epoch) == (GroupState.ASSIGNING, 3, 2)
    world.wait(499)
    world.send("one", 2)
    assert world.groups["g"].assignment_epoch == 2
    world.wait(1)
    assert count(world.send("one", 2)) == 2
    assert world.groups["g"].assignment_epoch == 3


@pytest.mark.parametrize("interval_ms", [0, 1000])
def test_a_coordinator_with_a_slower_clock_assigns_at_once(interval_ms: int) -> None:
    """The last assignment has a time ten days ahead, by the clock of the coordinator before. In Kafka the group would
    have to wait for that time, unless it has no interval.
    """
    world = World({"a": 4}, assignment_interval_ms=interval_ms)
    world.join("one", "a")
    world.now_ms -= 10 * 86_400_000
    second = world.join("two", "a")
    assert world.groups["g"].assignment_epoch == second.member_epoch == 3


def test_a_member_that_does_not_revoke_is_fenced() -> None:
    world = World({"a": 4})
    world.join("one", "a", rebalance_timeout_ms=10_000)
    world.wait(1000)
    world.join("two", "a")
    world.send("one", 2)
    assert world.member("one").state is MemberState.UNREVOKED_PARTITIONS
    world.wait(9999)
    world.send("one", 2)
    assert "one" in world.groups["g"].members
    world.wait(1)
    assert "one" not in world.groups["g"].members
    assert refused(world.send, "one", 2) is Error.UNKNOWN_MEMBER_ID
    assert count(world.send("two", 3)) == 4


def test_a_new_leader_goes_on_while_a_member_revokes() -> None:
    world = World({"a": 4})
    world.join("one", "a")
    world.wait(1000)
    world.join("two", "a")
    kept = places(world.send("one", 2))
    before = world.groups
    world.wait(20_000)
    world.restart()
    assert world.groups == before
    world.wait(20_000)
    assert world.send("one", 2, kept).member_epoch == 3
    assert count(world.send("two", 3)) == 2


def test_rules_of_epochs() -> None:
    world = World({"a": 4})
    assert refused(world.send, "one", 1) is Error.GROUP_ID_NOT_FOUND
    world.join("one", "a")
    world.wait(1000)
    world.join("two", "a")
    kept = places(world.send("one", 2))
    assert kept is not None
    world.send("one", 2, kept)
    assert refused(world.send, "three", 1) is Error.UNKNOWN_MEMBER_ID
    assert refused(world.send, "one", 4) is Error.FENCED_MEMBER_EPOCH
    assert refused(world.send, "one", 1) is Error.FENCED_MEMBER_EPOCH
    assert refused(world.send, "one", 2) is Error.FENCED_MEMBER_EPOCH
    assert refused(world.send, "one", 2, {"a": range(4)}) is Error.FENCED_MEMBER_EPOCH
    assert world.send("one", 2, {"a": kept["a"][:1]}).member_epoch == 3
    again = world.join("one", "a")
    assert (again.member_epoch, places(again)) == (3, kept)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"member_id": ""}, Error.INVALID_REQUEST),
        ({"member_id": " \t"}, Error.INVALID_REQUEST),
        ({"group_id": ""}, Error.INVALID_REQUEST),
        ({"instance_id": ""}, Error.INVALID_REQUEST),
        ({"rack_id": ""}, Error.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, Error.INVALID_REQUEST),
        ({"owned": None}, Error.INVALID_REQUEST),
        ({"owned": {"a": [1]}}, Error.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, Error.INVALID_REQUEST),
        ({"epoch": -2}, Error.INVALID_REQUEST),
        ({"epoch": -3}, Error.INVALID_REQUEST),
        ({"server_assignor": "sticky"}, Error.UNSUPPORTED_ASSIGNOR),
        ({"subscribed_topic_regex": "(a"}, Error.INVALID_REGULAR_EXPRESSION),
        ({"member_id": "", "version": 0, "epoch": -1}, Error.INVALID_REQUEST),
    ],
    ids=str,
)
def test_a_request_that_no_group_accepts(fields: dict[str, Any], error: Error) -> None:
    sound = {
        **{"member_id": "one", "epoch": 0, "owned": {}, "rebalance_timeout_ms": 1000},
        "subscribed_topic_names": ["a"],
    }
    world = World({"a": 1})
    assert refused(world.send, **{**sound, **fields}) is error
    assert not world.log


def test_the_first_version_lets_the_coordinator_name_the_member() -> None:
    world = World({"a": 1})
    answer = world.join("", "a", version=0)
    assert answer.member_id is not None
    assert len(answer.member_id) == 22
    assert answer.member_id in world.groups["g"].members


def test_a_group_has_a_size() -> None:
    world = World({"a": 1}, max_size=2)
    world.join("one", "a")
    world.join("two", "a")
    assert refused(world.join, "three", "a") is Error.GROUP_MAX_SIZE_REACHED
    world.join("two", "a")


def test_a_member_that_names_too_many_topics_is_refused() -> None:
    """Its heartbeat would be a long turn of the broker."""
    names = [f"topic-{at}" for at in range(NAMED_TOPICS + 1)]
    assert refused(World({}).join, "one", *names) is Error.INVALID_REQUEST
    with pytest.raises(EmbeddedError):
        subscription_of(encode(ConsumerProtocolSubscription(names), 0, b"\0\0"))


def test_a_static_member_comes_back() -> None:
    """It goes on where it was, without a new epoch of the group; its old id is fenced."""
    world = World({"a": 4, "b": 1})
    world.join("one", "a", instance_id="i1")
    world.join("two", "a", instance_id="i2")
    settled(world, "one", "two")
    epoch, mine = world.groups["g"].epoch, world.member("one").assigned
    assert refused(world.join, "other", "a", instance_id="i1") is Error.UNRELEASED_INSTANCE_ID
    assert refused(world.send, "other", 3, instance_id="i1") is Error.FENCED_INSTANCE_ID
    assert refused(world.send, "one", 3, instance_id="i3") is Error.UNKNOWN_MEMBER_ID
    world.batches.clear()
    assert world.send("one", -2, instance_id="i1").member_epoch == -2
    assert world.batches == ["8"]
    assert world.member("one").epoch == -2
    back = world.join("new", "a", instance_id="i1")
    assert back.member_epoch == epoch == world.groups["g"].epoch
    assert {(topic, one) for topic, of in world.member("new").assigned.items() for one in of} == {
        (topic, one) for topic, of in mine.items() for one in of
    }
    assert world.batches == ["8", "8- 7- 5- 5 7 8 8"]
    assert refused(world.send, "one", 3, instance_id="i1") is Error.FENCED_INSTANCE_ID
    world.send("new", -1, instance_id="i1")
    assert world.groups["g"].static_member("i1") is None


def test_a_static_member_comes_back_to_a_full_group() -> None:
    world = World({"a": 4}, max_size=2)
    world.join("one", "a", instance_id="i1")
    world.join("two", "a")
    world.send("one", -2, instance_id="i1")
    assert refused(world.join, "three", "a", instance_id="i3") is Error.GROUP_MAX_SIZE_REACHED
    assert world.join("new", "a", instance_id="i1").member_epoch == 2
    assert set(world.groups["g"].members) == {"new", "two"}


def test_a_static_member_joins_under_another_instance() -> None:
    world = World({"a": 4})
    world.join("one", "a", instance_id="i1")
    world.join("one", "a", instance_id="i2")
    world.join("two", "a", instance_id="i1")
    assert dict(world.groups["g"].instances) == {"i2": "one", "i1": "two"}


@pytest.mark.parametrize(("level", "is_4_4"), [(None, False), (GROUPS_OF_4_4 - 1, False), (GROUPS_OF_4_4, True)])
def test_an_empty_group_is_assigned_from_4_4_on(level: int | None, *, is_4_4: bool) -> None:
    world = World({"a": 4})
    world.image = replace(world.image, features=FeaturesImage(level))
    world.join("one", "a")
    world.join("two", "a")
    world.send("two", -1)
    assert world.batches[-1] == "8- 7- 5- 3"
    world.send("one", -1)
    group = world.groups["g"]
    assert world.batches[-1] == ("8- 7- 5- 3 6" if is_4_4 else "8- 7- 5- 3")
    assert (group.epoch == group.assignment_epoch, group.assignment_ms == 0) == (is_4_4, is_4_4)
    # The next member does not wait for the interval of assignments.
    assert count(world.join("three", "a")) == (4 if is_4_4 else 0)


@pytest.mark.parametrize(("level", "is_4_4"), [(None, False), (GROUPS_OF_4_4, True)])
def test_another_assignor_is_a_new_epoch_from_4_4_on(level: int | None, *, is_4_4: bool) -> None:
    world = World({"a": 4})
    world.image = replace(world.image, features=FeaturesImage(level))
    world.join("one", "a")
    world.wait(1000)
    told = world.send("one", 2, server_assignor="range")
    assert (told.member_epoch, world.groups["g"].epoch) == ((3, 3) if is_4_4 else (2, 2))
    # As the default one: nothing changes for the group.
    world.send("one", told.member_epoch, server_assignor="range")
    assert world.groups["g"].epoch == told.member_epoch


def test_a_static_member_that_stays_away_is_fenced_with_its_session() -> None:
    world = World({"a": 4})
    world.join("one", "a", instance_id="i1")
    world.wait(10_000)
    world.send("one", -2, instance_id="i1")
    world.wait(34_999)
    assert "one" in world.groups["g"].members
    world.wait(1)
    assert not world.groups["g"].members


def test_a_regular_expression() -> None:
    """The first member waits for the names a heartbeat long; a topic that comes later is found ten seconds later."""
    world = World({"rx-1": 2, "other": 3})
    first = world.join("one", subscribed_topic_regex="rx-.*")
    assert (first.member_epoch, places(first)) == (1, {})
    assert world.batches == ["5 7 6 8"]
    world.wait(1000)
    assert world.batches[1:] == ["16 3"]
    told = world.send("one", 1)
    assert (told.member_epoch, places(told)) == (2, {"rx-1": [0, 1]})
    world.image = image_of({"rx-1": 2, "rx-2": 1, "other": 3}, 20)
    world.wait(5000)
    world.send("one", 2)
    world.wait(5000)
    assert world.groups["g"].epoch == 2
    world.send("one", 2)
    world.wait(1000)
    assert places(world.send("one", 2)) == {"rx-1": [0, 1], "rx-2": [0]}
    joined = world.join("two", subscribed_topic_regex="rx-.*")
    assert joined.member_epoch == 3, "within the assignment interval"
    assert world.groups["g"].epoch == 4
    world.send("one", -1)
    assert "16-" not in world.batches[-1]
    world.batches.clear()
    world.send("two", -1)
    assert world.batches == ["8- 7- 5- 16- 3"]


def test_a_regular_expression_shows_only_what_the_member_may_see() -> None:
    world = World({"rx-1": 2, "rx-2": 2})
    world.denied.add("rx-2")
    world.join("one", subscribed_topic_regex="rx-.*")
    world.wait(1000)
    assert places(world.send("one", 1)) == {"rx-1": [0, 1]}


def test_a_member_changes_from_a_regular_expression_to_names() -> None:
    world = World({"rx-1": 2, "a": 1})
    world.join("one", subscribed_topic_regex="rx-.*")
    world.wait(1000)
    world.send("one", 1)
    world.wait(1000)
    told = world.send("one", 2, subscribed_topic_names=["a"], subscribed_topic_regex="")
    assert (told.member_epoch, places(told)) == (2, {}), "first it gives up what it has"
    told = world.send("one", 2, {})
    assert (told.member_epoch, places(told)) == (3, {"a": [0]})
    assert not world.groups["g"].resolved


def test_a_topic_grows_or_goes() -> None:
    world = World({"a": 2, "b": 1})
    world.join("one", "a", "b")
    value = world.groups["g"].metadata_hash
    world.wait(1000)
    world.image = image_of({"a": 3, "b": 1}, 20)
    grown = world.send("one", 2)
    assert (grown.member_epoch, places(grown)) == (3, {"a": [0, 1, 2], "b": [0]})
    assert world.groups["g"].metadata_hash != value
    world.wait(1000)
    world.image = image_of({"b": 1}, 30)
    gone = world.send("one", 3)
    assert (gone.member_epoch, places(gone)) == (3, {"b": [0]})
    assert world.send("one", 3, {"b": [0]}).member_epoch == 4
    epoch = world.groups["g"].epoch
    world.image = image_of({"b": 1, "c": 1}, 40)
    world.send("one", 4)
    assert world.groups["g"].epoch == epoch


def test_most_members_choose_the_assignor() -> None:
    world = World({"a": 4, "b": 4})
    for name in ("one", "two"):
        world.join(name, "a", "b", server_assignor="range")
        world.wait(1000)
    settled(world, "one", "two")
    assert {tuple(sorted(of)) for of in world.member("one").assigned.values()} == {(0, 1)}
    assert {tuple(sorted(of)) for of in world.member("two").assigned.values()} == {(2, 3)}
