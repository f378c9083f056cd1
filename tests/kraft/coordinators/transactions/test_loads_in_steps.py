"""A coordinator loads in short steps, however few records a batch has: those of transactions have one each."""

from __future__ import annotations

from typing import cast

import pytest

from kraft.coordinators.runtime.loading import Lacking, loading
from kraft.coordinators.runtime.shard import Record, Shard
from kraft.limits import COORDINATOR_RECORDS_PER_STEP
from kraft.partitions.log.options import LogOptions
from kraft.partitions.log.partition_log import PartitionLog
from kraft.partitions.replicas.hosted_partition import HostedPartition
from kraft.partitions.replicas.hosting import Hosting
from kraft.partitions.replicas.settings import DataDirectory, DataSettings
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.batch_builder import batch_of
from metadata_log.records.coordinator import TRANSACTION_STATE, encode_key, encode_value
from metadata_log.records.record import encode_record
from metadata_log.records.transaction_state import TransactionLogKey, TransactionLogValue
from metadata_log.types import Uuid

RECORDS = 5 * COORDINATOR_RECORDS_PER_STEP
DIRECTORY = Uuid(bytes(range(16)))


class Counting:
    """A coordinator that counts what it replays."""

    kinds = TRANSACTION_STATE
    replayed = 0

    def empty(self) -> int:
        return 0

    def lacking(self, state: int, record: Record) -> str:
        return ""

    def replay(self, state: int, record: Record, offset: int, producer_id: int) -> int:
        self.replayed += 1
        return state + 1


@pytest.mark.parametrize("per_batch", [1, 7, RECORDS])
def test_a_step_of_a_load_replays_few_records(per_batch: int) -> None:
    disk, name = MemoryDisk(), "__transaction_state-0"
    log = PartitionLog.open(disk, name, LogOptions(is_compacted=True), now_ms=0)
    body = encode_key(TransactionLogKey("tx")), encode_value(TransactionLogValue(transaction_partitions=None))
    while log.end_offset < RECORDS:
        bodies = [encode_record(0, at, *body, ()) for at in range(min(per_batch, RECORDS - log.end_offset))]
        batch = batch_of(bodies, base_offset=log.end_offset, epoch=0, timestamps=(0, 0))
        log.append_as_leader(batch, epoch=0, now_ms=0, is_client=False)
    log.raise_high_watermark(log.end_offset)
    hosting = Hosting(disk, DataSettings(broker_id=1, directories=(DataDirectory(DIRECTORY, ".", is_clean=True),)))
    part = HostedPartition((DIRECTORY, 0), "__transaction_state", DIRECTORY, log, 1)
    hosting.partitions[part.key] = part
    shard, before, most = Counting(), 0, 0
    for _ in loading(hosting, part, cast(Shard[int], shard), Lacking()):
        most, before = max(most, shard.replayed - before), shard.replayed
    assert shard.replayed == RECORDS
    assert shard.replayed - before <= most <= COORDINATOR_RECORDS_PER_STEP
