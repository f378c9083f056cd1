"""What a `Replica` is told about itself and its quorum (Kafka: `KafkaConfig`, as far as the replica reads it)."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from kraft.broker.settings import BrokerOptions
from kraft.config.described import DescribedSetting
from kraft.controller.decision.request_context import AdminSettings, DecisionSettings
from kraft.quorum.values import DEFAULT_LISTENER, Endpoints, ListenerAddress, QuorumConfig
from kraft.quorum.voters import VoterSet
from kraft.replica.interface.snapshot_options import SnapshotOptions
from metadata_log.log.log import DEFAULT_SEGMENT_BYTES, DEFAULT_SEGMENT_MS

DEFAULT_MAX_IDLE_INTERVAL_MS: Final = 500
UNITS_PER_TURN: Final = 4000
"""So many records, or what takes as long, are judged in a turn: some ten milliseconds."""


class ReplicaOptions(Struct, frozen=True, kw_only=True):
    """`directory` is the formatted log directory; `endpoints` are the listeners that this node advertises.

    A `cluster_id` of None takes the one that the directory was formatted with; any other must be equal to it. With
    `inline_flush` the log is flushed within `step`, and no `StartFlush` ever comes out. `broker` is there if the node
    is one; its `endpoints` are then those of its own listeners, and `listener` still that of the controllers.
    """

    directory: str
    node_id: int
    voters: VoterSet
    """The voters of the configuration; if empty, the voters are in the log."""
    endpoints: Endpoints
    bootstrap: tuple[ListenerAddress, ...] = ()
    """The bootstrap servers, which are asked for the leader besides the voters."""
    cluster_id: str | None = None
    listener: str = DEFAULT_LISTENER
    quorum: QuorumConfig = QuorumConfig()
    segment_bytes: int = DEFAULT_SEGMENT_BYTES
    segment_ms: int = DEFAULT_SEGMENT_MS
    snapshots: SnapshotOptions = SnapshotOptions()
    max_waiting: int = 10_000
    """How many requests may wait for a commit; those beyond are answered REQUEST_TIMED_OUT, and nothing is decided."""
    max_uncommitted_bytes: int = 128 << 20
    """How much a leader takes before any of it is committed; then the same."""
    judged_per_turn: int = UNITS_PER_TURN
    """How many records of what others send are judged in a turn."""
    max_idle_interval_ms: int = DEFAULT_MAX_IDLE_INTERVAL_MS
    min_insync_replicas: int = 1
    decisions: DecisionSettings = DecisionSettings()
    admin: AdminSettings = AdminSettings()
    own_settings: tuple[DescribedSetting, ...] = ()
    broker: BrokerOptions | None = None
    inline_flush: bool = False
