"""The batches of a log, from their headers alone: its start, its end and its epochs (the log view of KIP-101).

Raft guarantees that two logs of one cluster agree up to the last offset that has the same epoch in both. `common_end`
finds that offset for a log and a stream's memory of it, `first_difference` for two copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from metadata_log.disk import Disk, File
from metadata_log.errors import CorruptBatch, UnsupportedVersion
from metadata_log.log.segment import parse_file_name, scan_headers
from metadata_log.reading.damage import Damage, OnDamage
from metadata_log.reading.reader import gap_before, read_file
from metadata_log.records.batch import RecordBatch, read_header

_CHUNK_BYTES: Final = 512
Epochs = tuple[tuple[int, int], ...]
"""(epoch, offset of its first record), in order."""


class IndexedBatch(Struct, frozen=True, gc=False):
    """The facts in a batch header."""

    base_offset: int
    next_offset: int
    epoch: int
    crc: int
    position: int


class SegmentIndex(Struct, frozen=True):
    """The batches of one segment; `end_position` is the position of the next one."""

    path: str
    base_offset: int
    end_position: int
    batches: tuple[IndexedBatch, ...]
    damages: tuple[Damage, ...] = ()
    is_sparse: bool = False
    """Whether `batches` are some boundaries only, of which the last one in the log is a batch."""


class LogIndex(Struct, frozen=True):
    """The batches of a partition directory at one moment."""

    segments: tuple[SegmentIndex, ...] = ()
    damages: tuple[Damage, ...] = ()
    """Damage between segments or inside; an unfinished batch at the end is none."""
    states: tuple[tuple[str, int, str], ...] = ()
    """The entries of an object store's listing, one for each segment."""
    given_epochs: Epochs | None = None
    """The epochs, if `batches` do not show them."""

    @property
    def is_sparse(self) -> bool:
        """Whether the batches are some boundaries only."""
        return any(segment.is_sparse for segment in self.segments)

    @property
    def start_offset(self) -> int:
        """The offset of the first record, or of the next one in an empty log."""
        return self.segments[0].base_offset if self.segments else 0

    @property
    def end_offset(self) -> int:
        """The offset after the last complete batch."""
        for segment in reversed(self.segments):
            if segment.batches:
                return segment.batches[-1].next_offset
        return self.segments[-1].base_offset if self.segments else 0

    @property
    def batches(self) -> list[IndexedBatch]:
        """All batches in order."""
        return [batch for segment in self.segments for batch in segment.batches]

    @property
    def epochs(self) -> Epochs:
        """Each epoch with its first offset."""
        return epochs_of(self.batches) if self.given_epochs is None else self.given_epochs

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record, -1 for none."""
        return max((segment.batches[-1].epoch for segment in self.segments if segment.batches), default=-1)


def index_log(disk: Disk, directory: str, known: LogIndex | None = None) -> LogIndex:
    """Read the headers of all batches in a partition directory.

    Only batches after `known` are read. A segment with inconsistent headers is read in full, to find the batches
    after the damage. Raises `OSError`.
    """
    before = {segment.path: segment for segment in known.segments} if known else {}
    names = [name for name in disk.list(directory) if parse_file_name(name) is not None]
    segments: list[SegmentIndex] = []
    damages: list[Damage] = []
    end: int | None = None
    for name in names:
        path = f"{directory}/{name}"
        try:
            segment = index_segment(disk, path, before.get(path))
        except FileNotFoundError:
            if segments:
                raise
            continue
        gap = gap_before(path, segment.base_offset, end)
        damages += [*([gap] if gap else []), *segment.damages]
        end = segment.batches[-1].next_offset if segment.batches else segment.base_offset
        if segment.damages:
            end = None
        segments.append(segment)
    return LogIndex(tuple(segments), tuple(damages))


def index_segment(disk: Disk, path: str, known: SegmentIndex | None) -> SegmentIndex:
    """The batches of one segment; those of `known` are kept if the last of them is still there."""
    file = disk.open(path, writable=False)
    try:
        kept = known if known is not None and not known.damages and _still_holds(file, known) else None
        return _scan(disk, file, kept)
    finally:
        file.close()


def _still_holds(file: File, known: SegmentIndex) -> bool:
    """Whether the last known batch is still in the file: then all earlier ones are, as an epoch has one writer."""
    if not known.batches:
        return True
    last = known.batches[-1]
    size = file.size()
    if size < known.end_position:
        return False
    try:
        header = read_header(
            file.pread(_CHUNK_BYTES, last.position), 0, left=size - last.position, where=file.path, position=0
        )
    except (CorruptBatch, UnsupportedVersion):
        return False
    return (header.base_offset, header.epoch, header.crc) == (last.base_offset, last.epoch, last.crc)


def _scan(disk: Disk, file: File, known: SegmentIndex | None) -> SegmentIndex:
    """The index of a segment, read on from where a known index ends."""
    base = parse_file_name(file.path.rpartition("/")[2]) or 0
    batches = list(known.batches) if known else []
    start = known.end_position if known else 0
    expected = batches[-1].next_offset if batches else base
    try:
        for batch in scan_headers(file, start):
            if batch.base_offset != expected or batch.last_offset_delta < 0:
                return _scan_in_full(disk, file.path, base)
            batches.append(indexed(batch))
            start, expected = batch.end_position, batch.next_offset
    except (CorruptBatch, UnsupportedVersion):
        return _scan_in_full(disk, file.path, base)
    return SegmentIndex(file.path, base, start, tuple(batches), is_sparse=known is not None and known.is_sparse)


def _scan_in_full(disk: Disk, path: str, base_offset: int) -> SegmentIndex:
    batches, damages, end = [], [], 0
    for item in read_file(disk, path, on_damage=OnDamage.SKIP):
        if isinstance(item, Damage):
            damages += [] if item.unfinished else [item]
        else:
            batches.append(indexed(item))
            end = item.end_position
    return SegmentIndex(path, base_offset, end, tuple(batches), tuple(damages))


def indexed(batch: RecordBatch) -> IndexedBatch:
    """The facts of a batch."""
    return IndexedBatch(batch.base_offset, batch.next_offset, batch.epoch, batch.crc, batch.position)


# ---------------------------------------------------------------------------------------------------- comparing logs


def epochs_of(batches: Sequence[IndexedBatch]) -> Epochs:
    """Each epoch with the offset of its first record."""
    epochs: list[tuple[int, int]] = []
    for batch in batches:
        if not epochs or batch.epoch > epochs[-1][0]:
            epochs.append((batch.epoch, batch.base_offset))
    return tuple(epochs)


def epochs_until(epochs: Epochs, end_offset: int) -> Epochs:
    """The epochs of the records below an offset."""
    return tuple(each for each in epochs if each[1] < end_offset)


def common_end(ours: Epochs, our_end: int, theirs: Epochs, their_end: int) -> int:
    """The offset up to which two logs are equal: the lower end of the last common epoch.

    -1 without a common epoch: then the logs cannot be compared.
    """
    our_ends, their_ends = _ends(ours, our_end), _ends(theirs, their_end)
    shared = our_ends.keys() & their_ends.keys()
    if not shared:
        return -1
    last = max(shared)
    return min(our_ends[last], their_ends[last])


def _ends(epochs: Epochs, end_offset: int) -> dict[int, int]:
    ends = [*(start for _, start in epochs[1:]), end_offset]
    return {epoch: end for (epoch, _), end in zip(epochs, ends, strict=False)}


def first_difference(one: LogIndex, other: LogIndex) -> int | None:
    """The first offset at which two copies of a log hold different batches; None if one continues the other.

    Only the common range is compared: a copy may begin later or end earlier. Damage is no difference.
    """
    low, high = max(one.start_offset, other.start_offset), min(one.end_offset, other.end_offset)
    if one.is_sparse or other.is_sparse:
        same = common_end(one.epochs, one.end_offset, other.epochs, other.end_offset)
        return max(same, low) if same < high else None
    whole = not (one.damages or other.damages)
    there = {batch.base_offset: batch for batch in other.batches}
    for batch in one.batches:
        if not low <= batch.base_offset < high:
            continue
        match = there.get(batch.base_offset)
        if match is None:
            if whole:
                return batch.base_offset
        elif (batch.next_offset, batch.epoch, batch.crc) != (match.next_offset, match.epoch, match.crc):
            return batch.base_offset
    return None
