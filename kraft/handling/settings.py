"""The settings of what answers requests (Kafka: `KafkaConfig`)."""

from __future__ import annotations

from msgspec import Struct

from kraft.config.described import DescribedSetting, Secret
from kraft.config.group_settings import GroupConfig
from kraft.config.transaction_settings import TransactionConfig
from kraft.limits import REQUESTS_WAITING


class RequestSettings(Struct, frozen=True, kw_only=True):
    """The settings for requests of clients. Times are ms, sizes are bytes; the defaults are those of Kafka 4.3."""

    broker_id: int
    cluster_id: str = ""
    fetch_max_bytes: int = 57_671_680
    """`fetch.max.bytes`: the most that one Fetch returns, whatever the client asks for."""
    session_slots: int = 1000
    """`max.incremental.fetch.session.cache.slots`."""
    session_eviction_ms: int = 120_000
    """How long a session is safe from one that needs its place."""
    prefers_rack_of_client: bool = False
    """Whether `replica.selector.class` is Kafka's `RackAwareReplicaSelector`."""
    most_waiting: int = REQUESTS_WAITING
    """How many requests wait at most. One more is answered at once, as if its time were over: clients that go away
    while their requests wait must not fill the memory.
    """
    inter_broker_listener: str = "PLAINTEXT"
    """The listener at which brokers reach each other."""
    verifies_transactions: bool = True
    """`transaction.partition.verification.enable`: whether a transaction is verified at its coordinator."""
    request_timeout_ms: int = 30_000
    """`request.timeout.ms`: how long a producer waits for a block of producer ids."""
    controller_timeout_ms: int = 30_000
    """`request.timeout.ms`, too: how long a request to the active controller may take, with all attempts."""
    quota_samples: int = 11
    """`quota.window.num`: over how many windows the use of a client is counted."""
    quota_window_ms: int = 1000
    """`quota.window.size.seconds`."""
    own_settings: tuple[DescribedSetting, ...] = ()
    min_insync_replicas: int = 1
    num_partitions: int = 1
    default_replication_factor: int = 1
    auto_create_topics: bool = True
    max_partitions: int = 2000
    """Kafka's `max.request.partition.size.limit`, for DescribeTopicPartitions."""
    token_secret: Secret | None = None
    """`delegation.token.secret.key`; None for a cluster without delegation tokens."""
    groups: GroupConfig = GroupConfig()
    """What the group coordinator is set to."""
    transactions: TransactionConfig = TransactionConfig()
    """What the transaction coordinator is set to."""
