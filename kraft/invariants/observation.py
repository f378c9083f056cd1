"""What the invariants look at: a running node, its log, its snapshots, and what reaches its application.

The simulator shows its nodes in this form. An invariant knows nothing else of a node.
"""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from kraft.quorum.core import RaftCore
from kraft.quorum.values import ElectionState, LeaderAndEpoch, ReplicaKey
from kraft.quorum.voters import QuorumChange
from metadata_log.types import OffsetAndEpoch


class LogBatch(Struct, frozen=True):
    """One batch as it stands in a log; `content` is everything in it, byte for byte."""

    base_offset: int
    next_offset: int
    epoch: int
    content: bytes

    def __repr__(self) -> str:
        offsets = f"{self.base_offset} to {self.next_offset - 1}"
        return f"<offsets {offsets} of epoch {self.epoch}, {len(self.content)} bytes, the last {self.content[-24:]!r}>"


class SnapshotContent(Struct, frozen=True):
    """What a snapshot says. `timestamp_ms` is that of the last record it covers."""

    timestamp_ms: int
    kraft_version: int
    voters: tuple[ReplicaKey, ...]
    values: tuple[bytes, ...]
    is_of_registers: bool = False
    """Whether the values are what `Registers` make of the log."""


class Applied(Struct, frozen=True):
    """A batch of data records reached the application of the node."""

    base_offset: int
    next_offset: int
    values: tuple[bytes, ...]


class View(Struct, frozen=True):
    """What the invariants look at, of a running node."""

    epoch: int
    state: str
    leader: LeaderAndEpoch
    high_watermark: int
    log_end_offset: int
    flushed_offset: int
    log_start_offset: int = 0
    snapshots: tuple[OffsetAndEpoch, ...] = ()


def view_of(core: RaftCore) -> View:
    """What there is to see of a core. It is looked at after every event, hence past its properties."""
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
    """A node, as far as the invariants look at it."""

    @property
    def node_id(self) -> int:
        """Its id."""

    @property
    def key(self) -> ReplicaKey:
        """Its id and that of its disk; a static quorum without disks knows only the former."""

    def view(self) -> View:
        """The state of the running node."""

    def election(self) -> ElectionState | None:
        """What stands in quorum-state on disk; None before the first start."""

    def read(self, offset: int) -> list[LogBatch]:
        """The batches from `offset` to the end of the log of the running node."""

    def values(self, batch: LogBatch) -> tuple[bytes, ...]:
        """The submitted values in a batch; none if it is a control batch."""

    def changes(self, batch: LogBatch) -> tuple[QuorumChange, ...]:
        """What a batch changes in the quorum; nothing if it is a batch of data."""

    def voters(self) -> tuple[ReplicaKey, ...]:
        """Whom the running node takes for the voters."""

    def snapshots(self) -> tuple[OffsetAndEpoch, ...]:
        """The snapshots on its disk, oldest first."""

    def content(self, snapshot: OffsetAndEpoch) -> SnapshotContent:
        """What a snapshot on its disk says."""
