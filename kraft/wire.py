"""The one vocabulary of what a process receives from the network and sends to it (Kafka: `RequestChannel`,
`NetworkSend`). Raft, the controller, the broker and the simulator all speak it.
"""

from __future__ import annotations

from collections.abc import Hashable
from enum import Enum
from typing import TYPE_CHECKING, Generic, final

from msgspec import Struct

from kraft.quorum.events import FailureCause
from metadata_log.serde import Message
from transport.protocol.inbound import ANONYMOUS, ANY_SIZE, Principal

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    M_co = TypeVar("M_co", bound=Message, default=Message, covariant=True)
else:
    from typing import TypeVar

    M_co = TypeVar("M_co", covariant=True)


@final
class WireRequest(Struct, Generic[M_co], frozen=True, gc=False, kw_only=True):
    """A request of a peer or a client. One `Answer`, `Drop` or `LeaveUnanswered` with this id follows, unless a
    `WireGone` comes before. `WireRequest[FetchRequest]` has a Fetch; without a type it may have any message.

    The shell chooses the request ids, and never repeats one while the process lives. Ids below 0 are those of requests
    that a broker makes to itself.
    """

    request_id: int
    """The number that names the request in its answer."""
    api_key: int
    """Kafka's key of the API."""
    version: int
    """The version of the request, and of its answer."""
    message: M_co
    """The decoded body."""
    listener: str
    """The name of the listener: answers name nodes by their addresses for this listener."""
    client_id: str | None = None
    """The name that the client gives itself."""
    peer: str = ""
    """The peer's address, as `host:port`."""
    principal: Principal = ANONYMOUS
    """The identity of the peer."""
    room: int = ANY_SIZE
    """The bytes that the answer should not exceed, because memory is short."""


@final
class WireReply(Struct, frozen=True, gc=False):
    """The answer to the `WireSend` with this id."""

    request_id: int
    message: Message


class WireFailed(Struct, frozen=True, gc=False):
    """The `WireSend` with this id gets no answer."""

    request_id: int
    cause: FailureCause


class WireGone(Struct, frozen=True, gc=False):
    """The connection of the `WireRequest` with this id is closed: an answer would reach no client."""

    request_id: int


class WireClosed(Struct, frozen=True, gc=False):
    """A connection is closed; `WireGone` has told of its requests that were not answered."""

    listener: str
    peer: str


@final
class Answer(Struct, frozen=True, gc=False):
    """The answer to the `WireRequest` with this id."""

    request_id: int
    message: Message


class Drop(Struct, frozen=True, gc=False):
    """Close the connection of the `WireRequest` with this id, as Kafka does for an API that it does not serve."""

    request_id: int
    why: str


class LeaveUnanswered(Struct, frozen=True, gc=False):
    """The `WireRequest` with this id has no answer, such as Produce with acks=0; its connection stays open."""

    request_id: int
    mute_ms: int = 0
    """For how long nothing more is read from the connection, because the client is above its quota."""


Outcome = Answer | Drop | LeaveUnanswered
"""The result of a request."""


class Part(Enum):
    """A part of a process that sends requests to other nodes."""

    QUORUM = "quorum"
    CONTROLLER = "controller"
    BROKER = "broker"
    STATE_MACHINE = "state machine"


class ReplyTo(Struct, frozen=True, gc=False):
    """The asker of a reply: the part of this process that asked, and what the part recognises its question by."""

    part: Part
    key: Hashable


class Target(Struct, frozen=True, gc=False):
    """The id and the address of a node."""

    node_id: int
    host: str
    port: int


class Send(Struct, frozen=True, gc=False):
    """A part sends a request to another node; exactly one reply comes to `reply_to`, None if the request fails."""

    message: Message
    reply_to: ReplyTo
    timeout_ms: int
    target: Target | None = None
    """None for the active controller."""


@final
class WireSend(Struct, frozen=True, gc=False):
    """A `Send` as it leaves the process. `WireReply` or `WireFailed` with this id follows."""

    request_id: int
    target: Target
    message: Message
    timeout_ms: int
    part: Part
    """The sender. An answer to a part may wait for a commit, so a Fetch of the quorum must not queue behind it."""
    is_for_broker: bool = False
    """Whether a broker asks another broker: at the listener between brokers, with its security protocol."""
