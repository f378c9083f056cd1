"""The APIs at the listeners of a broker, with their versions and limits (Kafka: `ApiKeys`, `ApiVersionManager`)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from msgspec import structs

from metadata_log.serde import Versions
from transport.protocol.apis import Api, ApiKey
from transport.protocol.broker_apis import ALL_APIS
from transport.protocol.limits import ADMIN, Limit, request_limit

_STABLE: Final = {ApiKey.INIT_PRODUCER_ID: Versions(0, 5)}
"""The served versions of an API with a highest version that is unstable in 4.3.1."""
_ADVERTISED: Final = {ApiKey.PRODUCE: Versions(0, 13)}
"""Kafka names versions 0 to 2 of Produce, which no broker answers: librdkafka looks for them."""
AT_BROKERS: Final[Mapping[int, Api]] = MappingProxyType(
    {
        key: structs.replace(api, versions=_STABLE[api.key]) if api.key in _STABLE else api
        for key, api in ALL_APIS.items()
        if "broker" in api.listeners
    }
)
"""Each API that a client may send to a broker, by key, with the versions that a broker answers."""
PRODUCE_REQUESTS: Final = Limit(16 << 20, 120_000)
"""A Produce request: a batch has at most a megabyte by default (`message.max.bytes`)."""
_REQUESTS: Final = {
    ApiKey.PRODUCE: PRODUCE_REQUESTS,
    # Unlike a voter, a consumer or a follower names as many partitions as it reads.
    ApiKey.FETCH: Limit(ADMIN.size, 1_000_000),
}


def advertised(key: ApiKey) -> Versions:
    """The versions of an API that a broker names in its answer to ApiVersions."""
    return _ADVERTISED.get(key) or AT_BROKERS[key].versions


def broker_request_limit(api_key: int) -> Limit:
    """The limit of an API's requests at the listener of a broker."""
    return _REQUESTS.get(ApiKey(api_key)) or request_limit(api_key)
