"""The inputs of a node's metrics and health: its replica, and the counts of its shell."""

from __future__ import annotations

from math import nan

from msgspec import Struct

from kraft.access.connection_rates import ConnectionRates
from kraft.metrics.coordinators import NO_GROUPS, GroupCounts
from kraft.metrics.topic_counts import NO_TOPICS, TopicCounts
from kraft.metrics.windows import Quantiles
from kraft.process.process import Process
from kraft.quorum.core import RaftCore
from kraft.quorum.states import FollowerState, LeaderState, ResignedState
from kraft.quorum.states.follower import LeaderContact
from kraft.replica.replica import Replica
from metadata_log.types import NO_NODE

_NONE = Quantiles(0, 0.0, ())


class SnapshotFile(Struct, frozen=True):
    """The newest snapshot on disk: its end, its size, and the time of its file in ms since 1970."""

    end_offset: int
    size_bytes: int
    written_ms: int


class Channels(Struct, frozen=True):
    """The connections of a transport in one direction, and what has passed since the start."""

    open: int = 0
    created: int = 0
    closed: int = 0
    requests: int = 0
    responses: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0
    refused: int = 0
    """Connections that ended because one side refused the certificate or the login of the other."""


class Authenticated(Struct, frozen=True):
    """How often peers have authenticated in one way: successfully, or with one kind of a failure."""

    listener: str
    mechanism: str
    result: str
    is_success: bool
    count: int


class CertificateEnd(Struct, frozen=True):
    """When a certificate ends, in seconds since 1970. `listener` is empty for an authority."""

    subject: str
    serial: str
    ends_s: float
    listener: str = ""


class Certificates(Struct, frozen=True):
    """The certificates of a node with TLS, and what became of changed stores since the start."""

    own: tuple[CertificateEnd, ...]
    authorities: tuple[CertificateEnd, ...]
    replaced: int = 0
    """How often changed stores have replaced those in use."""
    kept: int = 0
    """How often changed stores could not be used."""


class Counted(Struct, frozen=True, kw_only=True):
    """The counts of a node's shell up to now. Averages and maxima are over 30 to 60 seconds."""

    commit_ms_avg: float = nan
    commit_ms_max: float = nan
    election_ms_avg: float = nan
    election_ms_max: float = nan
    appended_per_s: float = 0.0
    fetched_per_s: float = 0.0
    busy_ratio: float = nan
    events: int = 0
    queue_ms: Quantiles = _NONE
    processing_ms: Quantiles = _NONE
    flush_ms: Quantiles = _NONE
    longest_turn_s: float = nan
    longest_gap_s: float = nan
    oldest_fsync_s: float = 0.0
    leaders_seen: int = 0
    led_s: float = 0.0
    snapshots_installed: int = 0
    snapshot: SnapshotFile | None = None
    heard_ms: int | None = None
    """The last known contact with the quorum, in ms since 1970; None before the first one."""
    lost_election: str = ""
    """The cause of the last election that this node has lost, until the next leader."""
    client_channels: Channels | None = None
    """The connections to peers, of a transport that has some."""
    server_channels: Channels | None = None
    """The connections of peers. Their requests, and the bytes that they send, are not counted."""
    authentications: tuple[Authenticated, ...] = ()


class NodeView(Struct, frozen=True, kw_only=True):
    """A node at one moment."""

    process: Process
    now_ms: int
    is_broker: bool = False
    is_stopping: bool = False
    has_static_voters: bool = False
    """Whether the configuration names the voters."""
    listener: str = ""
    counted: Counted = Counted()
    topics: TopicCounts = NO_TOPICS
    groups: GroupCounts = NO_GROUPS
    connection_rates: tuple[ConnectionRates, ...] = ()
    """How fast connections are made, for each role of the node."""
    certificates: Certificates | None = None
    """None for a node without TLS."""

    @property
    def replica(self) -> Replica:
        """The replica of the log, in its process."""
        return self.process.replica

    @property
    def heard_ms(self) -> int | None:
        """The last contact with the quorum, by the state now and by what the shell has seen before."""
        now = heard_ms(self.replica.core, self.replica.options.quorum.fetch_timeout_ms, self.now_ms)
        known = self.counted.heard_ms
        return now if known is None or (now is not None and now > known) else known

    @property
    def contact_age_s(self) -> float:
        """The age of that contact in seconds; infinite before the first one."""
        heard = self.heard_ms
        return float("inf") if heard is None else max(0, self.now_ms - heard) / 1000

    @property
    def has_quorum(self) -> bool:
        """Whether this node leads or follows a leader that it has heard within the fetch timeout."""
        core = self.replica.core
        fetch_timeout_s = core_timeout_s(self)
        return core.leader.leader_id != NO_NODE and self.contact_age_s < fetch_timeout_s

    @property
    def is_resigned(self) -> bool:
        """Whether this node has resigned and not yet entered another epoch."""
        return isinstance(self.replica.core.state, ResignedState)


def core_timeout_s(view: NodeView) -> float:
    """The fetch timeout in seconds."""
    return view.replica.options.quorum.fetch_timeout_ms / 1000


def heard_ms(core: RaftCore, fetch_timeout_ms: int, now_ms: int) -> int | None:
    """The last contact with the quorum that the present state proves, in ms since 1970; None if it proves none.

    A follower has heard the leader when its fetch timeout began. Other events only shorten that timeout, or extend it
    after a pause by less than its length, so that the result is never too late. A leader has heard the quorum when the
    other voters of a majority had fetched, or had voted for this leader.
    """
    match core.state:
        case FollowerState() as follower if follower.contact is not LeaderContact.NONE:
            return follower.fetch_deadline_ms - fetch_timeout_ms
        case LeaderState() as leader:
            if leader.contacts_wanted <= 0:
                return now_ms
            others = [one.last_fetch_ms for voter_id, one in leader.progress.items() if voter_id != leader.local.id]
            others.sort(reverse=True)
            return max(others[leader.contacts_wanted - 1], leader.check_quorum_deadline_ms - fetch_timeout_ms * 3 // 2)
    return None
