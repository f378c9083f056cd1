"""The settings of a broker (Kafka: `KafkaConfig`)."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from kraft.partitions.replicas.key import NO_EPOCH
from metadata_log.types import Uuid

PLAINTEXT: Final = 0


class BrokerListener(Struct, frozen=True):
    """One listener, with the address for clients and other brokers; `security_protocol` is Kafka's number."""

    name: str
    host: str
    port: int
    security_protocol: int = PLAINTEXT


class BrokerOptions(Struct, frozen=True, kw_only=True):
    """The settings from configuration and disk; times are milliseconds.

    `directories` are the ids of the log directories. `previous_epoch` is the broker epoch of the last run after a clean
    shutdown, else -1.
    """

    directories: tuple[Uuid, ...]
    previous_epoch: int = NO_EPOCH
    clean_directories: tuple[Uuid, ...] = ()
    """The log directories that the last run has left with proof of a clean shutdown."""
    paths: tuple[str, ...] = ()
    """The paths of the log directories, in the order of `directories`."""
    cordoned: str = ""
    """`cordoned.log.dirs` of the configuration file, which the dynamic configuration of the broker overrides."""
    rack: str | None = None
    heartbeat_interval_ms: int = 2000
    initial_registration_timeout_ms: int = 60_000
    replica_lag_time_max_ms: int = 30_000
    fetch_interval_ms: int = 500
    inter_broker_listener: str = ""
    """The listener at which this broker reaches others; empty for the first one."""
    controlled_shutdown: bool = True
    auto_create_topics: bool = True
    request_timeout_ms: int = 30_000
    """The time for a request that the broker forwards for a client."""
    max_described_partitions: int = 2000


class BrokerSettings(Struct, frozen=True, kw_only=True):
    """`BrokerOptions` and the incarnation id, which is random for each start.

    Other brokers are reached at their listener that has the name of `BrokerOptions.inter_broker_listener`.
    """

    broker_id: int
    cluster_id: str
    incarnation_id: Uuid
    listeners: tuple[BrokerListener, ...]
    features: tuple[tuple[str, int, int], ...]
    options: BrokerOptions
