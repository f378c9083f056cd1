"""Writes a snapshot in steps and publishes it at once (KIP-630; `RecordsSnapshotWriter`, `FileRawSnapshotWriter`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from metadata_log.disk import Disk
from metadata_log.log.snapshot import snapshot_name
from metadata_log.records.batch import HEADER_BYTES
from metadata_log.records.batch_builder import build_batch, build_control_batch, record_bytes
from metadata_log.records.control import KRaftVersionRecord, SnapshotFooterRecord, SnapshotHeaderRecord, VotersRecord
from metadata_log.records.frame import encode_control
from metadata_log.types import OffsetAndEpoch

FSYNC_BYTES: Final = 8 << 20
"""The bytes between two fsyncs, so that no fsync takes long."""
MAX_BATCH_BYTES: Final = 8 << 20
"""The size limit of a batch in snapshots and in the log (`KafkaRaftClient.MAX_BATCH_SIZE_BYTES`)."""


class SnapshotWriter:
    """A snapshot that is invisible before `freeze`, which makes it complete, durable and read-only.

    Offsets count from 0 in the file; every batch has the epoch of the snapshot (Kafka: `RecordsSnapshotWriter`).

    Args:
        disk: The disk.
        directory: The partition directory.
        snapshot: The end offset and epoch of the snapshot.
        timestamp_ms: The time of the header.
        last_contained_log_timestamp: The time of the last record that the snapshot covers, in ms.
        kraft_version: The level of kraft.version; 0 for a static quorum.
        voters: The voters of a dynamic quorum; needs kraft.version 1.
        max_batch_bytes: The size limit of a batch.

    Raises:
        OSError: The disk failed.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        snapshot: OffsetAndEpoch,
        *,
        timestamp_ms: int,
        last_contained_log_timestamp: int,
        kraft_version: int = 0,
        voters: VotersRecord | None = None,
        max_batch_bytes: int = MAX_BATCH_BYTES,
    ) -> None:
        assert voters is None or kraft_version > 0, "a voter set needs kraft.version 1"
        self.snapshot = snapshot
        self.size_bytes = 0
        """The size of the written bytes."""
        self._disk = disk
        self._directory = directory
        self._max_batch_bytes = max_batch_bytes
        self._next_offset = 0
        self._values: list[bytes] = []
        self._batch_bytes = HEADER_BYTES
        self._batch_timestamp = timestamp_ms
        self._partial = f"{directory}/{snapshot_name(snapshot)}.part"
        if disk.exists(self._partial):
            disk.remove(self._partial)
        self._file = disk.open(self._partial, create=True)
        self._open = True
        self._unsynced_bytes = 0
        first = [
            encode_control(SnapshotHeaderRecord(last_contained_log_timestamp=last_contained_log_timestamp)),
            *([encode_control(KRaftVersionRecord(kraft_version=kraft_version))] if kraft_version > 0 else []),
            *([encode_control(voters)] if voters is not None else []),
        ]
        self._write_control([(kind, value) for kind, _, value in first], timestamp_ms)

    def append(self, values: Sequence[bytes], timestamp_ms: int) -> None:
        """Add framed metadata records, which stay in one batch.

        Args:
            values: The framed records. Several calls may share a batch, up to its size limit.
            timestamp_ms: The time of the records. A batch has the time of its first records.
        """
        if not values:
            return
        if self._values and self._grown(values) > self._max_batch_bytes:
            self._end_batch()
        if not self._values:
            self._batch_timestamp = timestamp_ms
        self._batch_bytes = self._grown(values)
        assert self._batch_bytes <= self._max_batch_bytes, f"{len(values)} records do not fit into one batch"
        self._values.extend(values)

    def freeze(self, timestamp_ms: int) -> None:
        """Write the footer and publish the file under its final name.

        Args:
            timestamp_ms: The time of the footer.
        """
        self._end_batch()
        kind, _, footer = encode_control(SnapshotFooterRecord())
        self._write_control([(kind, footer)], timestamp_ms)
        self._file.fsync()
        self._close()
        self._disk.make_read_only(self._partial)
        self._disk.rename(self._partial, f"{self._directory}/{snapshot_name(self.snapshot)}")
        self._disk.fsync_dir(self._directory)

    def abandon(self) -> None:
        """Remove an unpublished file; does nothing after `freeze`."""
        if self._open:
            self._close()
            self._disk.remove(self._partial)

    def _grown(self, values: Sequence[bytes]) -> int:
        delta = len(self._values)
        return self._batch_bytes + sum(record_bytes(len(value), delta + at) for at, value in enumerate(values))

    def _end_batch(self) -> None:
        if self._values:
            self._write(build_batch(self._next_offset, self.snapshot.epoch, self._batch_timestamp, self._values))
            self._next_offset += len(self._values)
            self._values = []
            self._batch_bytes = HEADER_BYTES

    def _write_control(self, records: Sequence[tuple[int, bytes]], timestamp_ms: int) -> None:
        self._write(build_control_batch(self._next_offset, self.snapshot.epoch, timestamp_ms, records))
        self._next_offset += len(records)

    def _write(self, data: bytes) -> None:
        self._file.append(data)
        self.size_bytes += len(data)
        self._unsynced_bytes += len(data)
        if self._unsynced_bytes >= FSYNC_BYTES:
            self._file.fsync()
            self._unsynced_bytes = 0

    def _close(self) -> None:
        self._file.close()
        self._open = False
