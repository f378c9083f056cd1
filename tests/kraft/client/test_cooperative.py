"""Members that keep their partitions while their group rebalances (KIP-429), and the shares of Kafka's assignor."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from kraft.client import GroupSettings
from kraft.client.state.assigning import (
    COOPERATIVE,
    Place,
    Subscriber,
    assignment_bytes,
    cooperative_assignment,
    subscriber_of,
)
from kraft.client.state.grouping import GroupState
from kraft.client.state.requests import Ask
from support.kraft.client_wires import TOPIC_ID, Wire, metadata
from support.real_data import DATA
from transport.protocol.errors import Error
from transport.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from transport.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from transport.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from transport.protocol.messages.metadata import MetadataRequest
from transport.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from transport.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from transport.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

CASES = [
    json.loads(line) for line in gzip.decompress((DATA / "cooperative_assignments.jsonl.gz").read_bytes()).splitlines()
]
"""Sixty groups of six generations each, as `CooperativeStickyAssignor` of Apache Kafka 4.3.1 has assigned them: members
come and leave, topics grow, and some members claim what others have.
"""


def members_of(case: Mapping[str, Any]) -> list[Subscriber]:
    return [
        Subscriber(one, None, tuple(each["topics"]), tuple((t, p) for t, p in each["owned"]), each["generation"])
        for one, each in case["members"].items()
    ]


def places(case: Mapping[str, Any]) -> dict[str, set[Place]]:
    shares = cooperative_assignment(members_of(case), case["counts"])
    found = {
        one: [(topic, number) for topic, some in share.items() for number in some] for one, share in shares.items()
    }
    assert len({place for share in found.values() for place in share}) == sum(map(len, found.values())), "twice"
    return {one: set(share) for one, share in found.items()}


def test_the_shares_are_those_of_kafka() -> None:
    """Where all members want the same topics. Which of several equal members has one more depends on the order of a
    `HashMap` in Kafka, so that only the sizes and what everybody keeps are compared there.
    """
    equal = 0
    even = [case for case in CASES if len({tuple(one["topics"]) for one in case["members"].values()}) == 1]
    for case in even:
        found, expected = places(case), {one: {(t, p) for t, p in some} for one, some in case["assigned"].items()}
        equal += found == expected
        owned = {one.id: set(one.owned) for one in members_of(case)}
        for shares in (found, expected):
            case.setdefault("kept", []).append(sum(len(shares[one] & owned[one]) for one in owned))
        assert case["kept"][0] == case["kept"][1], case
        assert sorted(map(len, found.values())) == sorted(map(len, expected.values())), case
    assert (equal, len(even)) == (292, 302)


def test_nobody_gets_what_another_member_has_still_to_give_up() -> None:
    for case in CASES:
        members, found = members_of(case), places(case)
        wanted = {(topic, number) for topic, count in case["counts"].items() for number in range(count)}
        for one in members:
            others = {place for each in members if each is not one for place in each.owned}
            assert not (found[one.id] - set(one.owned)) & others, case
            assert {topic for topic, _ in found[one.id]} <= set(one.topics), case
        claimed = {place for one in members for place in one.owned}
        topics = {topic for one in members for topic in one.topics}
        free = {place for place in wanted - claimed if place[0] in topics}
        assert free <= set().union(*found.values()), case


# A member


class Member(Wire):
    """A member with its network. What it reads is not answered."""

    def due(self) -> Ask:
        """The next request to the coordinator."""
        while True:
            ask = super().due()
            if isinstance(ask.message, MetadataRequest):
                del self.open[0]
                self.engine.on_outcome(ask.token, metadata((1, 1, 1)), self.now_ms)
            elif ask.is_to_coordinator:
                return ask
            else:
                del self.open[0]


def joined(wire: Member, generation: int, numbers: list[int]) -> JoinGroupRequest:
    """The member joins a generation, and is assigned partitions; returns its JoinGroup."""
    ask = wire.answer(JoinGroupRequest, JoinGroupResponse(generation_id=generation, leader="other", member_id="me"))
    wire.answer(SyncGroupRequest, SyncGroupResponse(assignment=assignment_bytes({"t": numbers})))
    assert isinstance(ask.message, JoinGroupRequest)
    return ask.message


def offsets(*numbers: int) -> OffsetFetchResponse:
    partitions = [OffsetFetchResponsePartitions(partition_index=one, committed_offset=7) for one in numbers]
    topic = OffsetFetchResponseTopics(name="t", topic_id=TOPIC_ID, partitions=partitions)
    return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=[topic])])


def committed(number: int, error: Error = Error.NONE) -> OffsetCommitResponse:
    part = OffsetCommitResponsePartition(partition_index=number, error_code=error)
    return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", topic_id=TOPIC_ID, partitions=[part])])


def member(assignor: str = COOPERATIVE) -> tuple[GroupState, Member]:
    """A member that has partitions 0 and 1 in generation 1."""
    state = GroupState("t", "g", (("h", 1),), GroupSettings(assignor=assignor), rng=Random(1))
    wire = Member(state)
    wire.answer(FindCoordinatorRequest, FindCoordinatorResponse(coordinators=[Coordinator("g", 1, "h", 1)]))
    joined(wire, 1, [0, 1])
    wire.answer(OffsetFetchRequest, offsets(0, 1))
    return state, wire


def test_a_member_keeps_reading_and_gives_up_only_what_goes_to_another_one() -> None:
    state, wire = member()
    wire.answer(HeartbeatRequest, HeartbeatResponse(error_code=Error.REBALANCE_IN_PROGRESS))
    asked = wire.due().message
    assert isinstance(asked, JoinGroupRequest)
    assert list(state.assigned or ()) == [0, 1], "the partitions stay"
    told = subscriber_of(JoinGroupResponseMember("me", None, asked.protocols[0].metadata))
    assert (told.owned, told.generation) == ((("t", 0), ("t", 1)), 1)
    state.done(1, 9)
    wire.answer(JoinGroupRequest, JoinGroupResponse(generation_id=2, leader="other", member_id="me"))
    wire.answer(SyncGroupRequest, SyncGroupResponse(assignment=assignment_bytes({"t": [0]})))
    ask = wire.answer(OffsetCommitRequest, committed(1))
    assert isinstance(ask.message, OffsetCommitRequest)
    assert [one.committed_offset for one in ask.message.topics[0].partitions] == [9], "the next owner goes on here"
    asked = joined(wire, 3, [0])
    assert list(state.assigned or ()) == [0]
    told = subscriber_of(JoinGroupResponseMember("me", None, asked.protocols[0].metadata))
    assert (told.owned, told.generation) == ((("t", 0),), 2), "it joins again, so that another one gets the rest"


def test_a_member_gets_more_without_losing_what_it_has() -> None:
    state, wire = member()
    wire.answer(HeartbeatRequest, HeartbeatResponse(error_code=Error.REBALANCE_IN_PROGRESS))
    joined(wire, 2, [0, 1, 2])
    assert state.assigned == (0, 1, 2)
    ask = wire.answer(OffsetFetchRequest, offsets(2))
    assert isinstance(ask.message, OffsetFetchRequest)
    assert ask.message.groups[0].topics is not None
    assert ask.message.groups[0].topics[0].partition_indexes == [2]


@pytest.mark.parametrize("assignor", ["range", COOPERATIVE])
@pytest.mark.parametrize("error", [Error.ILLEGAL_GENERATION, Error.REBALANCE_IN_PROGRESS])
def test_a_refused_commit_is_not_sent_again_before_the_next_generation(assignor: str, error: Error) -> None:
    """A member asked for the same commit without a pause, for as long as its session."""
    state, wire = member(assignor)
    state.done(1, 9)
    state.commit()
    wire.answer(OffsetCommitRequest, committed(1, error))
    keeps = assignor == COOPERATIVE and error is Error.REBALANCE_IN_PROGRESS
    assert isinstance(wire.due().message, JoinGroupRequest)
    assert state.assigned == ((0, 1) if keeps else None)
    joined(wire, 2, [0, 1])
    if keeps:
        wire.answer(OffsetCommitRequest, committed(1))
