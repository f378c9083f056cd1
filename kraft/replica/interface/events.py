"""The events that go into a replica besides requests, and those that come out of it.

Outputs are carried out in list order. Disk effects are done when `step` returns, except the flush that `StartFlush`
hands out.
"""

from __future__ import annotations

from typing import Protocol, final

from msgspec import Struct

from kraft.access.authorizer import Denial
from kraft.access.older_node import OlderNode
from kraft.calls import Returned
from kraft.committed import Committed, Noted
from kraft.quorum.effects import Effect
from kraft.quorum.values import LeaderAndEpoch
from kraft.wire import Answer, Drop, LeaveUnanswered, WireSend
from metadata_log.types import NO_OFFSET, OffsetAndEpoch
from transport.protocol.errors import Error


@final
class FlushDone(Struct, frozen=True, gc=False):
    """The flush with this ticket is done."""

    ticket: int


class Submit(Struct, frozen=True, gc=False):
    """Record values to append to a raw log, as one atomic unit. One `SubmitDone` with this id follows.

    The values may become more until the event is handled.
    """

    submit_id: int
    values: list[bytes]


class LogState(Struct, frozen=True):
    """The state that the program of a raw log has made of all values below an offset."""

    offset: int
    values: tuple[bytes, ...]
    """The record values of the snapshot."""


class MakeSnapshot(Struct, frozen=True):
    """Write a snapshot of what is applied now, or with `state`, unless the newest one reaches as far.

    `SnapshotMade` with this id follows.
    """

    call_id: int
    state: LogState | None = None
    """For a raw log."""


class SnapshotMade(Struct, frozen=True):
    """The newest snapshot reaches as far as `MakeSnapshot` wanted."""

    call_id: int
    snapshot: OffsetAndEpoch | None
    """None if nothing was applied so far."""
    refused: str = ""
    """Why there can be no snapshot with the given state."""


class FlushHandle(Protocol):
    """An fsync of the log up to its present end. It may run in another thread while the log grows."""

    def run(self) -> None:
        """Return once all records that were written before the handle was made are on disk. Raises `OSError`."""


class PeerRequest(Struct, frozen=True, gc=False):
    """The key of a reply to the quorum: the core's number of its request, and the peer that it asks."""

    request_id: int
    peer_id: int


@final
class StartFlush(Struct, frozen=True, gc=False):
    """Run this flush, and then step the replica with `FlushDone(ticket)`. At most one flush is outstanding."""

    ticket: int
    handle: FlushHandle

    def run(self) -> None:
        """Flush; may be called in another thread."""
        self.handle.run()


class SubmitDone(Struct, frozen=True, gc=False, kw_only=True):
    """The outcome of a `Submit`.

    Without an error the values are committed at `base_offset` to `last_offset`. With an error the values were refused
    and are in no log, with one exception. If `is_uncertain`, the leader lost its leadership before the commit: a later
    leader may have the values. `leader` is the current leader, if it is known.
    """

    submit_id: int
    base_offset: int = NO_OFFSET
    last_offset: int = NO_OFFSET
    error: Error = Error.NONE
    is_uncertain: bool = False
    leader: LeaderAndEpoch


@final
class Trace(Struct, frozen=True, gc=False):
    """An event for the node's log: `StateChanged`, `LeaderChanged`, `HighWatermarkMoved`, `PeerFault`, `Denial` or
    `OlderNode`.
    """

    effect: Effect | Denial | OlderNode


Output = WireSend | Answer | Drop | LeaveUnanswered | StartFlush | SubmitDone | Committed | Returned | Noted | Trace
