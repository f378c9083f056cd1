"""The disk of a simulated replica: its formatted directory, and how crashes, faults and operators change the disk."""

from __future__ import annotations

from functools import lru_cache
from random import Random
from typing import Final

from msgspec import Struct

from kraft.invariants.observation import SnapshotContent
from kraft.quorum.values import ElectionState, ListenerAddress, ReplicaKey
from kraft.quorum.voters import VoterSet
from kraft.replica.storage.storage import election_of
from kraft.sim.nodes.effects import PlannedFailure
from kraft.sim.world.disk_damage import Damage, damage_file, damaged_old_segments
from kraft.sim.world.member_interface import CLUSTER_ID
from kraft.sim.world.unchecked_damage import contradiction, damage_election, damage_epoch
from metadata_log.log.log_dir import format_directory, read_meta_properties
from metadata_log.log.quorum_state_file import FILE_NAME, parse_quorum_state
from metadata_log.log.snapshot import list_snapshots, read_snapshot_start, read_snapshot_values, snapshot_name
from metadata_log.memory_disk import MemoryDisk
from metadata_log.types import METADATA_PARTITION, METADATA_TOPIC, OffsetAndEpoch

KILLED: Final = 0.25
"""The share of crashes in which only the process dies; in the others the power fails."""
OTHER_CLUSTER_ID: Final = "AAAAAAAAAAAAAAAAAAAkrB"
DIRECTORY: Final = "/log"
PARTITION: Final = f"{DIRECTORY}/{METADATA_TOPIC}-{METADATA_PARTITION}"
QUORUM_STATE: Final = f"{PARTITION}/{FILE_NAME}"
FORMATTED_MS: Final = 1_600_000_000_000
RELEASE: Final = "4.3"
"""The release of a simulated cluster; a fixed one, so that a seed stays the run that it is."""
"""The time at which each directory was formatted."""
REMEMBERED: Final = 1024
"""The number of cached contents of quorum-state files."""


class Formatting(Struct, frozen=True):
    """How a directory of a dynamic quorum is formatted: with the first voters, or to join later."""

    first_voters: VoterSet | None
    bootstrap: tuple[ListenerAddress, ...]
    """The addresses at which the node discovers the leader."""


class NodeDisk:
    """The disk of one node. The disk outlives crashes of the node; an operator may replace the content."""

    def __init__(self, node_id: int, rng: Random, formatting: Formatting | None) -> None:
        """Format the directory; `formatting` is None for a static quorum."""
        self._node_id = node_id
        self._is_dynamic = formatting is not None
        first_voters = None if formatting is None else formatting.first_voters
        self.files = _formatted(node_id, rng, is_dynamic=self._is_dynamic, first_voters=first_voters)
        self.key = _key_on(self.files)
        """The node id and the directory id of the node's own directory. A start with another directory is refused. A
        changed letter of the directory id in meta.properties goes unseen: nothing checks that file (`started`).
        """
        self._old_copy = self.files.fork(), self.key
        self.power_failures = 0
        """How often the power has failed so far."""
        self._is_unchecked = False
        """Whether something without a checksum has changed since the last format of the disk."""

    def started(self) -> None:
        """The node has started with this disk. Remember the key, which rot may have made another voter's, and the
        content, which an operator may restore later (`Damage.OLD_COPY`).
        """
        self.key = _key_on(self.files)
        self._old_copy = self.files.fork(), self.key

    def plan_failure(self, failure: PlannedFailure) -> None:
        """Fail a later operation, until the node crashes."""
        self.files.on_operation = failure.count

    def end_failure(self) -> None:
        """Let all operations succeed again."""
        self.files.on_operation = None

    def limit(self, free_bytes: int | None) -> None:
        """Let the disk accept this number of further bytes; None removes the limit."""
        self.files.free_bytes = free_bytes

    def crash(self, rng: Random) -> None:
        """End the node's process, or the power. The kernel still writes the data of a process that dies alone."""
        if rng.random() < KILLED and not self.files.has_failed:
            self.files.kill()
        else:
            self.power_failures += 1
            self.files.crash(rng)

    def damage(self, what: Damage, rng: Random) -> str:
        """Damage the disk.

        Returns:
            The lost directory or file; empty if such damage is not possible here.
        """
        free_bytes, full_below = self.files.free_bytes, self.files.full_below
        match what:
            case Damage.WIPED:
                self.files = _formatted(self._node_id, rng, is_dynamic=self._is_dynamic)
                self.key = _key_on(self.files)
            case Damage.FOREIGN if rng.random() < 0.5:
                self.files = _formatted(self._node_id + 1, rng)
            case Damage.FOREIGN:
                self.files = _formatted(self._node_id, rng, OTHER_CLUSTER_ID)
            case Damage.OLD_COPY if self._is_dynamic and self._old_copy[1] != self.key:
                # The copy is of another voter, which the operator must not bring back.
                return ""
            case Damage.OLD_COPY:
                old_files, self.key = self._old_copy
                self.files = old_files.fork()
            case Damage.ELECTION | Damage.EPOCHS:
                make = damage_election if what is Damage.ELECTION else damage_epoch
                changed = make(self.files, QUORUM_STATE, rng)
                self._is_unchecked = self._is_unchecked or bool(changed)
                return changed
            case _:
                return damage_file(self.files, what, rng)
        self.files.free_bytes, self.files.full_below, self._is_unchecked = free_bytes, full_below, False
        return DIRECTORY

    def must_refuse(self) -> str:
        """A damaged segment before the last one, which no torn write can explain, or a change of something without a
        checksum that the rest of the disk contradicts; empty if there is neither.
        """
        damage = next(damaged_old_segments(self.files), "")
        return contradiction(self.files, QUORUM_STATE) if self._is_unchecked and not damage else damage

    def damaged_files(self) -> tuple[str, ...]:
        """The paths of the files with damage that is still there."""
        return self.files.damaged_files()

    def election(self) -> ElectionState | None:
        """The content of quorum-state; None if the file cannot be read."""
        try:
            content = self.files.read(QUORUM_STATE)
        except OSError:
            return None
        return _election_in(content)

    def snapshots(self) -> tuple[OffsetAndEpoch, ...]:
        """The snapshots on the disk, oldest first."""
        return list_snapshots(self.files, PARTITION)

    def content(self, snapshot: OffsetAndEpoch, *, is_of_registers: bool) -> SnapshotContent:
        """The content of a snapshot on the disk."""
        path = f"{PARTITION}/{snapshot_name(snapshot)}"
        start = read_snapshot_start(self.files, path)
        return SnapshotContent(
            start.header.last_contained_log_timestamp,
            start.kraft_version,
            () if start.voters is None else VoterSet.of_record(start.voters).keys,
            tuple(read_snapshot_values(self.files, path)),
            is_of_registers,
        )


@lru_cache(REMEMBERED)
def _election_in(content: bytes) -> ElectionState:
    return election_of(parse_quorum_state(content))


def _formatted(
    node_id: int,
    rng: Random,
    cluster_id: str = CLUSTER_ID,
    *,
    is_dynamic: bool = False,
    first_voters: VoterSet | None = None,
) -> MemoryDisk:
    files = MemoryDisk()
    format_directory(
        files,
        DIRECTORY,
        node_id=node_id,
        cluster_id=cluster_id,
        rng=rng,
        now_ms=FORMATTED_MS,
        release=RELEASE,
        dynamic=is_dynamic,
        initial_voters=None if first_voters is None else first_voters.to_record(),
    )
    return files


def _key_on(files: MemoryDisk) -> ReplicaKey:
    """The replica key of the directory on a disk."""
    formatted = read_meta_properties(files, DIRECTORY)
    assert formatted is not None
    assert formatted.directory_id is not None
    return ReplicaKey(formatted.node_id, formatted.directory_id)
