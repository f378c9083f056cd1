"""The settings of a transaction coordinator (Kafka: `TransactionStateManagerConfig`, `TransactionLogConfig`)."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from kraft.config.settings_reader import SettingsReader

_KEYS: Final = {
    "topic_partitions": "transaction.state.log.num.partitions",
    "topic_replication_factor": "transaction.state.log.replication.factor",
    "topic_min_isr": "transaction.state.log.min.isr",
    "topic_segment_bytes": "transaction.state.log.segment.bytes",
    "max_timeout_ms": "transaction.max.timeout.ms",
    "abort_interval_ms": "transaction.abort.timed.out.transaction.cleanup.interval.ms",
    "expiry_ms": "transactional.id.expiration.ms",
    "expiry_interval_ms": "transaction.remove.expired.transaction.cleanup.interval.ms",
    "add_retry_ms": "add.partitions.to.txn.retry.backoff.ms",
    "add_retry_max_ms": "add.partitions.to.txn.retry.backoff.max.ms",
}
"""The setting of each field of `TransactionConfig`."""


class TransactionConfig(Struct, frozen=True, kw_only=True):
    """The settings of a transaction coordinator; the defaults are Kafka's."""

    topic_partitions: int = 50
    topic_replication_factor: int = 3
    topic_min_isr: int = 2
    topic_segment_bytes: int = 100 << 20
    max_timeout_ms: int = 900_000
    """For how long a producer may leave a transaction open."""
    abort_interval_ms: int = 10_000
    """The distance of the moments at which transactions are aborted that take too long."""
    expiry_ms: int = 7 * 24 * 3_600_000
    """For how long an id is kept that nobody uses."""
    expiry_interval_ms: int = 3_600_000
    add_retry_ms: int = 20
    """After how long a leader asks again that could not add its partition to a transaction yet."""
    add_retry_max_ms: int = 100
    """For how long it asks."""


def read_transactions(reader: SettingsReader) -> TransactionConfig:
    """The settings in the file; raises `ConfigError` for a value that Kafka refuses."""
    values = reader.given(_KEYS)
    return TransactionConfig(**values)
