"""What a member of a share group asks its coordinator and the leaders, request by request."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.client import Acknowledged, AcknowledgeType, AcquireMode, ClientError, ConsumedRecord, ShareSettings
from kraft.client.state.requests import Ask
from kraft.client.state.share_acks import AckRange, ranges_of
from kraft.client.state.sharing import FLUSH_MS, ShareState
from metadata_log.records.batch_builder import build_batch
from support.kraft.client_wires import TOPIC_ID, Wire, metadata
from transport.protocol.errors import Error
from transport.protocol.inbound import Cause
from transport.protocol.messages import share_acknowledge, share_fetch
from transport.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from transport.protocol.messages.metadata import MetadataRequest
from transport.protocol.messages.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from transport.protocol.messages.share_fetch import AcquiredRecords, ShareFetchRequest, ShareFetchResponse
from transport.protocol.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

COORDINATOR = FindCoordinatorResponse(coordinators=[Coordinator(node_id=1, host="h", port=1)])
LOCK_MS = 30_000
EXPLICIT = ShareSettings(explicit=True)


def beat(epoch: int, partitions: Sequence[int] | None = None, error: Error = Error.NONE) -> ShareGroupHeartbeatResponse:
    assigned = None if partitions is None else Assignment([TopicPartitions(TOPIC_ID, list(partitions))])
    return ShareGroupHeartbeatResponse(
        error_code=error, member_epoch=epoch, heartbeat_interval_ms=5_000, assignment=assigned
    )


def records(first: int, count: int) -> bytes:
    return build_batch(first, 0, 1_000, [b"v%d" % (first + one) for one in range(count)])


def part(
    number: int, first: int, last: int, *, count: int = 1, data: bytes | None = None, acknowledged: Error = Error.NONE
) -> share_fetch.PartitionData:
    return share_fetch.PartitionData(
        partition_index=number,
        acknowledge_error_code=acknowledged,
        records=records(first, last - first + 1) if data is None else data,
        acquired_records=[AcquiredRecords(first, last, count)],
    )


def fetched(*parts: share_fetch.PartitionData, error: Error = Error.NONE) -> ShareFetchResponse:
    topics = [share_fetch.ShareFetchableTopicResponse(TOPIC_ID, list(parts))] if parts else []
    return ShareFetchResponse(error_code=error, acquisition_lock_timeout_ms=LOCK_MS, responses=topics)


def acknowledged(codes: dict[int, Error] | None = None, error: Error = Error.NONE) -> ShareAcknowledgeResponse:
    parts = [share_acknowledge.PartitionData(number, code) for number, code in (codes or {}).items()]
    topics = [share_acknowledge.ShareAcknowledgeTopicResponse(TOPIC_ID, parts)] if parts else []
    return ShareAcknowledgeResponse(error_code=error, responses=topics)


class Member:
    """A member with its wire. Partition 0 is led by broker 1, and 1 by broker 2, unless the test says otherwise."""

    def __init__(self, settings: ShareSettings = ShareSettings(), leaders: Sequence[int] = (1,)) -> None:
        self.state = ShareState("t", "g", [("h", 1)], settings, rng=Random(1))
        self.wire = Wire(self.state)
        self.wire.answer(MetadataRequest, metadata(leaders))
        self.wire.answer(FindCoordinatorRequest, COORDINATOR)
        joined = self.wire.answer(ShareGroupHeartbeatRequest, beat(2, range(len(leaders)))).message
        assert isinstance(joined, ShareGroupHeartbeatRequest)
        assert (joined.member_epoch, joined.subscribed_topic_names) == (0, ["t"])

    def want(self) -> None:
        self.state.wants_records = True

    def take(self) -> list[ConsumedRecord]:
        return self.state.take_records(self.wire.now_ms)

    def first(self, first: int, last: int) -> list[ConsumedRecord]:
        """The records of the first fetch of partition 0."""
        self.want()
        asked = self.wire.answer(ShareFetchRequest, fetched(part(0, first, last))).message
        assert isinstance(asked, ShareFetchRequest)
        assert (asked.share_session_epoch, ranges(asked)) == (0, {0: []})
        taken = self.take()
        self.state.wants_records = False
        return taken

    def say(self, record: ConsumedRecord, said: AcknowledgeType = AcknowledgeType.ACCEPT) -> None:
        self.state.say(record, said, self.wire.now_ms)

    def fetch(self, outcome: ShareFetchResponse | Cause) -> ShareFetchRequest:
        message = self.wire.answer(ShareFetchRequest, outcome).message
        assert isinstance(message, ShareFetchRequest)
        return message

    def acknowledge(self, outcome: ShareAcknowledgeResponse | Cause) -> ShareAcknowledgeRequest:
        message = self.wire.answer(ShareAcknowledgeRequest, outcome).message
        assert isinstance(message, ShareAcknowledgeRequest)
        return message


def ranges(request: ShareFetchRequest | ShareAcknowledgeRequest) -> dict[int, list[tuple[int, int, list[int]]]]:
    return {
        one.partition_index: [
            (each.first_offset, each.last_offset, each.acknowledge_types) for each in one.acknowledgement_batches
        ]
        for topic in request.topics
        for one in topic.partitions
    }


def test_acknowledgements_travel_with_the_next_fetch() -> None:
    member = Member()
    taken = member.first(10, 13)
    assert [(one.offset, one.value, one.delivery_count) for one in taken] == [
        (number, b"v%d" % number, 1) for number in range(10, 14)
    ]
    assert member.state.lock_ms == LOCK_MS
    member.say(taken[0])
    member.say(taken[1])
    member.say(taken[3], AcknowledgeType.REJECT)
    member.want()
    asked = member.fetch(fetched(part(0, 20, 20)))
    assert (asked.share_session_epoch, asked.max_records) == (1, 500)
    assert ranges(asked) == {0: [(10, 11, [1]), (13, 13, [3])]}
    assert member.state.take_outcomes() == [Acknowledged(0, (10, 11, 13))]
    member.take()
    assert ranges(member.fetch(fetched())) == {}


def test_without_a_fetch_they_go_alone_after_a_while() -> None:
    member = Member()
    taken = member.first(0, 1)
    member.say(taken[0], AcknowledgeType.RELEASE)
    said_ms = member.wire.now_ms
    asked = member.acknowledge(acknowledged({0: Error.NONE}))
    assert (asked.share_session_epoch, asked.is_renew_ack, ranges(asked)) == (1, False, {0: [(0, 0, [2])]})
    assert member.wire.now_ms - said_ms == FLUSH_MS
    member.say(taken[1])
    member.state.commit()
    said_ms = member.wire.now_ms
    assert not member.state.is_acknowledged
    assert member.acknowledge(acknowledged({0: Error.INVALID_RECORD_STATE})).share_session_epoch == 2
    assert member.wire.now_ms == said_ms
    assert member.state.is_acknowledged
    assert member.state.take_outcomes() == [
        Acknowledged(0, (0,)),
        Acknowledged(0, (1,), "INVALID_RECORD_STATE", Error.INVALID_RECORD_STATE),
    ]


def test_the_last_word_counts_and_a_second_one_after_it_was_sent_is_refused() -> None:
    member = Member(EXPLICIT)
    [one] = member.first(0, 0)
    member.say(one, AcknowledgeType.REJECT)
    member.say(one)
    assert ranges(member.acknowledge(acknowledged({0: Error.NONE}))) == {0: [(0, 0, [1])]}
    member.state.take_outcomes()
    member.say(one)
    [refused] = member.state.take_outcomes()
    assert refused.error is Error.INVALID_RECORD_STATE
    member.state.finish([one], member.wire.now_ms)
    assert member.state.take_outcomes() == []


def test_a_renewal_goes_at_once_and_keeps_the_record() -> None:
    member = Member(EXPLICIT)
    one, other = member.first(0, 1)
    member.say(one, AcknowledgeType.RENEW)
    member.say(other)
    member.want()
    asked = member.acknowledge(acknowledged({0: Error.NONE}))
    assert (asked.is_renew_ack, ranges(asked)) == (True, {0: [(0, 1, [4, 1])]})
    member.say(one, AcknowledgeType.RENEW)
    member.acknowledge(acknowledged({0: Error.INVALID_RECORD_STATE}))
    member.state.take_outcomes()
    member.say(one)
    assert [each.error for each in member.state.take_outcomes()] == [Error.INVALID_RECORD_STATE]


def test_offsets_without_a_record_are_gaps() -> None:
    member = Member()
    member.want()
    data = records(10, 2) + records(14, 3)
    answer = share_fetch.PartitionData(
        partition_index=0,
        records=data,
        acquired_records=[AcquiredRecords(9, 12, 1), AcquiredRecords(15, 18, 3), AcquiredRecords(20, 1 << 40, 1)],
    )
    member.fetch(fetched(answer))
    assert [(one.offset, one.delivery_count) for one in member.take()] == [(10, 1), (11, 1), (15, 3), (16, 3)]
    assert ranges(member.fetch(fetched())) == {
        0: [(9, 9, [0]), (12, 12, [0]), (17, 18, [0]), (20, 1 << 40, [0])],
    }


def test_records_are_not_fetched_ahead_and_those_whose_locks_ended_are_not_given_out() -> None:
    member = Member(leaders=(1, 2))
    member.want()
    asks = [member.wire.next(ShareFetchRequest), member.wire.next(ShareFetchRequest)]
    assert {ask.to for ask in asks} == {("h", 1), ("h", 2)}
    numbers = {("h", 1): 0, ("h", 2): 1}
    for ask in asks:
        member.state.on_outcome(ask.token, fetched(part(numbers[ask.to], 0, 0)), member.wire.now_ms)
        if ask is asks[0]:
            assert len(member.take()) == 1
            member.state.wants_records = False
    assert isinstance(member.wire.next(ShareGroupHeartbeatRequest), Ask)
    member.wire.now_ms += LOCK_MS
    assert member.take() == []


def test_a_limit_asks_one_leader_at_a_time_and_each_in_turn() -> None:
    member = Member(ShareSettings(mode=AcquireMode.RECORD_LIMIT, max_records=3), leaders=(1, 2))
    member.want()
    asked: list[tuple[str, int]] = []
    for _ in range(4):
        ask = member.wire.next(ShareFetchRequest)
        assert isinstance(ask.message, ShareFetchRequest)
        assert (ask.message.max_records, ask.message.share_acquire_mode) == (3, 1)
        assert not member.wire.open
        member.state.on_outcome(ask.token, fetched(), member.wire.now_ms)
        asked.append(ask.to)
    assert asked == [("h", 1), ("h", 2)] * 2


@pytest.mark.parametrize("error", [Error.SHARE_SESSION_NOT_FOUND, Error.INVALID_SHARE_SESSION_EPOCH])
def test_a_session_that_is_gone_is_opened_again_with_the_same_acknowledgements(error: Error) -> None:
    member = Member()
    taken = member.first(0, 1)
    member.say(taken[0])
    member.want()
    assert ranges(member.fetch(fetched(error=error))) == {0: [(0, 0, [1])]}
    member.wire.answer(MetadataRequest, metadata((1,)))
    opened = member.fetch(fetched())
    assert (opened.share_session_epoch, ranges(opened)) == (0, {0: []})
    again = member.fetch(fetched(part(0, 5, 5)))
    assert (again.share_session_epoch, ranges(again)) == (1, {0: [(0, 0, [1])]})
    assert member.state.take_outcomes() == [Acknowledged(0, (0,))]


def test_a_session_for_acknowledgements_alone_acquires_nothing() -> None:
    member = Member()
    [one] = member.first(0, 0)
    member.say(one)
    member.state.commit()
    member.acknowledge(acknowledged(error=Error.SHARE_SESSION_NOT_FOUND))
    member.wire.answer(MetadataRequest, metadata((1,)))
    opened = member.fetch(fetched())
    assert (opened.max_records, opened.max_wait_ms, opened.share_session_epoch) == (0, 0, 0)
    member.acknowledge(acknowledged({0: Error.NONE}))
    assert member.state.is_acknowledged


def test_with_the_connection_everything_held_is_lost() -> None:
    member = Member(EXPLICIT)
    one, two, three = member.first(0, 2)
    member.say(one)
    member.want()
    ask = member.wire.next(ShareFetchRequest)
    member.say(two)
    member.wire.open.insert(0, ask)
    member.fetch(Cause.RESET)
    member.say(three)
    outcomes = member.state.take_outcomes()
    assert [(each.offsets, each.error) for each in outcomes] == [
        ((0,), None),
        ((1,), None),
        ((2,), Error.INVALID_RECORD_STATE),
    ]
    assert outcomes[0].failure == "nobody knows whether this was done: h:1: lost"
    member.wire.answer(MetadataRequest, metadata((1,)))
    opened = member.fetch(fetched(part(0, 0, 2, count=2)))
    assert (opened.share_session_epoch, ranges(opened)) == (0, {0: []})
    assert [one.delivery_count for one in member.take()] == [2, 2, 2]


def test_a_partition_with_another_leader_is_forgotten_by_the_former_one() -> None:
    member = Member(leaders=(1, 1))
    member.want()
    first = member.fetch(fetched(part(0, 0, 0), share_fetch.PartitionData(1, Error.NOT_LEADER_OR_FOLLOWER)))
    assert ranges(first) == {0: [], 1: []}
    [record] = member.take()
    member.say(record)
    member.wire.answer(MetadataRequest, metadata((1, 2), epoch=1))
    asks = [member.wire.next(ShareFetchRequest), member.wire.next(ShareFetchRequest)]
    found = {ask.to: ask.message for ask in asks}
    old, new = found["h", 1], found["h", 2]
    assert isinstance(old, ShareFetchRequest)
    assert isinstance(new, ShareFetchRequest)
    assert [one.partitions for one in old.forgotten_topics_data] == [[1]]
    assert ranges(old) == {0: [(0, 0, [1])]}
    assert ranges(new) == {1: []}


def test_a_fenced_member_joins_again_with_its_sessions() -> None:
    member = Member()
    member.first(0, 0)
    member.wire.answer(ShareGroupHeartbeatRequest, beat(0, error=Error.UNKNOWN_MEMBER_ID))
    again = member.wire.answer(ShareGroupHeartbeatRequest, beat(4, [0])).message
    assert isinstance(again, ShareGroupHeartbeatRequest)
    assert (again.member_epoch, again.subscribed_topic_names) == (0, ["t"])
    member.want()
    assert member.fetch(fetched()).share_session_epoch == 1


def test_a_member_without_partitions_asks_sooner_and_more_rarely() -> None:
    state = ShareState("t", "g", [("h", 1)], ShareSettings(), rng=Random(1))
    wire = Wire(state)
    wire.answer(MetadataRequest, metadata((1,)))
    wire.answer(FindCoordinatorRequest, COORDINATOR)
    times: list[int] = []
    for _ in range(7):
        wire.answer(ShareGroupHeartbeatRequest, beat(2, []))
        times.append(wire.now_ms)
    assert [after - before for before, after in pairwise(times)] == [250, 500, 1000, 2000, 4000, 5000]


def test_the_end_sends_what_was_said_and_leaves() -> None:
    member = Member(EXPLICIT)
    one, _ = member.first(0, 1)
    member.say(one)
    member.state.close()
    final = member.acknowledge(acknowledged({0: Error.NONE}))
    assert (final.share_session_epoch, ranges(final)) == (-1, {0: [(0, 0, [1])]})
    left = member.wire.answer(ShareGroupHeartbeatRequest, beat(-1)).message
    assert isinstance(left, ShareGroupHeartbeatRequest)
    assert left.member_epoch == -1
    assert member.state.is_closed


def test_whoever_has_not_joined_leaves_without_a_word() -> None:
    state = ShareState("t", "g", [("h", 1)], ShareSettings(), rng=Random(1))
    state.close()
    state.poll(0)
    assert state.is_closed


@pytest.mark.parametrize("where", ["whole", "partition"])
def test_a_refusal_ends_the_work(where: str) -> None:
    member = Member()
    member.want()
    denied = share_fetch.PartitionData(0, Error.TOPIC_AUTHORIZATION_FAILED)
    whole = fetched(error=Error.GROUP_AUTHORIZATION_FAILED)
    with pytest.raises(ClientError, match="AUTHORIZATION_FAILED"):
        member.fetch(whole if where == "whole" else fetched(denied))


def test_a_leader_that_gives_nothing_for_long_is_an_error() -> None:
    member = Member(ShareSettings(timeout_ms=2_000))
    member.want()
    unready = fetched(share_fetch.PartitionData(0, Error.UNKNOWN_SERVER_ERROR))
    began_ms = member.wire.now_ms

    def ask() -> None:
        due = member.wire.due()
        match due.message:
            case MetadataRequest():
                member.wire.answer(MetadataRequest, metadata((1,)))
            case ShareGroupHeartbeatRequest():
                member.wire.answer(ShareGroupHeartbeatRequest, beat(2))
            case _:
                member.fetch(unready)

    def ask_on() -> None:
        while True:
            ask()

    with pytest.raises(ClientError, match="handed nothing out within 2 s: partition t-0: UNKNOWN_SERVER_ERROR"):
        ask_on()
    assert 2_000 <= member.wire.now_ms - began_ms < 4_000


@given(
    st.dictionaries(st.integers(0, 40), st.sampled_from(list(AcknowledgeType)[1:])),
    st.sets(st.integers(0, 40)),
)
def test_ranges_say_each_offset_once_and_in_order(decided: dict[int, AcknowledgeType], gaps: set[int]) -> None:
    spans = [(one, one) for one in sorted(gaps - decided.keys())]
    found: list[AckRange] = ranges_of(decided, spans)
    said: dict[int, int] = {}
    last = -1
    for one in found:
        assert last < one.first <= one.last
        last = one.last
        width = one.last - one.first + 1
        assert len(one.types) in {1, width}
        types = one.types * width if len(one.types) == 1 else one.types
        said |= dict(zip(range(one.first, one.last + 1), types, strict=True))
    assert said == {offset: int(each) for offset, each in decided.items()} | {one: 0 for one, _ in spans}
