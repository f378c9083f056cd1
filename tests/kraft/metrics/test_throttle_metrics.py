"""The metrics of throttles: what clients with a quota use, and what throttled replicas get."""

from __future__ import annotations

from math import isnan
from typing import Any

import pytest

from kraft.handling.quotas import FETCHED, PRODUCED
from kraft.metrics import kafka
from kraft.metrics.names import Mbean
from kraft.metrics.throttles import MOST_CLIENTS, throttle_readings
from metadata_log.records.metadata import ClientQuotaRecord, EntityData
from support.broker.request_brokers import Brokers, NewTopic, batch, fetch, produce, topic_id, wire_request

KEY = topic_id(1), 0


def quota(key: str, value: float, user: str | None = None) -> ClientQuotaRecord:
    """A quota of a user, or of every user without one."""
    entity = (EntityData(entity_type="user", entity_name=user),)
    return ClientQuotaRecord(entity=entity, key=key, value=value, remove=False)


def values(brokers: Brokers) -> dict[tuple[Mbean, tuple[tuple[str, str], ...]], Any]:
    requests = brokers.requests[101]
    readings = throttle_readings(requests.hosting, requests.quotas, requests.times, brokers.now_ms)
    return {(one.metric, one.labels): one.value for one in readings if isinstance(one.metric, Mbean)}


def test_a_broker_without_quotas_tells_of_its_replicas_only() -> None:
    brokers = Brokers([NewTopic("t", KEY[0], ((101,),))])
    brokers.ask(101, produce(KEY, batch(b"v" * 3000)))
    brokers.requests[101].hosting.leader_throttle.note(1000, brokers.now_ms)
    found = values(brokers)
    assert found[kafka.LEADER_REPLICATION, ()] == 1000
    assert found[kafka.FOLLOWER_REPLICATION, ()] == 0
    assert len(found) == 2


def test_clients_with_quotas_are_told_by_the_names_that_share_one() -> None:
    brokers = Brokers([NewTopic("t", KEY[0], ((101,),))])
    brokers.change(quota(PRODUCED, 100), quota(FETCHED, 1e9))
    answers = [brokers.ask(101, produce(KEY, batch(b"v" * 3000))) for _ in range(2)]
    brokers.ask(101, fetch((KEY, 0)))
    found = values(brokers)
    tags = (("user", "ANONYMOUS"),)
    assert found[kafka.PRODUCE_RATE, tags] == pytest.approx(615, rel=0.05)
    waits = [answer.throttle_time_ms for answer in answers if answer.throttle_time_ms]
    assert found[kafka.PRODUCE_WAIT, tags] == pytest.approx(sum(waits) / len(waits))
    assert found[kafka.FETCH_RATE, tags] > 600
    assert isnan(found[kafka.FETCH_WAIT, tags])


def test_so_many_clients_are_told_and_no_more() -> None:
    brokers = Brokers([NewTopic("t", KEY[0], ((101,),))])
    entity = (EntityData(entity_type="client-id", entity_name=None),)
    brokers.change(ClientQuotaRecord(entity=entity, key=PRODUCED, value=1e9, remove=False))
    message = produce(KEY, batch(b"v"))
    brokers.ask(101, message)
    for number in range(MOST_CLIENTS + 1):
        asked = wire_request(number, 0, 13, message, client_id=f"c{number}")
        brokers.requests[101].quotas.charge(PRODUCED, asked, 100, brokers.now_ms)
    clients = {labels for metric, labels in values(brokers) if metric == kafka.PRODUCE_RATE}
    assert len(clients) == MOST_CLIENTS
    assert (("client_id", "c0"),) not in clients
