"""The events that a core handles. The time of each event is an argument of `RaftCore.step`."""

from __future__ import annotations

from enum import StrEnum
from typing import final

from msgspec import Struct

from kraft.quorum.messages import Reply, Request
from kraft.quorum.voters import QuorumChange
from metadata_log.types import OffsetAndEpoch


class FailureCause(StrEnum):
    """Why a request got no reply."""

    REFUSED = "refused"
    RESET = "reset"
    TIMEOUT = "timeout"
    UNSUPPORTED_VERSION = "unsupported-version"
    BAD_BYTES = "bad-bytes"
    CLOSED = "closed"
    AUTHENTICATION = "authentication"


@final
class Tick(Struct, frozen=True, gc=False):
    """Time has passed. A Tick also ends each burst of events; the core then writes appends without linger."""


@final
class Received(Struct, frozen=True, gc=False):
    """A peer or client has sent a request; exactly one `SendReply`, `SendRecords` or `SendSnapshot` with this id
    follows, at once or later.
    """

    request_id: int
    message: Request


@final
class Replied(Struct, frozen=True, gc=False):
    """A peer has answered the request with this id."""

    request_id: int
    peer_id: int
    message: Reply


class RequestFailed(Struct, frozen=True, gc=False):
    """The request with this id will not be answered."""

    request_id: int
    peer_id: int
    cause: FailureCause


class AnswerHeld(Struct, frozen=True, gc=False):
    """The reply to the request with this id has arrived, and the host is checking its records; `Replied` follows.

    For `grace_ms` neither the request nor the fetch timer expires.
    """

    request_id: int
    peer_id: int
    grace_ms: int


@final
class LogFlushed(Struct, frozen=True, gc=False):
    """Everything below `offset` is on disk.

    `epoch` is that of the record before `offset`; it identifies a flush from before a truncation.
    """

    offset: int
    epoch: int


class SnapshotChecked(Struct, frozen=True, gc=False):
    """The download is a complete and valid snapshot, or `problem` states why the download is invalid."""

    snapshot: OffsetAndEpoch
    problem: str | None = None
    changes: tuple[QuorumChange, ...] = ()
    """The voter sets and kraft.version in the snapshot."""


class SnapshotTaken(Struct, frozen=True, gc=False):
    """This node has written a snapshot of its own."""

    snapshot: OffsetAndEpoch


class LogStartRaised(Struct, frozen=True, gc=False):
    """The log now begins at `offset`, the end of a snapshot; older snapshots are deleted."""

    offset: int


class Resign(Struct, frozen=True, gc=False):
    """The application resigns the leadership of `epoch`, in favour of one voter if it names one."""

    epoch: int
    cause: str = "requested"
    successor: int | None = None


class ReadIndex(Struct, frozen=True, gc=False):
    """A client reads from this leader; `ReadConfirmed` follows, unless the leader loses its leadership before."""

    read_id: int


class UpgradeQuorum(Struct, frozen=True, gc=False):
    """The application of the leader of `epoch` raises kraft.version, after a check of `RaftCore.upgrade_obstacle`."""

    epoch: int
    level: int


class Resumed(Struct, frozen=True, gc=False):
    """This process was paused until now, and the messages received meanwhile follow. For `grace_ms` neither the
    election timer nor the check-quorum timer expires.
    """

    grace_ms: int


class BeginShutdown(Struct, frozen=True, gc=False):
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
