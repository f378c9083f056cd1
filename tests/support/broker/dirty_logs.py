"""Logs with keys, tombstones and transactions that a cleaner has to clean, from a seed."""

from __future__ import annotations

from random import Random

from kraft.partitions.log.options import LogOptions
from kraft.partitions.log.partition_log import PartitionLog
from metadata_log.compression import Compression
from metadata_log.disk import Disk
from metadata_log.records.batch_builder import write_batch
from metadata_log.records.record import Header, Record
from support.broker.broker_logs import NOW_MS

HOUR_MS = 3_600_000
OPTIONS = LogOptions(
    segment_bytes=2048, index_interval_bytes=256, is_compacted=True, is_deleted=False, delete_retention_ms=HOUR_MS
)
TOPIC_CONFIGS = (
    "cleanup.policy=compact",
    "internal.segment.bytes=2048",
    "index.interval.bytes=256",
    f"delete.retention.ms={HOUR_MS}",
)
"""`OPTIONS` in Kafka's words."""
_KEYS = 12
_ABORT, _COMMIT = 0, 1


class Producers:
    """Writes batches of producers with and without transactions as a leader stores them.

    Args:
        log: The log that grows.
        rng: Decides about everything.
        codecs: The codecs of batches.
    """

    def __init__(self, log: PartitionLog, rng: Random, codecs: tuple[Compression, ...] = (Compression.NONE,)) -> None:
        self.log = log
        self._rng = rng
        self._codecs = codecs
        self._sequences: dict[int, int] = {}
        self._epochs: dict[int, int] = {}
        self._open: set[int] = set()
        self.time_ms = NOW_MS

    def write(self, batches: int) -> None:
        """Append some batches; the clock goes on."""
        for _ in range(batches):
            self.time_ms += self._rng.randrange(1, 60_000)
            producer = self._rng.choice((-1, 7, 8, 9, 21, 22, 23))
            if producer in self._open and self._rng.random() < 0.4:
                self.end(producer)
            else:
                self._data(producer, transactional=producer > 20)

    def end(self, producer: int) -> None:
        """End the open transaction of a producer."""
        self._open.discard(producer)
        kind = self._rng.choice((_ABORT, _COMMIT))
        if self._rng.random() < 0.1:
            self._epochs[producer] = self._epochs.get(producer, 0) + 1
            self._sequences[producer] = 0
        key, value = b"\0\0\0" + bytes([kind]), b"\0\0\0\0\0\5"
        marker = Record(self.log.end_offset, self.time_ms, 0, key, value)
        self._append(
            write_batch(
                [marker],
                epoch=3,
                transactional=True,
                control=True,
                producer_id=producer,
                producer_epoch=self._epochs.get(producer, 0),
            )
        )

    def end_all(self) -> None:
        """End every open transaction."""
        for producer in sorted(self._open):
            self.end(producer)

    def _data(self, producer: int, *, transactional: bool) -> None:
        rng = self._rng
        records = []
        for index in range(rng.randrange(1, 6)):
            key = b"key-%02d" % min(rng.randrange(_KEYS), rng.randrange(_KEYS))
            value = None if rng.random() < 0.2 else rng.randbytes(rng.randrange(40))
            headers = (Header("h", b"x" * rng.randrange(4)),) if rng.random() < 0.2 else ()
            time_ms = self.time_ms + rng.randrange(-5, 5)
            records.append(Record(self.log.end_offset + index, time_ms, 0, key, value, headers))
        sequence = self._sequences.get(producer, 0)
        if producer >= 0:
            self._sequences[producer] = sequence + len(records)
        if transactional:
            self._open.add(producer)
        self._append(
            write_batch(
                records,
                epoch=3,
                compression=rng.choice(self._codecs),
                append_time_ms=self.time_ms if rng.random() < 0.1 else None,
                transactional=transactional,
                producer_id=producer,
                producer_epoch=self._epochs.get(producer, 0) if producer >= 0 else -1,
                base_sequence=sequence if producer >= 0 else -1,
            )
        )

    def _append(self, batch: bytes) -> None:
        self.log.append_as_follower(batch, leader_epoch=3, now_ms=self.time_ms)
        self.log.raise_high_watermark(self.log.end_offset)


def dirty_log(
    disk: Disk, directory: str, rng: Random, batches: int = 60, options: LogOptions = OPTIONS
) -> tuple[PartitionLog, Producers]:
    """A log of several segments, without compression."""
    log = PartitionLog.open(disk, directory, options, now_ms=NOW_MS)
    producers = Producers(log, rng)
    producers.write(batches)
    return log, producers
