"""What comes out of the handlers of data requests (Kafka: `RequestChannel`)."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from kraft.broker.asked import Asked
from kraft.controller.decision.authorizer import AclOperation, AclResource
from metadata_log.serde import Message


class Answer(Struct, frozen=True, gc=False):
    """Answer the request with this id."""

    request_id: int
    response: Message


class Close(Struct, frozen=True, gc=False):
    """Close the connection of the request with this id, without an answer."""

    request_id: int


Outcome = Answer | Close

Rights = Callable[[Asked, AclOperation, AclResource, str], bool]
"""Whether the client of a request may perform an operation on the resource of a type and name."""


def every_right(request: Asked, operation: AclOperation, resource: AclResource, name: str) -> bool:
    """A broker without an authorizer allows everything."""
    return True
