"""The effects that a core returns. The host carries out effects strictly in list order: an effect that depends on a
durable write follows that write.
"""

from __future__ import annotations

from typing import final

from msgspec import Struct

from kraft.quorum.messages import BatchFacts, FetchReply, FetchSnapshotReply, Reply, Request
from kraft.quorum.values import ElectionState, LeaderAndEpoch, ListenerAddress
from kraft.quorum.voters import VoterSet
from metadata_log.records.control import KRaftVersionRecord, LeaderChangeMessage, VotersRecord
from metadata_log.types import OffsetAndEpoch

ControlRecord = LeaderChangeMessage | KRaftVersionRecord | VotersRecord


class PersistElection(Struct, frozen=True, gc=False):
    """Write quorum-state durably before anything that follows."""

    state: ElectionState
    kraft_version: int = 0
    """Decides the format of the file: from 1 on the file contains directory ids."""


@final
class AppendBatch(Struct, frozen=True, gc=False):
    """Write one batch of data records at the end of the log."""

    base_offset: int
    epoch: int
    timestamp_ms: int
    values: tuple[bytes, ...]


class AppendControl(Struct, frozen=True, gc=False):
    """Write one control batch at the end of the log."""

    base_offset: int
    epoch: int
    timestamp_ms: int
    records: tuple[ControlRecord, ...]


@final
class AppendFetched(Struct, frozen=True, gc=False):
    """Write a leader's batches, byte for byte, at the end of the log; `epoch` is that of the last one.

    `data` consists of `batches`, in this order.
    """

    base_offset: int
    next_offset: int
    epoch: int
    data: bytes
    batches: tuple[BatchFacts, ...]


class TruncateLog(Struct, frozen=True, gc=False):
    """Truncate the log so that the log ends at `offset`."""

    offset: int


@final
class FlushLog(Struct, frozen=True, gc=False):
    """fsync the log, in the background; `LogFlushed` reports it. A later request may be served by the same fsync."""

    offset: int
    epoch: int


@final
class SendRequest(Struct, frozen=True, gc=False):
    """Send a request to a peer; `Replied` or `RequestFailed` with this id may follow."""

    request_id: int
    peer_id: int
    address: ListenerAddress
    message: Request
    timeout_ms: int


class SendReply(Struct, frozen=True, gc=False):
    """Answer a received request."""

    request_id: int
    message: Reply


@final
class SendRecords(Struct, frozen=True, gc=False):
    """Answer a Fetch with `reply` and the bytes of the log from `offset`: whole batches, at least one, else up to
    `max_bytes`.
    """

    request_id: int
    reply: FetchReply
    offset: int
    max_bytes: int


class SendSnapshot(Struct, frozen=True, gc=False):
    """Answer a FetchSnapshot with `reply` and at most `max_bytes` of the snapshot from `position`. A position past the
    end of the snapshot is answered with POSITION_OUT_OF_RANGE.
    """

    request_id: int
    reply: FetchSnapshotReply
    snapshot: OffsetAndEpoch
    position: int
    max_bytes: int


class BeginDownload(Struct, frozen=True, gc=False):
    """Prepare the download of a snapshot; remove the rest of an earlier download."""

    snapshot: OffsetAndEpoch


class AppendDownload(Struct, frozen=True, gc=False):
    """Write the next bytes of the snapshot. `SnapshotChecked` follows if the bytes are invalid."""

    snapshot: OffsetAndEpoch
    data: bytes


class CheckDownload(Struct, frozen=True, gc=False):
    """Check the complete download; `SnapshotChecked` follows."""

    snapshot: OffsetAndEpoch


class AbandonDownload(Struct, frozen=True, gc=False):
    """Remove an incomplete download."""


class InstallSnapshot(Struct, frozen=True, gc=False):
    """Publish the downloaded snapshot durably, and begin an empty log at the end of the snapshot."""

    snapshot: OffsetAndEpoch


class ReadConfirmed(Struct, frozen=True, gc=False):
    """A node that has applied everything below `offset` may answer these reads. No leader had committed more when the
    reads arrived.
    """

    read_ids: tuple[int, ...]
    offset: int


class StateChanged(Struct, frozen=True, gc=False):
    """The node went from one state to another (state names without `State`)."""

    source: str
    target: str
    epoch: int
    cause: str


class LeaderChanged(Struct, frozen=True, gc=False):
    """The known leader or the epoch has changed."""

    leader: LeaderAndEpoch


class VotersChanged(Struct, frozen=True, gc=False):
    """The voter set at the end of the log has changed; a truncation may undo the change until it is committed."""

    kraft_version: int
    voters: VoterSet


@final
class HighWatermarkMoved(Struct, frozen=True, gc=False):
    """Everything below `offset` is committed."""

    offset: int


class PeerFault(Struct, frozen=True, gc=False):
    """A peer sent an invalid or contradictory message, which the core refused or ignored."""

    peer_id: int
    what: str


Effect = (
    PersistElection
    | AppendBatch
    | AppendControl
    | AppendFetched
    | TruncateLog
    | FlushLog
    | SendRequest
    | SendReply
    | SendRecords
    | SendSnapshot
    | BeginDownload
    | AppendDownload
    | CheckDownload
    | AbandonDownload
    | InstallSnapshot
    | ReadConfirmed
    | StateChanged
    | LeaderChanged
    | VotersChanged
    | HighWatermarkMoved
    | PeerFault
)
