"""A row of a table of APIs: what serves an API, what it waits for, what refuses it (Kafka: `KafkaApis.handle`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from kraft.access.authorizer import AclOperation
from kraft.access.errors import ApiError
from kraft.handling.steps import Handling, Result
from kraft.limits import REQUEST_STEPS_PER_TURN
from kraft.wire import Outcome, WireRequest
from metadata_log.image import MetadataImage

Begin = Callable[[WireRequest, MetadataImage, int], Result | Handling[Result]]
Refuse = Callable[[WireRequest, ApiError], Outcome | Handling[Outcome] | None]


class Api(Struct, frozen=True, kw_only=True):
    """One API. The functions take the request or what waits of it, the metadata, and the time in ms since 1970."""

    begin: Begin
    """Handle a request: an outcome, a wait, or steps to one of these."""
    is_complete: Callable[[Any, MetadataImage], bool] | None = None
    """Whether a request that waits is to be answered; None for an API that never waits."""
    end: Callable[[Any, MetadataImage, int], Result | Handling[Result]] | None = None
    """Go on with a request that has waited long enough, or has no room to wait."""
    refuse: Refuse | None = None
    """The answer to a request that fails as a whole. None for an API, or a request, of which the handling may have
    changed something: a bug there ends the node.
    """
    needs: AclOperation | None = None
    """What a client must be allowed to do with the cluster. Rights to topics and groups are judged for each of them."""
    needs_login: bool = False
    """Whether the client must have logged in, and not by a token."""
    steps: int = REQUEST_STEPS_PER_TURN
    """How many steps a turn makes."""
    pauses: bool = True
    """Whether the steps of a further turn wait for a millisecond, in which others have their turns."""
    is_plain: bool = False
    """Whether the handling only reads and changes partitions and groups: then no room has anything to send but for a
    request that waits for something else than partitions.
    """
    unpacks: bool = False
    """Whether a request may have megabytes of records unpacked, so that few of the kind go on at a time."""
