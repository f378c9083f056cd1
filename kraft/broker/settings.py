"""The settings of a broker (Kafka: `KafkaConfig`)."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Struct

from kraft.config.key import Key
from kraft.config.settings_reader import SettingsReader
from kraft.partitions.replicas.settings import ReplicationSettings
from metadata_log.types import NO_EPOCH, Uuid

PLAINTEXT: Final = 0


class BrokerListener(Struct, frozen=True):
    """One listener, with the address for clients and other brokers; `security_protocol` is Kafka's number."""

    name: str
    host: str
    port: int
    security_protocol: int = PLAINTEXT


def _cordoned(reader: SettingsReader) -> str:
    return reader.text("cordoned.log.dirs")


def _rack(reader: SettingsReader) -> str | None:
    return reader.text("broker.rack") or None


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
    cordoned: Annotated[str, Key("cordoned.log.dirs", read=_cordoned)] = ""
    """The text of the file, which the dynamic configuration of the broker overrides."""
    rack: Annotated[str | None, Key("broker.rack", read=_rack)] = None
    heartbeat_interval_ms: Annotated[int, Key("broker.heartbeat.interval.ms")] = 2000
    initial_registration_timeout_ms: Annotated[int, Key("initial.broker.registration.timeout.ms")] = 60_000
    replication: ReplicationSettings = ReplicationSettings()
    inter_broker_listener: str = ""
    """The listener at which this broker reaches others; empty for the first one."""
    controlled_shutdown: Annotated[bool, Key("controlled.shutdown.enable")] = True


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
