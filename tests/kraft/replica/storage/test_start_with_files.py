"""A start reads the files beside its log: a snapshot, and the records of the first activation."""

from __future__ import annotations

import pytest

from kraft.process.hosting import host_controller
from metadata_log.errors import UnsupportedVersion
from metadata_log.log.log import MetadataLog
from metadata_log.log.quorum_state_file import StoredElection, write_quorum_state
from metadata_log.log.snapshot import encode_snapshot, snapshot_name
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.batch_builder import build_batch
from metadata_log.records.frame import encode_record
from metadata_log.records.metadata import NoOpRecord
from metadata_log.types import OffsetAndEpoch
from support.kraft.replica_net import DIRECTORY, Net, formatted_disk, voter_set
from support.kraft.ruled_directories import PARTITION, opened, partition, with_snapshot
from transport.protocol.messages import FetchSnapshotRequest, FetchSnapshotResponse
from transport.protocol.messages.fetch_snapshot import (
    FetchSnapshotRequestPartitionSnapshot,
    FetchSnapshotRequestSnapshotId,
    FetchSnapshotRequestTopicSnapshot,
)


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
