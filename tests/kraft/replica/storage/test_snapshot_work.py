"""The snapshots of one replica: when one is due, what it holds, how it is served, and when files are removed."""

from __future__ import annotations

import pytest

from kraft.committed import CommittedBatch
from kraft.limits import SNAPSHOT_RECORDS_PER_PIECE
from kraft.quorum.values import Endpoints, ListenerAddress, ReplicaKey, VersionRange
from kraft.quorum.voter_history import VoterHistory
from kraft.quorum.voters import QuorumChange, Voter, VoterSet
from kraft.replica.interface.options import SnapshotOptions
from kraft.replica.storage.quorum_records import changes_of_snapshot
from kraft.replica.storage.snapshots import FLUSH_WAIT_MS, SnapshotCleaner, SnapshotFiles, SnapshotMaker
from kraft.sim.state.forking import forked
from metadata_log.disk import File
from metadata_log.log.log import MetadataLog
from metadata_log.log.retention import REMOVE_AFTER_MS
from metadata_log.log.snapshot import encode_snapshot, list_snapshots, snapshot_name
from metadata_log.memory_disk import MemoryDisk
from metadata_log.types import NEVER_MS, OffsetAndEpoch, Uuid

NOW_MS = 1_000_000
EVERY_MS = 500


def maker(
    disk: MemoryDisk | None = None, *, max_bytes: int = 20 << 20, max_interval_ms: int = 3_600_000
) -> SnapshotMaker:
    disk = MemoryDisk() if disk is None else disk
    if not disk.exists("d"):
        disk.mkdir("d")
    options = SnapshotOptions(max_bytes=max_bytes, max_interval_ms=max_interval_ms)
    return SnapshotMaker(disk, "d", options, NOW_MS)


def batch(base_offset: int = 0, count: int = 10, size_bytes: int = 100) -> CommittedBatch:
    return CommittedBatch(base_offset, base_offset + count, 3, 70, (b"x",) * count, size_bytes)


# Made


def test_a_snapshot_is_due_after_so_many_bytes() -> None:
    made = maker(max_bytes=250, max_interval_ms=0)
    due = []
    for at in range(3):
        made.note(batch(10 * at))
        due.append(made.is_due(NOW_MS + 10**9))
    assert due == [False, False, True]
    made = maker(max_bytes=200, max_interval_ms=0)
    made.note(batch())
    made.note(batch(10))
    assert made.is_due(NOW_MS), "exactly so many"
    made = maker(max_bytes=201, max_interval_ms=0)
    made.note(batch())
    made.note(batch(10))
    assert not made.is_due(NOW_MS), "one too few"
    made.restart(NOW_MS)
    made.note(batch())
    made.note(batch(10))
    assert not made.is_due(NOW_MS), "one too few again"


@pytest.mark.parametrize("interval_ms", [1, 500])
def test_a_snapshot_is_due_after_its_interval_if_there_is_anything_new(interval_ms: int) -> None:
    made = maker(max_interval_ms=interval_ms)
    assert not made.is_due(NOW_MS + 10 * interval_ms)
    made.note(batch())
    assert not made.is_due(NOW_MS + interval_ms - 1)
    assert made.is_due(NOW_MS + interval_ms)
    made.restart(NOW_MS + interval_ms)
    assert not made.is_due(NOW_MS + 10 * interval_ms)


def voters(*ids: int) -> VoterSet:
    return VoterSet.of(
        Voter(
            ReplicaKey(one, Uuid(bytes(15) + bytes([one]))),
            Endpoints((ListenerAddress("CONTROLLER", f"n{one}", 9093),)),
            VersionRange(0, 1),
        )
        for one in ids
    )


@pytest.mark.parametrize(("end_offset", "ids"), [(9, (1, 2)), (10, (1, 2, 3)), (11, (1, 2, 3)), (12, (1, 2, 3))])
def test_a_snapshot_holds_the_voters_below_its_end(end_offset: int, ids: tuple[int, ...]) -> None:
    """The record at offset 9 is the last one of a snapshot that ends at offset 10."""
    disk = MemoryDisk()
    made = maker(disk)
    history = VoterHistory(VoterSet(())).with_changes(
        (QuorumChange(1, 1), QuorumChange(1, voters(1, 2)), QuorumChange(9, voters(1, 2, 3)))
    )
    made.note(batch(0, end_offset))
    made.begin(lambda: iter((b"value",)), history, NOW_MS)
    snapshot = made.write_some(NOW_MS, end_offset)
    assert snapshot == OffsetAndEpoch(epoch=3, offset=end_offset)
    (level, stored) = changes_of_snapshot(disk, f"d/{snapshot_name(snapshot)}", snapshot)
    assert level.value == 1
    assert isinstance(stored.value, VoterSet)
    assert stored.value.ids == ids


@pytest.mark.parametrize(("change_at", "level"), [(8, 1), (9, 1), (10, 0)])
def test_a_snapshot_holds_the_level_of_the_quorum_below_its_end(change_at: int, level: int) -> None:
    disk = MemoryDisk()
    made = maker(disk)
    history = VoterHistory(VoterSet(())).with_changes(
        (QuorumChange(change_at, 1), QuorumChange(change_at, voters(1, 2)))
    )
    made.note(batch())
    made.begin(lambda: iter(()), history, NOW_MS)
    snapshot = made.write_some(NOW_MS, 10)
    assert snapshot is not None
    changes = changes_of_snapshot(disk, f"d/{snapshot_name(snapshot)}", snapshot)
    assert [one.value for one in changes if isinstance(one.value, int)] == ([1] if level else [])


def test_a_snapshot_is_written_a_piece_at_a_millisecond_and_waits_for_the_log() -> None:
    disk = MemoryDisk()
    made = maker(disk)
    made.note(batch())
    made.begin(lambda: iter([b"v", None] * SNAPSHOT_RECORDS_PER_PIECE), VoterHistory(VoterSet(())), NOW_MS)
    assert made.deadline_ms == NOW_MS
    made.note(batch(10))
    assert not made.is_due(NOW_MS + 10**9), "one at a time"
    for at in range(2):
        assert made.write_some(NOW_MS + at, 9) is None
        assert made.deadline_ms == NOW_MS + at + 1
    assert made.write_some(NOW_MS + 2, 9) is None
    assert made.deadline_ms == NOW_MS + 2 + FLUSH_WAIT_MS
    assert list_snapshots(disk, "d") == ()
    snapshot = made.write_some(NOW_MS + 12, 10)
    assert snapshot == OffsetAndEpoch(epoch=3, offset=10)
    assert (list_snapshots(disk, "d"), made.deadline_ms) == ((snapshot,), NEVER_MS)


def test_an_abandoned_snapshot_leaves_no_file_and_is_not_written_any_more() -> None:
    disk = MemoryDisk()
    made = maker(disk)
    made.note(batch())
    made.begin(lambda: iter([b"v"] * SNAPSHOT_RECORDS_PER_PIECE), VoterHistory(VoterSet(())), NOW_MS)
    assert made.write_some(NOW_MS, 10) is None
    made.abandon()
    assert (made.deadline_ms, disk.list("d")) == (NEVER_MS, [])
    made.abandon()
    made.note(batch(10))
    assert made.is_due(NOW_MS + 10**9)


# Served


def test_a_snapshot_is_served_byte_by_byte() -> None:
    disk = MemoryDisk()
    made = maker(disk)
    made.note(batch())
    made.begin(lambda: iter((b"value",)), VoterHistory(VoterSet(())), NOW_MS)
    snapshot = made.write_some(NOW_MS, 10)
    assert snapshot is not None
    content = disk.read(f"d/{snapshot_name(snapshot)}")
    files = SnapshotFiles(disk, MetadataLog.open(disk, "d"))
    size = len(content)
    for position, most, expected in (
        (0, 1, content[:1]),
        (size - 1, 10, content[-1:]),
        (size - 2, 1, content[-2:-1]),
        (size, 10, b""),
        (size + 5, 10, b""),
        (0, 0, b""),
        (0, 10**9, content),
    ):
        assert files.piece(snapshot, position, most) == (size, expected)


# Cleaned


def test_the_only_snapshot_needs_no_round_of_cleaning() -> None:
    cleaner = SnapshotCleaner(1, NOW_MS, EVERY_MS)
    assert (cleaner.deadline_ms, cleaner.is_round_due(NOW_MS + 10**9)) == (NEVER_MS, False)
    cleaner.wait(2, NOW_MS)
    assert cleaner.deadline_ms == NOW_MS + EVERY_MS
    cleaner.wait(1, NOW_MS)
    assert cleaner.deadline_ms == NEVER_MS


def test_a_planned_round_of_cleaning_is_not_delayed_by_more_snapshots() -> None:
    cleaner = SnapshotCleaner(2, NOW_MS, EVERY_MS)
    for at_ms in (NOW_MS + 100, NOW_MS + EVERY_MS - 1):
        cleaner.wait(3, at_ms)
        assert cleaner.deadline_ms == NOW_MS + EVERY_MS
    assert not cleaner.is_round_due(NOW_MS + EVERY_MS - 1)
    assert cleaner.is_round_due(NOW_MS + EVERY_MS)
    cleaner.wait(3, NOW_MS + EVERY_MS)
    assert cleaner.deadline_ms == NOW_MS + 2 * EVERY_MS, "a round that is due plans the next one"


def test_obsolete_files_are_removed_after_a_time_for_their_readers() -> None:
    cleaner = SnapshotCleaner(1, NOW_MS, EVERY_MS)
    cleaner.mark((), NOW_MS)
    assert cleaner.deadline_ms == NEVER_MS
    cleaner.mark(("a", "b"), NOW_MS)
    cleaner.mark(("c",), NOW_MS + 7)
    assert cleaner.deadline_ms == NOW_MS + REMOVE_AFTER_MS
    assert list(cleaner.take_due(NOW_MS + REMOVE_AFTER_MS - 1)) == []
    assert list(cleaner.take_due(NOW_MS + REMOVE_AFTER_MS)) == [("a", "b")]
    assert cleaner.deadline_ms == NOW_MS + REMOVE_AFTER_MS + 7
    cleaner.wait(2, NOW_MS + REMOVE_AFTER_MS - EVERY_MS)
    assert cleaner.deadline_ms == NOW_MS + REMOVE_AFTER_MS, "the round comes first"
    assert list(cleaner.take_due(NOW_MS + REMOVE_AFTER_MS + 7)) == [("c",)]
    assert cleaner.deadline_ms == NOW_MS + REMOVE_AFTER_MS
    cleaner.wait(1, NOW_MS)
    assert cleaner.deadline_ms == NEVER_MS


def test_another_download_takes_the_place_of_an_unfinished_one() -> None:
    disk = MemoryDisk()
    files = SnapshotFiles(disk, MetadataLog.open(disk, "d"))
    for offset in (70, 80):
        files.begin(OffsetAndEpoch(epoch=3, offset=offset), lambda values: None)
    assert [name for name in disk.list("d") if "part" in name] == [
        f"{snapshot_name(OffsetAndEpoch(epoch=3, offset=80))}.part"
    ]
    files.abandon()
    files.abandon()
    assert not [name for name in disk.list("d") if "part" in name]


def test_damage_of_a_download_is_told_with_the_piece_that_shows_it() -> None:
    disk = MemoryDisk()
    files = SnapshotFiles(disk, MetadataLog.open(disk, "d"))
    files.begin(OffsetAndEpoch(epoch=3, offset=70), lambda values: None)
    content = encode_snapshot([b"one"], epoch=3, timestamp_ms=5)
    assert files.append(content[:70]) is None
    problem = files.append(content[70:-1] + b"!")
    assert problem is not None
    assert "CRC" in problem


def test_an_installed_download_is_not_under_way_any_more() -> None:
    disk = MemoryDisk()
    files = SnapshotFiles(disk, MetadataLog.open(disk, "d"))
    snapshot = OffsetAndEpoch(epoch=3, offset=70)
    files.begin(snapshot, lambda values: None)
    assert files.append(encode_snapshot([b"one"], epoch=3, timestamp_ms=5)) is None
    assert files.judging(b"x")[0] is not None
    assert files.install(snapshot) == ()
    assert files.ids() == (snapshot,)
    assert files.judging(b"x")[0] is None


def test_a_served_snapshot_is_opened_for_reading_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file is read-only, and no node but root may open such a file for writing."""
    disk = MemoryDisk()
    made = maker(disk)
    made.note(batch())
    made.begin(lambda: iter((b"value",)), VoterHistory(VoterSet(())), NOW_MS)
    snapshot = made.write_some(NOW_MS, 10)
    assert snapshot is not None
    files = SnapshotFiles(disk, MetadataLog.open(disk, "d"))
    opened: list[dict[str, bool]] = []
    open_file = MemoryDisk.open

    def noted(self: MemoryDisk, path: str, **how: bool) -> File:
        opened.append(how)
        return open_file(self, path, **how)

    monkeypatch.setattr(MemoryDisk, "open", noted)
    files.piece(snapshot, 0, 10)
    assert opened == [{"writable": False}]


def test_a_served_piece_leaves_no_file_open() -> None:
    disk = MemoryDisk()
    made = maker(disk)
    made.note(batch())
    made.begin(lambda: iter((b"value",)), VoterHistory(VoterSet(())), NOW_MS)
    snapshot = made.write_some(NOW_MS, 10)
    assert snapshot is not None
    files = SnapshotFiles(disk, MetadataLog.open(disk, "d"))
    before = dict(disk._open)
    files.piece(snapshot, 0, 10)
    assert disk._open == before


def test_a_snapshot_that_was_made_is_not_due_again_at_once() -> None:
    made = maker(max_bytes=100)
    made.note(batch())
    assert made.is_due(NOW_MS)
    made.begin(lambda: iter(()), VoterHistory(VoterSet(())), NOW_MS)
    assert made.write_some(NOW_MS, 10) is not None
    made.note(batch(10, size_bytes=99))
    assert not made.is_due(NOW_MS)


def test_a_fork_writes_the_same_snapshot_to_its_end() -> None:
    disk = MemoryDisk()
    made = maker(disk)
    made.note(batch())
    values = [b"%d" % number for number in range(2 * SNAPSHOT_RECORDS_PER_PIECE)]
    made.begin(lambda: iter(values), VoterHistory(VoterSet(())), NOW_MS)
    assert made.write_some(NOW_MS, 10) is None
    copy = forked(made)
    contents = []
    for one in (made, copy):
        snapshot = None
        while snapshot is None:
            snapshot = one.write_some(NOW_MS, 10)
        contents.append(one._disk.read(f"d/{snapshot_name(snapshot)}"))
    assert contents[0] == contents[1]
