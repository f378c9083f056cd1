"""The interface of the application that a `Replica` hosts. The application gets committed batches, and proposes records
while it leads.

Kafka's counterpart is `RaftClient.Listener` together with `RaftClient.prepareAppend`. An application never appends by
itself: it returns actions, and the replica reports the offsets to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random
from typing import Final, Protocol, runtime_checkable

from msgspec import Struct

from kraft.access.authorizer import Denial
from kraft.access.errors import ApiError
from kraft.controller.decision.result import QuorumLevel, VersionedRecord
from kraft.quorum.values import LeaderAndEpoch
from kraft.replica.interface.events import Call, CancelCall, Committed, CommittedBatch, Noted, Returned, Submit
from kraft.replica.interface.options import ReplicaOptions
from kraft.wire import Answer, Drop, LeaveUnanswered, ReplyTo, Send, WireRequest
from metadata_log.errors import CorruptBatch, DirectoryError
from metadata_log.image import MetadataImage
from metadata_log.serde import Message
from metadata_log.types import NEVER_MS, OffsetAndEpoch
from transport.protocol.apis import ApiKey
from transport.protocol.errors import Error


class Unit(Struct, frozen=True, gc=False):
    """Record values that are appended atomically, in one batch. `records` holds the decoded values, if any."""

    values: tuple[bytes, ...]
    records: tuple[VersionedRecord, ...] = ()


class ForRequest(Struct, frozen=True, gc=False):
    """A client waits for the proposal; `response` is the client's answer once everything is committed."""

    request_id: int
    request: Message
    response: Message


class ForSubmit(Struct, frozen=True, gc=False):
    """The host of a raw log waits for the proposal."""

    submit_id: int


class Proposal(Struct, frozen=True, gc=False):
    """Records to append, in order. A proposal without records is answered once all outstanding records are committed:
    the decision may depend on them.
    """

    units: tuple[Unit, ...] = ()
    waiting: ForRequest | ForSubmit | None = None
    quorum_level: QuorumLevel | None = None
    """A level of kraft.version to raise first. If the level cannot be raised, nothing is appended."""


class Parked(Struct, frozen=True, gc=False):
    """Nothing for now: the answer to the request comes from a later `on_tick`."""


PARKED: Final = Parked()


class Redirect(Struct, frozen=True, gc=False):
    """Handle a forwarded request as a request of the quorum, at once. `seal` wraps the answer before it is sent."""

    request: WireRequest
    seal: Callable[[Message], Message]


class RefuseSubmit(Struct, frozen=True, gc=False):
    """Refuse the values of a `Submit`."""

    submit_id: int
    error: Error


class Confirm(Struct, frozen=True, gc=False):
    """Confirm that no other leader has committed anything; `on_confirmed` with this token follows."""

    token: int


Action = (
    Proposal | Answer | LeaveUnanswered | Drop | Parked | Redirect | RefuseSubmit | Send | Confirm | Returned | Noted
)


class Application(Protocol):
    """The application of a replica. All methods are synchronous; time is an argument."""

    @property
    def apis(self) -> tuple[ApiKey, ...]:
        """The APIs that the application answers, besides those of the quorum."""

    @property
    def reads_batches(self) -> bool:
        """Whether the replica calls `on_committed`. Decoding batches for nothing would be expensive."""

    def check(self, values: Sequence[bytes], *, in_snapshot: bool = False) -> Sequence[Message]:
        """Raise `MetadataLogError` if the application cannot read the values of a batch of the log or of a snapshot.

        A peer may have sent the values. The call does not change the application. It returns the decoded values, which
        come with the committed batch (`CommittedBatch.records`); an application that does not want them returns none.
        """

    def check_snapshot(self, values: Iterable[bytes]) -> None:
        """Raise `MetadataLogError` if `on_snapshot` could not begin with these values, which `check` has seen."""

    def on_snapshot(self, values: Iterable[bytes], end: OffsetAndEpoch) -> None:
        """Replace the whole state by the record values of a snapshot."""

    def on_committed(self, batch: CommittedBatch) -> tuple[Committed, ...]:
        """Apply the next committed batch of data records, on a leader perhaps one of its own proposals. Returns the
        outputs for the host.
        """

    @property
    def is_applying(self) -> bool:
        """Whether the last snapshot or batch needs more turns: then `apply_more` comes before the next batch."""

    def apply_more(self) -> tuple[Committed, ...]:
        """Go on for one turn with the snapshot or batch in progress. Returns the outputs for the host."""

    def on_leader(self, epoch: int, next_offset: int, now_ms: int) -> tuple[Action, ...]:
        """This replica leads `epoch`, and everything below `next_offset` is committed and applied."""

    def on_lost_leadership(self) -> None:
        """The leadership that began with `on_leader` is over. Uncommitted proposals may vanish."""

    def on_appended(self, unit: Unit, base_offset: int) -> None:
        """A proposed unit has its offsets; the unit is not committed yet."""

    def on_request(self, request: WireRequest, leader: LeaderAndEpoch, now_ms: int) -> Action:
        """A request for one of `apis`."""

    def denial(self, request: WireRequest) -> ApiError | None:
        """Why the sender may not send this request of the quorum; None if it may. Called before the request runs."""

    def take_denials(self) -> Sequence[Denial]:
        """Take the denials since the last call, for the log of the node."""

    def on_caught_up(self) -> None:
        """The application has applied all known commits. Called after each commit."""

    def on_full(self, request: WireRequest, leader: LeaderAndEpoch, now_ms: int) -> Action:
        """A request for one of `apis` while no further request may wait: answer it now, and change nothing."""

    def on_submit(self, submit: Submit) -> Action:
        """Raw values from the host."""

    def on_call(self, call: Call | CancelCall, now_ms: int) -> None:
        """The host calls the application, or cancels its call."""

    def on_reply(self, reply_to: ReplyTo, response: Message | None, now_ms: int) -> None:
        """The reply to a `Send` of the application; None if the request has failed."""

    def on_gone(self, request_id: int) -> None:
        """The connection of a request is closed: an answer would reach no client."""

    def on_confirmed(self, token: int, *, is_leader: bool) -> None:
        """The result of the `Confirm` with this token: this replica still led after it and has applied everything
        that was committed when it was issued; or this replica does not lead any more.
        """

    def on_begin_shutdown(self, now_ms: int) -> None:
        """The node begins its graceful shutdown."""

    @property
    def may_stop(self) -> bool:
        """Whether the application lets a node end that shuts down."""

    def refuse(
        self, asked: ForRequest, error: Error, leader: LeaderAndEpoch, now_ms: int, text: str | None = None
    ) -> Answer | None:
        """Answer a request with refused or lost records.

        The records were refused (`RECORD_LIST_TOO_LARGE`, `REQUEST_TIMED_OUT`), or may be lost. `text` explains the
        error. Returns None if the answer takes several turns: the application then returns it from `on_tick`.
        """

    def snapshot(self) -> Callable[[], Iterator[bytes | None]] | None:
        """A function that returns the record values of the committed state. At a None between them the work may pause.

        The result is None if there is no state, or no snapshot can be made now, as within a transaction.
        """

    def finalized_features(self) -> tuple[tuple[tuple[str, int], ...], int]:
        """The finalized feature levels by name, and the offset at which they are known; -1 if there are none."""

    def supported_features(self) -> tuple[tuple[str, int, int], ...]:
        """Features with their lowest and highest level, by name."""

    def deadline_ms(self) -> int:
        """The time of the next `on_tick`."""

    def on_tick(self, now_ms: int) -> Iterable[Action]:
        """Do the timed work that is due. The replica carries out each action before it takes the next one."""


@runtime_checkable
class SplitApplication(Protocol):
    """An application of a node with both roles: a part of it has listeners of its own."""

    clients: Application
    """The part that answers the requests at `client_listeners`, and no request of the quorum."""
    client_listeners: frozenset[str]


@runtime_checkable
class WithMetadata(Protocol):
    """An application that has the metadata of the cluster."""

    def committed_image(self) -> MetadataImage:
        """The committed metadata, as reads see it."""


ApplicationFactory = Callable[[ReplicaOptions, str, tuple[Message, ...], Random], Application]
"""Makes the application of a replica from its options, the cluster id, the records of its bootstrap.checkpoint, and the
replica's randomness.
"""


class RawLog:
    """An application without state. Values come in with `Submit`, and committed batches go out as `Committed`.

    If the host reads the log by itself, there is no `Committed`.
    """

    apis: tuple[ApiKey, ...] = ()

    def __init__(self, *, reads_batches: bool) -> None:
        self.reads_batches = reads_batches
        self._is_leader = False

    def check(self, values: Sequence[bytes], *, in_snapshot: bool = False) -> Sequence[Message]:
        """All bytes are valid values."""
        return ()

    def check_snapshot(self, values: Iterable[bytes]) -> None:
        """A raw log has no snapshots."""
        raise CorruptBatch("a raw log has no snapshots")

    def on_snapshot(self, values: Iterable[bytes], end: OffsetAndEpoch) -> None:
        """A raw log has no snapshots: only its host knows the meaning of the values."""
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
        """Accept submits from now on."""
        self._is_leader = True
        return ()

    def on_lost_leadership(self) -> None:
        """Refuse submits from now on."""
        self._is_leader = False

    def on_appended(self, unit: Unit, base_offset: int) -> None:
        """There is no state that could follow."""

    def on_request(self, request: WireRequest, leader: LeaderAndEpoch, now_ms: int) -> Action:
        """Never called: a raw log serves no API of its own."""
        raise AssertionError(f"a raw log does not answer API {request.api_key}")

    def denial(self, request: WireRequest) -> ApiError | None:
        """None: a raw log has no authorizer."""
        return None

    def take_denials(self) -> Sequence[Denial]:
        """None: a raw log has no authorizer."""
        return ()

    def on_caught_up(self) -> None:
        """A raw log has nothing to do then."""

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

    def on_gone(self, request_id: int) -> None:
        """No request waits here."""

    def on_confirmed(self, token: int, *, is_leader: bool) -> None:
        """Never called: a raw log has nothing to read."""
        raise AssertionError("a raw log has nothing to read")

    def on_reply(self, reply_to: ReplyTo, response: Message | None, now_ms: int) -> None:
        """Never called: a raw log sends no requests."""
        raise AssertionError("a raw log sends no requests")

    def on_begin_shutdown(self, now_ms: int) -> None:
        """There is nothing to hand over."""

    @property
    def may_stop(self) -> bool:
        """At any time."""
        return True

    def refuse(
        self, asked: ForRequest, error: Error, leader: LeaderAndEpoch, now_ms: int, text: str | None = None
    ) -> Answer | None:
        """Never called: a raw log serves no API of its own."""
        raise AssertionError(f"a raw log does not answer {type(asked.request).__name__}")

    def snapshot(self) -> Callable[[], Iterator[bytes]] | None:
        """None: only the host knows the meaning of the values."""
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
    """The factory of a raw log that reports its committed batches as `Committed`."""
    return RawLog(reads_batches=True)


def host_silent_raw_log(
    options: ReplicaOptions, cluster_id: str, bootstrap: tuple[Message, ...], rng: Random
) -> RawLog:
    """The factory of a raw log for a host that reads `Replica.log` itself."""
    return RawLog(reads_batches=False)
