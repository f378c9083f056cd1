"""Kafka's metrics of throttles: what replication and clients use of their bounds (Kafka: `ReplicationQuotaManager`,
`ClientQuotaManager`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from kraft.handling.quotas import FETCHED, PRODUCED, REQUEST_TIME, ClientQuotas
from kraft.handling.request_times import RequestTimes
from kraft.metrics import kafka
from kraft.metrics.names import Reading
from kraft.metrics.view import NodeView
from kraft.partitions.replicas.hosting import Hosting

MOST_CLIENTS: Final = 500
"""The clients that are told, those of the last uses: each is two series, and a scrape is one turn."""
_RATES: Final = {PRODUCED: kafka.PRODUCE_RATE, FETCHED: kafka.FETCH_RATE, REQUEST_TIME: kafka.REQUEST_TIME}
_WAITS: Final = {PRODUCED: kafka.PRODUCE_WAIT, FETCHED: kafka.FETCH_WAIT, REQUEST_TIME: kafka.REQUEST_WAIT}


def rate_readings(view: NodeView) -> Iterator[Reading]:
    """How fast connections are made, and what became of those that came too fast (KIP-612)."""
    now_ms = view.now_ms
    for rates in view.connection_rates:
        for use in rates.uses(now_ms):
            labels = (("listener", use.listener),)
            yield Reading(kafka.ACCEPT_RATE, use.per_second, labels)
            yield Reading(kafka.ACCEPT_WAIT, use.wait_ms, labels)
            yield Reading(kafka.ADDRESS_WAIT, use.address_wait_ms, labels)
        for address, per_second in islice(rates.by_address(now_ms), MOST_CLIENTS):
            yield Reading(kafka.ACCEPT_RATE, per_second, (("ip", address),))
    if view.connection_rates:
        yield Reading(kafka.ACCEPT_RATE_OF_ALL, view.connection_rates[0].of_all(now_ms))


def throttle_readings(hosting: Hosting, quotas: ClientQuotas, times: RequestTimes, now_ms: int) -> Iterator[Reading]:
    """The rates of throttled replication, and those of clients with a quota of bytes or of time.

    A tag that makes no difference for a quota is left out, as an empty tag of an MBean is. Other than in Kafka, a
    client without a quota is not counted while others have one.
    """
    yield Reading(kafka.LEADER_REPLICATION, hosting.leader_throttle.bytes_per_second(now_ms))
    yield Reading(kafka.FOLLOWER_REPLICATION, hosting.follower_throttle.bytes_per_second(now_ms))
    if times.is_on:
        yield Reading(kafka.EXEMPT_TIME, times.exempt.measure(now_ms)[0])
    for use in quotas.uses(MOST_CLIENTS, now_ms):
        tags = (("user", use.user), ("client_id", use.client))
        labels = tuple((key, value.removeprefix("\0")) for key, value in tags if value)
        yield Reading(_RATES[use.quota], use.per_second, labels)
        yield Reading(_WAITS[use.quota], use.wait_ms, labels)
