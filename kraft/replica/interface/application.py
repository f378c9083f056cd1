"""What a `Replica` can host: an application that sees committed batches and, while it leads, proposes records.

Kafka's counterpart is `RaftClient.Listener` together with `RaftClient.prepareAppend`. An application never appends by
itself: it returns what it wants, and is told the offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random
from typing import Protocol

from msgspec import Struct

from kraft.controller.decision.authorizer import Denial
from kraft.controller.decision.result import ApiError, QuorumLevel, VersionedRecord
from kraft.quorum.values import LeaderAndEpoch
from kraft.replica.interface.events import (
    Call,
    CancelCall,
    Committed,
    CommittedBatch,
    Noted,
    Returned,
    Submit,
    WireRequest,
)
from kraft.replica.interface.options import ReplicaOptions
from metadata_log.errors import CorruptBatch, DirectoryError
from metadata_log.serde import Message
from metadata_log.types import NEVER_MS, OffsetAndEpoch
from transport.protocol.apis import ApiKey
from transport.protocol.errors import Error


class Unit(Struct, frozen=True, gc=False):
    """Record values that stand in one batch, all or none. `records` is what they were encoded from, for who cares."""

    values: tuple[bytes, ...]
    records: tuple[VersionedRecord, ...] = ()


class ForRequest(Struct, frozen=True, gc=False):
    """Who waits for a proposal is a client; `response` is its answer once everything is committed."""

    request_id: int
    request: Message
    response: Message


class ForSubmit(Struct, frozen=True, gc=False):
    """Who waits for a proposal is the host of a raw log."""

    submit_id: int


class Proposal(Struct, frozen=True, gc=False):
    """Records to append, in order. Without any, whoever waits is told once all that is outstanding is committed: the
    decision may rest on it.
    """

    units: tuple[Unit, ...] = ()
    waiting: ForRequest | ForSubmit | None = None
    quorum_level: QuorumLevel | None = None
    """A level of kraft.version that is to be taken first; if it cannot be, nothing is appended."""


class Respond(Struct, frozen=True, gc=False):
    """Answer a request now."""

    request_id: int
    response: Message


class Redirect(Struct, frozen=True, gc=False):
    """Answer a request as one of the quorum, at once; what is sent is what `seal` makes of the answer."""

    request: WireRequest
    seal: Callable[[Message], Message]


class RefuseSubmit(Struct, frozen=True, gc=False):
    """The values of a `Submit` are not taken."""

    submit_id: int
    error: Error


class OutboundRequest(Struct, frozen=True, gc=False):
    """Send a request to whoever leads, or to `target`, which is the id, host and port of another node.

    Exactly one `on_answer` with this `token` follows. Without `timeout_ms` it takes as long as a request of the quorum.
    """

    request: Message
    token: int = 0
    timeout_ms: int | None = None
    target: tuple[int, str, int] | None = None


class Confirm(Struct, frozen=True, gc=False):
    """Make sure that nobody else has committed anything; `on_confirmed` with this token follows."""

    token: int


Action = Proposal | Respond | Redirect | RefuseSubmit | OutboundRequest | Confirm | Returned | Noted


class Application(Protocol):
    """What a replica hosts. All methods are synchronous; time is an argument."""

    @property
    def apis(self) -> tuple[ApiKey, ...]:
        """The requests it answers, beside those of the quorum."""

    @property
    def reads_batches(self) -> bool:
        """Whether `on_committed` is wanted at all; decoding batches that nobody reads would be dear."""

    def check(self, values: Sequence[bytes], *, in_snapshot: bool = False) -> None:
        """Raise `MetadataLogError` if the values of a batch of the log, or of a snapshot, could not be read. A leader
        may have sent them; nothing is taken from them.
        """

    def check_snapshot(self, values: Iterable[bytes]) -> None:
        """Raise `MetadataLogError` if `on_snapshot` could not begin with these values, which `check` has seen."""

    def on_snapshot(self, values: Iterable[bytes], end: OffsetAndEpoch) -> None:
        """Begin with the record values of a snapshot, before anything else."""

    def on_committed(self, batch: CommittedBatch) -> tuple[Committed, ...]:
        """The next batch of data records is committed; on a leader that may be one of its own proposals. Returns what
        the host is told.
        """

    @property
    def is_applying(self) -> bool:
        """Whether the last snapshot or batch was too large for a turn; `apply_more` comes before the next batch."""

    def apply_more(self) -> tuple[Committed, ...]:
        """Go on for one turn with a snapshot or a batch that was begun. Returns what the host is told."""

    def on_leader(self, epoch: int, next_offset: int, now_ms: int) -> tuple[Action, ...]:
        """This replica leads `epoch`, and everything below `next_offset` is committed and applied."""

    def on_lost_leadership(self) -> None:
        """The leadership taken with `on_leader` is over; what is not committed may vanish."""

    def on_appended(self, unit: Unit, base_offset: int) -> None:
        """A proposed unit has its offsets. It is not committed yet."""

    def on_request(self, request: WireRequest, leader: LeaderAndEpoch, now_ms: int) -> Action:
        """A request for one of `apis`."""

    def denial(self, request: WireRequest) -> ApiError | None:
        """Why a request of the quorum is refused to whoever asks; None if it is not. Asked before it is looked at."""

    def take_denials(self) -> Sequence[Denial]:
        """What was not allowed since this was asked last, for a log."""

    def on_caught_up(self) -> None:
        """Everything that is known to be committed has been handed over; told again and again."""

    def on_full(self, request: WireRequest, leader: LeaderAndEpoch, now_ms: int) -> Action:
        """A request for one of `apis` while no more may wait: answer it now, or not at all as if it had come."""

    def on_submit(self, submit: Submit) -> Action:
        """Raw values from the host."""

    def on_call(self, call: Call | CancelCall, now_ms: int) -> None:
        """The host asks for something, or for nothing any more."""

    def on_answer(self, token: int, response: Message | None, now_ms: int) -> None:
        """The answer to the `OutboundRequest` with this token; None if there will be none."""

    def on_confirmed(self, token: int, *, is_leader: bool) -> None:
        """After the `Confirm` with this token this replica still led, and everything that anybody had committed when it
        came is applied; or it does not lead any more.
        """

    def on_begin_shutdown(self, now_ms: int) -> None:
        """The node is about to stop."""

    @property
    def may_stop(self) -> bool:
        """Whether nothing holds a node back that is about to stop."""

    def refusal(self, request: Message, error: Error, leader: LeaderAndEpoch, text: str | None = None) -> Message:
        """The answer to a request whose records were refused (`RECORD_LIST_TOO_LARGE`, `REQUEST_TIMED_OUT`), or may be
        lost. `text` says more than the error, if there is more to say.
        """

    def snapshot(self) -> Callable[[], Iterator[bytes | None]] | None:
        """The record values that make everything committed so far, each time it is called, with None between them where
        work may pause; None where there is nothing to make a snapshot of, or not now, as within a transaction.
        """

    def finalized_features(self) -> tuple[tuple[tuple[str, int], ...], int]:
        """Feature levels by name, and the offset they are as of; -1 if there are none."""

    def supported_features(self) -> tuple[tuple[str, int, int], ...]:
        """Features with their lowest and highest level, by name."""

    def deadline_ms(self) -> int:
        """When `on_tick` is wanted."""

    def on_tick(self, now_ms: int) -> Iterable[Action]:
        """Do timed work that is due. What it yields is done before it goes on."""


ApplicationFactory = Callable[[ReplicaOptions, str, tuple[Message, ...], Random], Application]
"""Makes the application of a replica from its options, the cluster id, the records of its bootstrap.checkpoint, and the
replica's randomness.
"""


class RawLog:
    """An application without state: values go in with `Submit`, and come out, committed, as `Committed` or, for a host
    that reads the log by itself, not at all.
    """

    apis: tuple[ApiKey, ...] = ()

    def __init__(self, *, reads_batches: bool) -> None:
        self.reads_batches = reads_batches
        self._is_leader = False

    def check(self, values: Sequence[bytes], *, in_snapshot: bool = False) -> None:
        """Any bytes are values."""

    def check_snapshot(self, values: Iterable[bytes]) -> None:
        """A raw log has no snapshots."""
        raise CorruptBatch("a raw log has no snapshots")

    def on_snapshot(self, values: Iterable[bytes], end: OffsetAndEpoch) -> None:
        """A raw log has no snapshots: nobody but its host could say what they mean."""
        raise DirectoryError(
            f"the directory holds a snapshot that ends at {end}, and a raw log cannot begin with one",
            hint="This is the directory of a metadata quorum; serve it as such.",
        )

    def on_committed(self, batch: CommittedBatch) -> tuple[Committed, ...]:
        """Hand the batch to the host."""
        return (Committed(batch),)

    @property
    def is_applying(self) -> bool:
        """Never: batches are handed on as they are."""
        return False

    def apply_more(self) -> tuple[Committed, ...]:
        """Never called: no batch takes more than one turn."""
        raise AssertionError("a raw log applies nothing")

    def on_leader(self, epoch: int, next_offset: int, now_ms: int) -> tuple[Action, ...]:
        """Take submits from now on."""
        self._is_leader = True
        return ()

    def on_lost_leadership(self) -> None:
        """Take no more submits."""
        self._is_leader = False

    def on_appended(self, unit: Unit, base_offset: int) -> None:
        """There is no state that could follow."""

    def on_request(self, request: WireRequest, leader: LeaderAndEpoch, now_ms: int) -> Action:
        """Never called: a raw log serves no API of its own."""
        raise AssertionError(f"a raw log does not answer API {request.api_key}")

    def denial(self, request: WireRequest) -> ApiError | None:
        """Nobody is refused anything."""
        return None

    def take_denials(self) -> Sequence[Denial]:
        """Nobody is refused anything."""
        return ()

    def on_caught_up(self) -> None:
        """It makes no difference."""

    on_full = on_request

    def on_submit(self, submit: Submit) -> Action:
        """Propose the values as one unit."""
        if not self._is_leader:
            return RefuseSubmit(submit.submit_id, Error.NOT_LEADER_OR_FOLLOWER)
        if not submit.values:
            return RefuseSubmit(submit.submit_id, Error.INVALID_REQUEST)
        return Proposal((Unit(submit.values),), ForSubmit(submit.submit_id))

    def on_call(self, call: Call | CancelCall, now_ms: int) -> None:
        """Never called: a raw log knows nothing but values."""
        raise AssertionError("a raw log is not called")

    def on_confirmed(self, token: int, *, is_leader: bool) -> None:
        """Never called: a raw log has nothing to read."""
        raise AssertionError("a raw log has nothing to read")

    def on_answer(self, token: int, response: Message | None, now_ms: int) -> None:
        """Never called: a raw log asks nobody."""
        raise AssertionError("a raw log asks nobody")

    def on_begin_shutdown(self, now_ms: int) -> None:
        """There is nothing to hand over."""

    @property
    def may_stop(self) -> bool:
        """At any time."""
        return True

    def refusal(self, request: Message, error: Error, leader: LeaderAndEpoch, text: str | None = None) -> Message:
        """Never called: a raw log serves no API of its own."""
        raise AssertionError(f"a raw log does not answer {type(request).__name__}")

    def snapshot(self) -> Callable[[], Iterator[bytes]] | None:
        """Nobody but its host could say what the values mean."""
        return None

    def finalized_features(self) -> tuple[tuple[tuple[str, int], ...], int]:
        """None."""
        return (), -1

    def supported_features(self) -> tuple[tuple[str, int, int], ...]:
        """None."""
        return ()

    def deadline_ms(self) -> int:
        """Never."""
        return NEVER_MS

    def on_tick(self, now_ms: int) -> tuple[Action, ...]:
        """Nothing is timed."""
        return ()


def host_raw_log(options: ReplicaOptions, cluster_id: str, bootstrap: tuple[Message, ...], rng: Random) -> RawLog:
    """The factory of a raw log whose committed batches come out as `Committed`."""
    return RawLog(reads_batches=True)


def host_silent_raw_log(
    options: ReplicaOptions, cluster_id: str, bootstrap: tuple[Message, ...], rng: Random
) -> RawLog:
    """The factory of a raw log whose host reads `Replica.log` by itself."""
    return RawLog(reads_batches=False)
