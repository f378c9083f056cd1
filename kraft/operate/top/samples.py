"""The values of one refresh about a quorum, and the figures that only a node's metrics listener has. Times are
milliseconds since 1970.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final

from msgspec import Struct
from prometheus_client.parser import text_string_to_metric_families


class ReplicaSample(Struct, frozen=True, kw_only=True):
    """One voter or observer, as the leader reports it; -1 for what the leader does not know."""

    id: int
    directory_id: str
    is_voter: bool
    end_offset: int
    fetched_ms: int
    """The time of the last Fetch on the leader's clock."""
    caught_up_ms: int
    """The time when the replica last had all records, on the leader's clock."""


class QuorumSample(Struct, frozen=True, kw_only=True):
    """The answer of the leader to DescribeQuorum."""

    leader_id: int
    epoch: int
    high_watermark: int
    replicas: tuple[ReplicaSample, ...]


class ControllerAnswer(Struct, frozen=True, kw_only=True):
    """The answer of one controller while no leader answers. `id` is None if only the address is known."""

    id: int | None
    address: str
    epoch: int | None = None
    leader_id: int | None = None
    """The leader that the controller names; None for none."""
    problem: str | None = None
    """The cause, if the controller does not answer."""


class NoLeader(Struct, frozen=True, kw_only=True):
    """No leader answered: the cause, and what each controller says."""

    problem: str
    answers: tuple[ControllerAnswer, ...] = ()


class Election(Struct, frozen=True, kw_only=True):
    """A leader of an epoch. `offset` is that of the LeaderChange record; None if only an answer told of the leader."""

    epoch: int
    leader_id: int
    at_ms: int
    offset: int | None = None


class BrokerSample(Struct, frozen=True, kw_only=True):
    """A registered broker, by the metadata log."""

    id: int
    state: str
    """`active`, `fenced`, `stopping` or `stopped`."""
    rack: str | None
    endpoint: str
    """The host and the port of its first listener."""
    replicas: int
    in_sync: int
    """The partitions that have the broker in their ISR."""
    leads: int


class Trouble(Enum):
    """A problem of a partition; the worst first."""

    NO_LEADER = "no leader"
    BELOW_MIN_ISR = "below min ISR"


class PartitionSample(Struct, frozen=True, kw_only=True):
    """A partition with a trouble, by the metadata log."""

    topic: str
    partition: int
    trouble: Trouble
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    min_isr: int


class MetadataSample(Struct, frozen=True, kw_only=True):
    """Counts of brokers and partitions from the metadata log, up to `offset`."""

    offset: int
    topics: int
    partitions: int
    leaderless: int
    below_min_isr: int
    """The partitions with a leader and with fewer replicas in sync than min.insync.replicas."""
    brokers: tuple[BrokerSample, ...]
    troubled: tuple[PartitionSample, ...]
    """The first `MOST_TROUBLED` of both kinds, those without a leader first."""


class NodeFigures(Struct, frozen=True, kw_only=True):
    """The values of one metrics listener. A value is None where the listener lacks it."""

    address: str
    node_id: int | None = None
    epoch: int | None = None
    fsync_s: float | None = None
    """The mean time of the fsyncs of the log since the scrape before, or the age of one that has not returned."""
    longest_turn_s: float | None = None
    no_leader_reason: str | None = None
    problem: str | None = None
    """The cause, if the scrape failed."""


class Sample(Struct, frozen=True, kw_only=True):
    """Everything that one refresh knows."""

    at_ms: int
    """The time of this host."""
    cluster_id: str | None
    quorum: QuorumSample | NoLeader
    metadata: MetadataSample | None = None
    """None until the log has been read once."""
    metadata_at_ms: int | None = None
    """The time when the leader last confirmed that `metadata` is up to date."""
    metadata_note: str | None = None
    """Why the metadata is absent or old."""
    elections: tuple[Election, ...] = ()
    """The elections in the log since this program reads the log."""
    figures: tuple[NodeFigures, ...] = ()
    requests: int = 0
    """The requests to controllers that this refresh took."""


_ID: Final = re.compile(r"[0-9]{1,10}")
_NODE: Final = "kraft_node_info"
_EPOCH: Final = "kafka_server_raft_metrics_current_epoch"
_FSYNC_SUM: Final = "kraft_fsync_seconds_sum"
_FSYNC_COUNT: Final = "kraft_fsync_seconds_count"
_OLDEST_FSYNC: Final = "kraft_fsync_oldest_seconds"
_LONGEST_TURN: Final = "kraft_event_loop_longest_turn_seconds"
_NO_LEADER: Final = "kraft_no_leader_reason_info"
_BEYOND: Final = 2.0**63
"""No figure is negative or as large as this. NaN is not below it either: what a listener says of itself is a claim."""
_OF_LOG: Final = {"file": "log"}


class Fsyncs(Struct, frozen=True):
    """The fsyncs of the log since the start of a node: their number, and their seconds together."""

    count: float = 0.0
    seconds: float = 0.0


def figures_of(address: str, text: str, before: Fsyncs | None) -> tuple[NodeFigures, Fsyncs]:
    """The figures in the text of a scrape, and what the next scrape needs of this one; `ValueError` for another format.

    `before` are the fsyncs of the scrape before; without them the figures have the mean since the node's start.
    """
    values: dict[str, float] = {}
    labels: dict[str, dict[str, str]] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                is_number = 0 <= sample.value < _BEYOND
                if is_number and (not sample.name.startswith("kraft_fsync_seconds") or sample.labels == _OF_LOG):
                    values[sample.name], labels[sample.name] = sample.value, sample.labels
    except Exception as bad:  # the parser has an exception of its own for each way in which a text can be wrong
        raise ValueError("the answer is not in the text format of Prometheus") from bad
    fsyncs = Fsyncs(values.get(_FSYNC_COUNT, 0.0), values.get(_FSYNC_SUM, 0.0))
    node = labels.get(_NODE, {}).get("node_id", "")
    epoch = values.get(_EPOCH)
    figures = NodeFigures(
        address=address,
        node_id=int(node) if _ID.fullmatch(node) else None,
        epoch=None if epoch is None else int(epoch),
        fsync_s=_fsync_s(fsyncs, before, values.get(_OLDEST_FSYNC, 0.0)),
        longest_turn_s=values.get(_LONGEST_TURN),
        no_leader_reason=labels.get(_NO_LEADER, {}).get("reason"),
        problem=None if _NODE in values else "not a node of trio-kraft: the metric kraft_node_info is absent",
    )
    return figures, fsyncs


def _fsync_s(now: Fsyncs, before: Fsyncs | None, oldest_s: float) -> float | None:
    """The mean time of an fsync; a node that has started again counts from 0. None without any fsync."""
    since = before if before is not None and before.count < now.count else Fsyncs()
    count = now.count - since.count
    mean_s = (now.seconds - since.seconds) / count if count > 0 else None
    if mean_s is None:
        return oldest_s or None
    return max(mean_s, oldest_s)
