"""The quorum RPCs in flat form: one topic, one partition, no versions.

`kraft.replica.rpc` turns wire messages into these and back, after it has checked cluster id, topic and partition. Every
reply carries what its sender knows of the leader: epoch, leader id and, where known, endpoints.
"""

from __future__ import annotations

from typing import final

from msgspec import Struct

from kraft.quorum.values import Endpoints, ReplicaKey, VersionRange
from kraft.quorum.voters import QuorumChange, Voter
from metadata_log.records.batch import RecordBatch
from metadata_log.types import NO_NODE, NO_OFFSET, OffsetAndEpoch
from transport.protocol.errors import Error

HIGH_WATERMARK_ABSENT = 2**63 - 1
"""The high watermark of a Fetch below version 18: a new high watermark alone never completes the Fetch (KIP-1166)."""


class Vote(Struct, frozen=True, gc=False, kw_only=True):
    """A candidate requests a vote, or with `pre_vote` a pre-vote. `last` holds the end offset and the last epoch of the
    candidate's log.
    """

    epoch: int
    candidate: ReplicaKey
    voter: ReplicaKey
    last: OffsetAndEpoch
    pre_vote: bool


class BeginQuorumEpoch(Struct, frozen=True, gc=False, kw_only=True):
    """A new leader announces itself to a voter that does not fetch from this leader."""

    epoch: int
    leader_id: int
    voter: ReplicaKey
    endpoints: Endpoints = Endpoints()


class EndQuorumEpoch(Struct, frozen=True, gc=False, kw_only=True):
    """A leader resigns; `successors` are ranked by their log end offsets, the highest first."""

    epoch: int
    leader_id: int
    successors: tuple[ReplicaKey, ...] = ()
    endpoints: Endpoints = Endpoints()


@final
class Fetch(Struct, frozen=True, gc=False, kw_only=True):
    """A replica requests records from `offset` on, and so acknowledges all records before `offset`."""

    epoch: int
    replica: ReplicaKey
    offset: int
    last_epoch: int
    max_wait_ms: int = 500
    max_bytes: int = 1_048_576
    high_watermark: int = HIGH_WATERMARK_ABSENT


class FetchSnapshot(Struct, frozen=True, gc=False, kw_only=True):
    """A replica that is too far behind requests the bytes of a snapshot from `position` on (KIP-630)."""

    epoch: int
    replica: ReplicaKey
    snapshot: OffsetAndEpoch
    position: int
    max_bytes: int = 1_048_576


class DescribeQuorum(Struct, frozen=True, gc=False):
    """An operator requests the progress of every replica from the leader."""


class AddVoter(Struct, frozen=True, gc=False):
    """An operator, or the replica itself, requests to make a caught-up replica a voter (KIP-853)."""

    voter: Voter
    ack_when_committed: bool = True


class RemoveVoter(Struct, frozen=True, gc=False):
    """An operator, or a replica, requests to make a voter an observer (KIP-853)."""

    voter: ReplicaKey


class UpdateVoter(Struct, frozen=True, gc=False, kw_only=True):
    """A voter reports its endpoints and supported versions."""

    epoch: int
    voter: Voter


class ProbeVersions(Struct, frozen=True, gc=False):
    """The leader asks a future voter which versions it supports. Any client may send this request (ApiVersions)."""


class BatchFacts(Struct, frozen=True, gc=False):
    """The facts of a fetched batch that the core needs; `end_position` is the end of the batch in `FetchReply.data`."""

    base_offset: int
    next_offset: int
    epoch: int
    end_position: int
    changes: tuple[QuorumChange, ...] = ()
    """The changes by the control records in the batch."""
    parsed: RecordBatch | None = None
    """The batch as the host has parsed it, for the host's log; None if that log has another format."""


class VoteReply(Struct, frozen=True, gc=False, kw_only=True):
    """Whether the vote is granted. `top_error` is the top level of the wire message, `error` that of its partition."""

    epoch: int
    leader_id: int = NO_NODE
    endpoints: Endpoints = Endpoints()
    top_error: Error = Error.NONE
    error: Error = Error.NONE
    granted: bool = False


class BeginQuorumEpochReply(Struct, frozen=True, gc=False, kw_only=True):
    """The voter has accepted the leader, or the error states why not."""

    epoch: int
    leader_id: int = NO_NODE
    endpoints: Endpoints = Endpoints()
    top_error: Error = Error.NONE
    error: Error = Error.NONE


class EndQuorumEpochReply(Struct, frozen=True, gc=False, kw_only=True):
    """The voter has accepted the resignation, or the error states why not."""

    epoch: int
    leader_id: int = NO_NODE
    endpoints: Endpoints = Endpoints()
    top_error: Error = Error.NONE
    error: Error = Error.NONE


@final
class FetchReply(Struct, frozen=True, gc=False, kw_only=True):
    """Records from the requested offset on, or the point where the logs diverge, or the snapshot to fetch first.

    On the sending side `data` and `batches` stay empty: the host reads the bytes when it carries out `SendRecords`. On
    the receiving side `batches` lists the complete, CRC-checked batches at the start of `data`. `damage` says why the
    list ends before the data, if the last batch is not merely incomplete; `is_later`, whether that is what a later
    release writes, so that only this node is at fault. `splits_batch` is set by the receiving host,
    which holds the log, if the truncation to `diverging` would split a batch.
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
    is_later: bool = False


class FetchSnapshotReply(Struct, frozen=True, gc=False, kw_only=True):
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


class ReplicaProgress(Struct, frozen=True, gc=False, kw_only=True):
    """The progress of one replica as seen by the leader; times are wall-clock milliseconds, -1 if unknown."""

    key: ReplicaKey
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


class DescribeQuorumReply(Struct, frozen=True, gc=False, kw_only=True):
    """The reply of the leader; any other node sets `error`."""

    epoch: int
    leader_id: int = NO_NODE
    error: Error = Error.NONE
    high_watermark: int = NO_OFFSET
    voters: tuple[ReplicaProgress, ...] = ()
    observers: tuple[ReplicaProgress, ...] = ()
    nodes: tuple[tuple[int, Endpoints], ...] = ()


class AddVoterReply(Struct, frozen=True, gc=False):
    """The leader has added the voter, or the error states why not."""

    error: Error = Error.NONE
    text: str | None = None


class RemoveVoterReply(Struct, frozen=True, gc=False):
    """The leader has removed the voter, or the error states why not."""

    error: Error = Error.NONE
    text: str | None = None


class UpdateVoterReply(Struct, frozen=True, gc=False, kw_only=True):
    """The leader has recorded the update, or the error states why not."""

    epoch: int
    leader_id: int = NO_NODE
    endpoints: Endpoints = Endpoints()
    error: Error = Error.NONE


class ProbeVersionsReply(Struct, frozen=True, gc=False):
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
