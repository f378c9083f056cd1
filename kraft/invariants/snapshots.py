"""The invariants of snapshots (Kafka: `SnapshotAtLogStart` and `LeaderNeverLoadSnapshot` of `RaftEventSimulationTest`).

A snapshot covers committed batches only. Two snapshots with one id have the same content on all nodes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from operator import attrgetter, itemgetter
from typing import Final
from zlib import crc32

from kraft.invariants.observation import LogBatch, SnapshotContent
from kraft.invariants.voters import VoterLedger
from metadata_log.types import OffsetAndEpoch

COUNT: Final = 12
"""Enough registers for a snapshot that takes a few requests to download."""


class Registers:
    """The last value of each register."""

    def __init__(self, known: dict[int, bytes] | None = None) -> None:
        self._known = {} if known is None else known

    def apply(self, values: Iterable[bytes]) -> None:
        """Write values, in order."""
        for value in values:
            self._known[crc32(value) % COUNT] = value

    def values(self) -> tuple[bytes, ...]:
        """The values written so far, ordered by register."""
        return tuple(self._known[register] for register in sorted(self._known))

    def copy(self) -> Registers:
        """An independent copy."""
        return Registers(self._known.copy())


_next_offset = attrgetter("next_offset")


class SnapshotLedger:
    """The snapshots of one run."""

    def __init__(self, voters: VoterLedger) -> None:
        self._voters = voters
        self._contents: dict[OffsetAndEpoch, SnapshotContent] = {}
        self._registers: list[tuple[int, Registers]] = [(0, Registers())]
        """The registers after the committed values, at the places of the known snapshots."""

    @property
    def ids(self) -> tuple[OffsetAndEpoch, ...]:
        """The snapshots seen so far, without those of formatted directories."""
        return tuple(snapshot for snapshot in self._contents if snapshot.offset > 0)

    def listed(
        self, node_id: int, snapshots: tuple[OffsetAndEpoch, ...], log_start_offset: int, *, is_moved: bool
    ) -> str | None:
        """Check the snapshots of a node against its log start offset (SnapshotAtLogStart).

        After a restart a log may begin a little earlier: at the base offset of the segment with its first record.
        """
        if log_start_offset == 0:
            return None
        first = f"its first snapshot ends at {snapshots[0].offset}" if snapshots else "it has no snapshot"
        if not snapshots or snapshots[0].offset < log_start_offset:
            return f"the log of node {node_id} begins at {log_start_offset}, and {first}"
        if is_moved and snapshots[0].offset != log_start_offset:
            return f"the log of node {node_id} begins at {log_start_offset} now, and {first}"
        return None

    def wrong_id(self, snapshot: OffsetAndEpoch, committed: Sequence[LogBatch]) -> str | None:
        """Check a snapshot id: a snapshot ends with a committed batch and has the epoch of that batch."""
        if snapshot.offset == 0:
            return None
        place = bisect_left(committed, snapshot.offset, key=_next_offset)
        if place == len(committed) or committed[place].next_offset != snapshot.offset:
            return f"snapshot {snapshot} does not end where a committed batch ends"
        if committed[place].epoch != snapshot.epoch:
            return f"snapshot {snapshot} ends with a batch of epoch {committed[place].epoch}"
        return None

    def wrong_content(
        self,
        snapshot: OffsetAndEpoch,
        content: SnapshotContent,
        committed: Sequence[LogBatch],
        values: Sequence[tuple[bytes, ...]],
    ) -> str | None:
        """Check the content of a snapshot. Its id must be valid."""
        if snapshot.offset == 0 and not content.voters:
            return None  # What the format of a node that joins has written: only first voters have the same.
        known = self._contents.get(snapshot)
        if known is not None:
            return None if content == known else f"snapshot {snapshot} differs between two nodes: {known} and {content}"
        self._contents[snapshot] = content
        if snapshot.offset == 0:
            return None
        end = bisect_left(committed, snapshot.offset, key=_next_offset) + 1
        voters = self._voters.before(self._voters.committed, end).keys if content.kraft_version else ()
        if content.voters != voters:
            return f"snapshot {snapshot} names the voters {list(content.voters)}, and the log has {list(voters)}"
        if content.is_of_registers:
            wanted = self._registers_at(end, values).values()
            if content.values != wanted:
                return f"snapshot {snapshot} holds {list(content.values)}, and the log comes to {list(wanted)}"
        return None

    def _registers_at(self, end: int, values: Sequence[tuple[bytes, ...]]) -> Registers:
        at = bisect_left(self._registers, end + 1, key=itemgetter(0))
        since, nearest = self._registers[at - 1]
        registers = nearest.copy()
        for batch in values[since:end]:
            registers.apply(batch)
        self._registers.insert(at, (end, registers))
        return registers
