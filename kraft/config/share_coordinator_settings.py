"""The settings of a share coordinator (Kafka: `ShareCoordinatorConfig`)."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from kraft.config.key import Key


class ShareCoordinatorConfig(Struct, frozen=True, kw_only=True):
    """The settings of a share coordinator; the defaults are Kafka's."""

    topic_partitions: Annotated[int, Key("share.coordinator.state.topic.num.partitions")] = 50
    topic_replication_factor: Annotated[int, Key("share.coordinator.state.topic.replication.factor")] = 3
    topic_min_isr: Annotated[int, Key("share.coordinator.state.topic.min.isr")] = 2
    topic_segment_bytes: Annotated[int, Key("share.coordinator.state.topic.segment.bytes")] = 100 << 20
    compression_codec: Annotated[int, Key("share.coordinator.state.topic.compression.codec")] = 0
    """The codec of the batches that the coordinator writes, by Kafka's number."""
    updates_per_snapshot: Annotated[int, Key("share.coordinator.snapshot.update.records.per.snapshot")] = 500
    """After so many updates of a share partition comes a snapshot."""
    write_timeout_ms: Annotated[int, Key("share.coordinator.write.timeout.ms")] = 5000
    """How long any request waits for the records that it has caused."""
    prune_interval_ms: Annotated[int, Key("share.coordinator.state.topic.prune.interval.ms")] = 300_000
    """The distance of the moments at which the begin of the log is deleted that nothing needs."""
    cold_interval_ms: Annotated[int, Key("share.coordinator.cold.partition.snapshot.interval.ms")] = 300_000
    """For how long a share partition is left without a snapshot."""
