"""Mutants that overlook damage of what no checksum covers, corruption in transit, and clocks that differ."""

from __future__ import annotations

from functools import partial
from typing import Final

from kraft.quorum import replication
from kraft.quorum.exchanges import Verdict
from kraft.quorum.messages import FetchReply
from kraft.quorum.quorum_state import QuorumState
from kraft.quorum.states import FollowerState
from kraft.replica.storage import fetched, storage
from kraft.replica.storage.fetched import Follows
from kraft.replica.storage.storage import Storage
from kraft.sim.faults.profiles import CLOCKS, CORRUPTION, UNCHECKED
from kraft.state_machine.sessions import Sessions
from metadata_log.disk import Disk
from metadata_log.errors import CorruptBatch, MetadataLogError
from metadata_log.log import recovery, snapshot, snapshot_receiver
from metadata_log.log.quorum_state_file import StoredElection, read_quorum_state
from metadata_log.log.segment import scan_file
from metadata_log.records.batch import RecordBatch, read_batch, scan
from planted_bugs.registry import Patches, Scope, mutant, survivor

_ON_DISK: Final = UNCHECKED.faults
_IN_TRANSIT: Final = CORRUPTION.faults
_OF_CLOCKS: Final = CLOCKS.faults

# The file quorum-state


@mutant(Scope.REPLICA, budget=200, faults=_ON_DISK)
def damaged_quorum_state_is_a_first_start(code: Patches) -> None:
    """A start takes a quorum-state file that it cannot read for one that does not exist, and begins in the epoch of the
    log.
    """

    def read(disk: Disk, directory: str) -> StoredElection | None:
        try:
            return read_quorum_state(disk, directory)
        except MetadataLogError:
            return None

    sound = Storage._check_election

    def check(files: Storage) -> None:
        if read(files._disk, files._directory.partition_path) is not None:
            sound(files)

    code.replace(storage, "read_quorum_state", read)
    code.replace(Storage, "_check_election", check)


@mutant(Scope.REPLICA, budget=200, faults=_ON_DISK)
def quorum_state_behind_the_log_is_believed(code: Patches) -> None:
    """A start does not compare the epoch in quorum-state with the epoch of the last record."""
    code.replace(Storage, "_check_election", lambda files: None)


# The epochs of batches on the disk


@mutant(Scope.REPLICA, budget=200, faults=_ON_DISK)
def recovery_believes_any_epoch(code: Patches) -> None:
    """The recovery of a log does not compare the epoch of a batch with the epoch of the batch before it."""
    sound = recovery._check_order

    def check(batch: RecordBatch, end_offset: int, last_epoch: int | None, path: str) -> None:
        sound(batch, end_offset, None if last_epoch is None else min(last_epoch, batch.epoch), path)

    code.replace(recovery, "_check_order", check)


@mutant(Scope.REPLICA, budget=200, faults=_ON_DISK)
def recovery_truncates_at_a_lower_epoch(code: Patches) -> None:
    """The recovery of a log takes a batch of a lower epoch for a torn write, and truncates the log there."""
    sound = recovery._check_order

    def check(batch: RecordBatch, end_offset: int, last_epoch: int | None, path: str) -> None:
        try:
            sound(batch, end_offset, last_epoch, path)
        except CorruptBatch as damage:
            raise CorruptBatch(damage.what, where=path, position=batch.position, field="crc") from damage

    code.replace(recovery, "_check_order", check)


# Responses in transit


@mutant(Scope.REPLICA, budget=200, faults=_IN_TRANSIT)
def checksums_of_fetched_batches_are_not_compared(code: Patches) -> None:
    """A follower does not compare the CRC of a fetched batch with its bytes (Kafka before KAFKA-18723)."""
    code.replace(fetched, "read_batch", partial(read_batch, verify=False))


@mutant(Scope.DYNAMIC, budget=200, faults=_IN_TRANSIT)
def checksums_of_snapshots_are_not_compared(code: Patches) -> None:
    """A follower does not compare the CRC of the batches of a snapshot that it downloads."""
    code.replace(snapshot_receiver, "scan", partial(scan, verify=False))
    code.replace(snapshot, "scan_file", partial(scan_file, verify=False))


@mutant(Scope.REPLICA, budget=200, faults=_IN_TRANSIT)
def epochs_of_fetched_batches_are_believed(code: Patches) -> None:
    """A follower takes the epoch of a fetched batch from its header, which no CRC covers, and demands no LeaderChange
    at the start of an epoch.
    """

    def check(batch: RecordBatch, previous: Follows | None) -> None:
        """No check."""

    code.replace(fetched, "_check_epoch", check)


# Clocks


@mutant(Scope.MACHINE, budget=200, faults=_OF_CLOCKS)
def clock_of_the_log_may_go_back(code: Patches) -> None:
    """The clock of client sessions is the timestamp of the last batch, and not the largest one so far."""

    def pass_time(sessions: Sessions, timestamp_ms: int) -> None:
        sessions.now_ms = timestamp_ms

    code.replace(Sessions, "pass_time", pass_time)


@survivor(
    Scope.REPLICA,
    killed_by="tests/kraft/quorum/test_leader_contact.py::test_a_fetch_timeout_ends_by_the_clock_of_the_follower",
    because=(
        "60 seeds with the faults of `clocks` did not find the bug. A response without records follows soon, and "
        "restarts the timeout from the follower's own clock."
    ),
)
def fetch_timeout_from_the_leaders_clock(code: Patches) -> None:
    """A follower counts its fetch timeout from the timestamp of the last fetched batch, which the clock of the leader
    has made.
    """
    sound = replication._take

    def take(quorum: QuorumState, follower: FollowerState, peer_id: int, reply: FetchReply, now_ms: int) -> Verdict:
        times = [batch.parsed.max_timestamp for batch in reply.batches if batch.parsed is not None]
        return sound(quorum, follower, peer_id, reply, max(times, default=now_ms))

    code.replace(replication, "_take", take)
