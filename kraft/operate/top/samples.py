"""What one refresh knows of a quorum: values without behaviour. Times are milliseconds since 1970."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct


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
    """What one controller says while no leader answers. `id` is None if only the address is known."""

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
    """What is wrong with a partition; the worst first."""

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
    """What the metadata log says of brokers and partitions up to `offset`."""

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
    """What a scrape of one metrics listener says. A value is None where the listener lacks it."""

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
