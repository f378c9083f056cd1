"""The facts about one copy of the metadata log, as far as the checks need them."""

from __future__ import annotations

from msgspec import Struct

from metadata_log.image import MetadataImage
from metadata_log.log.epochs import EpochHistory
from metadata_log.log.quorum_state_file import StoredElection
from metadata_log.reading.damage import Damage
from metadata_log.types import OffsetAndEpoch, Uuid


class Batch(Struct, frozen=True, gc=False):
    """The identity and the times of a batch. Equal `size_bytes` and `crc` count as equal bytes."""

    base_offset: int
    next_offset: int
    epoch: int
    size_bytes: int
    crc: int
    base_timestamp: int
    max_timestamp: int

    @property
    def content(self) -> tuple[int, int, int]:
        """The values that are equal in two copies of a batch."""
        return self.next_offset, self.size_bytes, self.crc


class LeaderChange(Struct, frozen=True):
    """A LeaderChange record: its offset, epoch and time, the leader, the voters' ids."""

    offset: int
    epoch: int
    timestamp_ms: int
    leader_id: int
    voters: tuple[int, ...]


class NamedVoter(Struct, frozen=True, kw_only=True):
    """A voter as a log or the settings name it."""

    id: int
    directory_id: Uuid | None = None
    endpoints: tuple[tuple[str, str, int], ...] = ()
    """Listener name (empty in a static quorum), host and port."""


class VoterChange(Struct, frozen=True):
    """A VotersRecord. For one in a snapshot, `offset` is the end of the snapshot minus one."""

    offset: int
    voters: tuple[NamedVoter, ...]
    where: str


class UnknownRecord(Struct, frozen=True):
    """A record that this software does not know. `is_type` tells an unknown type from an unknown version."""

    offset: int
    what: str
    where: str
    is_type: bool


class LogFacts(Struct, kw_only=True):
    """One copy of the metadata log and the small files beside it. `path` is the partition directory."""

    path: str
    segments: tuple[int, ...] = ()
    snapshots: tuple[OffsetAndEpoch, ...] = ()
    batches: list[Batch] = []
    elections: list[LeaderChange] = []
    voters: list[VoterChange] = []
    kraft_versions: list[tuple[int, int]] = []
    """Offsets and levels of KRaftVersion records, in segments and snapshots."""
    gaps: list[Damage] = []
    """Offsets that do not continue, and missing segments."""
    torn: Damage | None = None
    """Bytes after the last good batch."""
    snapshot_damage: Damage | None = None
    """Damage of the newest snapshot."""
    unknown: list[UnknownRecord] = []
    metadata_version: int | None = None
    """The last level that the snapshot or the log sets."""
    quorum_state: StoredElection | None = None
    quorum_state_problem: str = ""
    """Why quorum-state cannot be read; empty if the file is readable or missing."""
    epochs: EpochHistory | None = None
    log_bytes: int = 0
    snapshot_bytes: int = 0
    """The size of the newest snapshot."""

    @property
    def start_offset(self) -> int:
        """The log start offset."""
        return self.segments[0] if self.segments else self._newest.offset

    @property
    def end_offset(self) -> int:
        """The log end offset: after the last batch, or after the newest snapshot of a log without later batches."""
        in_log = self.batches[-1].next_offset if self.batches else (self.segments[-1] if self.segments else 0)
        return max(in_log, self._newest.offset)

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record; 0 for an empty log."""
        newest = self._newest
        if self.batches and self.batches[-1].next_offset >= newest.offset:
            return self.batches[-1].epoch
        return newest.epoch

    @property
    def position(self) -> OffsetAndEpoch:
        """Last epoch and end offset: the order in which copies rank."""
        return OffsetAndEpoch(epoch=self.last_epoch, offset=self.end_offset)

    @property
    def end_ms(self) -> int:
        """The time of the last batch; -1 without batches."""
        return self.batches[-1].max_timestamp if self.batches else -1

    @property
    def is_empty(self) -> bool:
        """Whether there is no record: no batch, and no snapshot beyond offset 0."""
        return not self.batches and self._newest.offset == 0

    @property
    def kraft_version(self) -> int | None:
        """The level of kraft.version; None if the log does not tell."""
        if self.kraft_versions:
            return max(self.kraft_versions)[1]
        begins_unknown = self.start_offset > 0 and not any(one.offset >= self.start_offset for one in self.snapshots)
        return None if self.is_empty or begins_unknown else 0

    @property
    def voter_change(self) -> VoterChange | None:
        """The last VotersRecord."""
        return max(self.voters, key=lambda one: one.offset, default=None)

    @property
    def _newest(self) -> OffsetAndEpoch:
        return max(self.snapshots, key=lambda one: one.offset, default=OffsetAndEpoch(epoch=0, offset=0))


class Moment(Struct, frozen=True, order=True):
    """The time and the offset of a change; offset -1 for a change that a snapshot holds."""

    timestamp_ms: int
    offset: int


class ImageFacts(Struct, frozen=True, kw_only=True):
    """The metadata at the end of the best copy of the log, and since when some of its states last.

    Args:
        where: The partition directory, or the cluster.
        image: The metadata.
        end_ms: The time of the last record.
        open_transaction: The begin of an unfinished metadata transaction.
        fenced_since: The last change of the fencing of each broker that is fenced.
        changed: The last change of each partition that is being reassigned or that recovers, by topic id and number.
        problem: Why the replay ended early; empty if it did not.
    """

    where: str
    image: MetadataImage
    end_ms: int = -1
    open_transaction: Moment | None = None
    fenced_since: dict[int, Moment] = {}
    changed: dict[tuple[Uuid, int], Moment] = {}
    problem: str = ""
