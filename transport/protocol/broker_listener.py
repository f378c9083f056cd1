"""The APIs at the listeners of a broker, with their versions and limits (Kafka: `ApiKeys`, `ApiVersionManager`)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from msgspec import structs

from metadata_log.serde import Versions
from transport.protocol.apis import Api, ApiKey
from transport.protocol.broker_apis import ALL_APIS
from transport.protocol.limits import ADMIN, MAX_FRAME_BYTES, TINY, Limit, answer_limit, request_limit

_ADVERTISED: Final = {ApiKey.PRODUCE: Versions(0, 13)}
"""Kafka names versions 0 to 2 of Produce, which no broker answers: librdkafka looks for them."""
AT_BROKERS: Final[Mapping[int, Api]] = MappingProxyType(
    {key: structs.replace(api, versions=api.stable) for key, api in ALL_APIS.items() if "broker" in api.listeners}
)
"""Each API that a client may send to a broker, by key, with the versions that a broker answers."""
MOST_BYTES: Final = 2**31 - 1
"""The largest length that a frame can announce: `socket.request.max.bytes` is the bound."""
PRODUCE_REQUESTS: Final = Limit(MOST_BYTES, 120_000)
"""A Produce request may be as large as `socket.request.max.bytes` allows, as with Kafka: records are not decoded here.
20,000 partitions have 120,000 values.
"""
MARKERS: Final = Limit(16 << 20, 1_000_000)
"""WriteTxnMarkers: a transaction coordinator puts the markers of all its transactions for one broker in a request."""
JOINS: Final = Limit(2 << 20, 2_000)
"""JoinGroup: all that a group says of its members goes into one record of at most a mebibyte."""
NAMES: Final = Limit(128 << 10, TINY.values)
"""Requests with three names, each of which may be as long as the protocol has it."""
LEAVES: Final = Limit(1 << 20, 20_000)
TELEMETRY: Final = Limit(9 << 20, 100)
"""PushTelemetry: six fields, one of them with up to 8 MiB (`telemetry.max.bytes`), which is not decoded here."""
FETCH_ANSWERS: Final = Limit(MAX_FRAME_BYTES, 4_000_000)
"""A leader answers the first Fetch of a follower with every partition that the follower asks for. A partition has up to
17 values, and 200,000 partitions are the most that Kafka expects of a broker.
"""
_REQUESTS: Final = {
    ApiKey.PRODUCE: PRODUCE_REQUESTS,
    # Unlike a voter, a consumer or a follower names as many partitions as it reads.
    ApiKey.FETCH: Limit(ADMIN.size, 1_000_000),
    ApiKey.WRITE_TXN_MARKERS: MARKERS,
    ApiKey.JOIN_GROUP: JOINS,
    ApiKey.HEARTBEAT: NAMES,
    ApiKey.API_VERSIONS: NAMES,
    ApiKey.LEAVE_GROUP: LEAVES,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: TINY,
    ApiKey.PUSH_TELEMETRY: TELEMETRY,
}


def advertised(key: ApiKey) -> Versions:
    """The versions of an API that a broker names in its answer to ApiVersions."""
    return _ADVERTISED.get(key) or AT_BROKERS[key].versions


def broker_request_limit(api_key: int) -> Limit:
    """The limit of an API's requests at the listener of a broker."""
    return _REQUESTS.get(ApiKey(api_key)) or request_limit(api_key)


def broker_answer_limit(api_key: int) -> Limit:
    """The limit of an API's answers to a broker, which asks controllers and other brokers."""
    return FETCH_ANSWERS if api_key == ApiKey.FETCH else answer_limit(api_key)
