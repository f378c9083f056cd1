"""Members of share groups at the leaders of partitions: sessions, waits, connections, failures, rights and limits."""

from __future__ import annotations

from typing import Any

import pytest

from kraft import limits
from kraft.access.authorizer import AclOperation, AclResource, AuthorizerSettings
from kraft.coordinators.shares.persister import NO_OFFSET, ShareKey
from metadata_log.records.metadata import FeatureLevelRecord, PartitionChangeRecord
from support.broker.request_brokers import NewTopic, batch, produce, rule, topic_id
from support.broker.share_leaders import ShareBrokers, acquired, share_acknowledge, share_fetch
from transport.protocol.errors import Error
from transport.protocol.messages.share_fetch import ForgottenTopic

T = NewTopic("t", topic_id(1), ((101,), (101,), (102,)))
KEY = ShareKey("g", T.id, 0)


def world(topic: NewTopic = T, **settings: Any) -> ShareBrokers:
    """Brokers with a group that begins at the start of the log."""
    brokers = ShareBrokers([topic], **settings)
    brokers.configure("g", share_auto_offset_reset="earliest")
    brokers.begin("g", topic)
    return brokers


def append(brokers: ShareBrokers, *values: bytes, number: int = 0, topic: NewTopic = T) -> None:
    """Append a batch."""
    request = produce((topic.id, number), batch(*values))
    brokers.ask(topic.partitions[number][0], request, version=13)
    brokers.settle()


def test_a_member_gets_each_record_once() -> None:
    brokers = world()
    append(brokers, b"a", b"b", b"c")
    append(brokers, b"d", number=1)
    first = brokers.ask(101, share_fetch(T, numbers=(0, 1)))
    assert sorted(acquired(first)) == [(0, 0, 2, 1), (1, 0, 0, 1)]
    assert first.acquisition_lock_timeout_ms == 30_000
    assert brokers.ask(101, share_fetch(T, 1, wait_ms=100)).responses == []
    both = brokers.ask(101, share_fetch(T, 2, numbers=(0,), acks=((0, 2, [1]),)))
    assert [part.acknowledge_error_code for topic in both.responses for part in topic.partitions] == [0]
    assert [write.batches[0].delivery_state for _, write in brokers.persister.writes] == [2]


@pytest.mark.parametrize(
    ("reset", "expected"),
    [("earliest", [(0, 0, 0, 1), (0, 1, 1, 1)]), ("latest", []), ("by_duration:PT5S", [(0, 1, 1, 1)])],
)
def test_a_new_group_begins_where_it_is_told(reset: str, expected: list[tuple[int, int, int, int]]) -> None:
    brokers = world()
    brokers.configure("g", share_auto_offset_reset=reset)
    for ago_ms, value in ((10_000, b"old"), (1000, b"new")):
        request = produce((T.id, 0), batch(value, timestamp_ms=brokers.now_ms - ago_ms))
        brokers.ask(101, request, version=13)
    found = acquired(brokers.ask(101, share_fetch(T, batch_size=1)))
    assert found == expected


def test_a_waiting_fetch_is_answered_with_the_first_record() -> None:
    brokers = world()
    waiting = brokers.send(101, share_fetch(T, wait_ms=10_000))
    brokers.wait(brokers.now_ms + 1000)
    assert waiting not in brokers.answered
    append(brokers, b"a")
    assert acquired(brokers.answered[waiting]) == [(0, 0, 0, 1)]


def test_a_waiting_fetch_is_answered_with_what_another_gives_back() -> None:
    brokers = world()
    append(brokers, b"a", b"b")
    brokers.ask(101, share_fetch(T))
    waiting = brokers.send(101, share_fetch(T, member="other", wait_ms=10_000), connection="o:1")
    brokers.ask(101, share_acknowledge(T, 1, (0, 1, [2, 1])))
    assert acquired(brokers.answered[waiting]) == [(0, 0, 0, 2)]


def test_a_waiting_fetch_wants_as_many_bytes_as_it_says() -> None:
    brokers = world()
    size = len(batch(b"a"))
    waiting = brokers.send(101, share_fetch(T, wait_ms=10_000, min_bytes=size + 1))
    append(brokers, b"a")
    assert waiting not in brokers.answered
    append(brokers, b"b")
    assert acquired(brokers.answered[waiting]) == [(0, 0, 1, 1)]


def test_the_records_of_a_connection_that_ends_are_given_back() -> None:
    brokers = world()
    append(brokers, b"a", b"b")
    brokers.ask(101, share_fetch(T))
    waiting = brokers.send(101, share_fetch(T, member="other", wait_ms=10_000), connection="o:1")
    brokers.close(101)
    assert acquired(brokers.answered[waiting]) == [(0, 0, 1, 2)]
    assert brokers.ask(101, share_fetch(T, 1)).error_code == Error.SHARE_SESSION_NOT_FOUND


@pytest.mark.parametrize("end", ["connection", "fetch", "acknowledge"])
def test_the_last_session_of_a_group_takes_its_share_partitions_along(end: str) -> None:
    """Else what is altered or deleted at the coordinator of an empty group would not be seen."""
    brokers = world()
    append(brokers, b"a", b"b")
    brokers.ask(101, share_fetch(T))
    brokers.ask(101, share_fetch(T, member="more"), connection="o:1")
    brokers.close(101, "o:1")
    leader = brokers.brokers.requests[101].load_shares().fetch.leader
    assert leader.led
    match end:
        case "connection":
            brokers.close(101)
        case "fetch":
            assert brokers.ask(101, share_fetch(T, -1)).error_code == Error.NONE
        case _:
            assert brokers.ask(101, share_acknowledge(T, -1)).error_code == Error.NONE
    leader = brokers.brokers.requests[101].load_shares().fetch.leader
    assert leader.led == {}
    assert acquired(brokers.ask(101, share_fetch(T, member="other"))) == [(0, 0, 1, 2)]


def test_a_lock_ends_by_time_and_wakes_others() -> None:
    brokers = world()
    brokers.configure("g", share_record_lock_duration_ms="2000")
    append(brokers, b"a")
    brokers.ask(101, share_fetch(T))
    waiting = brokers.send(101, share_fetch(T, member="other", wait_ms=10_000), connection="o:1")
    brokers.wait(brokers.now_ms + 1999)
    assert waiting not in brokers.answered
    brokers.wait(brokers.now_ms + 1)
    assert acquired(brokers.answered[waiting]) == [(0, 0, 0, 2)]
    late = brokers.ask(101, share_acknowledge(T, 1, (0, 0, [1])))
    assert late.responses[0].partitions[0].error_code == Error.INVALID_RECORD_STATE


def test_an_acknowledgement_waits_until_it_is_written() -> None:
    brokers = world()
    append(brokers, b"a")
    brokers.ask(101, share_fetch(T))
    brokers.persister.holds = True
    asked = brokers.send(101, share_acknowledge(T, 1, (0, 0, [1])))
    fetched = brokers.send(101, share_fetch(T, 2, acks=((0, 0, [1]),), wait_ms=100))
    brokers.wait(brokers.now_ms + 1000)
    assert asked not in brokers.answered
    # The record is on the move, so that the second acknowledgement is refused at once.
    assert fetched in brokers.answered
    brokers.persister.holds = False
    brokers.settle()
    assert brokers.answered[asked].responses[0].partitions[0].error_code == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("failing", "told"),
    [
        (Error.FENCED_STATE_EPOCH, Error.NOT_LEADER_OR_FOLLOWER),
        (Error.FENCED_LEADER_EPOCH, Error.NOT_LEADER_OR_FOLLOWER),
        (Error.NOT_COORDINATOR, Error.COORDINATOR_NOT_AVAILABLE),
        (Error.GROUP_ID_NOT_FOUND, Error.GROUP_ID_NOT_FOUND),
        (Error.REQUEST_TIMED_OUT, Error.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_write_that_fails_is_told(failing: Error, told: Error) -> None:
    brokers = world()
    append(brokers, b"a")
    brokers.ask(101, share_fetch(T))
    brokers.persister.failing = failing
    answer = brokers.ask(101, share_acknowledge(T, 1, (0, 0, [1])))
    part = answer.responses[0].partitions[0]
    assert part.error_code == told
    assert (part.current_leader.leader_id == 101) == (told is Error.NOT_LEADER_OR_FOLLOWER)
    brokers.persister.failing = Error.NONE
    again = acquired(brokers.ask(101, share_fetch(T, 2)))
    is_loaded_anew = failing not in (Error.NOT_COORDINATOR, Error.REQUEST_TIMED_OUT)
    assert again == ([(0, 0, 0, 1)] if is_loaded_anew else [])


def test_a_new_leader_goes_on_where_the_last_one_has_written() -> None:
    topic = NewTopic("t", topic_id(1), ((101, 102),))
    brokers = world(topic)
    request = produce((topic.id, 0), batch(b"a", b"b", b"c"))
    brokers.send(101, request, version=13)
    brokers.brokers.replicate((topic.id, 0))
    brokers.ask(101, share_fetch(topic))
    brokers.ask(101, share_acknowledge(topic, 1, (0, 1, [1, 2])))
    brokers.brokers.change(PartitionChangeRecord(partition_id=0, topic_id=topic.id, leader=102))
    old = brokers.ask(101, share_acknowledge(topic, 2, (2, 2, [1])))
    assert old.responses[0].partitions[0].error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
    refused = brokers.ask(101, share_fetch(topic, 3)).responses[0].partitions[0]
    assert (refused.error_code, refused.current_leader.leader_id) == (Error.NOT_LEADER_OR_FOLLOWER, 102)
    assert acquired(brokers.ask(102, share_fetch(topic))) == [(0, 1, 1, 2), (0, 2, 2, 1)]


def test_a_group_without_a_state_is_refused_after_the_wait() -> None:
    brokers = world()
    asked = brokers.send(101, share_fetch(T, group="unknown", wait_ms=500))
    assert asked not in brokers.answered
    brokers.wait(brokers.now_ms + 500)
    answer: Any = brokers.answered[asked]
    assert answer.responses[0].partitions[0].error_code == Error.UNKNOWN_SERVER_ERROR


def test_a_session_may_forget_partitions() -> None:
    brokers = world()
    brokers.ask(101, share_fetch(T, numbers=(0, 1)))
    brokers.ask(101, share_fetch(T, 1, forgotten_topics_data=[ForgottenTopic(T.id, [0])]))
    append(brokers, b"a")
    append(brokers, b"b", number=1)
    assert acquired(brokers.ask(101, share_fetch(T, 2))) == [(1, 0, 0, 1)]


def test_a_log_that_begins_later_moves_the_group() -> None:
    brokers = world()
    append(brokers, b"a", b"b", b"c")
    brokers.ask(101, share_fetch(T, most=1))
    brokers.brokers.part(101, (T.id, 0)).log.raise_start(2)
    brokers.ask(101, share_fetch(T, 1, wait_ms=10))
    answer = brokers.ask(101, share_acknowledge(T, 2, (0, 2, [1, 1, 1])))
    assert answer.responses[0].partitions[0].error_code == 0
    assert brokers.persister.writes[-1][1].start_offset == 2


def test_no_room_to_wait_ends_a_wait_at_once() -> None:
    brokers = world()
    append(brokers, b"a")
    brokers.ask(101, share_fetch(T))
    brokers.brokers.requests[101]._most_waiting = 0
    assert brokers.ask(101, share_fetch(T, 1, wait_ms=10_000)).error_code == 0
    brokers.persister.holds = True
    answer: Any = brokers.answered[brokers.send(101, share_fetch(T, 2, acks=((0, 0, [1]),), wait_ms=10_000))]
    assert answer.responses[0].partitions[0].acknowledge_error_code == Error.REQUEST_TIMED_OUT
    answer = brokers.answered[brokers.send(101, share_acknowledge(T, 3, (0, 0, [1])))]
    assert answer.responses[0].partitions[0].error_code == Error.INVALID_RECORD_STATE


# Rights, features


def test_a_member_needs_to_read_the_group_and_the_topic() -> None:
    brokers = world(authorizer=AuthorizerSettings(super_users=frozenset()))
    append_bytes = batch(b"a")
    brokers.brokers.part(101, (T.id, 0)).log.append_as_leader(append_bytes, epoch=0, now_ms=brokers.now_ms)
    assert brokers.ask(101, share_fetch(T)).error_code == Error.GROUP_AUTHORIZATION_FAILED
    assert brokers.ask(101, share_acknowledge(T, 1)).error_code == Error.GROUP_AUTHORIZATION_FAILED
    brokers.brokers.change(rule(1, AclOperation.READ, AclResource.GROUP, "g"))
    [part] = brokers.ask(101, share_fetch(T)).responses[0].partitions
    assert part.error_code == Error.TOPIC_AUTHORIZATION_FAILED
    [told] = brokers.ask(101, share_acknowledge(T, 1, (0, 0, [1]))).responses[0].partitions
    assert told.error_code == Error.TOPIC_AUTHORIZATION_FAILED
    brokers.brokers.change(rule(2, AclOperation.READ, AclResource.TOPIC, "t"))
    assert brokers.ask(101, share_fetch(T, 2)).responses == []


def test_no_share_groups_without_the_feature() -> None:
    brokers = world()
    brokers.ask(101, share_fetch(T))
    brokers.brokers.change(FeatureLevelRecord(name="share.version", feature_level=0))
    assert brokers.ask(101, share_fetch(T, 1)).error_code == Error.UNSUPPORTED_VERSION
    assert brokers.ask(101, share_acknowledge(T, 1)).error_code == Error.UNSUPPORTED_VERSION
    fetch = brokers.brokers.requests[101].load_shares().fetch
    assert (len(fetch.sessions), fetch.leader.led) == (0, {})


# Limits


def test_a_session_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kraft.coordinators.shares.share_sessions.SHARE_SESSION_PARTITIONS", 2)
    brokers = world()
    assert brokers.ask(101, share_fetch(T, numbers=(0, 1))).error_code == 0
    assert brokers.ask(101, share_fetch(T, 0, numbers=(0, 1, 2))).error_code == Error.SHARE_SESSION_LIMIT_REACHED
    sessions = brokers.brokers.requests[101].load_shares().fetch.sessions
    assert (len(sessions), sessions.partitions, sessions.of_group) == (0, 0, {})


def test_share_partitions_without_members_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kraft.coordinators.shares.leader.SHARE_PARTITIONS", 1)
    brokers = world()
    brokers.begin("other", T, start=NO_OFFSET)
    brokers.ask(101, share_fetch(T))
    [part] = brokers.ask(101, share_fetch(T, group="other"), connection="o:1").responses[0].partitions
    assert part.error_code == Error.SHARE_SESSION_LIMIT_REACHED
    brokers.ask(101, share_fetch(T, -1))
    brokers.ask(101, share_fetch(T, 0, group="other"), connection="o:1")
    leader = brokers.brokers.requests[101].load_shares().fetch.leader
    assert [key.group_id for key in leader.led] == ["other"]


def test_a_record_batch_of_any_size_makes_few_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kraft.coordinators.shares.acknowledging.SHARE_RUNS", 10)
    brokers = world()
    append(brokers, *[b""] * 100)
    assert acquired(brokers.ask(101, share_fetch(T))) == [(0, 0, 99, 1)]
    answer = brokers.ask(101, share_acknowledge(T, 1, (0, 99, [1, 2] * 50)))
    assert answer.responses[0].partitions[0].error_code == Error.INVALID_RECORD_STATE
    led = brokers.brokers.requests[101].load_shares().fetch.leader.led[KEY]
    assert led.partition is not None
    assert led.partition.runs <= 2
    answer = brokers.ask(101, share_acknowledge(T, 2, (0, 99, [1])))
    assert answer.responses[0].partitions[0].error_code == 0


def test_only_what_a_member_may_get_is_read() -> None:
    brokers = world()
    for _ in range(4):
        append(brokers, b"x" * (limits.SHARE_READ_BYTES // 2))
    answer = brokers.ask(101, share_fetch(T, most=1, max_bytes=50 << 20))
    assert acquired(answer) == [(0, 0, 0, 1)]
    [part] = answer.responses[0].partitions
    assert len(part.records) < limits.SHARE_READ_BYTES
    assert acquired(brokers.ask(101, share_fetch(T, 1, max_bytes=50 << 20))) == [(0, 1, 3, 1)]
