"""The batches of a log in an object store, for a stream: from listings, small files and the end of the log alone.

`index_log` reads the header of every batch, and a store serves that only as the whole log. So the epochs come from
Kafka's `leader-epoch-checkpoint`, some boundaries between batches from the offset indexes, and the end from the batches
after the last index entry. Where these files are missing or contradict the log, the headers are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from metadata_log.errors import CorruptBatch, UnsupportedVersion
from metadata_log.log.segment import INDEX_SUFFIXES, file_name, parse_file_name, scan_headers
from metadata_log.spark.log_index import (
    Epochs,
    IndexedBatch,
    LogIndex,
    SegmentIndex,
    epochs_of,
    index_log,
    index_segment,
    indexed,
)
from metadata_log.spark.remote_disk import RemoteDisk
from metadata_log.spark.remote_plan import read_index

_EPOCHS: Final = "leader-epoch-checkpoint"
_LARGE_BYTES: Final = 1 << 20
"""An unread part up to this size is read by one request: its headers need no index."""


def index_remote_log(disk: RemoteDisk, directory: str, known: LogIndex | None = None) -> LogIndex:
    """The batches of a partition directory; a log that did not change since `known` costs one listing.

    Args:
        disk: The disk; it has listed the directory since `forget`, or lists it now.
        directory: The partition directory.
        known: The index of an earlier moment.

    Returns:
        The index. Of a long part it names some boundaries of batches only.

    Raises:
        OSError: A file is unreadable.
    """
    names = disk.list(directory)
    bases = sorted(base for name in names if (base := parse_file_name(name)) is not None)
    states = tuple(_state(disk, f"{directory}/{file_name(base)}") for base in bases)
    if known is not None and known.states == states:
        return known
    sparse = _sparse(disk, directory, bases, names, known)
    if sparse is None:
        index = index_log(disk, directory, None if known is None or known.is_sparse else known)
        return LogIndex(index.segments, index.damages, states=states)
    segments, epochs = sparse
    return LogIndex(tuple(segments), states=states, given_epochs=epochs)


def _state(disk: RemoteDisk, path: str) -> tuple[str, int, str]:
    entry = disk.entry(path)
    return (path, 0, "") if entry is None else (path, entry.size, entry.state)


def _sparse(
    disk: RemoteDisk, directory: str, bases: Sequence[int], names: Sequence[str], known: LogIndex | None
) -> tuple[list[SegmentIndex], Epochs] | None:
    """The index without reading most headers; None if the small files do not allow that."""
    before = {} if known is None else {segment.path: segment for segment in known.segments}
    segments: list[SegmentIndex] = []
    for at, base in enumerate(bases):
        path = f"{directory}/{file_name(base)}"
        former = before.get(path)
        entry = disk.entry(path)
        size = 0 if entry is None else entry.size
        following = bases[at + 1] if at + 1 < len(bases) else None
        if following is not None and former is not None and former.end_position == size:
            segments.append(former)
            continue
        if following is not None and size <= _LARGE_BYTES and _EPOCHS in names:
            # Where such a segment ends is where the next one begins, and no trigger needs a boundary inside.
            whole = IndexedBatch(base, following, -1, 0, 0)
            segments.append(SegmentIndex(path, base, size, (whole,), is_sparse=True))
            continue
        read = 0 if former is None else former.end_position
        if size - read <= _LARGE_BYTES:
            segments.append(index_segment(disk, path, former))
        else:
            sparse = _by_index(disk, directory, base, size, following, names)
            if sparse is None:
                return None
            segments.append(sparse)
        if segments[-1].damages:
            return None
    if any(one.batches and one.batches[-1].next_offset != next_one.base_offset for one, next_one in pairwise(segments)):
        return None
    if not any(segment.is_sparse for segment in segments):
        return None if any(segment.damages for segment in segments) else (segments, epochs_of(_batches(segments)))
    epochs = _read_epochs(disk, directory, names, segments)
    return None if epochs is None else (segments, epochs)


def _batches(segments: Sequence[SegmentIndex]) -> list[IndexedBatch]:
    return [batch for segment in segments for batch in segment.batches]


def _by_index(
    disk: RemoteDisk, directory: str, base: int, size: int, following: int | None, names: Sequence[str]
) -> SegmentIndex | None:
    """A long segment by its offset index; of a segment with a successor the end is known."""
    name = file_name(base, INDEX_SUFFIXES[0])
    path = f"{directory}/{file_name(base)}"
    entries = read_index(disk, f"{directory}/{name}", base, size // 512 + 8, size) if name in names else []
    if not entries:
        return None
    boundaries: list[IndexedBatch] = []
    start = base
    for offset, position in entries:
        boundaries.append(IndexedBatch(start, offset + 1, -1, 0, position))
        start = offset + 1
    if following is not None:
        last = IndexedBatch(start, following, -1, 0, entries[-1][1])
        if following > start:
            boundaries.append(last)
        return SegmentIndex(path, base, size, tuple(boundaries), is_sparse=True)
    offset, position = entries[-1]
    file = disk.open(path, writable=False)
    indexed_batches: list[IndexedBatch] = []
    end = position
    try:
        for batch in scan_headers(file, position):
            if not indexed_batches and not batch.base_offset <= offset < batch.next_offset:
                return None
            indexed_batches.append(indexed(batch))
            end = batch.end_position
    except (CorruptBatch, UnsupportedVersion):
        # A node may be writing the last batch.
        pass
    finally:
        file.close()
    if not indexed_batches:
        return None
    kept = [batch for batch in boundaries[:-1] if batch.next_offset <= indexed_batches[0].base_offset]
    return SegmentIndex(path, base, end, (*kept, *indexed_batches), is_sparse=True)


def _read_epochs(
    disk: RemoteDisk, directory: str, names: Sequence[str], segments: Sequence[SegmentIndex]
) -> Epochs | None:
    """The epochs of Kafka's checkpoint, as far as the log reaches; None if the log's last batch contradicts them."""
    if _EPOCHS not in names:
        return None
    lines = disk.read(f"{directory}/{_EPOCHS}").decode("ascii", "replace").splitlines()
    try:
        pairs = [tuple(map(int, line.split())) for line in lines[2:] if line.strip()]
        given = [(epoch, start) for epoch, start in pairs]
    except ValueError:
        return None
    batches = _batches(segments)
    last = batches[-1] if batches else None
    begin = segments[0].base_offset if segments else 0
    if last is None:
        return ()
    below = [(epoch, start) for epoch, start in given if start < last.next_offset]
    later = [start for _, start in below[1:]] + [last.next_offset]
    kept = tuple((epoch, max(start, begin)) for (epoch, start), end in zip(below, later, strict=True) if end > begin)
    return kept if kept and kept[-1][0] == last.epoch and kept == tuple(sorted(kept)) else None
