"""A row of a table of APIs: what serves an API, what it waits for, what refuses it (Kafka: `KafkaApis.handle`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from msgspec import Struct

from kraft.access.authorizer import AclOperation
from kraft.access.errors import ApiError
from kraft.handling.steps import Handling, Result
from kraft.limits import REQUEST_STEPS_PER_TURN
from kraft.wire import Outcome, WireRequest
from metadata_log.image import MetadataImage
from metadata_log.serde import Message

M = TypeVar("M", bound=Message)
Rooms = TypeVar("Rooms")
Begin = Callable[[WireRequest[M], MetadataImage, int], Result | Handling[Result]]
Refuse = Callable[[WireRequest[M], ApiError], Outcome | Handling[Outcome] | None]


class Api(Struct, Generic[M], frozen=True):
    """One API. The functions take the request or what waits of it, the metadata, and the time in ms since 1970."""

    message: type[M]
    """The class of its requests, which nothing behind the row checks again."""
    begin: Begin[M]
    """Handle a request: an outcome, a wait, or steps to one of these."""
    is_complete: Callable[[Any, MetadataImage], bool] | None = None
    """Whether a request that waits is to be answered; None for an API that never waits."""
    end: Callable[[Any, MetadataImage, int], Result | Handling[Result]] | None = None
    """Go on with a request that has waited long enough, or has no room to wait."""
    refuse: Refuse[M] | None = None
    """The answer to a request that fails as a whole. None for an API, or a request, of which the handling may have
    changed something: a bug there ends the node.
    """
    needs: AclOperation | None = None
    """The operation that a client must be allowed to do with the cluster. Rights to topics and groups are judged for
    each of them.
    """
    needs_login: bool = False
    """Whether the client must have logged in, and not by a token."""
    steps: int = REQUEST_STEPS_PER_TURN
    """How many steps a turn makes."""
    pauses: bool = True
    """Whether the steps of a further turn wait for a millisecond, in which others have their turns."""
    unpacks: bool = False
    """Whether a request may have megabytes of records unpacked, so that few of the kind go on at a time."""
    outlives_client: bool = False
    """Whether the steps go on after the connection is gone: what they change counts all the same."""


def row(make: Callable[[Rooms], Api[M]]) -> Callable[[Rooms], Api[Any]]:
    """A row of a table, which is made of the rooms with the first request: it names messages and rooms that load then.

    The function is for the type checker alone: the message of a row is that of its functions.
    """
    return make
