"""A client above its quota gets its answer at once, and is told for how long it has to wait."""

from __future__ import annotations

from math import isnan
from typing import Any

import pytest

from kraft.handling.quotas import PRODUCED, ClientQuotas
from kraft.handling.sizes import answer_size, request_size
from kraft.wire import Answer, WireRequest
from metadata_log.image import MetadataImage
from metadata_log.records.metadata import ClientQuotaRecord, EntityData
from metadata_log.serde import Message, encode
from support.broker.request_brokers import (
    Brokers,
    NewTopic,
    batch,
    fetch,
    produce,
    replayed,
    topic_id,
    wire_request,
)
from transport.protocol.broker_apis import ALL_APIS
from transport.protocol.errors import Error
from transport.protocol.headers import encode_request
from transport.protocol.inbound import Principal
from transport.protocol.messages.fetch import FetchResponse
from transport.protocol.messages.produce import ProduceResponse

KEY = topic_id(1), 0
START = 1_795_387_605_000
PROBE_BYTES = 9121
"""The size of the recorded requests: three of them to a quota of 2,000 bytes a second were answered 0, 0, 3569 ms."""


def quota(value: float | None, **entity: str | None) -> ClientQuotaRecord:
    """The record that sets (or removes) the producer's quota of an entity; None as a name is the default."""
    parts = tuple(EntityData(entity_type=kind.replace("_", "-"), entity_name=name) for kind, name in entity.items())
    return ClientQuotaRecord(entity=parts, key=PRODUCED, value=value or 0.0, remove=value is None)


def asked(user: str = "u", client: str | None = "c", message: Message | None = None, version: int = 13) -> WireRequest:
    return wire_request(
        1, 0, version, message or produce(KEY, batch(b"v")), client_id=client, principal=Principal("User", user)
    )


def brokers_with(*, consumer: float | None = None, producer: float | None = None) -> Brokers:
    """A broker with one topic, and quotas for all users."""
    brokers = Brokers([NewTopic("t", KEY[0], ((101,),))])
    for key, value in (("consumer_byte_rate", consumer), (PRODUCED, producer)):
        if value is not None:
            entity = (EntityData(entity_type="user", entity_name=None),)
            brokers.change(ClientQuotaRecord(entity=entity, key=key, value=value, remove=False))
    return brokers


def answer_of(brokers: Brokers, message: Message) -> FetchResponse | ProduceResponse:
    found = brokers.ask(101, message)
    assert isinstance(found, FetchResponse | ProduceResponse)
    return found


# Arithmetic


def test_the_delays_are_those_that_kafka_gave() -> None:
    """Recorded: requests that were sent 0, 59 and 112 ms after the first one, and answered within 13 ms."""
    quotas = ClientQuotas()
    quotas.use(replayed(MetadataImage(), quota(2000, user="u")))
    delays = [quotas.charge(PRODUCED, asked(), PROBE_BYTES, START + at) for at in (0, 58, 113)]
    assert delays == [0, 0, 3569]


def test_a_steady_use_below_the_quota_never_waits_and_one_above_is_slowed_to_the_quota() -> None:
    quotas = ClientQuotas()
    quotas.use(replayed(MetadataImage(), quota(1000, user="u")))
    assert not any(quotas.charge(PRODUCED, asked(), 99, START + 100 * at) for at in range(1000))
    quotas = ClientQuotas()
    quotas.use(replayed(MetadataImage(), quota(1000, user="u")))
    now_ms, sent = START, 0
    while now_ms < START + 120_000:
        now_ms += 10 + quotas.charge(PRODUCED, asked(), 500, now_ms)
        sent += 500
    assert 120_000 * 0.95 < sent < 120_000 * 1.15


@pytest.mark.parametrize("size", [20_000, 100_000, 500_000, 1_000_000])
def test_a_producer_that_may_write_a_megabyte_a_second_writes_one(size: int) -> None:
    """It goes on as soon as it may; what it may use at once, in the first seconds, is not counted."""
    quotas = ClientQuotas()
    quotas.use(replayed(MetadataImage(), quota(1e6, user="u")))
    now_ms, used = START, 0
    while now_ms < START + 140_000:
        used += size if now_ms >= START + 20_000 else 0
        now_ms += 5 + quotas.charge(PRODUCED, asked(), size, now_ms)
    assert 0.9e6 < used / 120 < 1.1e6


def test_the_uses_of_clients_are_told_with_their_waits() -> None:
    quotas = ClientQuotas()
    quotas.use(replayed(MetadataImage(), quota(1000, user="u"), quota(500, user="v", client_id="c")))
    assert quotas.charge(PRODUCED, asked("v"), 1000, START) == 0
    assert [quotas.charge(PRODUCED, asked(), 10_500, START + at) for at in (0, 100)] == [500, 10_900]
    assert quotas.charge(PRODUCED, asked("nobody"), 1000, START) == 0
    last, first = quotas.uses(10, START + 100)
    assert (last.quota, last.user, last.client) == (PRODUCED, "u", "")
    assert last.wait_ms == pytest.approx(5700)
    assert last.per_second == pytest.approx(21_000 / 10.1)
    assert (first.user, first.client) == ("v", "c")
    assert first.per_second == pytest.approx(1000 / 10.1)
    assert isnan(first.wait_ms)
    assert [one.user for one in quotas.uses(1, START + 100)] == ["u"]
    [last, _] = quotas.uses(10, START + 100_000)
    assert last.per_second == 0
    assert isnan(last.wait_ms)


def test_bytes_that_are_taken_back_do_not_count() -> None:
    quotas = ClientQuotas()
    quotas.use(replayed(MetadataImage(), quota(1000, user="u")))
    assert quotas.charge(PRODUCED, asked(), 11_000, START) == 1000
    quotas.take_back(PRODUCED, asked(), 11_000, START)
    assert quotas.charge(PRODUCED, asked(), 10_000, START) == 0


# Precedence


def test_the_most_specific_quota_of_a_client_counts() -> None:
    levels: list[dict[str, str | None]] = [
        {"client_id": None},
        {"client_id": "c"},
        {"user": None},
        {"user": None, "client_id": None},
        {"user": None, "client_id": "c"},
        {"user": "u"},
        {"user": "u", "client_id": None},
        {"user": "u", "client_id": "c"},
    ]
    quotas, image = ClientQuotas(), MetadataImage()
    found = []
    for number, entity in enumerate(levels, 1):
        image = replayed(image, quota(number, **entity))
        quotas.use(image)
        found.append(quotas.bound(PRODUCED, asked()))
    assert found == [1, 2, 3, 4, 5, 6, 7, 8]
    assert quotas.bound(PRODUCED, asked("other", "d")) == 4
    assert quotas.bound(PRODUCED, asked("other", "c")) == 5
    assert quotas.bound(PRODUCED, asked("u", "d")) == 7
    quotas.use(replayed(image, quota(None, user="u", client_id="c")))
    assert quotas.bound(PRODUCED, asked()) == 7


def test_clients_share_the_quota_of_their_user_and_not_that_of_their_own() -> None:
    image = replayed(MetadataImage(), quota(1000, user="u"))
    quotas = ClientQuotas()
    quotas.use(image)
    assert quotas.charge(PRODUCED, asked("u", "a"), 9000, START) == 0
    assert quotas.charge(PRODUCED, asked("u", "b"), 9000, START) == 8000
    assert quotas.charge(PRODUCED, asked("v", "b"), 9000, START) == 0
    image = replayed(image, quota(None, user="u"), quota(1000, user="u", client_id=None))
    quotas.use(image)
    assert quotas.charge(PRODUCED, asked("u", "a"), 9000, START) == 0
    assert quotas.charge(PRODUCED, asked("u", "b"), 9000, START) == 0


def test_a_changed_quota_holds_for_what_was_used_before() -> None:
    quotas = ClientQuotas()
    quotas.use(replayed(MetadataImage(), quota(1000, user="u")))
    assert quotas.charge(PRODUCED, asked(), 9000, START) == 0
    quotas.use(replayed(MetadataImage(), quota(100, user="u")))
    assert quotas.charge(PRODUCED, asked(), 0, START) == 80_000


# Sizes


@pytest.mark.parametrize("version", [3, 8, 9, 12, 13])
def test_the_size_of_a_request_is_that_of_its_frame(version: int) -> None:
    for size in (1, 100, 20_000):
        message = produce(KEY, batch(b"v" * size))
        frame = encode_request(0, version, 7, "a-client", message, apis=ALL_APIS)
        request: Any = asked(client="a-client", message=message, version=version)
        assert request_size(request) == len(frame)


@pytest.mark.parametrize("version", [4, 11, 12, 18])
def test_the_size_of_an_answer_is_that_of_its_body_and_its_length(version: int) -> None:
    brokers = brokers_with()
    brokers.ask(101, produce(KEY, batch(b"v" * 3000)))
    answer = answer_of(brokers, fetch((KEY, 0)))
    assert isinstance(answer, FetchResponse)
    assert answer_size(answer, version) == 4 + len(encode(answer, version))


# Answers


def test_a_consumer_that_may_read_a_megabyte_a_second_reads_one() -> None:
    """It asks again as soon as it may. What it may use at once, in the first seconds, is not counted."""
    brokers = brokers_with(consumer=1e6)
    size = len(records := batch(b"v" * 500_000))
    brokers.ask(101, produce(KEY, records))
    began_ms, used = brokers.now_ms, 0
    while (elapsed_ms := brokers.now_ms - began_ms) < 140_000:
        answer = answer_of(brokers, fetch((KEY, 0)))
        if answer.responses and elapsed_ms >= 20_000:
            used += size
        brokers.now_ms += 5 + answer.throttle_time_ms
    assert 0.9e6 < used / 120 < 1.1e6


def test_a_producer_that_waits_for_followers_is_charged_at_its_end() -> None:
    brokers = Brokers([NewTopic("t", KEY[0], ((101, 102),))])
    entity = (EntityData(entity_type="client-id", entity_name="test"),)
    brokers.change(ClientQuotaRecord(entity=entity, key=PRODUCED, value=100.0, remove=False))
    assert brokers.send(101, produce(KEY, batch(b"v" * 9000)))[1] is None
    brokers.replicate(KEY)
    [outcome] = brokers.poll(101)
    assert isinstance(outcome, Answer)
    assert isinstance(outcome.message, ProduceResponse)
    assert outcome.message.throttle_time_ms > 80_000


def test_a_consumer_gets_no_more_records_than_its_quota_allows_at_once() -> None:
    brokers = brokers_with(consumer=2000)
    for _ in range(3):
        brokers.ask(101, produce(KEY, batch(b"v" * 9000)))
    answer = answer_of(brokers, fetch((KEY, 0)))
    assert isinstance(answer, FetchResponse)
    assert answer.throttle_time_ms == 0
    assert 18_000 < len(answer.responses[0].partitions[0].records or b"") < 20_000


def test_a_throttled_answer_in_a_session_names_the_session() -> None:
    brokers = brokers_with(consumer=500)
    opened = answer_of(brokers, fetch((KEY, 0), session_epoch=0))
    assert isinstance(opened, FetchResponse)
    assert (opened.throttle_time_ms, opened.session_id > 0) == (0, True)
    brokers.ask(101, produce(KEY, batch(b"v" * 9000)))
    session = {"session_id": opened.session_id}
    throttled = answer_of(brokers, fetch(**session, session_epoch=1))
    assert isinstance(throttled, FetchResponse)
    assert throttled.throttle_time_ms > 0
    assert (throttled.responses, throttled.session_id, throttled.error_code) == ([], opened.session_id, Error.NONE)
