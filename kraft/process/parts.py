"""The parts of a process, as the process sees them (Kafka: `RaftClient.Listener` of a controller and of a broker).

The interfaces are as small as each use of them. A part knows nothing of the process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Final, Protocol, runtime_checkable

from msgspec import Struct

from kraft.access.errors import ApiError
from kraft.access.older_node import Audited
from kraft.calls import Call, CancelCall
from kraft.committed import LogReader
from kraft.process.options import ProcessOptions
from kraft.quorum.events import BeginShutdown, Resign, Resumed, Tick
from kraft.quorum.values import LeaderAndEpoch
from kraft.replica.interface.actions import Action
from kraft.replica.interface.events import FlushDone, MakeSnapshot, Submit
from kraft.replica.interface.leading import Leading
from kraft.replica.rpc.api_versions import Served
from kraft.state_machine.raw_log import RawLog
from kraft.wire import Outcome, ReplyTo, Target, WireFailed, WireGone, WireReply, WireRequest
from metadata_log.image import MetadataImage
from metadata_log.serde import Message

METADATA: Final = "the metadata of a cluster"


@runtime_checkable
class Timed(Protocol):
    """A part with work of its own."""

    @property
    def audited(self) -> list[Audited]:
        """The latest entries of the audit log of the node; the process empties the list."""

    def deadline_ms(self) -> int:
        """The time of the next `on_tick`."""

    def on_tick(self, now_ms: int) -> Iterable[Action]:
        """Do the timed work that is due. The process carries out each action before it takes the next one."""


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


ApplicationFactory = Callable[[ProcessOptions, str, tuple[Message, ...], Random], Application]
"""Makes the application of a process from its options, the cluster id, the records of its bootstrap.checkpoint, and the
randomness of the process.
"""

BrokerFactory = Callable[[ProcessOptions, str, tuple[Message, ...], Random], Broker]
"""The same for an application that is a broker."""

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
    | MakeSnapshot
    | Resign
    | Resumed
    | BeginShutdown
)
"""The events that go into a process; those that come out are `kraft.replica.interface.events.Output`."""
