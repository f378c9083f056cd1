"""Committed records on their way from the log to the parts of a process, and what a part tells the owner besides its
outcomes (Kafka: `BatchReader`, `RaftClient.Listener.handleCommit`).
"""

from __future__ import annotations

from msgspec import Struct

from metadata_log.serde import Message


class CommittedBatch(Struct, frozen=True, gc=False):
    """The values of one committed batch of data records; `next_offset` is that of the record after it."""

    base_offset: int
    next_offset: int
    epoch: int
    timestamp_ms: int
    values: tuple[bytes, ...]
    size_bytes: int = 0
    """The size of the batch in the log."""
    records: tuple[Message, ...] = ()
    """The values as `LogReader.check` has decoded them when the batch arrived; empty if it has to be done anew."""


class Committed(Struct, frozen=True, gc=False):
    """A committed batch of data records, for the host of a raw log: each batch once, in order."""

    batch: CommittedBatch


class Noted(Struct, frozen=True, gc=False):
    """An unsolicited message of the application to its host. The application defines the types of `what`."""

    what: Struct
