"""By what a broker recognises its own requests to other nodes, once their replies come (`kraft.wire.ReplyTo`)."""

from __future__ import annotations

from collections.abc import Hashable
from enum import Enum

from msgspec import Struct

from kraft.wire import Part, ReplyTo


class Channel(Enum):
    """The kinds of requests by which a broker tells the active controller about itself; of each at most one is open."""

    HEARTBEATS = "heartbeats"
    """Registrations, too."""
    ISR_CHANGES = "ISR changes"
    ASSIGNMENTS = "assignments to log directories"
    PRODUCER_IDS = "producer ids"


class FetchFrom(Struct, frozen=True, gc=False):
    """A Fetch from the leader of partitions that this broker follows; one at a time."""

    leader_id: int


class Forwarded(Struct, frozen=True, gc=False):
    """The request of a client, on its way to the active controller."""

    number: int


class Creation(Struct, frozen=True, gc=False):
    """Topics that clients asked for and that did not exist."""

    number: int


class Verification(Struct, frozen=True, gc=False):
    """Partitions of transactions, of which a transaction coordinator must know."""

    number: int


class MarkersSent(Struct, frozen=True, gc=False):
    """Markers that end transactions, on their way to the leaders of their partitions."""

    number: int


class LogEndsAsked(Struct, frozen=True, gc=False):
    """A request for the ends of logs that another broker leads."""

    number: int


class LettersSent(Struct, frozen=True, gc=False):
    """Records on their way to the leader of a dead-letter queue."""

    number: int


class StatesAsked(Struct, frozen=True, gc=False):
    """A request to the share coordinator."""

    number: int


def to_broker(key: Hashable) -> ReplyTo:
    """The address of a reply to the broker."""
    return ReplyTo(Part.BROKER, key)
