"""Committed records on their way from the log to the parts of a process, and what a part tells the owner besides its
outcomes (Kafka: `BatchReader`, `RaftClient.Listener.handleCommit`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from msgspec import Struct

from kraft.limits import REPLAYED_RECORDS_PER_TURN
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


class LogReader(Protocol):
    """A part of the process that follows the log. All methods are synchronous; time is an argument."""

    @property
    def reads_batches(self) -> bool:
        """Whether `on_committed` is called. Decoding batches for nothing would be expensive."""

    def check(self, values: Sequence[bytes], *, in_snapshot: bool = False) -> Sequence[Message]:
        """Raise `MetadataLogError` if the part cannot read the values of a batch of the log or of a snapshot.

        A peer may have sent the values. The call does not change the part. It returns the decoded values, which
        come with the committed batch (`CommittedBatch.records`); a part that does not want them returns none.
        """

    def check_snapshot(self, values: Iterable[bytes]) -> None:
        """Raise `MetadataLogError` if `on_snapshot` could not begin with these values, which `check` has seen."""

    def on_snapshot(self, values: Iterable[bytes], end: OffsetAndEpoch) -> None:
        """Replace the whole state by the record values of a snapshot."""

    def on_committed(self, batch: CommittedBatch) -> tuple[Committed, ...]:
        """Apply the next committed batch of data records, on a leader perhaps one of its own proposals. Returns the
        outputs for the host.
        """

    @property
    def is_applying(self) -> bool:
        """Whether the last snapshot or batch needs more turns: then `apply_more` comes before the next batch."""

    def apply_more(self) -> tuple[Committed, ...]:
        """Go on for one turn with the snapshot or batch in progress. Returns the outputs for the host."""

    def snapshot(self) -> Callable[[], Iterator[bytes | None]] | None:
        """A function that returns the record values of the committed state. At a None between them the work may pause.

        The result is None if there is no state, or no snapshot can be made now, as within a transaction.
        """


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


class FollowsLog:
    """How a part with an image of the metadata follows the log: the controller and the broker.

    The records of a batch or of a snapshot are replayed a portion in each turn. A subclass says whose image it is, and
    what else to do once a batch or a snapshot is applied; the owner of the image says how a batch begins.
    """

    reads_batches = True
    records_per_turn: int = REPLAYED_RECORDS_PER_TURN
    _owner: WithImage
    _applying: Applying | None = None
    _through: Through | None = None
    """Sees the records of a batch before their replay."""

    def check(self, values: Sequence[bytes], *, in_snapshot: bool = False) -> Sequence[Message]:
        """Decode values of the log or of a snapshot. Raises the errors of `decode_records`."""
        return list(decode_records(values))

    def check_snapshot(self, values: Iterable[bytes]) -> None:
        """Nothing to do: each record was decoded."""

    def on_snapshot(self, values: Iterable[bytes], end: OffsetAndEpoch) -> None:
        """Replace the image by that of a snapshot; `apply_more` completes this."""
        self._applying = Applying(SnapshotReplay(end), end, values, f"snapshot {end}")
        self.apply_more()

    def on_committed(self, batch: CommittedBatch) -> tuple[Committed, ...]:
        """Replay the first portion of a batch; `apply_more` replays the rest."""
        replay = self._owner.begin_committed(batch.base_offset)
        end = OffsetAndEpoch(epoch=batch.epoch, offset=batch.next_offset)
        where = f"batch at offset {batch.base_offset}"
        self._applying = Applying(replay, end, batch.values, where, batch.records, self._through)
        return self.apply_more()

    @property
    def is_applying(self) -> bool:
        """Whether the last batch or snapshot needs more turns."""
        return self._applying is not None

    def apply_more(self) -> tuple[Committed, ...]:
        """Replay the next portion of the batch or the snapshot."""
        assert self._applying is not None, "nothing is being applied"
        if self._applying.go_on(self._owner, self.records_per_turn):
            self._applying = None
            self._on_applied()
        return ()

    def _on_applied(self) -> None:
        """The image is that of the last batch or snapshot."""
