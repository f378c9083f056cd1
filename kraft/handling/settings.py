"""The settings of what answers requests (Kafka: `KafkaConfig`)."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Struct

from kraft.access.tokens import TokenSettings
from kraft.config.data_settings import SELECTOR, TopicDefaults, prefers_rack_of_client
from kraft.config.described import DescribedSetting
from kraft.config.group_settings import GroupConfig
from kraft.config.key import Key
from kraft.config.settings_reader import seconds_in_ms
from kraft.config.share_coordinator_settings import ShareCoordinatorConfig
from kraft.config.telemetry_settings import TelemetryConfig
from kraft.config.transaction_settings import TransactionConfig
from kraft.limits import REQUESTS_WAITING

_QUOTA_WINDOW: Final = "quota.window.size.seconds"


class RequestSettings(Struct, frozen=True, kw_only=True):
    """The settings for requests of clients. Times are ms, sizes are bytes; the defaults are those of Kafka 4.3."""

    broker_id: int
    cluster_id: str = ""
    fetch_max_bytes: Annotated[int, Key("fetch.max.bytes")] = 57_671_680
    """The most that one Fetch returns, whatever the client asks for."""
    session_slots: Annotated[int, Key("max.incremental.fetch.session.cache.slots")] = 1000
    session_eviction_ms: int = 120_000
    """How long a session is safe from one that needs its place."""
    prefers_rack_of_client: Annotated[bool, Key(SELECTOR, read=prefers_rack_of_client)] = False
    """Whether consumers read from a replica in their own rack (KIP-392)."""
    most_waiting: int = REQUESTS_WAITING
    """How many requests wait at most. One more is answered at once, as if its time were over: clients that go away
    while their requests wait must not fill the memory.
    """
    inter_broker_listener: str = "PLAINTEXT"
    """The listener at which brokers reach each other."""
    verifies_transactions: Annotated[bool, Key("transaction.partition.verification.enable")] = True
    """Whether a transaction is verified at its coordinator."""
    request_timeout_ms: Annotated[int, Key("request.timeout.ms")] = 30_000
    """How long a request to another node may take, with all attempts, and a producer waits for its id."""
    quota_samples: Annotated[int, Key("quota.window.num")] = 11
    """Over how many windows the use of a client is counted."""
    quota_window_ms: Annotated[int, Key(_QUOTA_WINDOW, read=seconds_in_ms(_QUOTA_WINDOW))] = 1000
    own_settings: tuple[DescribedSetting, ...] = ()
    topics: TopicDefaults = TopicDefaults()
    auto_create_topics: Annotated[bool, Key("auto.create.topics.enable")] = True
    max_partitions: Annotated[int, Key("max.request.partition.size.limit")] = 2000
    """The most in one answer to DescribeTopicPartitions."""
    tokens: TokenSettings = TokenSettings()
    groups: GroupConfig = GroupConfig()
    transactions: TransactionConfig = TransactionConfig()
    share_states: ShareCoordinatorConfig = ShareCoordinatorConfig()
    telemetry: TelemetryConfig = TelemetryConfig()
