"""Where a consumer begins, and where it stands in a partition (Kafka: `OffsetSpec`, `SubscriptionState`)."""

from __future__ import annotations

from enum import IntEnum

from msgspec import Struct

from metadata_log.records.record import Header


class Beginning(Struct, frozen=True):
    """The first record that the partition still has."""


class End(Struct, frozen=True):
    """Behind the last record."""


class AtOffset(Struct, frozen=True):
    """The record at an offset, or the next one."""

    offset: int


class AtTime(Struct, frozen=True):
    """The first record with this time or a later one, in ms since 1970; the end if there is none."""

    timestamp_ms: int


Start = Beginning | End | AtOffset | AtTime


class Isolation(IntEnum):
    """Up to where a consumer reads (Kafka: `isolation.level`)."""

    READ_UNCOMMITTED = 0
    """Up to the high watermark, with the records of open and aborted transactions."""
    READ_COMMITTED = 1
    """Up to the first open transaction, without the records of aborted ones."""


class ConsumedRecord(Struct, frozen=True, gc=False):
    """A record of a topic (Kafka: `ConsumerRecord`).

    Args:
        partition: The number of the partition.
        offset: The offset in the partition.
        timestamp_ms: The time in ms since 1970; -1 for a record without time.
        is_append_time: Whether the broker set the time, when it appended the record.
        key: The key, or None.
        value: The value, or None.
        headers: The headers, in order.
        leader_epoch: The epoch of the leader that appended the record.
        delivery_count: How often a share group has handed the record out, this time included; None elsewhere.
    """

    partition: int
    offset: int
    timestamp_ms: int
    is_append_time: bool
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    leader_epoch: int
    delivery_count: int | None = None


class Position:
    """How far a consumer has come in one partition."""

    def __init__(self, start: Start, *, needs_end: bool) -> None:
        self.start = start
        self.offset: int | None = start.offset if isinstance(start, AtOffset) else None
        """The offset of the next record; None until the broker has named it."""
        self.end: int | None = None
        """Where the reading ends; None until the broker has named it, or if it never ends."""
        self.needs_end = needs_end or isinstance(start, End)
        """Whether the end of the partition is still to be asked for."""
        self.is_checked = not isinstance(start, AtOffset)
        """Whether the offset is known to lie within the partition."""
        self.is_asked = False
        """Whether a request about this partition is on its way."""
        self.due_ms = 0
        """When the next request may be sent."""
        self.asked_last = 0
        """The number of the last request about this partition: the partition that waits longest comes first."""
        self.attempts = 0
        """How many requests have failed since the last answer."""
        self.waits_since_ms: int | None = None
        """Since when no broker has answered."""
        self.leaderless_since_ms: int | None = None
        """Since when the cluster has no leader for the partition."""

    @property
    def is_done(self) -> bool:
        """Whether the consumer has reached the end."""
        return self.end is not None and self.offset is not None and self.offset >= self.end
