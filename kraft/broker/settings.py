"""What a broker agent is told about itself (Kafka: `KafkaConfig`, as far as a broker's metadata side reads it)."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from metadata_log.types import Uuid

PLAINTEXT: Final = 0
NO_EPOCH: Final = -1


class BrokerListener(Struct, frozen=True):
    """One listener as clients and other brokers reach it; `security_protocol` is Kafka's number of it."""

    name: str
    host: str
    port: int
    security_protocol: int = PLAINTEXT


class BrokerOptions(Struct, frozen=True, kw_only=True):
    """What a configuration and a disk say; times are milliseconds.

    `directories` are the ids of the log directories. `previous_epoch` is the broker epoch of the last life if that
    ended cleanly, else -1.
    """

    directories: tuple[Uuid, ...]
    previous_epoch: int = NO_EPOCH
    rack: str | None = None
    heartbeat_interval_ms: int = 2000
    initial_registration_timeout_ms: int = 60_000
    replica_lag_time_max_ms: int = 30_000
    fetch_interval_ms: int = 500
    controlled_shutdown: bool = True


class BrokerSettings(Struct, frozen=True, kw_only=True):
    """`BrokerOptions` and who this very start of the broker is: the incarnation id is drawn anew each time.

    Other brokers are reached by their listener of the name of the first of `listeners`.
    """

    broker_id: int
    cluster_id: str
    incarnation_id: Uuid
    listeners: tuple[BrokerListener, ...]
    features: tuple[tuple[str, int, int], ...]
    options: BrokerOptions
