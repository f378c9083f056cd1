"""Reads, checks and writes every file of a Kafka metadata log directory, and decodes the records in the log.

Names are loaded on first access (PEP 562), so that an import of one module does not load all of them.
"""

from metadata_log.lazy_names import lazy_names

TYPE_CHECKING = False  # as in typing, whose import would take most of the time of this one

if TYPE_CHECKING:
    from metadata_log.compression import Compression
    from metadata_log.disk import Disk, OsDisk
    from metadata_log.errors import CorruptBatch, DecodeError, MetadataLogError, UnsupportedVersion
    from metadata_log.log.log import MetadataLog
    from metadata_log.log.log_dir import format_directory, open_directory
    from metadata_log.log.snapshot_writer import SnapshotWriter
    from metadata_log.memory_disk import MemoryDisk
    from metadata_log.reading.damage import Damage, DamagedFile, OnDamage
    from metadata_log.reading.entries import Entry, read_entries
    from metadata_log.reading.file_kinds import files_in, kind_of
    from metadata_log.reading.reader import read_file, read_log
    from metadata_log.reading.replay_log import replay
    from metadata_log.reading.timeline import At, parse_at, read_timeline
    from metadata_log.records.batch import RecordBatch, read_batch, scan
    from metadata_log.records.batch_builder import build_batch, write_batch
    from metadata_log.records.record import Record
    from metadata_log.types import OffsetAndEpoch, Uuid
else:
    _HOMES = {
        "At": "metadata_log.reading.timeline",
        "Compression": "metadata_log.compression",
        "CorruptBatch": "metadata_log.errors",
        "Damage": "metadata_log.reading.damage",
        "DamagedFile": "metadata_log.reading.damage",
        "DecodeError": "metadata_log.errors",
        "Disk": "metadata_log.disk",
        "Entry": "metadata_log.reading.entries",
        "MemoryDisk": "metadata_log.memory_disk",
        "MetadataLog": "metadata_log.log.log",
        "MetadataLogError": "metadata_log.errors",
        "OffsetAndEpoch": "metadata_log.types",
        "OnDamage": "metadata_log.reading.damage",
        "OsDisk": "metadata_log.disk",
        "Record": "metadata_log.records.record",
        "RecordBatch": "metadata_log.records.batch",
        "SnapshotWriter": "metadata_log.log.snapshot_writer",
        "UnsupportedVersion": "metadata_log.errors",
        "Uuid": "metadata_log.types",
        "build_batch": "metadata_log.records.batch_builder",
        "files_in": "metadata_log.reading.file_kinds",
        "format_directory": "metadata_log.log.log_dir",
        "kind_of": "metadata_log.reading.file_kinds",
        "open_directory": "metadata_log.log.log_dir",
        "parse_at": "metadata_log.reading.timeline",
        "read_batch": "metadata_log.records.batch",
        "read_entries": "metadata_log.reading.entries",
        "read_file": "metadata_log.reading.reader",
        "read_log": "metadata_log.reading.reader",
        "read_timeline": "metadata_log.reading.timeline",
        "replay": "metadata_log.reading.replay_log",
        "scan": "metadata_log.records.batch",
        "write_batch": "metadata_log.records.batch_builder",
    }
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)


__all__ = [
    "At",
    "Compression",
    "CorruptBatch",
    "Damage",
    "DamagedFile",
    "DecodeError",
    "Disk",
    "Entry",
    "MemoryDisk",
    "MetadataLog",
    "MetadataLogError",
    "OffsetAndEpoch",
    "OnDamage",
    "OsDisk",
    "Record",
    "RecordBatch",
    "SnapshotWriter",
    "UnsupportedVersion",
    "Uuid",
    "build_batch",
    "files_in",
    "format_directory",
    "kind_of",
    "open_directory",
    "parse_at",
    "read_batch",
    "read_entries",
    "read_file",
    "read_log",
    "read_timeline",
    "replay",
    "scan",
    "write_batch",
]
