"""The settings of the requests that a broker answers from its metadata."""

from __future__ import annotations

from msgspec import Struct

from kraft.config.described import DescribedSetting, Secret


class MetadataSettings(Struct, frozen=True, kw_only=True):
    """The settings of a broker for these requests; times are milliseconds."""

    broker_id: int
    cluster_id: str
    own_settings: tuple[DescribedSetting, ...] = ()
    min_insync_replicas: int = 1
    num_partitions: int = 1
    default_replication_factor: int = 1
    auto_create_topics: bool = True
    request_timeout_ms: int = 30_000
    max_partitions: int = 2000
    """Kafka's `max.request.partition.size.limit`, for DescribeTopicPartitions."""
    token_secret: Secret | None = None
    """`delegation.token.secret.key`; None for a cluster without delegation tokens."""
