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


def test_the_last_member_leaves_an_empty_group() -> None:
    brokers = GroupBrokers()
    (only,) = brokers.stable()
    brokers.leave((only, None))
    assert state_of(brokers) == "Empty"
    _, number = brokers.member()
    brokers.wait(3000)
    assert brokers.answers.pop(number).generation_id == 3


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
