"""Logs for the measurements of a fleet: copies of a recorded log as other clusters, and one log of any length."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from metadata_log import scan
from metadata_log.log.segment import file_name
from metadata_log.records.batch import RecordBatch
from metadata_log.records.batch_builder import build_batch, with_checksum
from metadata_log.records.frame import encode_record, read_record
from metadata_log.records.metadata import RemoveTopicRecord, TopicRecord
from metadata_log.records.record import records
from metadata_log.types import PARTITION_DIRECTORY, Uuid

SEGMENT_BYTES: Final = 1 << 30
"""Kafka's default of metadata.log.segment.bytes."""
_OFFSET: Final = struct.Struct(">q")
_EPOCH: Final = struct.Struct(">i")
_TIMES: Final = struct.Struct(">qq")
_EPOCH_AT: Final = 12
_TIMES_AT: Final = 27
_QUIET_MS: Final = 500
"""The time between the end of a round and the beginning of the next one."""


def copy_log(source: Path, target: Path, cluster: str) -> None:
    """The files of a log as another cluster: links to one copy."""
    (target / PARTITION_DIRECTORY).mkdir(parents=True)
    for file in (source / PARTITION_DIRECTORY).iterdir():
        if file.is_file():
            os.link(file, target / PARTITION_DIRECTORY / file.name)
    (target / "meta.properties").write_text(f"#\nversion=1\nnode.id=1\ncluster.id={cluster}\n")


def batches_of(log: Path) -> list[RecordBatch]:
    """The batches of a log directory in order."""
    files = sorted((log / PARTITION_DIRECTORY).glob("*.log"))
    return [batch for file in files for batch in scan(file.read_bytes())]


class Rounds:
    """A recorded log that is repeated: each round ends with the removal of its topics, so the next can create them.

    So a part of the log has the same mix of records as the whole, whatever its length. Offsets, epochs and times go on
    from round to round, and each batch has its CRC.
    """

    def __init__(self, log: Path) -> None:
        batches = batches_of(log)
        last = batches[-1]
        removal = build_batch(last.next_offset, last.epoch, last.max_timestamp, _removals(batches))
        self._batches = [*batches, *scan(removal)]
        self.records = self._batches[-1].next_offset
        """The records of one round."""
        self.bytes = sum(batch.size_bytes for batch in self._batches)
        """The bytes of one round."""
        self._epochs = last.epoch - batches[0].epoch + 1
        self._time_ms = last.max_timestamp - batches[0].base_timestamp + _QUIET_MS

    def write(self, target: Path, rounds: int, segment_bytes: int = SEGMENT_BYTES) -> tuple[int, int]:
        """Write a log directory of some rounds; returns its records and bytes."""
        partition = target / PARTITION_DIRECTORY
        partition.mkdir(parents=True)
        total = size = 0
        file = (partition / file_name(0)).open("wb", buffering=1 << 20)
        for offset, raw in self._shifted(rounds):
            if size and size + len(raw) > segment_bytes:
                file.close()
                file, size = (partition / file_name(offset)).open("wb", buffering=1 << 20), 0
            size += file.write(raw)
            total += len(raw)
        file.close()
        return rounds * self.records, total

    def _shifted(self, rounds: int) -> Iterator[tuple[int, bytes]]:
        """The batches of all rounds, with the base offset of each."""
        for number in range(rounds):
            offset, epoch, time_ms = number * self.records, number * self._epochs, number * self._time_ms
            for batch in self._batches:
                raw = bytearray(batch.data)
                _OFFSET.pack_into(raw, 0, batch.base_offset + offset)
                _EPOCH.pack_into(raw, _EPOCH_AT, batch.epoch + epoch)
                _TIMES.pack_into(raw, _TIMES_AT, batch.base_timestamp + time_ms, batch.max_timestamp + time_ms)
                yield batch.base_offset + offset, with_checksum(bytes(raw))


def _removals(batches: list[RecordBatch]) -> list[bytes]:
    """The records that remove what topics the batches leave behind."""
    left: dict[Uuid, None] = {}
    for batch in batches:
        for one in () if batch.is_control else records(batch):
            record = read_record(one.value or b"")[3]
            if isinstance(record, TopicRecord):
                left[record.topic_id] = None
            elif isinstance(record, RemoveTopicRecord):
                del left[record.topic_id]
    return [encode_record(RemoveTopicRecord(topic_id=topic), 0) for topic in left]
