"""Heartbeats to consumer groups with very many topics or partitions: in several turns, and as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import pytest

from kraft import limits
from kraft.coordinators.groups import state
from kraft.coordinators.groups.consumer import draft, group, groups, hashing, targets
from kraft.coordinators.groups.consumer.group import ConsumerGroup
from kraft.coordinators.groups.shard import GroupShard
from kraft.coordinators.groups.state import consumer_group
from kraft.coordinators.runtime import encoding, loading
from metadata_log.records.metadata import FeatureLevelRecord, PartitionChangeRecord
from metadata_log.serde import Message, encode
from metadata_log.types import Uuid
from support.broker.group_clients import GROUPS, GROUPS_KEY, GroupBrokers, joining
from support.broker.request_brokers import NewTopic, topic_id, wire_request
from support.work_counted import instructions_run
from transport.protocol.errors import Error
from transport.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)
from transport.protocol.messages.consumer_protocol import ConsumerProtocolSubscription

HEARTBEAT: Final = 68
MINUTE_MS: Final = 60_000
FIRST, SECOND, THIRD = (str(topic_id(number)) for number in (7, 8, 9))
TOPICS: Final = limits.HEARTBEAT_TOPICS
PER_TOPIC: Final = 340
"""The most instructions of a turn for each topic, of 1,300 in all."""
FEW: Final = 20


def topics(count: int) -> list[NewTopic]:
    return [NewTopic(f"t{at}", Uuid(at.to_bytes(16, "big")), ((101,),)) for at in range(100, 100 + count)]


def beat(
    member: str, epoch: int = 0, names: Sequence[str] | None = None, owned: dict[Uuid, list[int]] | None = None
) -> ConsumerGroupHeartbeatRequest:
    """A heartbeat; one that joins has epoch 0."""
    told = None if owned is None else [ConsumerGroupHeartbeatRequestTopicPartitions(*one) for one in owned.items()]
    return ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id=member,
        member_epoch=epoch,
        rebalance_timeout_ms=-1 if epoch else MINUTE_MS,
        subscribed_topic_names=None if names is None else list(names),
        topic_partitions=told if epoch else [],
    )


class Turns(GroupBrokers):
    """Brokers whose turns are taken one by one."""

    def __init__(self, *some: NewTopic) -> None:
        super().__init__(GROUPS, *some)
        self.brokers.change(FeatureLevelRecord(name="group.version", feature_level=1))
        self.wait(0)
        self.requests = self.brokers.requests[101]

    @property
    def group(self) -> ConsumerGroup | None:
        """The group, with everything that is written."""
        return consumer_group(self.requests.groups.partitions[0].state, "g")

    @property
    def log_end(self) -> int:
        return self.brokers.part(101, GROUPS_KEY).log.end_offset

    def turns(self, message: Message, key: int = HEARTBEAT, version: int = 1) -> Iterator[Callable[[], None]]:
        """The turns until the answer to a heartbeat or another request, to be made by the caller."""
        brokers = self.brokers
        self._last_id += 1
        number = self._last_id
        request = wire_request(number, key, version, message, client_id="c")

        def first() -> None:
            outcome = self.requests.on_request(request, brokers.image, brokers.now_ms)
            self.take([] if outcome is None else [outcome])

        yield first
        while number not in self.answers:
            brokers.now_ms = max(brokers.now_ms, self.requests.agenda.deadline_ms)
            yield lambda: self.take(brokers.poll(101))
        self.last = self.answers.pop(number)

    last: ConsumerGroupHeartbeatResponse

    def told(self, message: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        """Make the turns of a heartbeat."""
        for turn in self.turns(message):
            turn()
        assert self.last.error_code == Error.NONE, self.last
        return self.last


def owned_by(told: ConsumerGroupHeartbeatResponse) -> dict[Uuid, list[int]]:
    assert told.assignment is not None
    return {one.topic_id: one.partitions for one in told.assignment.topic_partitions}


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few topics are many, and so are a few partitions."""
    for module in (group, groups):
        monkeypatch.setattr(module, "HEARTBEAT_TOPICS", FEW)
    monkeypatch.setattr(groups, "HEARTBEAT_PARTITIONS", FEW)


def test_no_turn_takes_long_with_many_topics() -> None:
    some = topics(TOPICS)
    names = [one.name for one in some]
    turns = Turns(*some)

    def longest(message: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        most = max(instructions_run(turn) for turn in turns.turns(message))
        assert most <= PER_TOPIC * TOPICS, (message.member_id, message.member_epoch, most / TOPICS)
        assert turns.last.error_code == Error.NONE
        return turns.last

    # The codecs are compiled, once in a process.
    turns.told(beat(THIRD, names=names[:FEW]))
    assert turns.ask(beat(THIRD, -1), 1).error_code == Error.NONE
    turns.wait(1000)
    first = longest(beat(FIRST, names=names))
    assert len(owned_by(first)) == TOPICS
    turns.wait(1000)
    second = longest(beat(SECOND, names=names))
    assert not owned_by(second)
    first = longest(beat(FIRST, first.member_epoch))
    assert len(owned_by(first)) == TOPICS // 2


@contextmanager
def noted(module: Any, name: str, patch: pytest.MonkeyPatch, calls: list[str]) -> Iterator[None]:
    right = getattr(module, name)

    def call(*given: Any, **named: Any) -> Any:
        calls.append(name)
        return right(*given, **named)

    with patch.context() as here:
        here.setattr(module, name, call)
        yield


def test_with_many_partitions_each_piece_of_work_has_a_turn(few: None, monkeypatch: pytest.MonkeyPatch) -> None:
    large = NewTopic("large", topic_id(3), ((101,),) * FEW)
    turns = Turns(large)
    calls: list[str] = []
    most: list[list[str]] = []
    monkeypatch.setitem(targets.ASSIGNORS, "uniform", partial(_called, targets.ASSIGNORS["uniform"], calls))
    with (
        noted(hashing, "topic_hash", monkeypatch, calls),
        noted(groups, "reconciled", monkeypatch, calls),
        noted(draft.Draft, "target", monkeypatch, calls),
        noted(draft.Draft, "assignment", monkeypatch, calls),
        noted(encoding, "encode_value", monkeypatch, calls),
        noted(state, "replay", monkeypatch, calls),
    ):
        for turn in turns.turns(beat(FIRST, names=["large"])):
            turn()
            most.append(sorted(set(calls)))
            calls.clear()
    assert owned_by(turns.last) == {large.id: list(range(FEW))}
    # The small records need no turn of their own.
    heavy = [[one for one in made if one != "encode_value"] for made in most]
    assert max(map(len, heavy)) == 1, most
    made = {one for each in most for one in each}
    assert made == {"topic_hash", "assignor", "target", "reconciled", "assignment", "encode_value"}


def _called(right: Callable[[Any], Any], calls: list[str], spec: Any) -> Any:
    calls.append("assignor")
    return right(spec)


def test_nothing_shows_before_all_does(few: None) -> None:
    some = topics(FEW)
    names = [one.name for one in some]
    turns = Turns(*some)
    shown: list[tuple[object, int]] = []
    for turn in turns.turns(beat(FIRST, names=names)):
        shown.append((turns.group, turns.log_end))
        turn()
    assert len(shown) > 5
    assert set(shown) == {(None, 0)}
    known = turns.group
    assert known is not None
    assert (known.members[FIRST].epoch, len(known.members[FIRST].assigned)) == (2, FEW)


def test_the_log_is_that_of_one_turn(monkeypatch: pytest.MonkeyPatch, few: None) -> None:
    some = topics(FEW)
    names = [one.name for one in some]

    def log() -> bytes:
        turns = Turns(*some)
        start_ms = turns.brokers.now_ms
        first = turns.told(beat(FIRST, names=names))
        turns.wait(2000 + start_ms - turns.brokers.now_ms)
        turns.told(beat(SECOND, names=names))
        turns.wait(4000 + start_ms - turns.brokers.now_ms)
        turns.told(beat(FIRST, first.member_epoch))
        turns.wait(6000 + start_ms - turns.brokers.now_ms)
        part = turns.brokers.part(101, GROUPS_KEY)
        data = turns.brokers.managers[101].hosting.read(part, 0, 1 << 20)
        assert isinstance(data, bytes | memoryview), data
        return bytes(data)

    in_portions = log()
    for module in (group, groups):
        monkeypatch.setattr(module, "HEARTBEAT_TOPICS", 10**6)
    monkeypatch.setattr(groups, "HEARTBEAT_PARTITIONS", 10**6)
    assert log() == in_portions


@pytest.mark.parametrize("changes", [1, limits.OPERATION_BEGINNINGS - 1, limits.OPERATION_BEGINNINGS])
def test_a_heartbeat_begins_anew_when_others_change_the_group(changes: int, few: None) -> None:
    """When they have changed it several times, the member is told to ask again: no long turn makes up for it."""
    some = topics(FEW)
    names = [one.name for one in some]
    turns = Turns(*some)
    for member in [str(topic_id(20 + number)) for number in range(changes)]:
        turns.told(beat(member, names=names))
        turns.wait(1000)
    made = 0
    for turn in turns.turns(beat(SECOND, names=names)):
        turn()
        if made < changes:
            # A member leaves, which takes no turns: what it had is free.
            assert turns.ask(beat(str(topic_id(20 + made)), -1), 1).error_code == Error.NONE
            made += 1
    assert made == changes
    if changes == limits.OPERATION_BEGINNINGS:
        assert turns.last.error_code == Error.COORDINATOR_LOAD_IN_PROGRESS
        turns.told(beat(SECOND, names=names))
    assert turns.last.error_code == Error.NONE
    known = turns.group
    assert known is not None
    assert set(known.members) == {SECOND}
    assert len(owned_by(turns.last)) == FEW, "the targets are those without the members that have left"
    assert known.assignment_epoch == known.epoch


def test_a_classic_member_joins_a_large_group_in_several_turns(few: None) -> None:
    """It was one turn, however many topics the group has."""
    some = topics(FEW)
    names = [one.name for one in some]
    turns = Turns(*some)
    turns.told(beat(FIRST, names=names))
    turns.wait(1000)
    subscription = encode(ConsumerProtocolSubscription(names), 1, (1).to_bytes(2, "big"))
    protocols = (("range", subscription),)
    member_id = turns.ask(joining("g", protocols=protocols)).member_id
    ends: list[int] = []
    for turn in turns.turns(joining("g", member_id=member_id, protocols=protocols), 11, 9):
        ends.append(turns.log_end)
        turn()
    assert len(ends) > 5
    assert set(ends[:-1]) == {ends[0]}, "nothing shows before all does"
    joined: Any = turns.last
    known = turns.group
    assert known is not None
    assert (joined.error_code, joined.generation_id) == (Error.NONE, known.epoch)
    assert set(known.members) == {FIRST, member_id}


def test_a_classic_group_that_came_meanwhile_stays(few: None) -> None:
    some = topics(FEW)
    turns = Turns(*some)
    waiting = turns.turns(beat(FIRST, names=[one.name for one in some]))
    next(waiting)()
    turns.send(joining("g", protocols=(("range", b"no subscription"),)), 3)
    for turn in waiting:
        turn()
    assert turns.last.error_code == Error.GROUP_ID_NOT_FOUND
    shard = turns.requests.groups.partitions[0].shard
    assert isinstance(shard, GroupShard)
    assert "g" in shard.classic.live
    assert turns.group is None


def test_a_coordinator_that_moves_answers_a_heartbeat_under_way(few: None) -> None:
    some = topics(FEW)
    turns = Turns(*some)
    waiting = turns.turns(beat(FIRST, names=[one.name for one in some]))
    next(waiting)()
    next(waiting)()
    turns.brokers.change(PartitionChangeRecord(partition_id=0, topic_id=GROUPS.id, leader=102))
    for turn in waiting:
        turn()
    assert turns.last.error_code == Error.NOT_COORDINATOR


def test_a_heartbeat_that_changes_nothing_takes_one_turn(few: None) -> None:
    some = topics(FEW)
    turns = Turns(*some)
    first = turns.told(beat(FIRST, names=[one.name for one in some]))
    assert len(list(_made(turns.turns(beat(FIRST, first.member_epoch))))) == 1
    assert turns.last.assignment is None


def _made(turns: Iterator[Callable[[], None]]) -> Iterator[int]:
    for number, turn in enumerate(turns):
        turn()
        yield number


def test_a_large_record_is_decoded_and_replayed_in_two_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = Turns(NewTopic("large", topic_id(3), ((200,),) * 12_000))
    turns.told(beat(FIRST, names=["large"]))
    before = turns.group
    calls: list[str] = []
    made: list[str] = []
    with noted(loading, "decode_pair", monkeypatch, calls), noted(state, "replay", monkeypatch, calls):
        turns.brokers.change(PartitionChangeRecord(partition_id=0, topic_id=GROUPS.id, leader=101))
        for _ in range(20):
            turns.brokers.now_ms += 2
            turns.take(turns.brokers.poll(101))
            made.append(" ".join(calls))
            calls.clear()
    assert turns.group == before
    both = "decode_pair replay"
    # The records of the member, the group, the target of the member, all targets, and the assignment of the member.
    assert [one for one in made if one] == [f"{both} {both} {both}", both, "decode_pair", "replay"]
