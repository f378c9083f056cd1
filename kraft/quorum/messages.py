"""The quorum RPCs in flat form: one topic, one partition, no versions.

`kraft.replica.rpc` turns wire messages into these and back, after it has checked cluster id, topic and partition. Every
reply carries what its sender knows of the leader: epoch, leader id and, where known, endpoints.
"""

from __future__ import annotations

from msgspec import Struct

from kraft.quorum.values import Endpoints, ReplicaKey, VersionRange
from kraft.quorum.voters import QuorumChange, Voter
from metadata_log.types import NO_NODE, NO_OFFSET, OffsetAndEpoch
from transport.protocol.errors import Error

HIGH_WATERMARK_ABSENT = 2**63 - 1
"""What a Fetch below version 18 says about its high watermark: nothing is news to it (KIP-1166)."""


class Vote(Struct, frozen=True, kw_only=True):
    """A candidate asks for a vote, or with `pre_vote` whether it would get one. `last` holds its log's end offset and
    last epoch.
    """

    epoch: int
    candidate: ReplicaKey
    voter: ReplicaKey
    last: OffsetAndEpoch
    pre_vote: bool


class BeginQuorumEpoch(Struct, frozen=True, kw_only=True):
    """A new leader makes itself known to a voter that does not fetch from it."""

    epoch: int
    leader_id: int
    voter: ReplicaKey
    endpoints: Endpoints = Endpoints()


class EndQuorumEpoch(Struct, frozen=True, kw_only=True):
    """A leader that resigns; `successors` are ranked by how much of the log they have."""

    epoch: int
    leader_id: int
    successors: tuple[ReplicaKey, ...] = ()
    endpoints: Endpoints = Endpoints()


class Fetch(Struct, frozen=True, kw_only=True):
    """A replica asks for records after `offset`, and so acknowledges everything before it."""

    epoch: int
    replica: ReplicaKey
    offset: int
    last_epoch: int
    max_wait_ms: int = 500
    max_bytes: int = 1_048_576
    high_watermark: int = HIGH_WATERMARK_ABSENT


class FetchSnapshot(Struct, frozen=True, kw_only=True):
    """A replica that is too far behind asks for the bytes of a snapshot from `position` on (KIP-630)."""

    epoch: int
    replica: ReplicaKey
    snapshot: OffsetAndEpoch
    position: int
    max_bytes: int = 1_048_576


class DescribeQuorum(Struct, frozen=True):
    """An operator asks a leader for the progress of every replica."""


class AddVoter(Struct, frozen=True):
    """An operator, or the replica itself, wants a vote for a replica that has caught up (KIP-853)."""

    voter: Voter
    ack_when_committed: bool = True


class RemoveVoter(Struct, frozen=True):
    """A voter is to become an observer."""

    voter: ReplicaKey


class UpdateVoter(Struct, frozen=True, kw_only=True):
    """A voter says where it listens and what it supports."""

    epoch: int
    voter: Voter


class ProbeVersions(Struct, frozen=True):
    """The leader asks a future voter which versions it supports. Any client may send this request (ApiVersions)."""


class BatchFacts(Struct, frozen=True):
    """What the core must know of one fetched batch; `end_position` is where it ends in `FetchReply.data`."""

    base_offset: int
    next_offset: int
    epoch: int
    end_position: int
    changes: tuple[QuorumChange, ...] = ()
    """What the control records in it change."""


class VoteReply(Struct, frozen=True, kw_only=True):
    """Whether the vote is granted. `top_error` is the top level of the wire message, `error` that of its partition."""

    epoch: int
    leader_id: int = NO_NODE
    endpoints: Endpoints = Endpoints()
    top_error: Error = Error.NONE
    error: Error = Error.NONE
    granted: bool = False


class BeginQuorumEpochReply(Struct, frozen=True, kw_only=True):
    """The voter has taken note of the leader, or says why not."""

    epoch: int
    leader_id: int = NO_NODE
    endpoints: Endpoints = Endpoints()
    top_error: Error = Error.NONE
    error: Error = Error.NONE


class EndQuorumEpochReply(Struct, frozen=True, kw_only=True):
    """The voter has taken note of the resignation, or says why not."""

    epoch: int
    leader_id: int = NO_NODE
    endpoints: Endpoints = Endpoints()
    top_error: Error = Error.NONE
    error: Error = Error.NONE


class FetchReply(Struct, frozen=True, kw_only=True):
    """Records from the asked offset, or where the logs diverge, or which snapshot to take first.

    On the sending side `data` and `batches` stay empty: the bytes are read when `SendRecords` is carried out. On the
    receiving side `batches` lists the whole, CRC-checked batches at the start of `data`; `damage` says why the list
    ends before the data does, if it was not just cut; `splits_batch` says that the cut that `diverging` asks for lies
    inside a batch of the receiver's log, which only the holder of the log can tell.
    """

    epoch: int
    leader_id: int = NO_NODE
    endpoints: Endpoints = Endpoints()
    top_error: Error = Error.NONE
    error: Error = Error.NONE
    high_watermark: int = NO_OFFSET
    log_start_offset: int = 0
    diverging: OffsetAndEpoch | None = None
    splits_batch: bool = False
    snapshot: OffsetAndEpoch | None = None
    batches: tuple[BatchFacts, ...] = ()
    data: bytes = b""
    damage: str | None = None


class FetchSnapshotReply(Struct, frozen=True, kw_only=True):
    """Bytes of a snapshot file of `size` bytes. On the sending side `size` and `data` stay empty: the host reads both
    when it carries out `SendSnapshot`.
    """

    epoch: int
    leader_id: int = NO_NODE
    endpoints: Endpoints = Endpoints()
    top_error: Error = Error.NONE
    error: Error = Error.NONE
    snapshot: OffsetAndEpoch | None = None
    size: int = 0
    position: int = 0
    data: bytes = b""


class ReplicaProgress(Struct, frozen=True, kw_only=True):
    """How far one replica is, as its leader sees it; times are wall-clock milliseconds, -1 where not known."""

    key: ReplicaKey
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


class DescribeQuorumReply(Struct, frozen=True, kw_only=True):
    """The reply of the leader; any other node sets `error`."""

    epoch: int
    leader_id: int = NO_NODE
    error: Error = Error.NONE
    high_watermark: int = NO_OFFSET
    voters: tuple[ReplicaProgress, ...] = ()
    observers: tuple[ReplicaProgress, ...] = ()
    nodes: tuple[tuple[int, Endpoints], ...] = ()


class AddVoterReply(Struct, frozen=True):
    """The voter is added, or why it is not; only a leader adds voters."""

    error: Error = Error.NONE
    text: str | None = None


class RemoveVoterReply(Struct, frozen=True):
    """The voter is removed, or why it is not; only a leader removes voters."""

    error: Error = Error.NONE
    text: str | None = None


class UpdateVoterReply(Struct, frozen=True, kw_only=True):
    """The leader has taken note, or says why not."""

    epoch: int
    leader_id: int = NO_NODE
    endpoints: Endpoints = Endpoints()
    error: Error = Error.NONE


class ProbeVersionsReply(Struct, frozen=True):
    """The levels of kraft.version that a node supports; None if it does not know the feature."""

    kraft_versions: VersionRange | None = None
    error: Error = Error.NONE


VoterRequest = AddVoter | RemoveVoter | UpdateVoter
VoterReply = AddVoterReply | RemoveVoterReply | UpdateVoterReply
LeaderReply = (
    FetchReply | VoteReply | BeginQuorumEpochReply | EndQuorumEpochReply | FetchSnapshotReply | UpdateVoterReply
)
"""The replies that name the leader. The most frequent types come first, here and below: `isinstance` tests in order."""
Request = (
    Fetch | Vote | BeginQuorumEpoch | EndQuorumEpoch | FetchSnapshot | DescribeQuorum | VoterRequest | ProbeVersions
)
Reply = LeaderReply | DescribeQuorumReply | AddVoterReply | RemoveVoterReply | ProbeVersionsReply
