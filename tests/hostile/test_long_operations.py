"""The cost of operations of groups at the limits of clients, in instructions: less than one turn."""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType
from typing import Any, Final

import pytest

from kraft.broker.requests import Requests
from kraft.coordinators.groups.shares import states
from kraft.limits import NAMED_TOPICS, TURN_MS
from metadata_log.records.metadata import FeatureLevelRecord
from metadata_log.types import Uuid
from support.broker.group_clients import GROUPS, GroupBrokers
from support.broker.request_brokers import NewTopic, due_of, topic_id
from support.broker.share_groups import ShareBrokers
from support.hostile.instructions import SECONDS_PER_INSTRUCTION
from support.work_counted import count_opcodes, is_ours, trace
from transport.protocol.errors import Error
from transport.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from transport.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

TURN: Final = int(TURN_MS / 1000 / SECONDS_PER_INSTRUCTION)
BEGINNINGS: Final = (Requests.on_request.__code__, due_of.__code__)
PARTITIONS: Final = 40_000
MEMBER: Final = str(Uuid(b"m" * 16))


def longest_turn(work: Callable[[], object]) -> int:
    """The most instructions of our code that a turn of a broker executes meanwhile: a request, or what is due."""
    turns = [0]

    def on_instruction(_: FrameType, event: str, __: Any) -> Any:
        turns[-1] += event == "opcode"
        return on_instruction

    def on_call(frame: FrameType, _: str, __: Any) -> Any:
        if frame.f_code in BEGINNINGS:
            turns.append(0)
        if not is_ours(frame.f_code):
            return None
        count_opcodes(frame)
        return on_instruction

    trace(work, on_call)
    return max(turns)


class Group:
    """A broker with a consumer group of one member."""

    def __init__(self, *topics: NewTopic) -> None:
        self._brokers = GroupBrokers(GROUPS, *topics)
        self._brokers.brokers.change(FeatureLevelRecord(name="group.version", feature_level=1))
        self._brokers.wait(0)
        self._epoch = 0
        self.assigned = 0

    def _ask(self, message: ConsumerGroupHeartbeatRequest) -> Any:
        """The answer, which takes several turns."""
        sent = self._brokers.send(message, 1)
        self._brokers.wait(1000)
        return self._brokers.answers.pop(sent)

    def names(self, names: list[str]) -> int:
        """Let the member name these topics, and return its longest turn."""
        message = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=MEMBER,
            member_epoch=self._epoch,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=names,
            topic_partitions=[],
        )
        answers: list[Any] = []
        cost = longest_turn(lambda: answers.append(self._ask(message)))
        (answer,) = answers
        assert answer.error_code == Error.NONE, answer
        self._epoch = answer.member_epoch
        self._brokers.wait(5000)
        self.assigned = sum(len(one.partitions) for one in answer.assignment.topic_partitions)
        return cost


def many_topics() -> list[NewTopic]:
    return [NewTopic(f"t{at}", Uuid(at.to_bytes(16, "big")), ((200,),)) for at in range(100, 100 + 2 * NAMED_TOPICS)]


def test_a_member_gets_very_many_partitions_within_a_turn() -> None:
    group = Group(NewTopic("large", topic_id(3), ((200,),) * PARTITIONS))
    assert group.names(["large"]) < TURN
    assert group.assigned == PARTITIONS


def test_a_member_names_as_many_topics_as_it_may_and_then_others_within_a_turn_each() -> None:
    topics = many_topics()
    group = Group(*topics)
    first, others = [[one.name for one in some] for some in (topics[:NAMED_TOPICS], topics[NAMED_TOPICS:])]
    assert group.names(first) < TURN
    assert group.assigned == NAMED_TOPICS
    # It gives up the first ones before it gets the others.
    assert max(group.names(others), group.names(others)) < TURN
    assert group.assigned == NAMED_TOPICS


def share_turns(group: ShareBrokers, epoch: int) -> tuple[int, Any]:
    """The longest turn from a heartbeat on, until all share coordinators have answered, and the answer."""
    names = None if epoch else ["large"]

    def beat() -> None:
        group.send(101, ShareGroupHeartbeatRequest("g", MEMBER, epoch, None, names))
        group.wait(2000)

    cost = longest_turn(beat)
    (answer,) = group.answers.values()
    group.answers.clear()
    return cost, answer


def test_the_states_of_very_many_share_partitions_begin_within_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker coordinates the group and all of its states, and each partition has other replicas."""
    monkeypatch.setattr(states, "SHARE_PARTITIONS_PER_GROUP", 2500)
    replicas = tuple((150 + at % 100, 110 + at // 400) for at in range(PARTITIONS))
    group = ShareBrokers(NewTopic("large", topic_id(3), replicas), states=(101,) * 10)
    first, answer = share_turns(group, 0)
    assert (answer.error_code, answer.member_epoch) == (Error.NONE, 2)
    second, answer = share_turns(group, answer.member_epoch)
    assert [len(one.partitions) for one in answer.assignment.topic_partitions] == [2500]
    # Half of it, as much of this work is done in C.
    assert max(first, second) < TURN // 2
