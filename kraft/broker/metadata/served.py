"""The APIs that a broker answers from its metadata or forwards (Kafka: `KafkaApis.handle`)."""

from __future__ import annotations

from typing import Final

from transport.protocol.apis import APIS, ApiKey

FORWARDED: Final = frozenset(key for key, api in APIS.items() if api.forwardable and "broker" in api.listeners)
"""The APIs that a broker forwards to the active controller."""
ANSWERED: Final = (
    ApiKey.METADATA,
    ApiKey.FIND_COORDINATOR,
    ApiKey.DESCRIBE_ACLS,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_CLIENT_QUOTAS,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.LIST_CONFIG_RESOURCES,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
)
"""The APIs that a broker answers from its metadata image."""
METADATA_APIS: Final = tuple(sorted((*ANSWERED, *(ApiKey(key) for key in FORWARDED))))
"""The APIs of this package, in order of their keys."""
