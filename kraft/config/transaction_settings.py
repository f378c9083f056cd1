"""The settings of a transaction coordinator (Kafka: `TransactionStateManagerConfig`, `TransactionLogConfig`)."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from kraft.config.key import Key


class TransactionConfig(Struct, frozen=True, kw_only=True):
    """The settings of a transaction coordinator; the defaults are Kafka's."""

    topic_partitions: Annotated[int, Key("transaction.state.log.num.partitions")] = 50
    topic_replication_factor: Annotated[int, Key("transaction.state.log.replication.factor")] = 3
    topic_min_isr: Annotated[int, Key("transaction.state.log.min.isr")] = 2
    topic_segment_bytes: Annotated[int, Key("transaction.state.log.segment.bytes")] = 100 << 20
    max_timeout_ms: Annotated[int, Key("transaction.max.timeout.ms")] = 900_000
    """For how long a producer may leave a transaction open."""
    abort_interval_ms: Annotated[int, Key("transaction.abort.timed.out.transaction.cleanup.interval.ms")] = 10_000
    """The distance of the moments at which transactions are aborted that take too long."""
    expiry_ms: Annotated[int, Key("transactional.id.expiration.ms")] = 7 * 24 * 3_600_000
    """For how long an id is kept that nobody uses."""
    expiry_interval_ms: Annotated[int, Key("transaction.remove.expired.transaction.cleanup.interval.ms")] = 3_600_000
    add_retry_ms: Annotated[int, Key("add.partitions.to.txn.retry.backoff.ms")] = 20
    """After how long a leader asks again that could not add its partition to a transaction yet."""
    add_retry_max_ms: Annotated[int, Key("add.partitions.to.txn.retry.backoff.max.ms")] = 100
    """For how long it asks."""
