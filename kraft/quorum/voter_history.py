"""The voter set and kraft.version in force at every offset of the log (Kafka: `PartitionState`, `VoterSetHistory`,
`KRaftControlRecordStateMachine`; KIP-853).

A change counts from the moment at which its record is in the log, committed or not, and is undone with it. Until the
first record the voters are those of the configuration.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from kraft.quorum.values import ReplicaKey
from kraft.quorum.voters import QuorumChange, VoterSet

T = TypeVar("T")
At = tuple[int, T]
"""A value, and the offset of the record that brought it."""
STATIC: Final = 0
"""The kraft.version of a quorum with its voters in the configuration."""
DYNAMIC: Final = 1
"""The kraft.version of a quorum with its voters in the log."""


class VoterHistory(Struct, frozen=True):
    """Immutable: every change makes another one. The entries are in the order of their offsets."""

    static_voters: VoterSet
    sets: tuple[At[VoterSet], ...] = ()
    versions: tuple[At[int], ...] = ()

    @property
    def voters(self) -> VoterSet:
        """The voter set in force, committed or not."""
        return self.sets[-1][1] if self.sets else self.static_voters

    @property
    def kraft_version(self) -> int:
        """The kraft.version in force, committed or not."""
        return self.versions[-1][1] if self.versions else STATIC

    @property
    def voters_offset(self) -> int | None:
        """Where the voter set in force was recorded: -1 for that of a formatted directory, None for the static one."""
        return self.sets[-1][0] if self.sets else None

    @property
    def is_contradictory(self) -> bool:
        """Whether voters stand in the log though its kraft.version does not provide for that: no replica writes so."""
        return bool(self.sets) and self.kraft_version == STATIC

    def voters_at(self, offset: int) -> VoterSet | None:
        """The recorded voter set that holds for the record at `offset`; None if there was none."""
        return _at(self.sets, offset)

    def kraft_version_at(self, offset: int) -> int:
        """The kraft.version that holds for the record at `offset`."""
        return _at(self.versions, offset) or STATIC

    def with_changes(self, changes: Iterable[QuorumChange]) -> VoterHistory:
        """The history with more records, in the order of their offsets."""
        sets, versions = self.sets, self.versions
        for change in changes:
            match change.value:
                case VoterSet() as voters:
                    assert not sets or change.offset > sets[-1][0], (change, sets[-1])
                    sets = (*sets, (change.offset, voters))
                case int() as version:
                    assert not versions or change.offset > versions[-1][0], (change, versions[-1])
                    versions = (*versions, (change.offset, version))
        return replace(self, sets=sets, versions=versions)

    def truncated(self, offset: int) -> VoterHistory:
        """The history of a log that ends at `offset`."""
        if not any(entries and entries[-1][0] >= offset for entries in (self.sets, self.versions)):
            return self
        return replace(self, sets=_before(self.sets, offset), versions=_before(self.versions, offset))

    def pruned(self, start_offset: int) -> VoterHistory:
        """The history without what is of no meaning to a log that begins at `start_offset`."""
        return replace(self, sets=_since(self.sets, start_offset), versions=_since(self.versions, start_offset))

    def begun_with(self, changes: Iterable[QuorumChange]) -> VoterHistory:
        """The history of an empty log that begins where a snapshot with these records ends."""
        return VoterHistory(self.static_voters).with_changes(changes)

    def removes(self, key: ReplicaKey) -> bool:
        """Whether the last record takes a replica's vote away that it had by the record before."""
        return len(self.sets) > 1 and self.sets[-2][1].contains(key) and not self.voters.contains(key)

    def uncommitted_changes(self, high_watermark: int) -> int:
        """The number of voter changes not known to be committed: more than one could lead to two leaders."""
        committed = _at(self.sets, high_watermark - 1)
        keys = None if committed is None else committed.keys
        changes = 0
        for offset, voters in self.sets:
            if offset >= high_watermark and voters.keys != keys:
                changes += keys is not None
                keys = voters.keys
        return changes


def recorded_in(end_offset: int, kraft_version: int, voters: VoterSet | None) -> tuple[QuorumChange, ...]:
    """What a snapshot says of the quorum, as if recorded at the last offset that it covers."""
    offset = end_offset - 1
    if kraft_version == STATIC:
        return ()
    version = QuorumChange(offset, kraft_version)
    return (version,) if voters is None else (version, QuorumChange(offset, voters))


def _at(entries: tuple[At[T], ...], offset: int) -> T | None:
    found = bisect_right(entries, offset, key=_offset_of)
    return entries[found - 1][1] if found else None


def _before(entries: tuple[At[T], ...], offset: int) -> tuple[At[T], ...]:
    return tuple(entry for entry in entries if entry[0] < offset)


def _since(entries: tuple[At[T], ...], offset: int) -> tuple[At[T], ...]:
    """Those from `offset` on, and the last one before: a record at `offset` itself may be cut off again, which Kafka's
    `TreeMapLogHistory.truncateOldEntries` forgets.
    """
    return entries[max(bisect_left(entries, offset, key=_offset_of) - 1, 0) :]


def _offset_of(entry: At[T]) -> int:
    return entry[0]
