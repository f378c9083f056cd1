"""The form of a request to a broker, and what comes of it: `kraft.broker.metadata` answers some requests,
`kraft.broker.request` others (Kafka: `RequestChannel`).
"""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from metadata_log.serde import Message
from transport.protocol.inbound import Principal


class Asked(Protocol):
    """A request of a client or of another broker (`kraft.replica.interface.events.WireRequest`)."""

    @property
    def request_id(self) -> int:
        """The number that names the request in its answer."""

    @property
    def api_key(self) -> int:
        """Kafka's key of the API."""

    @property
    def version(self) -> int:
        """The version of the request, and of its answer."""

    @property
    def message(self) -> Message:
        """The decoded body."""

    @property
    def listener(self) -> str:
        """The name of the listener: answers name other brokers by their addresses for this listener."""

    @property
    def client_id(self) -> str | None:
        """The name that the client gives itself."""

    @property
    def room(self) -> int:
        """The bytes that the answer should not exceed, because memory is short."""

    @property
    def peer(self) -> str:
        """The peer's address, as `host:port`."""

    @property
    def principal(self) -> Principal:
        """The identity of the peer."""


class Answer(Struct, frozen=True, gc=False):
    """Answer a request."""

    request_id: int
    message: Message


class Close(Struct, frozen=True, gc=False):
    """Close the connection of a request without an answer."""

    request_id: int
    why: str


class ToBroker(Struct, frozen=True, gc=False):
    """Send a request to another broker; exactly one answer with this token follows.

    `target` is the id, the host and the port of the broker.
    """

    token: int
    request: Message
    timeout_ms: int
    target: tuple[int, str, int]


class NoAnswer(Struct, frozen=True, gc=False):
    """A request has no answer, and its connection goes on: Produce with acks=0."""

    request_id: int
    mute_ms: int = 0
    """For how long nothing more is read from the connection, because the client is above its quota."""


class ToController(Struct, frozen=True, gc=False):
    """Send a request to the active controller; exactly one `on_answer` with this token follows."""

    token: int
    request: Message
    timeout_ms: int
