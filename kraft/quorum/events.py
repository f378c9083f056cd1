"""What can happen to a core. Time comes beside each event, as an argument of `RaftCore.step`."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from kraft.quorum.messages import Reply, Request
from kraft.quorum.voters import QuorumChange
from metadata_log.types import OffsetAndEpoch


class FailureCause(StrEnum):
    """Why a request brought no reply."""

    REFUSED = "refused"
    RESET = "reset"
    TIMEOUT = "timeout"
    UNSUPPORTED_VERSION = "unsupported-version"
    BAD_BYTES = "bad-bytes"
    CLOSED = "closed"


class Tick(Struct, frozen=True):
    """Time has passed; also ends each burst of events, which is when appends without linger are written."""


class Received(Struct, frozen=True):
    """A peer or client asks something; exactly one `SendReply` or `SendRecords` with this id follows, sooner or
    later.
    """

    request_id: int
    message: Request


class Replied(Struct, frozen=True):
    """A peer answers the request with this id."""

    request_id: int
    peer_id: int
    message: Reply


class RequestFailed(Struct, frozen=True):
    """The request with this id will not be answered."""

    request_id: int
    peer_id: int
    cause: FailureCause


class AnswerHeld(Struct, frozen=True):
    """The answer to the request with this id is here, and its records are being judged; `Replied` follows.

    For `grace_ms` neither the request nor the timer of the fetch ends.
    """

    request_id: int
    peer_id: int
    grace_ms: int


class LogFlushed(Struct, frozen=True):
    """Everything below `offset` is on disk.

    `epoch` is that of the record before `offset`, so that a flush from before a truncation is told apart.
    """

    offset: int
    epoch: int


class SnapshotChecked(Struct, frozen=True):
    """The snapshot that is being downloaded is whole and sound, or why it cannot become so."""

    snapshot: OffsetAndEpoch
    problem: str | None = None
    changes: tuple[QuorumChange, ...] = ()
    """What it says of the quorum."""


class SnapshotTaken(Struct, frozen=True):
    """This node has made a snapshot of its own."""

    snapshot: OffsetAndEpoch


class LogStartRaised(Struct, frozen=True):
    """The log begins at `offset` now, where a snapshot ends; older snapshots are gone."""

    offset: int


class Resign(Struct, frozen=True):
    """The application asks its node to give up the leadership of `epoch`."""

    epoch: int
    cause: str = "requested"


class ReadIndex(Struct, frozen=True):
    """A client reads from this leader; `ReadConfirmed` follows, unless the leader loses its leadership before."""

    read_id: int


class UpgradeQuorum(Struct, frozen=True):
    """The application of the leader of `epoch` raises kraft.version; `RaftCore.upgrade_obstacle` was asked before."""

    epoch: int
    level: int


class Resumed(Struct, frozen=True):
    """This process stood still until now, and what came meanwhile is about to follow: for `grace_ms` no election timer
    and no check of the quorum ends.
    """

    grace_ms: int


class BeginShutdown(Struct, frozen=True):
    """The node is about to stop: a leader resigns in favour of its best successors, and the node campaigns no more."""


Event = (
    Tick
    | Received
    | Replied
    | RequestFailed
    | AnswerHeld
    | LogFlushed
    | SnapshotChecked
    | SnapshotTaken
    | LogStartRaised
    | Resign
    | ReadIndex
    | UpgradeQuorum
    | Resumed
    | BeginShutdown
)
