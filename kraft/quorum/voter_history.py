"""The voter set and kraft.version in force at every offset of the log (Kafka: `PartitionState`, `VoterSetHistory`,
`KRaftControlRecordStateMachine`; KIP-853).

A change is in force as soon as its record is in the log, committed or not. A truncation of the record undoes the
change. Before the first record the voters of the configuration are in force.
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
"""The offset of a record, and the value that the record sets."""
STATIC: Final = 0
"""The kraft.version of a quorum with its voters in the configuration."""
DYNAMIC: Final = 1
"""The kraft.version of a quorum with its voters in the log."""


class VoterHistory(Struct, frozen=True):
    """The voter sets and versions in the order of their offsets. The object is immutable: each change makes a copy."""

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
        """The offset of the record of the voter set in force: -1 for the set of a formatted directory, None for the
        configured set.
        """
        return self.sets[-1][0] if self.sets else None

    @property
    def is_contradictory(self) -> bool:
        """Whether the log has voters while its kraft.version is 0. No correct replica writes such a log."""
        return bool(self.sets) and self.kraft_version == STATIC

    def voters_at(self, offset: int) -> VoterSet | None:
        """The recorded voter set in force at `offset`; None before the first one."""
        return _at(self.sets, offset)

    def kraft_version_at(self, offset: int) -> int:
        """The kraft.version in force at `offset`."""
        return _at(self.versions, offset) or STATIC

    def with_changes(self, changes: Iterable[QuorumChange]) -> VoterHistory:
        """The history with these changes added, in ascending order of offsets."""
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
        """The history without the entries that a log from `start_offset` on does not need."""
        return replace(self, sets=_since(self.sets, start_offset), versions=_since(self.versions, start_offset))

    def begun_with(self, changes: Iterable[QuorumChange]) -> VoterHistory:
        """The history of a log that is empty after a snapshot with these changes."""
        return VoterHistory(self.static_voters).with_changes(changes)

    def removes(self, key: ReplicaKey) -> bool:
        """Whether the last voters record removes a replica that was a voter by the record before."""
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
    """The quorum changes of a snapshot, placed at the last offset that the snapshot covers."""
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
    """The entries from `offset` on and the last one before: a record at `offset` itself may be truncated later. Kafka's
    `TreeMapLogHistory.truncateOldEntries` drops the last one before.
    """
    return entries[max(bisect_left(entries, offset, key=_offset_of) - 1, 0) :]


def _offset_of(entry: At[T]) -> int:
    return entry[0]
