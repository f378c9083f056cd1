"""The rules of the directory of a replica, and a start with the files beside its log."""

from __future__ import annotations

import json
from collections.abc import Generator
from random import Random
from struct import pack

import pytest
from google_crc32c import value as crc32c

from kraft.broker import BrokerOptions
from kraft.controller.server import ControllerServer
from kraft.process.hosting import host_controller
from kraft.process.opening import opening_process
from kraft.quorum.effects import AppendBatch, AppendControl, FlushLog
from kraft.quorum.values import ElectionState, Endpoints, ListenerAddress, ReplicaKey, VersionRange
from kraft.quorum.voters import QuorumChange, Voter, VoterSet
from kraft.replica.storage import fetched
from kraft.replica.storage.fetched import Follows, facts_of
from kraft.replica.storage.quorum_records import changes_in
from kraft.replica.storage.storage import Storage
from metadata_log.errors import CorruptBatch, DirectoryError, UnsupportedVersion
from metadata_log.log import log as log_module
from metadata_log.log.log import MetadataLog
from metadata_log.log.quorum_state_file import StoredElection, write_quorum_state
from metadata_log.log.snapshot import encode_snapshot, snapshot_name
from metadata_log.log.snapshot_writer import SnapshotWriter
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.batch import read_batch, scan
from metadata_log.records.batch_builder import build_batch, build_control_batch, write_batch
from metadata_log.records.control import KRaftVersionRecord, LeaderChangeMessage
from metadata_log.records.frame import encode_control, encode_record
from metadata_log.records.metadata import NoOpRecord
from metadata_log.records.record import Record
from metadata_log.serde import Message
from metadata_log.serde.codec import finished
from metadata_log.types import OffsetAndEpoch, Uuid
from ruled_directories import PARTITION, opened, partition, with_snapshot
from support.kraft.replica_net import DIRECTORY, START_MS, Net, formatted_disk, options, voter_set
from transport.protocol.messages import FetchSnapshotRequest, FetchSnapshotResponse
from transport.protocol.messages.fetch_snapshot import (
    FetchSnapshotRequestPartitionSnapshot,
    FetchSnapshotRequestSnapshotId,
    FetchSnapshotRequestTopicSnapshot,
)

DIRECTORY_ID = Uuid(bytes(range(16)))


def put(disk: MemoryDisk, name: str, content: bytes = b"x") -> None:
    file = disk.open(f"{PARTITION}/{name}", create=True)
    file.append(content)
    file.fsync()
    file.close()
    disk.fsync_dir(PARTITION)


# The start


def test_a_start_removes_unfinished_snapshots_and_tells_their_names() -> None:
    disk = formatted_disk(1)
    partition(disk)
    names = ("00000000000000000009-0000000001.checkpoint.part", "00000000000000000009-0000000001.checkpoint.deleted")
    for name in names:
        put(disk, name)
    assert sorted(opened(disk).removed) == sorted(names)
    assert not [name for name in disk.list(PARTITION) if name.endswith((".part", ".deleted"))]


def test_a_replica_has_applied_nothing_at_its_first_start() -> None:
    net = Net(3)
    assert [replica.replica.status().applied_offset for replica in net.processes.values()] == [0, 0, 0]


def control(base_offset: int, epoch: int, *messages: Message) -> bytes:
    encoded = [encode_control(message) for message in messages]
    return build_control_batch(base_offset, epoch, 5, [(kind, value) for kind, _, value in encoded])


def voters(*ids: int) -> VoterSet:
    return VoterSet.of(
        Voter(
            ReplicaKey(one, Uuid(bytes(15) + bytes([one]))),
            Endpoints((ListenerAddress("CONTROLLER", f"n{one}", 9093),)),
            VersionRange(0, 1),
        )
        for one in ids
    )


def test_a_snapshot_of_a_later_epoch_replaces_the_voters_of_the_log_that_it_replaces() -> None:
    """The log has a voter set at the offset at which the snapshot ends: that record is gone with the log."""
    disk = formatted_disk(1)
    partition(disk)
    write_quorum_state(disk, PARTITION, StoredElection(leader_epoch=6))
    log = MetadataLog.open(disk, PARTITION)
    log.append(build_batch(0, 5, 5, [b"x"] * 10))
    log.append(control(10, 5, KRaftVersionRecord(kraft_version=1), voters(1, 2, 3).to_record()))
    log.close()
    snapshot = OffsetAndEpoch(epoch=6, offset=10)
    writer = SnapshotWriter(
        disk,
        PARTITION,
        snapshot,
        timestamp_ms=5,
        last_contained_log_timestamp=5,
        kraft_version=1,
        voters=voters(1, 2).to_record(),
    )
    writer.freeze(5)
    start = opened(disk).start()
    assert (start.log_start_offset, start.log_end_offset, start.snapshots) == (10, 10, (snapshot,))
    assert [change.value for change in start.changes if isinstance(change.value, VoterSet)] == [voters(1, 2)]


# quorum-state


@pytest.mark.parametrize("voted", [None, ReplicaKey(3, DIRECTORY_ID)])
def test_quorum_state_of_a_static_quorum_names_the_voters_and_that_of_a_dynamic_one_directories(
    voted: ReplicaKey | None,
) -> None:
    disk = formatted_disk(1)
    partition(disk)
    storage = opened(disk)
    written = []
    for kraft_version in (0, 1):
        storage.persist_election(ElectionState(epoch=7, voted=voted, voters=(1, 2, 3)), kraft_version)
        disk.crash()
        written.append(json.loads(disk.read(f"{PARTITION}/quorum-state")))
    static, dynamic = written
    assert [one["voterId"] for one in static["currentVoters"]] == [1, 2, 3]
    assert (static["data_version"], dynamic["data_version"]) == (0, 1)
    assert "currentVoters" not in dynamic
    assert "votedDirectoryId" not in static
    assert dynamic["votedDirectoryId"] == str(Uuid.ZERO if voted is None else DIRECTORY_ID)
    assert {(one["leaderEpoch"], one["votedId"]) for one in written} == {(7, -1 if voted is None else 3)}


# Fetched batches


def leader_change(base_offset: int, epoch: int, leader_id: int) -> bytes:
    return control(base_offset, epoch, LeaderChangeMessage(version=0, leader_id=leader_id))


@pytest.mark.parametrize(
    ("data", "follows", "wrong"),
    [
        (leader_change(5, 3, 1), None, None),
        (leader_change(5, 3, 1), Follows(5, 2, 3, 1), None),
        (leader_change(5, 3, 1), Follows(5, 2, 3, -1), None),
        (leader_change(5, 3, 1), Follows(5, 2, 4, 2), None),
        (leader_change(5, 3, 1), Follows(5, 3, 3, 1), "a second LeaderChange"),
        (leader_change(5, 3, 1), Follows(5, 2, 3, 2), "epoch 3 is led by 2"),
        (leader_change(5, 3, 1), Follows(4, 3, 3, 2), None),
        (control(5, 3, LeaderChangeMessage(leader_id=1), LeaderChangeMessage(leader_id=1)), None, "is record 1"),
        (build_batch(5, 3, 5, [b"x"]), Follows(5, 2, 3, 1), "begins without LeaderChange"),
        (build_batch(5, 3, 5, [b"x"]), Follows(5, 3, 3, 1), None),
        (build_batch(5, 3, 5, [b"x"]), Follows(4, 2, 3, 1), None),
    ],
    ids=[
        "compared with no log",
        "of the leader",
        "of an unknown leader",
        "of an earlier epoch",
        "twice",
        "of another leader",
        "not at the end of the log",
        "two in one batch",
        "data first",
        "data of the same epoch",
        "data not at the end of the log",
    ],
)
def test_an_epoch_begins_with_one_leader_change_of_its_leader(
    data: bytes, follows: Follows | None, wrong: str | None
) -> None:
    """A batch that does not follow the log is the core's matter: the follower may have truncated meanwhile."""
    found, problem, _ = facts_of(data, follows)
    assert len(found) == (wrong is None)
    assert problem is None if wrong is None else wrong in (problem or "")


def test_changes_of_voters_are_found_in_fetched_batches() -> None:
    data = control(5, 3, KRaftVersionRecord(kraft_version=1), voters(1, 2).to_record())
    (facts,), problem, _ = facts_of(data, Follows(5, 3, 3, 1))
    assert problem is None
    assert facts.changes == (QuorumChange(5, 1), QuorumChange(6, voters(1, 2)))


@pytest.mark.parametrize(
    ("before", "after", "fits"),
    [
        ((1, 2), (0, 1, 2), True),
        ((1, 2), (1, 2, 3), True),
        ((1, 2), (1, 3), True),
        ((1, 2), (3, 4), False),
        ((1, 2, 3), (1,), False),
        ((1,), (1, 2, 3), False),
    ],
)
def test_one_voter_changes_at_a_time(before: tuple[int, ...], after: tuple[int, ...], fits: bool) -> None:
    data = control(5, 3, KRaftVersionRecord(kraft_version=1), voters(*after).to_record())
    found, problem, _ = facts_of(data, Follows(5, 3, 3, 1, voters(*before)))
    assert (len(found), problem is None) == ((1, True) if fits else (0, False))


def deltas(*offsets: int) -> bytes:
    """A control batch of three offsets from 10 on, with records that name these offsets."""
    kind, _, value = encode_control(KRaftVersionRecord(kraft_version=1))
    made = [Record(offset, 5, 0, pack(">hh", 0, kind), value) for offset in offsets]
    return write_batch(made, epoch=3, control=True)


@pytest.mark.parametrize(
    ("offsets", "is_valid"), [((10, 11, 12), True), ((10, 10, 12), False), ((10, 12, 12), False), ((10, 11, 11), False)]
)
def test_control_records_have_offsets_one_after_the_other(offsets: tuple[int, ...], is_valid: bool) -> None:
    batch = read_batch(deltas(*offsets))
    if is_valid:
        assert [change.offset for change in changes_in(batch)] == list(offsets)
    else:
        with pytest.raises(CorruptBatch, match="a control record has offset"):
            list(changes_in(batch))


# Snapshots beside a log


@pytest.mark.parametrize(
    ("snapshot", "is_of_log"),
    [((9, 5), True), ((10, 6), True), ((12, 6), True), ((10, 5), False), ((9, 4), False)],
)
def test_a_snapshot_is_of_a_log_with_its_last_record_in_its_epoch(snapshot: tuple[int, int], is_of_log: bool) -> None:
    """The epoch 6 begins at offset 9, which is the last record of a snapshot that ends at offset 10."""
    disk = formatted_disk(1)
    partition(disk)
    write_quorum_state(disk, PARTITION, StoredElection(leader_epoch=6))
    log = MetadataLog.open(disk, PARTITION)
    log.append(build_batch(0, 5, 5, [b"x"] * 9))
    log.append(leader_change(9, 6, 1))
    log.append(build_batch(10, 6, 5, [b"x"] * 2))
    log.close()
    with_snapshot(disk, OffsetAndEpoch(epoch=snapshot[1], offset=snapshot[0]))
    if is_of_log:
        storage = opened(disk)
        assert (storage.log.start_offset, storage.log.end_offset) == (0, 12)
    else:
        with pytest.raises(DirectoryError, match="is not one of this log"):
            opened(disk)


@pytest.mark.parametrize(
    ("end_offset", "snapshot"), [(8, (10, 6)), (10, (10, 6)), (12, (10, 6)), (0, (10, 6)), (0, (5, 0))]
)
def test_a_snapshot_ahead_of_the_log_takes_its_place(end_offset: int, snapshot: tuple[int, int]) -> None:
    """Ahead is a later epoch, or a later offset of the same epoch. A log that begins there already stays."""
    disk = formatted_disk(1)
    partition(disk)
    write_quorum_state(disk, PARTITION, StoredElection(leader_epoch=6))
    if end_offset:
        log = MetadataLog.open(disk, PARTITION)
        log.append(build_batch(0, 5, 5, [b"x"] * end_offset))
        log.close()
    with_snapshot(disk, OffsetAndEpoch(epoch=snapshot[1], offset=snapshot[0]))
    for _ in range(2):
        storage = opened(disk)
        assert (storage.log.start_offset, storage.log.end_offset) == (snapshot[0], snapshot[0])
        storage.close()


def test_an_append_returns_the_bytes_of_its_batch() -> None:
    disk = formatted_disk(1)
    partition(disk)
    storage = opened(disk)
    change = LeaderChangeMessage(version=0, leader_id=1)
    sizes = [storage.append_control(AppendControl(0, 3, 5, (change,)))]
    sizes.append(storage.append_batch(AppendBatch(1, 3, 5, (b"value", b"another"))))
    assert [batch.size_bytes for batch in scan(storage.log.read(0, 10_000))] == sizes
    assert sum(sizes) == storage.log.size_bytes


def test_a_voter_set_is_compared_with_the_one_in_the_batch_before() -> None:
    data = control(5, 3, KRaftVersionRecord(kraft_version=1), voters(1, 2).to_record())
    data += control(7, 3, voters(1, 2, 3).to_record())
    found, problem, _ = facts_of(data, Follows(5, 3, 3, 1))
    assert (len(found), problem) == (2, None)
    data += control(8, 3, voters(4, 5).to_record())
    found, problem, _ = facts_of(data, Follows(5, 3, 3, 1))
    assert len(found) == 2
    assert "has lost 3 voters at once, and got 2 others" in (problem or "")


def test_a_replica_knows_whether_a_flush_is_under_way() -> None:
    disk = formatted_disk(1)
    partition(disk)
    storage = opened(disk)
    storage.append_batch(AppendBatch(0, 3, 5, (b"value",)))
    assert storage.is_flushing is False
    flush = storage.request_flush(FlushLog(1, 3))
    assert flush is not None
    assert storage.is_flushing is True
    flush.run()
    storage.flush_done(flush.ticket)
    assert storage.is_flushing is False


def test_a_start_that_is_interrupted_leaves_no_lock_and_no_open_file() -> None:
    net = Net(1, application=host_controller, max_idle_interval_ms=0)
    net.elect()
    net.processes[1].close()
    disk = net.disks[1]

    def opening() -> Generator[None, None, object]:
        return opening_process(
            options=options(1, net.voters, max_idle_interval_ms=0),
            disk=disk,
            rng=Random(1),
            application=host_controller,
            now_ms=net.now_ms,
        )

    steps = 0
    while True:
        start = opening()
        if any(next(start, "done") == "done" for _ in range(steps)):
            break
        start.close()
        assert disk._open == {}
        steps += 1
    assert steps >= 2


def test_a_cut_splits_a_batch_only_within_the_log_and_between_its_edges() -> None:
    disk = formatted_disk(1)
    partition(disk)
    storage = opened(disk)
    for base_offset in (0, 3):
        storage.append_batch(AppendBatch(base_offset, 3, 5, (b"value",) * 3))
    assert [storage.splits_batch(offset) for offset in range(8)] == [False, True, True, False, True, True, False, False]


def test_a_control_record_behind_the_end_of_its_batch_is_refused() -> None:
    data = bytearray(deltas(10, 11, 12))
    data[23:27] = (1).to_bytes(4, "big")
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    batch = read_batch(bytes(data))
    assert batch.next_offset == 12
    with pytest.raises(CorruptBatch, match="a control record has offset 12"):
        list(changes_in(batch))


def test_a_read_for_a_peer_is_as_long_as_the_peer_asks() -> None:
    disk = formatted_disk(1)
    partition(disk)
    storage = opened(disk)
    (size,) = {storage.append_batch(AppendBatch(offset, 3, 5, (b"value",))) for offset in range(3)}
    assert [len(storage.read(0, most)) // size for most in (1, size, 2 * size, 10**9)] == [1, 1, 2, 3]


def test_each_flush_has_a_ticket_of_its_own() -> None:
    disk = formatted_disk(1)
    partition(disk)
    storage = opened(disk)
    tickets = []
    for offset in range(3):
        storage.append_batch(AppendBatch(offset, 3, 5, (b"value",)))
        flush = storage.request_flush(FlushLog(offset + 1, 3))
        assert flush is not None
        flush.run()
        storage.flush_done(flush.ticket)
        tickets.append(flush.ticket)
    assert tickets == [1, 2, 3]


def test_a_start_loads_a_snapshot_of_one_record() -> None:
    """The snapshot of a formatted directory covers none, and is not loaded."""
    disk = formatted_disk(1)
    partition(disk)
    write_quorum_state(disk, PARTITION, StoredElection(leader_epoch=3))
    with_snapshot(disk, OffsetAndEpoch(epoch=3, offset=1))
    net = Net(disks={1: disk}, voters=voter_set(3), application=host_controller)
    hosted = net.processes[1].application
    assert isinstance(hosted, ControllerServer)
    assert hosted.controller.history.committed.end == OffsetAndEpoch(epoch=3, offset=1)
    assert net.processes[1].replica.status().applied_offset == 1


def test_an_abandoned_replica_lets_another_start_in_its_directory() -> None:
    net = Net(1)
    net.elect()
    net.processes[1].abandon()
    net.start(1)
    assert net.elect() == 1


def test_a_log_without_its_first_record_needs_a_snapshot() -> None:
    disk = formatted_disk(1)
    partition(disk)
    write_quorum_state(disk, PARTITION, StoredElection(leader_epoch=6))
    log = MetadataLog.open(disk, PARTITION)
    log.reset_to(1)
    log.close()
    with pytest.raises(DirectoryError, match="the log begins at offset 1 and no snapshot covers"):
        opened(disk)


def test_an_empty_log_is_in_the_epoch_of_the_snapshot_where_it_begins() -> None:
    """The node may have voted in that epoch: an older quorum-state has lost the vote."""
    disk = formatted_disk(1)
    partition(disk)
    write_quorum_state(disk, PARTITION, StoredElection(leader_epoch=5))
    log = MetadataLog.open(disk, PARTITION)
    log.reset_to(10)
    log.close()
    for epoch in (5, 6):
        with_snapshot(disk, OffsetAndEpoch(epoch=epoch, offset=10))
    with pytest.raises(DirectoryError, match="quorum-state has epoch 5, and the log has epoch 6"):
        opened(disk)


@pytest.mark.parametrize(("is_broker", "is_controller", "refuses"), [(0, 1, True), (1, 0, False), (1, 1, True)])
def test_only_a_controller_needs_its_votes(is_broker: int, is_controller: int, refuses: bool) -> None:
    """A broker votes in no election."""
    disk = formatted_disk(1)
    partition(disk)
    log = MetadataLog.open(disk, PARTITION)
    log.append(build_batch(0, 5, 5, [b"x"]))
    log.close()
    roles = options(
        1,
        voter_set(3),
        broker=BrokerOptions(directories=(DIRECTORY_ID,)) if is_broker else None,
        client_endpoints=Endpoints(()) if is_broker and is_controller else None,
    )
    start = Storage.opening(disk, roles.replica, Random(1), START_MS)
    if refuses:
        with pytest.raises(DirectoryError, match="quorum-state is missing"):
            finished(start)
    else:
        assert finished(start).log.end_offset == 1


def test_a_damaged_batch_is_found_by_its_header_for_a_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cut removes the damage: a checksum must not stand in the way."""
    monkeypatch.setattr(log_module, "TAIL_BYTES", 0)
    disk = formatted_disk(1)
    partition(disk)
    storage = opened(disk)
    storage.append_batch(AppendBatch(0, 3, 5, (b"value",) * 3))
    storage.log.flush()
    path = f"{PARTITION}/00000000000000000000.log"
    damaged = disk.read(path)
    disk.overwrite(path, len(damaged) - 3, b"!")
    assert storage.read(0, 1) not in (b"", damaged)
    assert [storage.splits_batch(offset) for offset in range(4)] == [False, True, True, False]


@pytest.mark.parametrize("is_too_large", [False, True])
def test_a_fetched_batch_may_be_as_large_as_the_largest(is_too_large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    data = build_batch(5, 3, 5, [b"x"])
    monkeypatch.setattr(fetched, "BATCH_BYTES", len(data) - is_too_large)
    found, problem, _ = facts_of(data, None)
    assert (len(found), problem is None) == ((0, False) if is_too_large else (1, True))


@pytest.mark.parametrize(("most", "is_valid"), [(3, True), (2, False)])
def test_a_fetched_control_batch_may_have_as_many_records_as_the_largest(
    most: int, is_valid: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetched, "MAX_CONTROL_RECORDS", most)
    found, problem, _ = facts_of(deltas(10, 11, 12), None)
    assert len(found) == is_valid
    assert problem is None if is_valid else "which no leader writes" in (problem or "")


# A start reads the files beside its log: a snapshot, and the records of the first activation.


def test_a_start_has_applied_its_newest_snapshot_and_serves_it() -> None:
    disk = formatted_disk(1)
    partition(disk)
    write_quorum_state(disk, PARTITION, StoredElection(leader_epoch=5))
    log = MetadataLog.open(disk, PARTITION)
    nothing = encode_record(NoOpRecord(), 0)
    log.append(build_batch(0, 5, 5, [nothing] * 10) + build_batch(10, 5, 5, [nothing] * 2))
    log.close()
    snapshot = OffsetAndEpoch(epoch=5, offset=10)
    with_snapshot(disk, snapshot)
    net = Net(disks={1: disk}, voters=voter_set(1), application=host_controller)
    assert net.processes[1].replica.status().applied_offset == 10
    part = FetchSnapshotRequestPartitionSnapshot(
        partition=0,
        current_leader_epoch=net.processes[net.elect()].replica.core.epoch,
        snapshot_id=FetchSnapshotRequestSnapshotId(10, 5),
    )
    topic = FetchSnapshotRequestTopicSnapshot(name="__cluster_metadata", partitions=[part])
    answer = net.ask(1, FetchSnapshotRequest(replica_id=9, max_bytes=10**6, topics=[topic]))
    assert isinstance(answer, FetchSnapshotResponse)
    content = disk.read(f"{PARTITION}/{snapshot_name(snapshot)}")
    assert answer.topics[0].partitions[0].unaligned_records == content


def bootstrapped(disk: MemoryDisk, *values: bytes) -> None:
    path = f"{DIRECTORY}/bootstrap.checkpoint"
    if disk.exists(path):
        disk.remove(path)
    file = disk.open(path, create=True)
    file.append(encode_snapshot(values, epoch=1, timestamp_ms=5))
    file.fsync()
    file.close()


def test_a_record_of_the_first_activation_that_is_not_known_stops_the_start() -> None:
    disk = formatted_disk(1)
    partition(disk)
    bootstrapped(disk, encode_record(NoOpRecord(), 0))
    storage = opened(disk)
    assert storage.bootstrap() == (NoOpRecord(),)
    bootstrapped(disk, b"\x01\x14\x63")
    with pytest.raises(UnsupportedVersion, match="cannot be read"):
        storage.bootstrap()
