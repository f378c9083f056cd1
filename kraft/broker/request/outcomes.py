"""What goes into the handlers of data requests, and what comes out (Kafka: `RequestChannel`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from kraft.controller.decision.authorizer import AclOperation, AclResource
from metadata_log.serde import Message
from transport.protocol.inbound import Principal


class Incoming(Protocol):
    """A decoded request of a client or of another broker. The shell chooses the ids and never repeats one."""

    @property
    def request_id(self) -> int:
        """The id, which the outcome names."""

    @property
    def api_key(self) -> int:
        """The key of the API."""

    @property
    def version(self) -> int:
        """The version of the message."""

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
    def peer(self) -> str:
        """The address of the client, as host and port."""

    @property
    def principal(self) -> Principal:
        """The identity of the client."""


class Answer(Struct, frozen=True, gc=False):
    """Answer the request with this id."""

    request_id: int
    response: Message


class Close(Struct, frozen=True, gc=False):
    """Close the connection of the request with this id, without an answer."""

    request_id: int


Outcome = Answer | Close

Rights = Callable[[Incoming, AclOperation, AclResource, str], bool]
"""Whether the client of a request may perform an operation on the resource of a type and name."""


def every_right(request: Incoming, operation: AclOperation, resource: AclResource, name: str) -> bool:
    """A broker without an authorizer allows everything."""
    return True
