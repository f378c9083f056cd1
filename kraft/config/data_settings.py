"""The settings of a broker with data (Kafka: `KafkaConfig`, `CleanerConfig`, `ReplicationConfigs`, `QuotaConfig`)."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from kraft.config.settings_reader import SettingsReader

REPLICATION_FACTORS: Final = {
    "__consumer_offsets": "offsets.topic.replication.factor",
    "__transaction_state": "transaction.state.log.replication.factor",
}
"""The setting of the replicas of each internal topic; Kafka's default is 3, and fewer brokers never make the topic."""
_MOST_REPLICAS: Final = 3
RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
_SELECTOR: Final = "replica.selector.class"
_KEYS: Final = {
    "has_cleaner": "log.cleaner.enable",
    "cleaner_bytes": "log.cleaner.dedupe.buffer.size",
    "cleaner_threads": "log.cleaner.threads",
    "cleaner_load_factor": "log.cleaner.io.buffer.load.factor",
    "cleaner_backoff_ms": "log.cleaner.backoff.ms",
    "producer_expiry_check_ms": "producer.id.expiration.check.interval.ms",
    "flush_check_ms": "log.flush.scheduler.interval.ms",
    "initial_task_delay_ms": "log.initial.task.delay.ms",
    "move_bytes_per_second": "replica.alter.log.dirs.io.max.bytes.per.second",
    "verifies_transactions": "transaction.partition.verification.enable",
    "quota_samples": "quota.window.num",
    "quota_window_seconds": "quota.window.size.seconds",
}
"""The setting of each field of `DataConfig`."""


class DataConfig(Struct, frozen=True, kw_only=True):
    """The settings that only a broker with data reads; the defaults are Kafka's."""

    has_cleaner: bool = True
    cleaner_bytes: int = 128 << 20
    """The memory of all cleaning, which its threads share."""
    cleaner_threads: int = 1
    cleaner_load_factor: float = 0.9
    cleaner_backoff_ms: int = 15_000
    producer_expiry_check_ms: int = 600_000
    flush_check_ms: int | None = None
    """None for never."""
    initial_task_delay_ms: int = 30_000
    move_bytes_per_second: int | None = None
    """For moves between log directories; None for no limit."""
    verifies_transactions: bool = True
    quota_samples: int = 11
    quota_window_seconds: int = 1
    prefers_rack_of_client: bool = False
    """Whether consumers read from a replica in their own rack (KIP-392)."""


def read_data(reader: SettingsReader) -> DataConfig:
    """The settings in the file; raises `ConfigError` for a value that Kafka refuses, and for an unknown selector."""
    values = reader.given(_KEYS)
    selector = reader.value(_SELECTOR) if _SELECTOR in reader.settings else ""
    if selector not in ("", RACK_AWARE):
        raise reader.bad(_SELECTOR, f"{selector} is not known", hint=f"Allowed: {RACK_AWARE}, or none.")
    return DataConfig(prefers_rack_of_client=selector == RACK_AWARE, **values)


def replicas_of_internal_topics(brokers: int) -> dict[str, str]:
    """The settings with which so many brokers can make every internal topic, and lose one of them if they are three.

    Args:
        brokers: The number of brokers.
    """
    replicas = str(min(_MOST_REPLICAS, brokers))
    return {
        **dict.fromkeys(REPLICATION_FACTORS.values(), replicas),
        "transaction.state.log.min.isr": str(min(2, brokers)),
    }
