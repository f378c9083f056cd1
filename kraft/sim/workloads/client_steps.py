"""The steps of the clients of a run: each client is a generator of them. It takes the answer to its request; None if
there is none in time.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from msgspec import Struct

from kraft.invariants.cluster_model import PartitionKey
from metadata_log.serde import Message

PATIENCE_MS: Final = 2500
"""A client that waits longer for an answer goes on without."""


class Ask(Struct, frozen=True):
    """A request, and where it goes: to a broker, to the leader of a partition, or with None to any broker."""

    target: int | PartitionKey | None
    request: Message
    patience_ms: int = PATIENCE_MS
    version: int | None = None
    """The version of the request; None for the highest."""


class Pause(Struct, frozen=True):
    """A client does nothing for a while."""

    pause_ms: int


class HangUp(Struct, frozen=True):
    """A client ends its connection to a broker, without a word."""

    node_id: int
    peer: str
    """The address of the client."""


Step = Ask | Pause | HangUp
Steps = Generator[Step, Message | None, None]
"""The life of a client."""
Asking = Generator[Step, Message | None, Message | None]
