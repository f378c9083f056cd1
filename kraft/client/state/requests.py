"""The form in which the state of a client asks its shell for requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from msgspec import Struct

from metadata_log.serde import Message
from metadata_log.serde.fields import OPEN_END
from transport.protocol.errors import Error
from transport.protocol.inbound import Failed

Address = tuple[str, int]
"""The host and the port of a broker."""

FIRST_PAUSE_MS: Final = 50
"""The pause before the first repetition of a request (Kafka: `retry.backoff.ms`, 100)."""
LONGEST_PAUSE_MS: Final = 1000
"""Kafka: `retry.backoff.max.ms`."""
CONCURRENT_MS: Final = 20
"""The pause while the former transaction ends (Kafka: `ADD_PARTITIONS_RETRY_BACKOFF_MS`)."""
REQUEST_TIMEOUT_MS: Final = 10_000
"""Milliseconds until a request counts as lost (Kafka: `request.timeout.ms`, 30 s)."""
METADATA_TIMEOUT_MS: Final = 3_000
"""The same for a question about leaders, which each broker answers at once."""


ELSEWHERE: Final = frozenset(
    {Error.COORDINATOR_LOAD_IN_PROGRESS, Error.COORDINATOR_NOT_AVAILABLE, Error.NOT_COORDINATOR}
)
"""The errors that mean another coordinator, or this one later."""


class Ask(Struct, frozen=True):
    """A request to a broker. Exactly one outcome with this token follows."""

    token: int
    to: Address
    message: Message
    timeout_ms: int = REQUEST_TIMEOUT_MS
    highest: int = OPEN_END
    """The highest version of the API that the request may have."""
    is_to_coordinator: bool = False
    """Whether the request takes another connection than those for records, whose answers may wait for new ones."""


class Engine(Protocol):
    """A synchronous state that sends requests. Times are milliseconds since 1970."""

    def poll(self, now_ms: int) -> Sequence[Ask]:
        """The requests that are due. Raises `ClientError` if the work cannot go on."""

    def deadline_ms(self) -> int:
        """When the next `poll` is due, if no outcome comes before."""

    def on_outcome(self, token: int, outcome: Message | Failed, now_ms: int) -> None:
        """Take the answer to a request, or the cause of its failure. Raises `ClientError` if the work cannot go on."""


def pause_ms(attempts: int) -> int:
    """The pause in milliseconds after so many failed attempts."""
    return min(FIRST_PAUSE_MS << min(attempts, 16), LONGEST_PAUSE_MS)
