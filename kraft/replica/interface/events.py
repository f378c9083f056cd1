"""What goes into a `Replica` and what comes out: the whole of its conversation with the shell and the simulator.

Outputs are carried out in list order. Disk effects are done when `step` returns, except the flush that `StartFlush`
hands out.
"""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from kraft.controller.decision.authorizer import Denial
from kraft.quorum.effects import Effect
from kraft.quorum.events import BeginShutdown, FailureCause, Resign, Resumed, Tick
from kraft.quorum.values import LeaderAndEpoch
from metadata_log.serde import Message
from metadata_log.types import NO_OFFSET
from transport.protocol.errors import Error


class WireRequest(Struct, frozen=True, gc=False, kw_only=True):
    """A request as a connection brought it; one `Answer` with this id follows, sooner or later.

    Request ids are the shell's own and never repeat while the replica lives.
    """

    request_id: int
    api_key: int
    version: int
    message: Message
    listener: str
    client_id: str | None = None
    peer: str = ""


class WireReply(Struct, frozen=True, gc=False):
    """The answer to the `SendWire` with this id."""

    request_id: int
    message: Message


class WireFailed(Struct, frozen=True, gc=False):
    """The `SendWire` with this id will not be answered."""

    request_id: int
    cause: FailureCause


class WireGone(Struct, frozen=True, gc=False):
    """The connection of the `WireRequest` with this id is closed: no `Answer` need follow."""

    request_id: int


class FlushDone(Struct, frozen=True, gc=False):
    """The flush with this ticket is done."""

    ticket: int


class Submit(Struct, frozen=True, gc=False):
    """Raw record values for a raw log: one atomic unit. One `SubmitDone` with this id follows."""

    submit_id: int
    values: tuple[bytes, ...]


class Call(Struct, frozen=True, gc=False):
    """The host asks its application for something; `ask` is of the application's own kinds. One `Returned` follows."""

    call_id: int
    ask: Struct


class CancelCall(Struct, frozen=True, gc=False):
    """The caller has cancelled the `Call` with this id; no `Returned` need follow."""

    call_id: int


Input = (
    Tick
    | WireRequest
    | WireReply
    | WireFailed
    | WireGone
    | FlushDone
    | Submit
    | Call
    | CancelCall
    | Resign
    | Resumed
    | BeginShutdown
)


class FlushHandle(Protocol):
    """An fsync of the log as it is now, which may run in another thread while the log grows."""

    def run(self) -> None:
        """Return once everything written before the handle was made is on disk; failures are `OSError`."""


class SendWire(Struct, frozen=True, gc=False):
    """Ask a peer; `WireReply` or `WireFailed` with this id follows."""

    request_id: int
    peer_id: int
    host: str
    port: int
    message: Message
    timeout_ms: int
    is_raft: bool = True
    """False for a request to the application. Its answer may wait for a commit, so a Fetch must not queue behind it."""


class Answer(Struct, frozen=True, gc=False):
    """The answer to the `WireRequest` with this id."""

    request_id: int
    message: Message


class Drop(Struct, frozen=True, gc=False):
    """Close the connection that the `WireRequest` with this id came by, as Kafka does with an API it does not serve."""

    request_id: int
    why: str


class StartFlush(Struct, frozen=True, gc=False):
    """Run this flush and then step `FlushDone(ticket)`; there is never more than one outstanding."""

    ticket: int
    handle: FlushHandle

    def run(self) -> None:
        """Flush; may be called in another thread."""
        self.handle.run()


class SubmitDone(Struct, frozen=True, gc=False, kw_only=True):
    """What became of a `Submit`.

    Without an error the values are committed at `base_offset` to `last_offset`. With an error they were refused and are
    in no log, unless `is_uncertain`: then leadership was lost before they were committed, and a later leader may or may
    not hold them. `leader` is the current leader, as far as known.
    """

    submit_id: int
    base_offset: int = NO_OFFSET
    last_offset: int = NO_OFFSET
    error: Error = Error.NONE
    is_uncertain: bool = False
    leader: LeaderAndEpoch


class CommittedBatch(Struct, frozen=True, gc=False):
    """The values of one committed batch of data records; `next_offset` is that of the record after it."""

    base_offset: int
    next_offset: int
    epoch: int
    timestamp_ms: int
    values: tuple[bytes, ...]
    size_bytes: int = 0
    """What the batch takes in the log."""


class Committed(Struct, frozen=True, gc=False):
    """Data records that are committed, for the host of a raw log: every batch once, in order."""

    batch: CommittedBatch


class Returned(Struct, frozen=True, gc=False):
    """What came of the `Call` with this id."""

    call_id: int
    outcome: Struct


class Noted(Struct, frozen=True, gc=False):
    """An unsolicited message of the application to its host; `what` is of the application's own types."""

    what: Struct


class Trace(Struct, frozen=True, gc=False):
    """Something happened inside: `StateChanged`, `LeaderChanged`, `HighWatermarkMoved`, `PeerFault` or `Denial`."""

    effect: Effect | Denial


Output = SendWire | Answer | Drop | StartFlush | SubmitDone | Committed | Returned | Noted | Trace
