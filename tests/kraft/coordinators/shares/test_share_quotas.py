"""Members above their quota get nothing and wait; and requests that fail unexpectedly."""

from __future__ import annotations

from typing import Any, Final

import pytest

from kraft.access.failures import RequestFailures
from kraft.coordinators.shares import share_fetch as handler
from kraft.handling.quotas import FETCHED
from kraft.handling.sizes import answer_size
from metadata_log.records.metadata import ClientQuotaRecord, EntityData
from metadata_log.serde import encode
from support.broker.request_brokers import NewTopic, batch, topic_id
from support.broker.share_leaders import ShareBrokers, acquired, share_acknowledge, share_fetch
from transport.protocol.errors import Error

T: Final = NewTopic("t", topic_id(1), ((101,),))
SIZE: Final = 700
"""The bytes of a record."""


def world(bound: float | None, records: int = 4) -> ShareBrokers:
    """A group that begins at the start of a log, at a broker with a quota for all users."""
    brokers = ShareBrokers([T])
    brokers.configure("g", share_auto_offset_reset="earliest")
    brokers.begin("g", T)
    if bound is not None:
        entity = (EntityData(entity_type="user", entity_name=None),)
        brokers.brokers.change(ClientQuotaRecord(entity=entity, key=FETCHED, value=bound, remove=False))
    for _ in range(records):
        manager = brokers.brokers.managers[101]
        manager.leaders.append(manager.partitions[T.id, 0], batch(b"v" * SIZE), brokers.now_ms)
    brokers.settle()
    return brokers


def test_a_member_within_its_quota_does_not_wait() -> None:
    brokers = world(10_000)
    answer = brokers.ask(101, share_fetch(T))
    assert (answer.throttle_time_ms, acquired(answer)) == (0, [(0, 0, 3, 1)])


def test_a_member_above_its_quota_gets_nothing_and_its_records_are_free_again() -> None:
    """Kafka charges the same bytes, and says the same; there the records stay locked, and count as delivered."""
    brokers = world(300)
    assert acquired(brokers.ask(101, share_fetch(T, most=1))) == [(0, 0, 0, 1)]
    assert acquired(brokers.ask(101, share_fetch(T, 1, most=1))) == [(0, 1, 1, 1)]
    assert acquired(brokers.ask(101, share_fetch(T, 2, most=1))) == [(0, 2, 2, 1)]
    throttled = brokers.ask(101, share_fetch(T, 3, acks=((0, 0, [1]),), most=1))
    assert throttled.throttle_time_ms > 0
    assert (throttled.error_code, throttled.acquisition_lock_timeout_ms, acquired(throttled)) == (0, 0, [])
    # What has become of acknowledgements is told.
    [topic] = throttled.responses
    assert [(one.partition_index, one.acknowledge_error_code) for one in topic.partitions] == [(0, 0)]
    assert [write.batches[0].delivery_state for _, write in brokers.persister.writes] == [2]
    other = brokers.ask(101, share_fetch(T, member="n", most=1), connection="n:1")
    assert other.throttle_time_ms > 0, "all clients of a user share its quota"
    brokers.wait(brokers.now_ms + 12_000)
    assert acquired(brokers.ask(101, share_fetch(T, 4, most=1))) == [(0, 3, 3, 1)]


def test_the_first_answer_after_a_throttled_one_names_all_partitions() -> None:
    brokers = world(300)
    brokers.ask(101, share_fetch(T, most=3))
    assert brokers.ask(101, share_fetch(T, member="n"), connection="n:1").throttle_time_ms > 0
    brokers.wait(brokers.now_ms + 20_000)
    answer = brokers.ask(101, share_fetch(T, 1, member="n"), connection="n:1")
    assert [one.partition_index for topic in answer.responses for one in topic.partitions] == [0]


def test_a_member_gets_no_more_than_its_quota_allows_at_once() -> None:
    """Otherwise it would be refused for ever."""
    brokers = world(100)
    answer = brokers.ask(101, share_fetch(T))
    assert (answer.throttle_time_ms, acquired(answer)) == (0, [(0, 0, 0, 1)])


def test_the_size_of_an_answer_is_that_of_its_frame() -> None:
    answer = world(None).ask(101, share_fetch(T))
    for version in (1, 2):
        assert answer_size(answer, version) == 4 + len(encode(answer, version))


@pytest.mark.parametrize("fails", ["fetch", "acknowledge"])
def test_after_an_unexpected_failure_a_member_begins_anew_with_what_is_durable(
    fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers = world(None)
    assert acquired(brokers.ask(101, share_fetch(T))) == [(0, 0, 3, 1)]
    assert brokers.ask(101, share_acknowledge(T, 1, (0, 0, [1]))).error_code == 0
    requests = brokers.brokers.requests[101]
    requests.failures = RequestFailures(is_survived=True)
    message: Any = share_fetch(T, 2) if fails == "fetch" else share_acknowledge(T, 2, (1, 1, [1]))
    with monkeypatch.context() as here:

        def broken(*_: object) -> None:
            raise ZeroDivisionError("a bug")

        here.setattr(handler.AckHandler, "acknowledge", broken)
        here.setattr(handler.ShareFetchHandler, "_find", broken)
        assert brokers.ask(101, message).error_code == Error.UNKNOWN_SERVER_ERROR
    assert brokers.ask(101, share_fetch(T, 3)).error_code == Error.SHARE_SESSION_NOT_FOUND
    assert acquired(brokers.ask(101, share_fetch(T))) == [(0, 1, 3, 1)]
