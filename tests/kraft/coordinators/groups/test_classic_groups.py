"""Classic groups at one broker, in virtual time: who joins, who waits, who is thrown out."""

from __future__ import annotations

from typing import Any

import pytest

from kraft.coordinators.groups import classic
from support.broker.group_clients import REBALANCE_MS, SESSION_MS, GroupBrokers, joining
from transport.protocol.errors import Error
from transport.protocol.messages.describe_groups import DescribeGroupsRequest

MS = 1


def state_of(brokers: GroupBrokers, group_id: str = "g") -> str:
    (group,) = brokers.ask(DescribeGroupsRequest(groups=[group_id])).groups
    state: str = group.group_state
    return state


def test_one_member_joins_after_the_delay() -> None:
    brokers = GroupBrokers()
    member_id, number = brokers.member()
    brokers.wait(2999)
    assert number not in brokers.answers
    brokers.wait(MS)
    joined = brokers.answers.pop(number)
    assert (joined.error_code, joined.generation_id, joined.leader) == (0, 1, member_id)
    assert [one.member_id for one in joined.members] == [member_id]


def test_two_members_join_after_twice_the_delay_and_three_at_the_rebalance_timeout() -> None:
    brokers = GroupBrokers()
    pairs = [brokers.member(), brokers.member()]
    brokers.wait(5999)
    assert not brokers.answers.keys() & {number for _, number in pairs}
    brokers.wait(MS)
    joined = [brokers.answers.pop(number) for _, number in pairs]
    assert [len(one.members) for one in joined] == [2, 0]
    assert {one.generation_id for one in joined} == {1}
    brokers = GroupBrokers()
    numbers = [brokers.member(rebalance_ms=9000)[1]]
    for _ in range(2):
        brokers.wait(2950)
        numbers.append(brokers.member(rebalance_ms=9000)[1])
    brokers.wait(9000 - 2 * 2950)
    assert {brokers.answers[one].generation_id for one in numbers} == {1}


def test_an_old_client_joins_without_learning_its_id_first() -> None:
    brokers = GroupBrokers()
    number = brokers.send(joining(), 3)
    brokers.wait(3000)
    assert brokers.answers.pop(number).members[0].member_id.startswith("c-")


def test_a_member_that_leaves_makes_the_others_join_again() -> None:
    brokers = GroupBrokers()
    leader, other = brokers.stable(2)
    assert state_of(brokers) == "Stable"
    assert [one.error_code for one in brokers.leave((leader, None)).members] == [0]
    assert brokers.beat(other, 1) == Error.REBALANCE_IN_PROGRESS
    joined = brokers.answers.pop(brokers.join(member_id=other))
    assert (joined.generation_id, joined.leader) == (2, other)
    assert brokers.beat(other, 2) == 0
    assert brokers.beat(leader, 2) == Error.UNKNOWN_MEMBER_ID


def test_a_silent_member_is_removed_at_its_session_timeout() -> None:
    brokers = GroupBrokers()
    leader, other = brokers.stable(2)
    brokers.wait(SESSION_MS - 1)
    assert brokers.beat(other, 1) == 0
    brokers.wait(MS)
    assert brokers.beat(other, 1) == Error.REBALANCE_IN_PROGRESS
    joined = brokers.answers.pop(brokers.join(member_id=other))
    assert (joined.generation_id, joined.leader) == (2, other)
    assert brokers.beat(leader, 1) == Error.UNKNOWN_MEMBER_ID


def test_the_last_member_leaves_an_empty_group() -> None:
    brokers = GroupBrokers()
    (only,) = brokers.stable()
    brokers.leave((only, None))
    assert state_of(brokers) == "Empty"
    _, number = brokers.member()
    brokers.wait(3000)
    assert brokers.answers.pop(number).generation_id == 3


def test_a_member_that_never_syncs_is_removed() -> None:
    brokers = GroupBrokers()
    pairs = [brokers.member(), brokers.member()]
    brokers.wait(6000)
    (leader, _), (other, _) = pairs
    number = brokers.sync(leader, 1, "g", (leader, b"l"), (other, b"o"))
    assert brokers.answers.pop(number).assignment == b"l"
    brokers.wait(REBALANCE_MS)
    assert brokers.beat(other, 1) == Error.UNKNOWN_MEMBER_ID
    assert brokers.beat(leader, 1) == Error.REBALANCE_IN_PROGRESS


def test_a_member_that_does_not_join_again_is_left_behind() -> None:
    brokers = GroupBrokers()
    leader, other = brokers.stable(2)
    number = brokers.join(member_id=leader, protocols=(("range", b"other"),))
    brokers.wait(REBALANCE_MS - 1)
    assert number not in brokers.answers
    brokers.wait(MS)
    assert [one.member_id for one in brokers.answers.pop(number).members] == [leader]
    assert brokers.beat(other, 2) == Error.UNKNOWN_MEMBER_ID


def test_followers_wait_for_the_assignment_of_the_leader() -> None:
    brokers = GroupBrokers()
    (leader, _), (other, _) = pairs = [brokers.member(), brokers.member()]
    brokers.wait(6000)
    assert all(number in brokers.answers for _, number in pairs)
    number = brokers.sync(other, 1)
    assert number not in brokers.answers
    brokers.sync(leader, 1, "g", (other, b"o"))
    assert brokers.answers.pop(number).assignment == b"o"
    assert state_of(brokers) == "Stable"


def test_a_rebalance_tells_those_who_wait_for_an_assignment() -> None:
    brokers = GroupBrokers()
    (leader, _), (other, _) = brokers.member(), brokers.member()
    brokers.wait(6000)
    number = brokers.sync(other, 1)
    brokers.leave((leader, None))
    assert brokers.answers.pop(number).error_code == Error.REBALANCE_IN_PROGRESS


def test_the_protocol_is_one_that_all_have() -> None:
    brokers = GroupBrokers()
    first = brokers.member(protocols=(("a", b"1"), ("b", b"1")))[1]
    second = brokers.member(protocols=(("b", b"2"), ("c", b"2")))[1]
    refused = brokers.ask(joining(protocols=(("c", b"3"),)))
    assert refused.error_code == Error.INCONSISTENT_GROUP_PROTOCOL
    assert brokers.ask(joining(kind="connect")).error_code == Error.INCONSISTENT_GROUP_PROTOCOL
    brokers.wait(6000)
    assert {brokers.answers.pop(one).protocol_name for one in (first, second)} == {"b"}


def test_a_full_group_takes_no_more() -> None:
    brokers = GroupBrokers(max_size=2)
    brokers.stable(2)
    refused = brokers.ask(joining())
    assert (refused.error_code, refused.member_id) == (Error.GROUP_MAX_SIZE_REACHED, "")


def test_members_leave_in_one_request() -> None:
    brokers = GroupBrokers()
    leader, other = brokers.stable(2)
    answer = brokers.leave((other, None), ("nobody", None), ("", "no-instance"))
    assert answer.error_code == 0
    assert [one.error_code for one in answer.members] == [0, Error.UNKNOWN_MEMBER_ID, Error.UNKNOWN_MEMBER_ID]
    assert brokers.beat(leader, 1) == Error.REBALANCE_IN_PROGRESS


def static(brokers: GroupBrokers, **fields: Any) -> tuple[Any, int]:
    number = brokers.join(instance_id="i", **fields)
    brokers.wait(3000)
    return brokers.answers.pop(number), number


def test_a_static_member_comes_back_without_a_rebalance() -> None:
    brokers = GroupBrokers()
    joined, _ = static(brokers)
    first = joined.member_id
    brokers.sync(first, 1, "g", (first, b"a"))
    again = brokers.answers.pop(brokers.join(instance_id="i"))
    assert (again.error_code, again.generation_id, again.skip_assignment) == (0, 1, True)
    assert again.member_id not in ("", first)
    assert brokers.beat(first, 1, instance_id="i") == Error.FENCED_INSTANCE_ID
    assert brokers.answers.pop(brokers.sync(again.member_id, 1)).assignment == b"a"
    refused = brokers.ask(joining(member_id=first, instance_id="i"))
    assert refused.error_code == Error.FENCED_INSTANCE_ID
    assert brokers.leave(("", "i")).members[0].error_code == 0


def test_a_static_member_that_comes_back_during_a_rebalance_fences_the_old_one() -> None:
    brokers = GroupBrokers()
    old = brokers.join(instance_id="i")
    new = brokers.join(instance_id="i")
    assert brokers.answers.pop(old).error_code == Error.FENCED_INSTANCE_ID
    brokers.wait(3000)
    assert brokers.answers.pop(new).generation_id == 1


def test_who_has_not_used_its_id_holds_nobody_up_for_longer_than_a_session() -> None:
    brokers = GroupBrokers()
    (leader,) = brokers.stable()
    assert brokers.ask(joining()).error_code == Error.MEMBER_ID_REQUIRED
    number = brokers.join(member_id=leader)
    assert number not in brokers.answers
    brokers.wait(REBALANCE_MS)
    assert brokers.answers.pop(number).generation_id == 2


def test_a_stranger_fills_no_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classic, "PENDING_MEMBERS", 3)
    monkeypatch.setattr(classic, "GROUP_MEMBERS", 2)
    monkeypatch.setattr(classic, "GROUPS_PER_PARTITION", 4)
    brokers = GroupBrokers()
    codes = [brokers.ask(joining("pending")).error_code for _ in range(5)]
    assert codes == [*[Error.MEMBER_ID_REQUIRED] * 3, *[Error.GROUP_MAX_SIZE_REACHED] * 2]
    brokers.stable(2)
    assert brokers.ask(joining()).error_code == Error.GROUP_MAX_SIZE_REACHED
    codes = [brokers.ask(joining(f"g{number}")).error_code for number in range(4)]
    assert codes == [*[Error.MEMBER_ID_REQUIRED] * 2, *[Error.COORDINATOR_NOT_AVAILABLE] * 2]
    brokers.wait(SESSION_MS)
    runtime = brokers.brokers.requests[101].groups
    shard: Any = next(iter(runtime.partitions.values())).shard
    assert list(shard.classic.live) == [], "whoever has gone away leaves nothing but the records"
