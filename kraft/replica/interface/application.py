"""The interfaces of the parts of a process, as small as each use of them: what follows the log, what leads, what
answers requests.

Kafka's counterpart is `RaftClient.Listener` together with `RaftClient.prepareAppend`. No part appends by itself: it
returns actions, and the process reports the offsets to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random
from typing import Final, Protocol, final, runtime_checkable

from msgspec import Struct

from kraft.access.authorizer import Denial
from kraft.access.errors import ApiError
from kraft.access.older_node import OlderNode
from kraft.committed import Committed, CommittedBatch, Noted
from kraft.controller.decision.result import QuorumLevel, VersionedRecord
from kraft.quorum.values import LeaderAndEpoch
from kraft.replica.interface.events import Call, CancelCall, Returned, Submit
from kraft.replica.interface.options import ReplicaOptions
from kraft.replica.interface.raw_snapshot import is_raw_snapshot
from kraft.wire import Answer, Drop, LeaveUnanswered, Outcome, ReplyTo, Send, Target, WireRequest
from metadata_log.errors import CorruptBatch, DirectoryError
from metadata_log.image import MetadataImage
from metadata_log.serde import Message
from metadata_log.types import OffsetAndEpoch
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


@final
class Proposal(Struct, frozen=True, gc=False):
    """Records to append, in order. A proposal without records is answered once all outstanding records are committed:
    the decision may depend on them.
    """

    units: tuple[Unit, ...] = ()
    waiting: ForRequest | ForSubmit | None = None
    quorum_level: QuorumLevel | None = None
    """A level of kraft.version to raise first. If the level cannot be raised, nothing is appended."""


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


Action = Proposal | Answer | LeaveUnanswered | Drop | Redirect | RefuseSubmit | Send | Confirm | Returned | Noted


class LogReader(Protocol):
    """A part of the process that follows the log. All methods are synchronous; time is an argument."""

    @property
    def reads_batches(self) -> bool:
        """Whether `on_committed` is called. Decoding batches for nothing would be expensive."""

    def check(self, values: Sequence[bytes], *, in_snapshot: bool = False) -> Sequence[Message]:
        """Raise `MetadataLogError` if the part cannot read the values of a batch of the log or of a snapshot.

        A peer may have sent the values. The call does not change the part. It returns the decoded values, which
        come with the committed batch (`CommittedBatch.records`); a part that does not want them returns none.
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

    def snapshot(self) -> Callable[[], Iterator[bytes | None]] | None:
        """A function that returns the record values of the committed state. At a None between them the work may pause.

        The result is None if there is no state, or no snapshot can be made now, as within a transaction.
        """


class Leading(LogReader, Protocol):
    """The part that leads where this node leads the quorum: it may append to the log."""

    def on_leader(self, epoch: int, next_offset: int, now_ms: int) -> tuple[Action, ...]:
        """Begin to lead in `epoch`: everything below `next_offset` is committed and applied."""

    def on_lost_leadership(self) -> None:
        """End the leadership that began with `on_leader`. Uncommitted proposals may vanish."""

    def on_appended(self, unit: Unit, base_offset: int) -> None:
        """Take the base offset of a proposed unit, which is in the log but not committed yet."""

    def on_caught_up(self) -> None:
        """The part has applied all known commits. Called after each commit."""


@runtime_checkable
class Timed(Protocol):
    """A part with work of its own."""

    @property
    def denials(self) -> list[Denial | OlderNode]:
        """What was denied lately, for the log of the node; the process empties the list."""

    def deadline_ms(self) -> int:
        """The time of the next `on_tick`."""

    def on_tick(self, now_ms: int) -> Iterable[Action]:
        """Do the timed work that is due. The process carries out each action before it takes the next one."""


class Served(Protocol):
    """A part that serves APIs, as ApiVersions shows it."""

    @property
    def apis(self) -> tuple[ApiKey, ...]:
        """The APIs that the part answers, besides those of the quorum."""

    def finalized_features(self) -> tuple[tuple[tuple[str, int], ...], int]:
        """The finalized feature levels by name, and the offset at which they are known; -1 if there are none."""

    def supported_features(self) -> tuple[tuple[str, int, int], ...]:
        """Features with their lowest and highest level, by name."""


class Serving(Served, Timed, Protocol):
    """The common interface of the parts that serve requests."""

    def on_reply(self, reply_to: ReplyTo, response: Message | None, now_ms: int) -> None:
        """Take the reply to a `Send` of the part; None if the request has failed."""

    @property
    def may_stop(self) -> bool:
        """Whether the part lets a node end that shuts down."""


@runtime_checkable
class Deciding(Serving, Leading, Protocol):
    """A part that answers at the listeners of the quorum, and appends what it decides: controller, state machine."""

    def on_request(self, request: WireRequest, leader: LeaderAndEpoch, now_ms: int) -> Action:
        """A request for one of `apis`."""

    def on_full(self, request: WireRequest, leader: LeaderAndEpoch, now_ms: int) -> Action:
        """A request for one of `apis` while no further request may wait: answer it now, and change nothing."""

    def denial(self, request: WireRequest) -> ApiError | None:
        """Why the sender may not send this request of the quorum; None if it may. Called before the request runs."""


@runtime_checkable
class Refusing(Protocol):
    """A part whose clients wait for the commit of records."""

    def refuse(
        self, asked: ForRequest, error: Error, leader: LeaderAndEpoch, now_ms: int, text: str | None = None
    ) -> Answer | None:
        """Answer a request with refused or lost records.

        The records were refused (`RECORD_LIST_TOO_LARGE`, `REQUEST_TIMED_OUT`), or may be lost. `text` explains the
        error. Returns None if the answer takes several turns: the part then returns it from `on_tick`.
        """


@runtime_checkable
class Confirming(Protocol):
    """A part that issues `Confirm`."""

    def on_confirmed(self, token: int, *, is_leader: bool) -> None:
        """The result of the `Confirm` with this token: this node still led after it and has applied everything that
        was committed when it was issued; or this node does not lead any more.
        """


@runtime_checkable
class Called(Protocol):
    """A part that the host of the process calls."""

    def on_call(self, call: Call | CancelCall, now_ms: int) -> None:
        """Take a call of the host, or its end: the host has cancelled it."""


class Broker(Serving, LogReader, Protocol):
    """The part that answers at the listeners of a broker. It only follows the log."""

    def on_request(self, request: WireRequest, now_ms: int) -> Outcome | None:
        """Handle a request for one of `apis`. Returns None if the outcome comes from a later `on_tick`."""

    def on_gone(self, request_id: int) -> None:
        """Drop a request whose connection is closed: an answer would reach no client."""

    def on_begin_shutdown(self, now_ms: int) -> None:
        """The node begins its graceful shutdown: the broker hands over what it leads."""


@runtime_checkable
class WithMetadata(Protocol):
    """An application that has the metadata of the cluster."""

    def committed_image(self) -> MetadataImage:
        """The committed metadata, as reads see it."""


METADATA: Final = "the metadata of a cluster"
RAW_LOG: Final = "a raw log"


class RawLog:
    """A log without a state. Values come in with `Submit`, and committed batches go out as `Committed`.

    If the host reads the log by itself, there is no `Committed`.
    """

    log_kind: str = RAW_LOG

    def __init__(self, *, reads_batches: bool) -> None:
        self.reads_batches = reads_batches
        self._is_leader = False

    def check(self, values: Sequence[bytes], *, in_snapshot: bool = False) -> Sequence[Message]:
        """Accept all values: any bytes are valid in a raw log."""
        return ()

    def check_snapshot(self, values: Iterable[bytes]) -> None:
        """Raise `CorruptBatch` for a snapshot of something else: only the host knows the state of a raw log."""
        if not is_raw_snapshot(values):
            raise CorruptBatch("this is no snapshot of a raw log")

    def on_snapshot(self, values: Iterable[bytes], end: OffsetAndEpoch) -> None:
        """Take a snapshot, which the host reads by itself."""
        if not is_raw_snapshot(values):
            raise DirectoryError(
                f"the snapshot that ends at {end} is none of a raw log",
                hint="This is the directory of a metadata quorum or of a state machine: open it as such.",
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

    def snapshot(self) -> Callable[[], Iterator[bytes]] | None:
        """None: only the host knows the meaning of the values, and gives the state with `MakeSnapshot`."""
        return None

    def on_leader(self, epoch: int, next_offset: int, now_ms: int) -> tuple[Action, ...]:
        """Accept submits from now on."""
        self._is_leader = True
        return ()

    def on_lost_leadership(self) -> None:
        """Refuse submits from now on."""
        self._is_leader = False

    def on_appended(self, unit: Unit, base_offset: int) -> None:
        """Nothing to do: a raw log has no state."""

    def on_caught_up(self) -> None:
        """Nothing to do: a raw log has no state."""

    def on_submit(self, submit: Submit) -> Action:
        """Propose the values as one unit."""
        if not self._is_leader:
            return RefuseSubmit(submit.submit_id, Error.NOT_LEADER_OR_FOLLOWER)
        if not submit.values:
            return RefuseSubmit(submit.submit_id, Error.INVALID_REQUEST)
        return Proposal((Unit(tuple(submit.values)),), ForSubmit(submit.submit_id))


class ControllerAndBroker(Struct, eq=False):
    """Both parts of a process with both roles (Kafka: `SharedServer`)."""

    controller: Deciding
    broker: Broker
    own: Target
    """The controller of this process, as the broker reaches it."""
    client_listeners: frozenset[str]
    """The names of the listeners of the broker."""

    def committed_image(self) -> MetadataImage:
        """The committed metadata, as reads of the controller see it."""
        assert isinstance(self.controller, WithMetadata), self.controller
        return self.controller.committed_image()


Application = Deciding | Broker | RawLog | ControllerAndBroker
"""The part of a process that decides or serves, besides its replica of the log."""


def kind_of(application: Application) -> str:
    """The kind of the log of an application."""
    return getattr(application, "log_kind", METADATA)


ApplicationFactory = Callable[[ReplicaOptions, str, tuple[Message, ...], Random], Application]
"""Makes the application of a process from its options, the cluster id, the records of its bootstrap.checkpoint, and the
randomness of the process.
"""


def host_raw_log(options: ReplicaOptions, cluster_id: str, bootstrap: tuple[Message, ...], rng: Random) -> RawLog:
    """The factory of a raw log that reports its committed batches as `Committed`."""
    return RawLog(reads_batches=True)


def host_silent_raw_log(
    options: ReplicaOptions, cluster_id: str, bootstrap: tuple[Message, ...], rng: Random
) -> RawLog:
    """The factory of a raw log for a host that reads `Process.log` itself."""
    return RawLog(reads_batches=False)
