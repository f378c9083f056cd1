"""Reads the partitions in a broker's log directory: ends, epochs, producer ids. Nothing is written.

Only the headers of batches are read, and only behind the newest producer snapshot, as a broker's own start does.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from metadata_log.disk import Disk, is_directory
from metadata_log.errors import CorruptBatch, MetadataLogError, UnsupportedVersion
from metadata_log.log.epochs import FILE_NAME as EPOCHS_FILE
from metadata_log.log.epochs import parse_epochs
from metadata_log.log.log_dir import PARTITION_DIRECTORY, PARTITION_METADATA, parse_partition_metadata
from metadata_log.log.partition_names import STRAY, PartitionName, parse_partition_name
from metadata_log.log.producer_snapshot import SUFFIX as PRODUCER_SUFFIX
from metadata_log.log.producer_snapshot import read_producer_snapshot
from metadata_log.log.segment import file_name, parse_file_name, scan_headers
from metadata_log.types import Uuid


class PartitionFiles(Struct, frozen=True, kw_only=True):
    """One partition in a broker's log directory.

    Args:
        name: The name of the directory, such as `orders-3`.
        topic: The topic.
        number: The number of the partition.
        topic_id: The id in partition.metadata; None if the file is missing or unreadable.
        log_end: The log end offset.
        last_epoch: The last epoch in leader-epoch-checkpoint; -1 for none.
        size_bytes: The size of the segments.
        max_producer_id: The highest producer id in the log; -1 for none.
        max_timestamp: The latest time of the last batches in ms, as producers set it; -1 for none.
        damage: The defect of the log or of its small files, if any.
    """

    name: str
    topic: str
    number: int
    topic_id: Uuid | None
    log_end: int
    last_epoch: int
    size_bytes: int
    max_producer_id: int
    max_timestamp: int
    damage: str | None = None


def partition_names(names: Sequence[str]) -> list[tuple[str, PartitionName]]:
    """The directories of partitions in use among names."""
    found = [(name, parse_partition_name(name)) for name in names if name != PARTITION_DIRECTORY]
    return [(name, partition) for name, partition in found if partition is not None and not partition.suffix]


def stray_names(names: Sequence[str]) -> list[str]:
    """The directories that a broker has renamed to `-stray` already."""
    return [name for name in names if (one := parse_partition_name(name)) is not None and one.suffix == STRAY]


def read_partitions(disk: Disk, directory: str) -> tuple[PartitionFiles, ...]:
    """The partitions in a log directory, by name. Raises `OSError` for an unreadable file."""
    names = disk.list(directory)
    return tuple(
        _read_partition(disk, f"{directory}/{name}", name, partition.topic, partition.number)
        for name, partition in partition_names(names)
        if is_directory(disk, f"{directory}/{name}")
    )


def read_partition(disk: Disk, path: str) -> PartitionFiles:
    """One partition in use. Raises `OSError` for an unreadable file."""
    name = path.rpartition("/")[2]
    partition = parse_partition_name(name)
    assert partition is not None, path
    return _read_partition(disk, path, name, partition.topic, partition.number)


def _read_partition(disk: Disk, path: str, name: str, topic: str, number: int) -> PartitionFiles:
    names = disk.list(path)
    damage: list[str] = []
    topic_id, last_epoch = None, -1
    try:
        if PARTITION_METADATA in names:
            where = f"{path}/{PARTITION_METADATA}"
            topic_id = parse_partition_metadata(disk.read(where), where=where)
        if EPOCHS_FILE in names:
            where = f"{path}/{EPOCHS_FILE}"
            last_epoch = parse_epochs(disk.read(where), where=where).last_epoch or 0 if disk.read(where) else -1
    except MetadataLogError as bad:
        damage.append(str(bad))
    bases = [base for one in names if (base := parse_file_name(one)) is not None]
    snapshots = [base for one in names if (base := parse_file_name(one, PRODUCER_SUFFIX)) is not None]
    newest = snapshots[-1] if snapshots else 0
    max_id = -1
    if snapshots:
        where = f"{path}/{newest:020d}{PRODUCER_SUFFIX}"
        max_id, problem = read_producer_snapshot(disk.read(where), where)
        newest = 0 if problem else newest
        damage += [problem] if problem else []
    size, log_end, newest_time = 0, bases[0] if bases else 0, -1
    for index, base in enumerate(bases):
        file = disk.open(f"{path}/{file_name(base)}", writable=False)
        try:
            size += file.size()
            log_end = max(log_end, base)
            following = bases[index + 1] if index + 1 < len(bases) else None
            if following is not None and following <= newest:
                continue
            for header in scan_headers(file):
                log_end = header.next_offset
                max_id = max(max_id, header.producer_id)
                newest_time = max(newest_time, header.max_timestamp)
        except (CorruptBatch, UnsupportedVersion) as bad:
            damage.append(str(bad))
        finally:
            file.close()
    return PartitionFiles(
        name=name,
        topic=topic,
        number=number,
        topic_id=topic_id,
        log_end=log_end,
        last_epoch=last_epoch,
        size_bytes=size,
        max_producer_id=max_id,
        max_timestamp=newest_time,
        damage="; ".join(damage) or None,
    )
