"""The last value that a file may hold and the first one that is refused; and which writes are durable at once."""

from __future__ import annotations

import stat
from pathlib import Path
from random import Random

import pytest
from google_crc32c import value as crc32c

from metadata_log.disk import OsDisk, make_directory
from metadata_log.errors import CorruptBatch, DecodeError, DirectoryError, IncompleteBatch
from metadata_log.log import snapshot_receiver, snapshot_writer
from metadata_log.log.epochs import EpochHistory
from metadata_log.log.log import MetadataLog
from metadata_log.log.log_dir import META_PROPERTIES, check_formatted, format_directory
from metadata_log.log.producer_snapshot import StoredProducer, decode_producer_snapshot, encode_producer_snapshot
from metadata_log.log.quorum_state_file import parse_quorum_state
from metadata_log.log.retention import Retention, clean, remove_files
from metadata_log.log.snapshot import (
    encode_snapshot,
    list_snapshots,
    mark_snapshots_deleted,
    read_snapshot,
    snapshot_name,
)
from metadata_log.log.snapshot_receiver import SnapshotReceiver
from metadata_log.log.snapshot_writer import SnapshotWriter
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.batch import scan
from metadata_log.records.batch_builder import build_batch, build_control_batch
from metadata_log.records.control import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
    VotersRecordVoter,
)
from metadata_log.records.frame import encode_control
from metadata_log.records.metadata import UserScramCredentialRecord
from metadata_log.serde import Message
from metadata_log.types import OffsetAndEpoch

SNAPSHOT = OffsetAndEpoch(epoch=3, offset=70)
CONTENT = encode_snapshot([b"one", b"two"], epoch=3, timestamp_ms=5)


def directory() -> MemoryDisk:
    disk = MemoryDisk()
    make_directory(disk, "d")
    return disk


# Snapshots


def writer(disk: MemoryDisk, max_batch_bytes: int = 10_000) -> SnapshotWriter:
    return SnapshotWriter(
        disk, "d", SNAPSHOT, timestamp_ms=1, last_contained_log_timestamp=0, max_batch_bytes=max_batch_bytes
    )


def test_deleted_snapshots_stay_deleted_after_a_crash() -> None:
    disk = directory()
    writer(disk).freeze(2)
    (deleted,) = mark_snapshots_deleted(disk, "d", [SNAPSHOT])
    disk.crash()
    assert [f"d/{name}" for name in disk.list("d")] == [deleted]
    operations: list[str] = []
    disk.on_operation = lambda operation, path: operations.append(operation)
    assert mark_snapshots_deleted(disk, "d", []) == ()
    assert operations == [], "nothing to flush"


@pytest.mark.parametrize("ends", ["publish", "abandon"])
def test_a_download_leaves_no_file_open(ends: str) -> None:
    disk = directory()
    arriving = SnapshotReceiver(disk, "d", SNAPSHOT)
    arriving.append(CONTENT)
    getattr(arriving, ends)()
    assert disk._open == {}


@pytest.mark.parametrize("ends", ["freeze", "abandon"])
def test_a_written_snapshot_leaves_no_file_open(ends: str) -> None:
    disk = directory()
    made = writer(disk)
    if ends == "freeze":
        made.freeze(5)
    made.abandon()
    assert disk._open == {}
    assert list_snapshots(disk, "d") == ((SNAPSHOT,) if ends == "freeze" else ())


def test_bytes_behind_the_footer_of_a_download_are_refused() -> None:
    arriving = SnapshotReceiver(directory(), "d", SNAPSHOT)
    with pytest.raises(IncompleteBatch):
        arriving.check_end()
    arriving.append(CONTENT)
    arriving.check_end()
    arriving.append(b"x")
    with pytest.raises(CorruptBatch):
        arriving.check_end()


def test_a_batch_of_a_snapshot_may_be_exactly_as_large_as_its_limit() -> None:
    values = [b"x" * 20] * 3
    size = len(build_batch(0, 3, 1, values))
    for limit, counts in ((size, [3, 1]), (size - 1, [2, 2])):
        disk = directory()
        made = writer(disk, max_batch_bytes=limit)
        for value in (*values, values[0]):
            made.append([value], 1)
        made.freeze(2)
        found = read_snapshot(disk, f"d/{snapshot_name(SNAPSHOT)}")
        assert [batch.record_count for batch in found if not batch.is_control] == counts


def test_a_growing_snapshot_is_flushed_after_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_writer, "FSYNC_BYTES", 200)
    disk = directory()
    made = writer(disk)
    flushed: list[int] = []
    disk.on_operation = lambda operation, path: flushed.append(made.size_bytes) if operation == "fsync" else None
    begin = made.size_bytes
    for size in (199 - begin, 1, 199, 1, 200):
        made._write(bytes(size))
    assert flushed == [200, 400, 600]


# Retention


@pytest.mark.parametrize(
    ("max_ms", "now_ms", "is_cleaned"), [(0, 100, False), (0, 101, True), (1, 101, False), (-1, 10**9, False)]
)
def test_a_snapshot_is_too_old_when_it_is_older_than_its_limit(max_ms: int, now_ms: int, is_cleaned: bool) -> None:
    disk = MemoryDisk()
    log = MetadataLog.open(disk, "d")
    for offset in range(4):
        log.append(build_batch(offset, 3, 100, [b"x"]))
    log.flush()
    for offset in (2, 4):
        made = SnapshotWriter(
            disk, "d", OffsetAndEpoch(epoch=3, offset=offset), timestamp_ms=100, last_contained_log_timestamp=100
        )
        made.freeze(100)
    assert bool(clean(log, disk, Retention(max_bytes=-1, max_ms=max_ms), now_ms).snapshots) is is_cleaned


# Epochs


def test_an_earlier_epoch_replaces_all_later_entries_and_its_own() -> None:
    def history(*pairs: tuple[int, int]) -> EpochHistory:
        return EpochHistory(tuple(OffsetAndEpoch(epoch=epoch, offset=offset) for epoch, offset in pairs))

    assert history((3, 0), (5, 4), (7, 10)).assign(5, 20) == history((3, 0), (5, 20))
    assert history((3, 0), (5, 4), (7, 10)).assign(6, 10) == history((3, 0), (5, 4), (6, 10))
    assert history((3, 0), (5, 4)).assign(6, 4) == history((3, 0), (6, 4))
    assert history((3, 0), (5, 4)).assign(5, 4) == history((3, 0), (5, 4))
    assert history((3, 0), (5, 4)).assign(5, 3) == history((3, 0), (5, 3))


# Numbers


@pytest.mark.parametrize(("epoch", "is_valid"), [(0, True), (2**31 - 1, True), (2**31, False)])
def test_epochs_of_quorum_state_end_at_the_largest_of_31_bits(epoch: int, is_valid: bool) -> None:
    voted = '"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA"'
    text = f'{{"leaderId":1,"leaderEpoch":{epoch},{voted},"data_version":1}}'.encode()
    if is_valid:
        assert parse_quorum_state(text).leader_epoch == epoch
    else:
        with pytest.raises(DecodeError, match="epochs end at"):
            parse_quorum_state(text)


@pytest.mark.parametrize(("release", "is_valid"), [("3.5-IV1", False), ("3.5-IV2", True), ("3.6-IV0", True)])
def test_credentials_need_the_level_that_introduced_them(release: str, is_valid: bool) -> None:
    credential = UserScramCredentialRecord(
        name="alice", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
    )

    def format_it() -> bool:
        return format_directory(
            MemoryDisk(),
            "/d",
            node_id=1,
            cluster_id="c",
            rng=Random(1),
            now_ms=5,
            release=release,
            credentials=[credential],
        )

    if is_valid:
        assert format_it()
    else:
        with pytest.raises(DirectoryError, match="credentials need"):
            format_it()


# Downloads


def test_an_incomplete_batch_of_a_download_is_kept_up_to_twice_the_size_of_a_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(snapshot_receiver, "MAX_BATCH_BYTES", 100)
    arriving = SnapshotReceiver(directory(), "d", SNAPSHOT)
    arriving.append(CONTENT[:8] + (10**6).to_bytes(4, "big") + CONTENT[12:61])
    arriving.append(bytes(200 - 61))
    with pytest.raises(CorruptBatch, match="larger than any"):
        arriving.append(b"x")


def test_the_values_of_a_download_are_checked_and_its_control_records_are_not() -> None:
    checked: list[bytes] = []
    arriving = SnapshotReceiver(directory(), "d", SNAPSHOT, checked.extend)
    for at in range(0, len(CONTENT), 7):
        arriving.append(CONTENT[at : at + 7])
    assert checked == [b"one", b"two"]


@pytest.mark.parametrize("piece_bytes", [1, 7, 50, 1000])
def test_damage_of_a_download_is_named_by_its_position_in_the_file(piece_bytes: int) -> None:
    second = list(scan(CONTENT))[1]
    damaged = bytearray(CONTENT)
    damaged[second.end_position - 1] ^= 1
    arriving = SnapshotReceiver(directory(), "d", SNAPSHOT)

    def receive() -> None:
        for at in range(0, len(damaged), piece_bytes):
            arriving.append(bytes(damaged[at : at + piece_bytes]))

    with pytest.raises(CorruptBatch, match="CRC") as refused:
        receive()
    assert refused.value.position == second.position


@pytest.mark.parametrize("content", [b"", CONTENT[list(scan(CONTENT))[1].position :]])
def test_a_snapshot_without_a_header_is_damaged_at_its_beginning(content: bytes) -> None:
    disk = directory()
    disk.open("d/snapshot", create=True).append(content)
    with pytest.raises(CorruptBatch) as refused:
        list(read_snapshot(disk, "d/snapshot"))
    assert refused.value.position == 0


def test_removed_files_stay_removed_after_a_crash() -> None:
    disk = directory()
    for name in ("a", "b"):
        disk.open(f"d/{name}", create=True).fsync()
    disk.fsync_dir("d")
    remove_files(disk, "d", ["d/a", "d/missing"])
    disk.crash()
    assert disk.list("d") == ["b"]


def test_a_published_download_is_read_only(tmp_path: Path) -> None:
    arriving = SnapshotReceiver(OsDisk(), str(tmp_path), SNAPSHOT)
    arriving.append(CONTENT)
    arriving.publish()
    assert stat.S_IMODE((tmp_path / snapshot_name(SNAPSHOT)).stat().st_mode) & 0o222 == 0


def test_a_download_replaces_an_unfinished_one() -> None:
    disk = directory()
    disk.open(f"d/{snapshot_name(SNAPSHOT)}.part", create=True).append(b"the rest of a killed process")
    arriving = SnapshotReceiver(disk, "d", SNAPSHOT)
    arriving.append(CONTENT)
    arriving.check_end()
    arriving.publish()
    assert disk.read(f"d/{snapshot_name(SNAPSHOT)}") == CONTENT


def test_a_download_is_flushed_after_exactly_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_receiver, "FSYNC_BYTES", 100)
    disk = directory()
    arriving = SnapshotReceiver(disk, "d", SNAPSHOT)
    flushed: list[int] = []
    disk.on_operation = lambda operation, path: flushed.append(arriving.size_bytes) if operation == "fsync" else None
    begin = 0
    for size in (99, 1, 99, 1):
        arriving.append(CONTENT[begin : begin + size])
        begin += size
    assert flushed == [100, 200]


def test_judged_bytes_are_not_judged_again() -> None:
    checked: list[bytes] = []
    arriving = SnapshotReceiver(directory(), "d", SNAPSHOT, checked.extend)
    for at in range(0, len(CONTENT), 50):
        piece = CONTENT[at : at + 50]
        for _ in arriving.judging(piece):
            pass
        arriving.append(piece)
    arriving.check_end()
    assert checked == [b"one", b"two"]


HEADER, VERSION, FOOTER = SnapshotHeaderRecord(), KRaftVersionRecord(kraft_version=1), SnapshotFooterRecord()
ONE_VOTER = VotersRecord(voters=(VotersRecordVoter(voter_id=1),))


def control(base_offset: int, *messages: Message) -> bytes:
    encoded = [encode_control(message) for message in messages]
    return build_control_batch(base_offset, 3, 5, [(kind, value) for kind, _, value in encoded])


@pytest.mark.parametrize(
    ("content", "is_valid"),
    [
        (control(0, HEADER) + control(1, FOOTER), True),
        (control(0, HEADER, VERSION, ONE_VOTER) + control(3, FOOTER), True),
        (control(0, HEADER, LeaderChangeMessage(leader_id=1)) + control(2, FOOTER), False),
        (control(0, HEADER, VERSION, LeaderChangeMessage(leader_id=1)) + control(3, FOOTER), False),
        (control(0, HEADER, HEADER) + control(2, FOOTER), False),
        (control(0, HEADER) + control(1, VERSION) + control(2, FOOTER), False),
        (control(0, HEADER) + control(1, FOOTER) + control(2, FOOTER), False),
    ],
    ids=["none", "voters", "a leader", "a leader last", "two headers", "a version later", "two footers"],
)
def test_control_records_of_a_download_have_their_places(content: bytes, is_valid: bool) -> None:
    arriving = SnapshotReceiver(directory(), "d", SNAPSHOT)
    if is_valid:
        arriving.append(content)
        arriving.check_end()
    else:
        with pytest.raises(CorruptBatch, match="out of place"):
            arriving.append(content)


@pytest.mark.parametrize(("most", "is_valid"), [(3, True), (2, False)])
def test_a_batch_of_a_download_has_at_most_so_many_control_records(
    most: int, is_valid: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_receiver, "MAX_CONTROL_RECORDS", most)
    arriving = SnapshotReceiver(directory(), "d", SNAPSHOT)
    if is_valid:
        arriving.append(control(0, HEADER, VERSION, ONE_VOTER))
    else:
        with pytest.raises(CorruptBatch, match="a batch of 3 control records"):
            arriving.append(control(0, HEADER, VERSION, ONE_VOTER))


def test_the_bytes_of_many_values_in_one_batch_are_counted_exactly() -> None:
    """From the 64th record on, the distance to the first one takes two bytes."""
    values = [b"x"] * 70
    size = len(build_batch(0, 3, 1, values))
    writer(directory(), max_batch_bytes=size).append(values, 1)
    with pytest.raises(AssertionError, match="do not fit"):
        writer(directory(), max_batch_bytes=size - 1).append(values, 1)


# Directories


def formatted(disk: MemoryDisk, path: str, seed: int) -> None:
    format_directory(disk, path, node_id=1, cluster_id="c", rng=Random(seed), now_ms=5)


def test_two_directories_with_one_id_are_copies() -> None:
    disk = MemoryDisk()
    for path, seed in (("/a", 1), ("/b", 2), ("/c", 1)):
        formatted(disk, path, seed)
    assert check_formatted(disk, ["/a", "/b", "/d"], node_id=1, cluster_id="c") == ["/a", "/b"]
    with pytest.raises(DirectoryError, match="which /a has, too") as refused:
        check_formatted(disk, ["/a", "/b", "/c"], node_id=1, cluster_id="c")
    assert refused.value.where == f"/c/{META_PROPERTIES}"


# Producer snapshots


def test_a_damaged_producer_snapshot_is_refused() -> None:
    producers = (StoredProducer(7, 1, 2, 3, 4, 5, 6, -1), StoredProducer(8, 0, -1, -1, 0, 5, -1, 9))
    content = encode_producer_snapshot(producers)
    assert decode_producer_snapshot(content, "x") == producers
    assert decode_producer_snapshot(encode_producer_snapshot(()), "x") == ()
    flipped = content[:-1] + bytes([content[-1] ^ 1])
    for damaged, what in (
        (content[:9], "has only 9 bytes"),
        (b"", "has only 0 bytes"),
        (b"\0\2" + content[2:], "unknown version 2"),
        (flipped, "does not match its checksum"),
        (content[:-1], "does not match its checksum"),
    ):
        with pytest.raises(DecodeError, match=what) as refused:
            decode_producer_snapshot(damaged, "x")
        assert refused.value.where == "x"


def test_a_log_that_begins_at_its_newest_snapshot_has_nothing_to_clean() -> None:
    disk = MemoryDisk()
    log = MetadataLog.open(disk, "d")
    for offset in range(8):
        log.append(build_batch(offset, 3, 100, [b"x"]))
    log.flush()
    for offset in (2, 8):
        made = SnapshotWriter(
            disk, "d", OffsetAndEpoch(epoch=3, offset=offset), timestamp_ms=100, last_contained_log_timestamp=100
        )
        made.freeze(100)
    log.raise_start(8)
    operations: list[str] = []
    disk.on_operation = lambda operation, path: operations.append(operation)
    assert clean(log, disk, Retention(max_bytes=1), 10**9).snapshots == ()
    assert "rename" not in operations, "the start removes older snapshots"


def test_a_control_batch_of_a_transaction_is_in_no_snapshot() -> None:
    transactional = bytearray(control(0, HEADER))
    transactional[22] |= 0x10
    transactional[17:21] = crc32c(bytes(transactional[21:])).to_bytes(4, "big")
    arriving = SnapshotReceiver(directory(), "d", SNAPSHOT)
    with pytest.raises(CorruptBatch):
        arriving.append(bytes(transactional))
