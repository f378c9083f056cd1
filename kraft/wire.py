"""The one vocabulary of what a process receives from the network and sends to it (Kafka: `RequestChannel`,
`NetworkSend`). Raft, the controller, the broker and the simulator all speak it.
"""

from __future__ import annotations

from msgspec import Struct

from kraft.quorum.events import FailureCause
from metadata_log.serde import Message
from transport.protocol.inbound import ANONYMOUS, ANY_SIZE, Principal


class WireRequest(Struct, frozen=True, gc=False, kw_only=True):
    """A request of a peer or a client. One `Answer`, `Drop` or `LeaveUnanswered` with this id follows, unless a
    `WireGone` comes before.

    The shell chooses the request ids, and never repeats one while the process lives.
    """

    request_id: int
    """The number that names the request in its answer."""
    api_key: int
    """Kafka's key of the API."""
    version: int
    """The version of the request, and of its answer."""
    message: Message
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


class WireReply(Struct, frozen=True, gc=False):
    """The answer to the `SendWire` with this id."""

    request_id: int
    message: Message


class WireFailed(Struct, frozen=True, gc=False):
    """The `SendWire` with this id gets no answer."""

    request_id: int
    cause: FailureCause


class WireGone(Struct, frozen=True, gc=False):
    """The connection of the `WireRequest` with this id is closed: an answer would reach no client."""

    request_id: int


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
"""What comes of a request."""
