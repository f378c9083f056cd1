"""A client that takes more of the loop's time than its quota allows is told to wait, one window at most."""

from __future__ import annotations

from math import isnan
from typing import Any, Final

import pytest

from kraft.handling.quotas import FETCHED, PRODUCED, REQUEST_TIME, ClientQuotas
from kraft.handling.request_times import RequestTimes
from kraft.metrics import kafka
from kraft.metrics.throttles import throttle_readings
from kraft.wire import Answer, LeaveUnanswered, Outcome, WireRequest
from metadata_log.image import MetadataImage
from metadata_log.records.metadata import ClientQuotaRecord, EntityData
from metadata_log.serde import Message
from support.broker.request_brokers import Brokers, NewTopic, batch, fetch, produce, replayed, topic_id, wire_request
from transport.protocol.errors import Error
from transport.protocol.inbound import Principal
from transport.protocol.messages import WriteTxnMarkersRequest, heartbeat
from transport.protocol.messages.fetch import FetchRequest, ReplicaState

KEY: Final = topic_id(1), 0
START: Final = 1_795_387_605_000
ALICE: Final = Principal("User", "alice")


def quota(value: float | None, key: str = REQUEST_TIME, user: str | None = "alice") -> ClientQuotaRecord:
    entity = (EntityData(entity_type="user", entity_name=user),)
    return ClientQuotaRecord(entity=entity, key=key, value=value or 0.0, remove=value is None)


class Work:
    """Requests that take as much time as the test says."""

    def __init__(self, *quotas: ClientQuotaRecord) -> None:
        self.now_s = 0.0
        self.quotas = ClientQuotas()
        self.times = RequestTimes(self.quotas)
        self.times.clock = lambda: self.now_s
        self.use(*quotas)

    def use(self, *quotas: ClientQuotaRecord) -> None:
        image = replayed(MetadataImage(), *quotas)
        self.quotas.use(image)
        self.times.use(image.quotas)

    def part(self, request: WireRequest, ms: float, outcome: Outcome | None, at_ms: int = 0) -> Outcome | None:
        """A part of the work of a request; the last one has the outcome."""

        def work() -> Outcome | None:
            self.now_s += ms / 1000
            return outcome

        return self.times.measured(request, work, START + at_ms)

    def wait_ms(self, ms: float, at_ms: int = 0, number: int = 1, user: str = "alice") -> int:
        """For how long a client waits after a request that took so many ms."""
        answer = Answer(number, heartbeat.HeartbeatResponse())
        found = self.part(beat(number, user), ms, answer, at_ms)
        assert isinstance(found, Answer)
        message: Any = found.message
        return int(message.throttle_time_ms)

    def rates(self, at_ms: int = 0) -> dict[tuple[str, str], float]:
        return {(one.user, one.quota): one.per_second for one in self.quotas.uses(10, START + at_ms)}


def beat(number: int = 1, user: str = "alice") -> WireRequest:
    return wire_request(number, 12, 4, heartbeat.HeartbeatRequest(), principal=Principal("User", user))


def test_the_wait_is_that_of_kafkas_arithmetic() -> None:
    """A second of work in ten seconds (the windows before count as unused) is a rate of 10 percent."""
    work = Work(quota(10))
    assert work.wait_ms(1000) == 0
    assert work.rates() == {("alice", REQUEST_TIME): pytest.approx(10.0)}
    # 10.1 percent of ten seconds: (10.1 - 10) / 10 of them.
    assert work.wait_ms(10) == 100
    assert work.wait_ms(20) == 300


def test_nobody_waits_longer_than_a_window() -> None:
    work = Work(quota(1))
    assert work.wait_ms(60_000) == 1000
    assert work.wait_ms(1, at_ms=30_000) == 0


def test_a_client_is_slowed_to_its_quota() -> None:
    """Requests of 30 ms each with 20 percent, for two minutes: the client goes on as soon as it may."""
    work, now_ms, used_ms = Work(quota(20)), 0, 0
    while now_ms < 140_000:
        used_ms += 30 if now_ms >= 20_000 else 0
        now_ms += 30 + work.wait_ms(30, now_ms)
    assert 0.18 < used_ms / 120_000 < 0.22


def test_all_parts_of_a_request_count_and_its_waits_do_not() -> None:
    work = Work(quota(10))
    request = beat()
    assert work.part(request, 700, None) is None
    work.now_s += 100.0
    assert work.part(request, 300, None, at_ms=10) is None
    # The outcome may come from a room that is not measured.
    outcome = work.times.closed(Answer(1, heartbeat.HeartbeatResponse()), START + 10)
    assert isinstance(outcome, Answer)
    assert work.rates(10) == {("alice", REQUEST_TIME): pytest.approx(10.0, rel=0.01)}
    assert work.times.closed(outcome, START + 10) is outcome


def test_who_has_no_quota_never_waits() -> None:
    work = Work(quota(0.001))
    assert work.wait_ms(5000, user="bob") == 0
    assert work.rates() == {}


def test_requests_of_the_broker_itself_are_nobodys() -> None:
    work = Work(quota(0.001, user=None))
    assert work.wait_ms(5000, number=-1) == 0


def test_nothing_is_measured_without_a_quota_of_time() -> None:
    work = Work(quota(1, PRODUCED))
    assert (work.times.is_on, work.times.measures) == (False, False)
    work.use(quota(1))
    assert (work.times.is_on, work.times.measures) == (True, True)
    assert work.part(beat(), 5000, None) is None
    work.use(quota(1), quota(None))
    assert not work.times.is_on
    outcome = Answer(1, heartbeat.HeartbeatResponse())
    assert work.times.closed(outcome, START) is outcome


def follower() -> FetchRequest:
    return FetchRequest(replica_state=ReplicaState(replica_id=102), topics=[])


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (1, follower()),
        (1, FetchRequest(replica_id=102, topics=[])),
        (27, WriteTxnMarkersRequest(markers=[])),
        (0, produce(KEY, batch(b"v"), acks=0)),
    ],
    ids=["fetch of a follower", "older fetch of a follower", "markers", "produce without an answer"],
)
def test_exempt_requests_never_wait_and_are_counted_apart(key: int, message: Message) -> None:
    work = Work(quota(0.001, user=None))
    request = wire_request(1, key, 1, message, principal=ALICE)
    done = LeaveUnanswered(1)
    assert work.part(request, 500, done) is done
    assert work.rates() == {}
    assert work.times.exempt.measure(START)[0] == pytest.approx(5.0)


def test_the_longer_wait_counts() -> None:
    """As in Kafka, the other one is not among the waits of the metrics."""
    work = Work(quota(10))
    answer = Answer(1, heartbeat.HeartbeatResponse(throttle_time_ms=5000))
    assert work.part(beat(), 2000, answer) is answer
    [use] = work.quotas.uses(10, START)
    assert isnan(use.wait_ms)
    assert work.wait_ms(1) == 1000
    [use] = work.quotas.uses(10, START)
    assert use.wait_ms == pytest.approx(1000)


def test_requests_that_are_gone_leave_nothing() -> None:
    work = Work(quota(10))
    for number in range(100):
        assert work.part(beat(number), 1, None) is None
        work.times.forget(number)
    assert not work.times._spent


# At a broker


def brokers_with(*quotas: ClientQuotaRecord, step_s: float) -> Brokers:
    """A broker whose clock goes on by `step_s` with each look."""
    brokers = Brokers([NewTopic("t", KEY[0], ((101,),))])
    brokers.change(*quotas)
    looks = iter(range(1_000_000))
    brokers.requests[101].times.clock = lambda: next(looks) * step_s
    return brokers


def test_a_producer_waits_for_its_time() -> None:
    brokers = brokers_with(quota(1, user=None), step_s=0.5)
    answer: Any = brokers.ask(101, produce(KEY, batch(b"v")))
    assert answer.throttle_time_ms == 1000
    assert answer.responses[0].partition_responses[0].error_code == Error.NONE


def test_a_consumer_above_its_time_gets_no_data_and_its_bytes_are_taken_back() -> None:
    brokers = brokers_with(quota(1, user=None), quota(1e6, FETCHED, user=None), step_s=0.5)
    assert brokers.ask(101, produce(KEY, batch(b"v")))
    answer: Any = brokers.ask(101, fetch((KEY, 0)))
    assert (answer.throttle_time_ms, answer.responses) == (1000, [])
    requests = brokers.requests[101]
    [fetched] = [one for one in requests.quotas.uses(10, brokers.now_ms) if one.quota == FETCHED]
    assert fetched.per_second == 0
    assert not requests.times._spent


def test_the_metrics_have_the_time_of_each_client() -> None:
    brokers = brokers_with(quota(1, user=None), step_s=0.5)
    brokers.ask(101, produce(KEY, batch(b"v")))
    requests = brokers.requests[101]
    found: dict[Any, Any] = {
        one.metric: (one.value, one.labels)
        for one in throttle_readings(requests.hosting, requests.quotas, requests.times, brokers.now_ms)
    }
    tags = (("user", "ANONYMOUS"),)
    assert found[kafka.REQUEST_TIME] == (pytest.approx(5.0), tags)
    assert found[kafka.REQUEST_WAIT] == (pytest.approx(1000), tags)
    assert found[kafka.EXEMPT_TIME] == (0.0, ())
