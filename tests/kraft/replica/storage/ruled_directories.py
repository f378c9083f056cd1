"""Directories that a replica opens."""

from __future__ import annotations

from random import Random

from kraft.replica.storage.storage import Storage
from metadata_log.log.snapshot_writer import SnapshotWriter
from metadata_log.memory_disk import MemoryDisk
from metadata_log.serde.codec import finished
from metadata_log.types import OffsetAndEpoch
from support.kraft.replica_net import DIRECTORY, START_MS, options, voter_set

PARTITION = f"{DIRECTORY}/__cluster_metadata-0"


def opened(disk: MemoryDisk) -> Storage:
    return finished(Storage.opening(disk, options(1, voter_set(3)).replica, Random(1), START_MS))


def partition(disk: MemoryDisk) -> None:
    if not disk.exists(PARTITION):
        disk.mkdir(PARTITION)


def with_snapshot(disk: MemoryDisk, snapshot: OffsetAndEpoch) -> None:
    SnapshotWriter(disk, PARTITION, snapshot, timestamp_ms=5, last_contained_log_timestamp=5).freeze(5)
