"""How a request is handled: at once, in steps, or when it has waited (Kafka: `KafkaApis`, `DelayedOperation`)."""

from __future__ import annotations

from collections.abc import Generator, Hashable, Iterable, Iterator
from typing import Any, Protocol, TypeVar

from kraft.wire import Outcome, Send, WireRequest
from metadata_log.image import MetadataImage
from metadata_log.serde import Message

T = TypeVar("T")
Handling = Generator[None, None, T]
"""The handling of a request in steps of less than a millisecond: a request may name a hundred thousand partitions."""


def long_step(steps: int) -> Handling[None]:
    """Count the work that was just done as so many steps."""
    for _ in range(steps):
        yield None


class Waiting(Protocol):
    """A request that waits, with what its room needs to go on."""

    @property
    def request(self) -> WireRequest:
        """The request."""

    @property
    def keys(self) -> Iterable[Hashable]:
        """The changes that may end the wait: partitions, or keys of the room."""

    @property
    def timeout_ms(self) -> int:
        """The longest time that the request waits, in ms."""


Result = Outcome | Waiting | None
"""The result of a room for a request; None if the room itself returns the outcome later, among what it sends."""


class Sender(Protocol):
    """A room that asks other nodes, or has work of its own. It says on the agenda when `due` has something."""

    def due(self, image: MetadataImage, broker_epoch: int, now_ms: int) -> Iterator[Send | Outcome]:
        """The requests and the outcomes that are due."""

    def on_reply(self, key: Any, message: Message | None, now_ms: int) -> None:
        """Take the reply to a request with this key; None if the request has failed."""
