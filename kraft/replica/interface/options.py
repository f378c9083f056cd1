"""The configuration of a replica and of its quorum (Kafka: `QuorumConfig`, `MetadataLogConfig`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from msgspec import Struct

from kraft.config.key import Key
from kraft.config.keys import SEGMENT_BYTES, SEGMENT_BYTES_OVERRIDE
from kraft.config.settings_reader import SettingsReader
from kraft.limits import COMMITS_WAITING, UNCOMMITTED_BYTES, UNITS_PER_TURN
from kraft.quorum.values import DEFAULT_LISTENER, Endpoints, ListenerAddress, QuorumConfig
from kraft.quorum.voters import VoterSet
from metadata_log.log.log import DEFAULT_SEGMENT_BYTES, DEFAULT_SEGMENT_MS
from metadata_log.log.retention import Retention


def _retention(reader: SettingsReader) -> Retention:
    return Retention(
        max_bytes=reader.whole("metadata.max.retention.bytes"), max_ms=reader.whole("metadata.max.retention.ms")
    )


class SnapshotOptions(Struct, frozen=True, kw_only=True):
    """When a replica makes snapshots, and how much of the past it keeps; 0 ms is never."""

    max_bytes: Annotated[int, Key("metadata.log.max.record.bytes.between.snapshots")] = 20 << 20
    max_interval_ms: Annotated[int, Key("metadata.log.max.snapshot.interval.ms")] = 3_600_000
    retention: Annotated[
        Retention, Key("metadata.max.retention.bytes", "metadata.max.retention.ms", read=_retention)
    ] = Retention()
    clean_every_ms: int = 60_000
    """How often the replica looks for files to remove; Kafka has no setting for this."""


class ReplicaOptions(Struct, frozen=True, kw_only=True):
    """`directory` is the formatted log directory; `endpoints` are the listeners that this node advertises.

    A `cluster_id` of None takes the cluster id of the directory; any other value must be equal to that. With
    `inline_flush` each flush runs within `step`, and there is no `StartFlush`. `endpoints` of a broker alone are the
    listeners of the broker, and `listener` is still the listener of the controllers.
    """

    directory: str
    node_id: int
    voters: VoterSet
    """The voters of the configuration. If it is empty, the log defines the voters."""
    endpoints: Endpoints
    bootstrap: tuple[ListenerAddress, ...] = ()
    """The bootstrap servers: besides the voters, the replica asks them for the leader."""
    cluster_id: str | None = None
    listener: str = DEFAULT_LISTENER
    quorum: QuorumConfig = QuorumConfig()
    segment_bytes: Annotated[int, Key(SEGMENT_BYTES, SEGMENT_BYTES_OVERRIDE, read=SettingsReader.segment_bytes)] = (
        DEFAULT_SEGMENT_BYTES
    )
    segment_ms: Annotated[int, Key("metadata.log.segment.ms")] = DEFAULT_SEGMENT_MS
    snapshots: SnapshotOptions = SnapshotOptions()
    max_waiting: int = COMMITS_WAITING
    max_uncommitted_bytes: int = UNCOMMITTED_BYTES
    judged_per_turn: int = UNITS_PER_TURN
    """How many records of peers are judged in a turn."""
    may_vote: bool = True
    """False for a broker alone, which observes the quorum."""
    inline_flush: bool = False
    make_core: Callable[..., Any] | None = None
    """Makes a core that also tells what it does, a `RecordedCore`; None for a plain `RaftCore`."""
