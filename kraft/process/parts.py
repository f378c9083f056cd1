"""The applications of a process, and the events that go into it. `kraft.server` says what each part of one is."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final, Protocol, runtime_checkable

from msgspec import Struct

from kraft.calls import Call, CancelCall
from kraft.process.options import ProcessOptions
from kraft.quorum.events import BeginShutdown, Resign, Resumed, Tick
from kraft.replica.interface.events import FlushDone, MakeSnapshot, Submit
from kraft.server import Server
from kraft.wire import WireClosed, WireFailed, WireGone, WireReply, WireRequest
from metadata_log.image import MetadataImage
from metadata_log.serde import Message

METADATA: Final = "the metadata of a cluster"


@runtime_checkable
class WithMetadata(Protocol):
    """An application that has the metadata of the cluster."""

    def committed_image(self) -> MetadataImage:
        """The committed metadata, as reads see it."""


class ControllerAndBroker(Struct, eq=False):
    """Both parts of a process with both roles (Kafka: `SharedServer`)."""

    controller: Server
    broker: Server
    client_listeners: frozenset[str]
    """The names of the listeners of the broker."""

    def committed_image(self) -> MetadataImage:
        """The committed metadata, as reads of the controller see it."""
        assert isinstance(self.controller, WithMetadata), self.controller
        return self.controller.committed_image()


Application = Server | ControllerAndBroker
"""The part of a process that decides or serves, besides its replica of the log; or both of them."""


def kind_of(application: Application) -> str:
    """The kind of the log of an application."""
    return getattr(application, "log_kind", METADATA)


class Opening(Struct, frozen=True):
    """The ingredients of the application of a process, once the directory is open."""

    options: ProcessOptions
    cluster_id: str
    bootstrap: tuple[Message, ...]
    """The records of bootstrap.checkpoint."""
    rng: Random
    """The randomness of the process."""


ApplicationFactory = Callable[[Opening], Application]
BrokerFactory = Callable[[Opening], Server]
"""The same for an application that is a broker."""

Input = (
    Tick
    | WireRequest
    | WireReply
    | WireFailed
    | WireGone
    | WireClosed
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
