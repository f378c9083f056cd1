"""Missing parts of a partition directory: segments between others, segments after others, or all segments.

Retention removes the oldest segments only. So a hole, an index without its segment, or a snapshot beyond the end of the
log is a loss of data (Kafka: `KafkaRaftLog.truncateToLatestSnapshot` detects only the last case).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from metadata_log.disk import Disk, File, is_directory
from metadata_log.errors import CorruptBatch, DirectoryError, MetadataLogError, UnsupportedVersion
from metadata_log.log.indexes import parse_offset_index
from metadata_log.log.log_dir import ARCHIVE_MANIFEST, META_PROPERTIES, PARTITION_METADATA, parse_partition_metadata
from metadata_log.log.partition_names import parse_partition_name
from metadata_log.log.quorum_state_file import FILE_NAME as QUORUM_STATE
from metadata_log.log.segment import INDEX_SUFFIXES, file_name, parse_file_name, scan_headers
from metadata_log.log.snapshot import list_snapshots, parse_snapshot_name, snapshot_name
from metadata_log.reading.damage import Damage
from metadata_log.reading.entries import Entry, read_entries
from metadata_log.reading.reader import gap_before, read_file
from metadata_log.records.batch import RecordBatch
from metadata_log.records.frame import FRAME_VERSION
from metadata_log.records.record import records
from metadata_log.types import PARTITION_DIRECTORY, OffsetAndEpoch, Uuid

_REMOTE_INDEXES: Final = "remote-log-index-cache"
"""A directory of Kafka's own beside the partitions."""


def check_topic(disk: Disk, directory: str) -> None:
    """Raise `DirectoryError` for the partition directory of a topic other than the metadata log.

    A directory with the name `__cluster_metadata-0` counts as the metadata log; `kraft dump --verify` checks further.
    """
    path = f"{directory}/{PARTITION_METADATA}"
    if directory.rpartition("/")[2] == PARTITION_DIRECTORY or not disk.exists(path):
        return
    topic_id = parse_partition_metadata(disk.read(path), where=path)
    if topic_id != Uuid.METADATA_TOPIC:
        raise DirectoryError(
            f"this is a partition of the topic with id {topic_id}, not the metadata log",
            where=directory,
            hint="Name the log directory of a controller, or the __cluster_metadata-0 in it.",
        )


def is_of_a_topic(disk: Disk, path: str) -> bool:
    """Whether a path is the partition directory of a topic, or a file in one.

    The partition.metadata decides, then the files that only a metadata log has, then the first record, then the name of
    the directory: a directory may need a look just because its partition.metadata is lost.
    """
    directory = path.rstrip("/") or "/"
    if not is_directory(disk, directory):
        directory = directory.rpartition("/")[0] or "."
    name = directory.rpartition("/")[2]
    names = disk.list(directory)
    if name == PARTITION_DIRECTORY or META_PROPERTIES in names or PARTITION_DIRECTORY in names:
        return False
    metadata = f"{directory}/{PARTITION_METADATA}"
    try:
        return parse_partition_metadata(disk.read(metadata), where=metadata) != Uuid.METADATA_TOPIC
    except (FileNotFoundError, IsADirectoryError, MetadataLogError):
        pass
    if QUORUM_STATE in names or ARCHIVE_MANIFEST in names or any(parse_snapshot_name(one) is not None for one in names):
        return False
    bases = [base for one in names if (base := parse_file_name(one)) is not None]
    for base in bases:
        is_metadata = _holds_metadata(disk, f"{directory}/{file_name(base)}")
        if is_metadata is not None:
            return not is_metadata
    return parse_partition_name(name) is not None


def _holds_metadata(disk: Disk, path: str) -> bool | None:
    """Whether the first records of a segment are those of a metadata log; None if they do not tell.

    A record without a key that begins like one of metadata and cannot be decoded may be one of a newer release of
    Kafka, or a damaged one, with secrets in it.
    """
    for batch in read_file(disk, path):
        if isinstance(batch, RecordBatch) and batch.record_count:
            first = next(read_entries(batch, path), None)
            if isinstance(first, Entry) and first.record is not None:
                # A topic has no control records but the ends of transactions, which are none of a metadata log.
                return first.is_control or first.key is None
            return None if not batch.is_control and _begins_like_metadata(batch) else False
    return None


def _begins_like_metadata(batch: RecordBatch) -> bool:
    """Whether the first record of a batch has no key, and the version of a metadata record's envelope in front."""
    try:
        first = next(iter(records(batch)), None)
    except MetadataLogError:
        return False
    return first is not None and first.key is None and (first.value or b"")[:1] == bytes((FRAME_VERSION,))


def of_topics(disk: Disk, path: str) -> list[str]:
    """The partition directories of topics in a log directory, by their names."""
    if not is_directory(disk, path):
        return []
    base = path.rstrip("/")
    inner = [f"{base}/{name}" for name in disk.list(path) if parse_partition_name(name) is not None]
    return [each for each in inner if not each.endswith(f"/{PARTITION_DIRECTORY}") and is_directory(disk, each)]


def foreign_directories(disk: Disk, path: str, names: list[str]) -> list[str]:
    """The directories of a log directory that are no partitions. Kafka's broker ends at its start over each of them."""
    return [
        name
        for name in names
        if name not in {PARTITION_DIRECTORY, _REMOTE_INDEXES}
        and parse_partition_name(name) is None
        and is_directory(disk, f"{path}/{name}")
    ]


def is_log_directory(disk: Disk, path: str) -> bool:
    """Whether a path is a log directory: one with a meta.properties, or with partition directories."""
    if not is_directory(disk, path):
        return False
    return META_PROPERTIES in disk.list(path) or bool(of_topics(disk, path))


def has_log(disk: Disk, directory: str) -> bool:
    """Whether a directory holds segments or snapshots, or the index of a missing segment."""
    return any(
        parse_file_name(name) is not None or parse_snapshot_name(name) is not None or _index_base(name) is not None
        for name in disk.list(directory)
    )


def check_metadata_log(disk: Disk, path: str) -> None:
    """Raise `DirectoryError` for a directory that is neither a log directory nor its partition directory.

    A formatted and unused log directory passes, and so does a file.
    """
    try:
        names = disk.list(path)
    except NotADirectoryError:
        return
    directory = path.rstrip("/") or "/"
    if PARTITION_DIRECTORY in names or META_PROPERTIES in names:
        return
    check_topic(disk, directory)
    if has_log(disk, directory):
        return
    if any(parse_partition_name(name) is not None for name in names):
        return
    below = [name for name in names if disk.exists(f"{directory}/{name}/{PARTITION_DIRECTORY}")]
    raise DirectoryError(
        "there is no metadata log in this directory" if names else "this directory is empty",
        where=path,
        hint=f"There is one in {', '.join(f'{directory}/{name}' for name in below[:3])}."
        if below
        else f"Name the log directory of a controller, the {PARTITION_DIRECTORY} in it, or one of its files.",
    )


def segments_in(disk: Disk, directory: str) -> list[int]:
    """The base offsets of the segments in a partition directory, ascending."""
    return [base for name in disk.list(directory) if (base := parse_file_name(name)) is not None]


def missing_parts(disk: Disk, directory: str) -> Iterator[Damage]:
    """All missing parts of a partition directory; reads only headers."""
    segments = segments_in(disk, directory)
    snapshots = list_snapshots(disk, directory)
    if segments and segments[0] > 0 and not any(one.offset >= segments[0] for one in snapshots):
        yield no_beginning(directory, segments[0])
    yield from holes(disk, directory, segments, covered=snapshots[-1].offset if snapshots else 0)
    end = end_of(disk, directory, segments[-1]) if segments else 0
    if end is not None:
        yield from missing_end(disk, directory, segments, snapshots, end)


def no_beginning(directory: str, begins: int) -> Damage:
    """The damage of a log that begins above 0 without a snapshot."""
    return Damage(
        where=f"{directory}/{file_name(begins)}",
        what=f"the log begins at offset {begins}, and no snapshot holds what came before",
        expected=f"a snapshot that ends at offset {begins} or later",
        position=0,
        offset=begins,
    )


def holes(
    disk: Disk, directory: str, segments: Sequence[int], below: int | None = None, *, covered: int = 0
) -> Iterator[Damage]:
    """The missing segments between others, as far as those others begin at or below an offset.

    A node that installs a snapshot has, for a moment, an empty segment before the one that begins after the snapshot.
    That is no loss if a snapshot covers the log up to there.
    """
    for base, following in pairwise(segments):
        if below is not None and following > below:
            return
        end = end_of(disk, directory, base)
        if end == base and following <= covered:
            continue
        gap = gap_before(f"{directory}/{file_name(following)}", following, end)
        if gap is not None:
            yield gap


def missing_end(
    disk: Disk, directory: str, segments: Sequence[int], snapshots: Sequence[OffsetAndEpoch], end: int
) -> Iterator[Damage]:
    """The evidence that a log that ends at `end` was longer: `snapshots` beyond its end, indexes without segments.

    For the directory of a running node the caller must list `segments` and `snapshots` before it determines the end.
    """
    names = disk.list(directory)
    behind = [one for one in snapshots if one.offset > end]
    if behind and not (ARCHIVE_MANIFEST in names and not segments):  # an archive may begin with a snapshot
        last = behind[-1]
        state = f"the log ends at offset {end}" if segments else "there is no segment of the log"
        yield Damage(
            where=f"{directory}/{file_name(end)}",
            what=f"{state}, and the snapshot {snapshot_name(last)} stands for the records below offset {last.offset}",
            expected=f"a segment that begins at offset {end}",
            offset=end,
        )
    there = {parse_file_name(name) for name in names}
    for base in sorted({base for name in names if (base := _index_base(name)) is not None} - there):
        if base >= end and not (segments and base < segments[0]):
            yield Damage(
                where=f"{directory}/{file_name(base)}",
                what=f"the segment that begins at offset {base} is missing: only its index is there",
                expected="a segment beside its index",
                offset=base,
            )


def _index_base(name: str) -> int | None:
    for suffix in INDEX_SUFFIXES:
        if (base := parse_file_name(name, suffix)) is not None:
            return base
    return None


def end_of(disk: Disk, directory: str, base_offset: int) -> int | None:
    """The offset after the last batch of a segment; None after damage, or if the segment is gone.

    The offset index, if it agrees with the segment, shortens the search.
    """
    try:
        file = disk.open(f"{directory}/{file_name(base_offset)}", writable=False)
    except FileNotFoundError:
        return None
    try:
        start, last_offset = last_entry(disk, directory, base_offset, file.size())
        end = _end_from(file, start, last_offset, base_offset)
        return _end_from(file, 0, None, base_offset) if end is None and start > 0 else end
    finally:
        file.close()


def _end_from(file: File, start: int, last_offset: int | None, base_offset: int) -> int | None:
    """The offset after the last batch from a position on; None for damage, or if no expected batch begins there."""
    end = base_offset
    try:
        for header in scan_headers(file, start):
            if last_offset is not None and header.last_offset != last_offset:
                return None
            end, last_offset = header.next_offset, None
    except (CorruptBatch, UnsupportedVersion):
        return None
    return end


def last_entry(disk: Disk, directory: str, base_offset: int, size: int) -> tuple[int, int | None]:
    """The position and last offset of the last batch in the offset index of a segment; 0 and None without an index."""
    path = f"{directory}/{file_name(base_offset, INDEX_SUFFIXES[0])}"
    try:
        entries = parse_offset_index(disk.read(path), base_offset)
    except OSError:
        return 0, None
    return next(((position, offset) for offset, position in reversed(entries) if 0 < position < size), (0, None))
