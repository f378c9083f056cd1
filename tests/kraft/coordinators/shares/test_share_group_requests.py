"""Requests about share groups at brokers in virtual time: what goes wrong in between, and bounds."""

from __future__ import annotations

from typing import Any, Final

import pytest
from msgspec.structs import replace

from kraft.coordinators.shares import state_calls
from kraft.limits import SHARE_OFFSETS_PER_REQUEST
from metadata_log.records.metadata import PartitionChangeRecord
from support.broker.request_brokers import NewTopic, topic_id
from support.broker.share_groups import OFFSETS, ShareBrokers
from transport.protocol.errors import Error
from transport.protocol.messages import alter_share_group_offsets as alterations
from transport.protocol.messages import describe_share_group_offsets as descriptions
from transport.protocol.messages.delete_groups import DeleteGroupsRequest
from transport.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from transport.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

WORK: Final = NewTopic("work", topic_id(50), ((101,), (102,), (103,)))
PATIENCE_MS: Final = 60_000


def alteration(*starts: int, group: str = "g") -> alterations.AlterShareGroupOffsetsRequest:
    parts = [alterations.AlterShareGroupOffsetsRequestPartition(*one) for one in enumerate(starts)]
    return alterations.AlterShareGroupOffsetsRequest(
        group, [alterations.AlterShareGroupOffsetsRequestTopic("work", parts)]
    )


def offsets_of(world: ShareBrokers, broker_id: int = 101) -> dict[int, tuple[int, int]]:
    """The start offset and the lag of each partition."""
    asked = descriptions.DescribeShareGroupOffsetsRequestGroup("g", None)
    (group,) = world.ask(broker_id, descriptions.DescribeShareGroupOffsetsRequest([asked])).groups
    assert group.error_code == 0, group
    return {one.partition_index: (one.start_offset, one.lag) for topic in group.topics for one in topic.partitions}


def test_a_request_alters_so_many_offsets() -> None:
    world = ShareBrokers(WORK)
    parts = [alterations.AlterShareGroupOffsetsRequestPartition(0, 1)] * (SHARE_OFFSETS_PER_REQUEST + 1)
    topics = [alterations.AlterShareGroupOffsetsRequestTopic("work", parts)]
    answer = world.ask(101, alterations.AlterShareGroupOffsetsRequest("g", topics))
    assert answer.error_code == Error.INVALID_REQUEST
    assert offsets_of(world) == {}


def test_calls_that_have_no_room_are_refused_and_heartbeats_ask_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ShareBrokers(WORK, initialize_retry_ms=5000)
    monkeypatch.setattr(state_calls, "STATE_CALLS_WAITING", 2)
    assert world.ask(101, alteration(1, 1, 1)).error_code == Error.COORDINATOR_NOT_AVAILABLE
    beat = ShareGroupHeartbeatRequest("g", "m", 0, None, ["work"])
    assert world.ask(101, beat).member_epoch == 2
    assert offsets_of(world) == {}
    monkeypatch.setattr(state_calls, "STATE_CALLS_WAITING", 3)
    world.wait(5000)
    world.ask(101, replace(beat, member_epoch=2, subscribed_topic_names=None))
    assert set(offsets_of(world)) == {0, 1, 2}


def test_few_calls_are_open_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_calls, "STATE_CALLS_AT_ONCE", 1)
    world = ShareBrokers(WORK)
    answer = world.ask(101, alteration(3, 4, 5))
    assert [one.error_code for one in answer.responses[0].partitions] == [0, 0, 0]
    assert {number: start for number, (start, _) in offsets_of(world).items()} == {0: 3, 1: 4, 2: 5}


def test_a_leader_that_tells_no_end_leaves_the_lag_unknown() -> None:
    world = ShareBrokers(WORK)
    world.ask(101, alteration(0, 0, 0))
    assert {lag for _, lag in offsets_of(world).values()} == {0}
    world.deaf = {103}
    found = offsets_of(world)
    assert [found[number] for number in range(3)] == [(0, 0), (0, 0), (0, -1)]


@pytest.mark.parametrize("what", ["alter", "forget", "delete"])
def test_a_coordinator_that_is_gone_meanwhile_says_so(what: str) -> None:
    """The request was written, and the share coordinators were asked; the answer is for another broker to give."""
    world = ShareBrokers(WORK)
    world.ask(101, alteration(1, 1, 1))
    messages: dict[str, Any] = {
        "alter": alteration(2, 2, 2),
        "forget": DeleteShareGroupOffsetsRequest("g", [DeleteShareGroupOffsetsRequestTopic("work")]),
        "delete": DeleteGroupsRequest(["g"]),
    }
    world.down = {102, 103}
    request_id = world.send(101, messages[what])
    world.settle()
    assert request_id not in world.answers
    away = [PartitionChangeRecord(partition_id=number, topic_id=OFFSETS, leader=-1) for number in range(4)]
    world.brokers.change(*away)
    world.wait(PATIENCE_MS)
    answer: Any = world.answers.pop(request_id)
    error = answer.results[0].error_code if what == "delete" else answer.error_code
    assert error == Error.NOT_COORDINATOR
