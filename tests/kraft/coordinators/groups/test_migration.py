"""Groups that change between the protocols while they have members, with the records of brokers of Kafka 4.3.1."""

from __future__ import annotations

from typing import Any

import pytest

from kraft.access.errors import ApiError
from kraft.coordinators.groups.consumer.group import ConsumerGroup
from kraft.coordinators.groups.members_handler import Join
from metadata_log.records.consumer_offsets import GroupMetadataValue
from metadata_log.serde import encode
from support.broker.request_brokers import wire_request
from support.broker.shard_world import Shard
from transport.protocol.apis import ApiKey
from transport.protocol.errors import Error
from transport.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from transport.protocol.messages.consumer_protocol import ConsumerProtocolAssignment
from transport.protocol.messages.join_group import JoinGroupRequest
from transport.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from transport.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment


def refused(call: Any, *args: Any) -> Error:
    with pytest.raises(ApiError) as caught:
        call(*args)
    return caught.value.error


def group_of(shard: Shard) -> ConsumerGroup:
    group = shard.state.groups["g"]
    assert isinstance(group, ConsumerGroup), group
    return group


@pytest.mark.parametrize("fails_over", [False, True])
def test_a_consumer_joins_a_classic_group_and_leaves(fails_over: bool) -> None:
    """The scene of the corpus: one batch, the classic member joins again for half, and gets all back in the end."""
    shard = Shard()
    one = shard.stable_classic()
    shard.batches.clear()
    joined = shard.consumer("new", 0, [])
    assert shard.batches == ["2- 5 3 7 6 8 5 3 7 7 6 8"]
    assert (joined.member_epoch, joined.assignment.topic_partitions) == (2, [])
    if fails_over:
        shard.restart()
    assert shard.beat(one, 1) is Error.REBALANCE_IN_PROGRESS
    again = shard.join_classic(one, [0, 1, 2, 3])
    assert (again.error_code, again.generation_id, again.leader, again.members) == (0, 1, "", [])
    half = shard.sync_classic(one, 1)
    assert half == [0, 1]
    assert shard.beat(one, 1) is Error.REBALANCE_IN_PROGRESS
    again = shard.join_classic(one, half)
    assert again.generation_id == 2
    assert shard.sync_classic(one, 2) == half
    assert shard.beat(one, 2) is Error.NONE
    assert [list(of.partitions) for of in shard.consumer("new", 2).assignment.topic_partitions] == [[2, 3]]
    shard.batches.clear()
    assert shard.consumer("new", -1).error_code == 0
    assert shard.batches == ["8- 8- 7- 7- 6- 5- 5- 4- 3- 2"]
    recorded = shard.state.groups["g"]
    assert isinstance(recorded, GroupMetadataValue)
    assert (recorded.generation, [member.member_id for member in recorded.members]) == (2, [one])
    if fails_over:
        shard.restart()
        assert shard.beat(one, 2) is Error.NONE
    else:
        assert shard.beat(one, 2) is Error.REBALANCE_IN_PROGRESS
        last = shard.join_classic(one, half)
        assert (last.generation_id, last.leader) == (3, one)


def test_an_upgrade_that_is_not_written_leaves_the_classic_group() -> None:
    shard = Shard()
    one = shard.stable_classic()
    shard.consumer("new", 0, [], Error.NOT_ENOUGH_REPLICAS)
    assert shard.beat(one, 1) is Error.NONE
    shard.wait(10_001)
    recorded = shard.state.groups["g"]
    assert isinstance(recorded, GroupMetadataValue)
    assert not recorded.members, "its session is watched again"


@pytest.mark.parametrize("policy", ["downgrade", "disabled"])
def test_the_settings_may_forbid_an_upgrade(policy: str) -> None:
    shard = Shard(policy)
    shard.stable_classic()
    with pytest.raises(
        ApiError, match=r"^Cannot upgrade .* group g .* because online upgrade is disabled\.$"
    ) as caught:
        shard.consumer("new", 0, [])
    assert caught.value.error is Error.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize(
    ("assignment", "why"),
    [
        (encode(ConsumerProtocolAssignment([], b"x"), 1, b"\0\1"), "an unsupported custom assignor is in use"),
        (b"\0\1\xff", "the embedded consumer protocol is malformed"),
    ],
)
def test_what_an_assignor_has_added_keeps_a_group_a_classic_one(assignment: bytes, why: str) -> None:
    shard = Shard()
    first = shard.join_classic(shard.join_classic().member_id)
    given = [SyncGroupRequestAssignment(first.member_id, assignment)]
    sync = SyncGroupRequest("g", 1, first.member_id, assignments=given, protocol_type="consumer", protocol_name="range")
    assert shard.ask(sync, 5).assignment == assignment
    with pytest.raises(ApiError, match=f"^Cannot upgrade classic group g to consumer group because {why}"):
        shard.consumer("new", 0, [])
    assert shard.beat(first.member_id, 1) is Error.NONE


@pytest.mark.parametrize(
    ("error", "named"),
    [(Error.INCONSISTENT_GROUP_PROTOCOL, ""), (Error.UNKNOWN_MEMBER_ID, "m"), (Error.INVALID_SESSION_TIMEOUT, "m")],
)
def test_a_refused_join_repeats_the_members_id_where_kafkas_does(error: Error, named: str) -> None:
    request: Any = wire_request(1, ApiKey.JOIN_GROUP, 9, JoinGroupRequest(group_id="g", member_id="m"))
    told: Any = Join(request).refuse(ApiError(error))
    assert (told.error_code, told.member_id) == (error, named)


def test_a_classic_member_joins_a_consumer_group() -> None:
    shard = Shard()
    assert shard.consumer("new", 0, []).member_epoch == 2
    shard.wait(1000)
    named = shard.join_classic()
    assert (named.error_code, len(named.member_id)) == (Error.MEMBER_ID_REQUIRED, 22)
    joined = shard.join_classic(named.member_id)
    assert (joined.generation_id, joined.protocol_name, joined.leader) == (3, "range", "")
    assert shard.sync_classic(named.member_id, 3) == []
    assert refused(shard.beat, named.member_id, 2) is Error.ILLEGAL_GENERATION
    assert refused(shard.beat, "new", 2) is Error.UNKNOWN_MEMBER_ID
    assert shard.beat(named.member_id, 3) is Error.NONE, "its partitions are not free yet"
    shard.consumer("new", 2)
    shard.consumer("new", 2, [0, 1])
    assert shard.beat(named.member_id, 3) is Error.REBALANCE_IN_PROGRESS
    shard.join_classic(named.member_id)
    assert shard.sync_classic(named.member_id, 3) == [2, 3]
    left = shard.ask(LeaveGroupRequest("g", members=[MemberIdentity(named.member_id), MemberIdentity("x")]), 5)
    assert [one.error_code for one in left.members] == [0, Error.UNKNOWN_MEMBER_ID]
    assert list(group_of(shard).members) == ["new"]


def test_a_classic_member_that_does_not_join_again_is_fenced() -> None:
    shard = Shard()
    one = shard.stable_classic()
    shard.consumer("new", 0, [])
    for _ in range(5):
        assert shard.beat(one, 1) is Error.REBALANCE_IN_PROGRESS
        shard.wait(3999)
        shard.consumer("new", 2)
    shard.wait(10)
    assert list(group_of(shard).members) == ["new"]


def test_the_protocol_is_disabled_for_classic_members() -> None:
    shard = Shard("disabled")
    shard.consumer("new", 0, [])
    assert refused(shard.join_classic) is Error.INCONSISTENT_GROUP_PROTOCOL


def test_an_empty_group_changes_in_both_directions() -> None:
    shard = Shard("disabled")
    one = shard.stable_classic()
    shard.ask(LeaveGroupRequest("g", members=[MemberIdentity(one)]), 5)
    shard.batches.clear()
    assert shard.consumer("new", 0, []).member_epoch == 2
    shard.consumer("new", -1)
    shard.join_classic(group_instance_id="i1")
    assert shard.batches[0].startswith("2- 5 3 7 6 8")
    assert shard.batches[2].startswith("6- 4- 3- ")


def test_the_last_consumer_is_replaced_by_a_classic_member() -> None:
    shard = Shard()
    shard.ask(
        ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="new",
            instance_id="i1",
            rebalance_timeout_ms=30_000,
            subscribed_topic_names=["a"],
            topic_partitions=[],
        ),
        1,
    )
    shard.batches.clear()
    joined = shard.join_classic(group_instance_id="i1")
    assert (joined.error_code, joined.generation_id, joined.leader) == (0, 2, "")
    assert shard.batches == ["8- 7- 5- 5 7 8 5 8 8- 7- 6- 5- 4- 3- 2"]
    recorded = shard.state.groups["g"]
    assert isinstance(recorded, GroupMetadataValue)
    assert (recorded.generation, recorded.members[0].member_id) == (2, joined.member_id)
    assert shard.beat(joined.member_id, 2) is Error.NONE
    assert shard.sync_classic(joined.member_id, 2) == [0, 1, 2, 3]
