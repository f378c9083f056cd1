"""The observable part of a node: its state, its log, its snapshots, and the batches that it applies.

The simulator presents its nodes in this form. An invariant knows nothing else of a node.
"""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from kraft.quorum.core import RaftCore
from kraft.quorum.values import ElectionState, LeaderAndEpoch, ReplicaKey
from kraft.quorum.voters import QuorumChange
from metadata_log.types import NO_NODE, OffsetAndEpoch


class LogBatch(Struct, frozen=True):
    """One batch in a log; `content` is the whole batch, byte for byte."""

    base_offset: int
    next_offset: int
    epoch: int
    content: bytes

    def __repr__(self) -> str:
        offsets = f"{self.base_offset} to {self.next_offset - 1}"
        return f"<offsets {offsets} of epoch {self.epoch}, {len(self.content)} bytes, the last {self.content[-24:]!r}>"


class SnapshotContent(Struct, frozen=True):
    """The content of a snapshot. `timestamp_ms` is that of the last record that the snapshot covers."""

    timestamp_ms: int
    kraft_version: int
    voters: tuple[ReplicaKey, ...]
    values: tuple[bytes, ...]
    is_of_registers: bool = False
    """Whether the values are those of `Registers` after the log."""


class Applied(Struct, frozen=True):
    """A batch of data records reached the application of the node."""

    base_offset: int
    next_offset: int
    values: tuple[bytes, ...]


class View(Struct, frozen=True):
    """The state of a running node that the invariants check."""

    epoch: int
    state: str
    leader: LeaderAndEpoch
    high_watermark: int
    log_end_offset: int
    flushed_offset: int
    log_start_offset: int = 0
    snapshots: tuple[OffsetAndEpoch, ...] = ()

    def __repr__(self) -> str:
        leader = "no leader" if self.leader.leader_id == NO_NODE else f"leader {self.leader.leader_id}"
        snapshots = f", snapshots at {[one.offset for one in self.snapshots]}" if self.snapshots else ""
        return (
            f"<{self.state} in epoch {self.epoch}, {leader}, log from {self.log_start_offset} to {self.log_end_offset},"
            f" flushed to {self.flushed_offset}, high watermark {self.high_watermark}{snapshots}>"
        )


def view_of(core: RaftCore) -> View:
    """The view of a core. For speed this reads private fields: the caller takes a view after every event."""
    quorum = core._quorum
    state, log = quorum.state, quorum.log
    return View(
        state.epoch,
        state.name,
        quorum.leader,
        log.high_watermark,
        log.end_offset,
        log.flushed_offset,
        log.start_offset,
        log.snapshots,
    )


class ObservedMember(Protocol):
    """A node, as the invariants observe it."""

    @property
    def node_id(self) -> int:
        """The node id."""

    @property
    def key(self) -> ReplicaKey:
        """The node id and the directory id; a static quorum without disks has only the former."""

    def view(self) -> View:
        """The state of the running node."""

    def election(self) -> ElectionState | None:
        """The content of quorum-state on disk; None before the first start."""

    def read(self, offset: int) -> list[LogBatch]:
        """The batches from `offset` to the end of the log of the running node."""

    def values(self, batch: LogBatch) -> tuple[bytes, ...]:
        """The submitted values in a batch; none if it is a control batch."""

    def changes(self, batch: LogBatch) -> tuple[QuorumChange, ...]:
        """The changes of the quorum in a batch; none in a batch of data."""

    def voters(self) -> tuple[ReplicaKey, ...]:
        """The voter set as the running node knows it."""

    def snapshots(self) -> tuple[OffsetAndEpoch, ...]:
        """The snapshots on the disk, oldest first."""

    def content(self, snapshot: OffsetAndEpoch) -> SnapshotContent:
        """The content of a snapshot on the disk."""
