"""Readings of the disk of a node of a `Cluster`."""

from __future__ import annotations

from typing import Final

from kraft.invariants.violation import InvariantViolated
from metadata_log.memory_disk import MemoryDisk
from metadata_log.reading.damage import Damage
from metadata_log.reading.reader import read_log
from metadata_log.records.batch import RecordBatch
from metadata_log.types import METADATA_PARTITION, METADATA_TOPIC

DIRECTORY: Final = "/kraft"
"""The log directory of each node."""
PARTITION: Final = f"{DIRECTORY}/{METADATA_TOPIC}-{METADATA_PARTITION}"


def batches_on(disk: MemoryDisk) -> list[RecordBatch]:
    """The metadata log on a disk; raises `InvariantViolated` for a damaged one."""
    if not disk.exists(PARTITION):
        return []
    batches = []
    for item in read_log(disk, PARTITION):
        if isinstance(item, Damage):
            raise InvariantViolated(str(item))
        batches.append(item)
    return batches


def durable_on(disk: MemoryDisk) -> list[RecordBatch]:
    """The log that would remain after a power failure now."""
    after = disk.fork()
    after.crash()
    return batches_on(after)
