"""Committed records on their way from the log to the parts of a process, and what a part tells the owner besides its
outcomes (Kafka: `BatchReader`, `RaftClient.Listener.handleCommit`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from msgspec import Struct

from metadata_log.image.record_values import decode_records
from metadata_log.image.replaying import BatchReplay, SnapshotReplay
from metadata_log.serde import Message
from metadata_log.types import OffsetAndEpoch


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


Through = Callable[[Iterator[Message]], Iterator[Message]]
"""Passes records on, and sees each of them."""


class WithImage(Protocol):
    """The owner of an image of the metadata: a controller, or the agent of a broker."""

    def begin_committed(self, base_offset: int) -> BatchReplay:
        """Begin to replay a committed batch."""

    def finish_committed(self, replay: BatchReplay, end: OffsetAndEpoch) -> None:
        """Take over a batch of which all records were replayed."""

    def finish_snapshot(self, replay: SnapshotReplay) -> None:
        """Take over a snapshot of which all records were replayed."""


class Applying:
    """Replays the records of a batch or a snapshot into an image, a portion in each turn.

    Args:
        replay: What replays them; none was replayed yet.
        end: The end of the batch or the snapshot.
        values: The records as they are in the log.
        where: Their place, for errors.
        records: The same decoded, if that was done before.
        through: Sees each record before its replay.
    """

    def __init__(
        self,
        replay: BatchReplay | SnapshotReplay,
        end: OffsetAndEpoch,
        values: Iterable[bytes],
        where: str,
        records: Sequence[Message] = (),
        through: Through | None = None,
    ) -> None:
        self.replay = replay
        self.end = end
        self.values = values
        self.where = where
        self.count = 0
        """How many records were replayed so far."""
        self._records = iter(records or decode_records(values, where))
        self.through = through

    def go_on(self, owner: WithImage, room: int) -> bool:
        """Replay the next records, as long as there is room for them; returns whether those were the last."""
        replay, records = self.replay, self.counted()
        if self.through is not None:
            records = self.through(records)
        if replay.go_on(records, room) <= 0:
            return False
        if isinstance(replay, SnapshotReplay):
            owner.finish_snapshot(replay)
        else:
            owner.finish_committed(replay, self.end)
        return True

    def counted(self) -> Iterator[Message]:
        """The next records, counted as they are taken."""
        for record in self._records:
            self.count += 1
            yield record
