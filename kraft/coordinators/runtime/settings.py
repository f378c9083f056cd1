"""The facts that a broker needs of coordinators before it has one."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct


class Status(Enum):
    """Whether a coordinator answers."""

    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    CLOSED = "closed"


class CoordinatorSettings(Struct, frozen=True, kw_only=True):
    """The settings of the runtime."""

    write_timeout_ms: int = 5000
    """How long a request waits for its records."""
    codec: int = 0
    """The codec of the batches, by Kafka's number."""
    shares_batches: bool = True
    """Whether the operations of a turn share a batch; a batch of one operation has no sequence number, as in Kafka."""
