"""Reads the batches of segments and snapshots without changing the files (Kafka: `DumpLogSegments`).

Damage is a result, not an error. The reader takes no locks: the directory may belong to a running node.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import structs

from metadata_log.disk import Disk, File
from metadata_log.errors import CorruptBatch, DecodeError, IncompleteBatch, UnsupportedVersion
from metadata_log.log.segment import MOST_BATCH_BYTES, next_sound_batch, parse_file_name, scan_file
from metadata_log.log.segment import SUFFIX as LOG_SUFFIX
from metadata_log.log.snapshot import DELETED_SUFFIX, control_types
from metadata_log.log.snapshot import SUFFIX as SNAPSHOT_SUFFIX
from metadata_log.reading.damage import Damage, OnDamage, stops
from metadata_log.records.batch import RecordBatch, sound_batches
from metadata_log.records.frame import ControlRecordType

_FIRST_PIECE: Final = 1 << 16
_PIECE: Final = 1 << 20
"""How many bytes are read at once: first few, for a reader that wants the beginning."""
_RESYNC_BUDGET: Final = 256 << 20
"""How many bytes may at least be read to find a valid batch after damage."""


def read_file(
    disk: Disk,
    path: str,
    *,
    on_damage: OnDamage = OnDamage.SKIP,
    behind: tuple[int, int | None, int] = (0, None, 0),
) -> Iterator[RecordBatch | Damage]:
    """The batches of a segment or snapshot and the damage between them, in order of position.

    Args:
        disk: The disk.
        path: The segment or snapshot.
        on_damage: The reaction to damage. `SKIP` continues at the next batch with a valid CRC. Batches in a wrong order
            are damage too.
        behind: Where reading begins: the position of a batch in bytes, its offset (None if unknown) and the epoch of
            the batch before.

    Returns:
        Batches and damage, as Kafka's `DumpLogSegments` finds them.

    Raises:
        DamagedFile: The file is damaged, and the mode is strict.
        OSError: The file is unreadable.
    """
    file = disk.open(path, writable=False)
    try:
        start, expected, epoch = behind
        base = parse_file_name(path.rpartition("/")[2]) if expected is None else expected
        items = read_range(file, start, expected=base, epoch=epoch, may_grow=True)
        for item in framed(items, path) if path.endswith(SNAPSHOT_SUFFIX) else items:
            if not isinstance(item, Damage):
                yield item
                continue
            unfinished = item.unfinished and may_grow(disk, path)
            damage = structs.replace(item, unfinished=unfinished)
            last = stops(damage, on_damage)
            yield damage
            if last:
                return
    finally:
        file.close()


def may_grow(disk: Disk, path: str) -> bool:
    """Whether a node may be writing the end of a file: only of the last segment and of an unfinished snapshot."""
    if path.endswith((SNAPSHOT_SUFFIX, DELETED_SUFFIX, ".deleted")):
        return False
    base_offset = parse_file_name(path.rpartition("/")[2])
    if base_offset is None:
        return True
    names = disk.list(path.rpartition("/")[0] or ".")
    return not any((other := parse_file_name(name)) is not None and other > base_offset for name in names)


def read_range(
    file: File,
    start: int = 0,
    end: int | None = None,
    *,
    expected: int | None = None,
    epoch: int = 0,
    may_grow: bool = True,
) -> Iterator[RecordBatch | Damage]:
    """The batches of an open file from `start` to `end`, and the damage between them.

    Args:
        file: The segment or snapshot.
        start: The position of a batch.
        end: The position where reading ends; None for the end of the file.
        expected: The offset of the first batch; None if unknown.
        epoch: The epoch of the batch before.
        may_grow: Whether an unfinished batch at the end is usual.

    Returns:
        Batches and damage.

    Raises:
        OSError: The file is unreadable.
    """
    for run in read_runs(file, start, end, expected=expected, epoch=epoch, may_grow=may_grow):
        if isinstance(run, Damage):
            yield run
        else:
            yield from run


def read_runs(
    file: File, start: int, end: int | None, *, expected: int | None, epoch: int, may_grow: bool
) -> Iterator[list[RecordBatch] | Damage]:
    """The same with each run of batches as a list, for callers that treat many batches alike."""
    position, size = start, file.size() if end is None else end
    piece = _FIRST_PIECE
    while position < size:
        content = file.pread(min(piece, size - position), position)
        sound = sound_batches(content, at=position, offset=expected, epoch=epoch)
        if sound or (piece < _PIECE and len(content) == piece):
            if sound:
                yield sound
                position, expected, epoch = sound[-1].end_position, sound[-1].next_offset, sound[-1].epoch
            piece = _PIECE
            continue
        # The next batch is longer than a piece, out of order, or damaged.
        try:
            batch = next(scan_file(file, position, end=size))
            if (wrong := order_damage(batch, expected, epoch, file.path)) is not None:
                yield wrong
            position, expected, epoch = batch.end_position, batch.next_offset, batch.epoch
            yield [batch]
        except (CorruptBatch, UnsupportedVersion) as bad:
            budget = max(_RESYNC_BUDGET, 4 * (size - position))
            following = next_sound_batch(file, position + 1, end=size, budget=budget)
            resumed = size if following is None else following.position
            unfinished = may_grow and isinstance(bad, IncompleteBatch) and following is None
            yield Damage(
                where=file.path,
                what=f"{bad.what}; {resumed - position} bytes cannot be read",
                expected="a batch of format 2" + ("" if expected is None else f" with offset {expected}"),
                position=position,
                offset=expected,
                unfinished=unfinished and not is_absurd(file, position),
            )
            # The offset after damage is not known: the next batch sets a new expectation.
            position, expected = resumed, None


def is_absurd(file: File, position: int) -> bool:
    """Whether the length of a batch is one that no node writes, so that no node is writing the rest of the batch."""
    length = file.pread(12, position)[8:]
    return len(length) == 4 and int.from_bytes(length, "big", signed=True) > MOST_BATCH_BYTES


def order_damage(batch: RecordBatch, expected: int | None, epoch: int, path: str) -> Damage | None:
    """The error of a batch that follows one of `epoch` with the end `expected`; None if the order is right."""
    if expected is not None and batch.base_offset != expected:
        what = f"a batch begins at offset {batch.base_offset} where {expected} comes next"
        wanted = f"a batch with offset {expected}"
    elif batch.last_offset_delta < 0:
        what = f"a batch ends {-batch.last_offset_delta} offsets before it begins"
        wanted = "a last offset delta of at least 0"
    elif batch.epoch < epoch:
        what = f"a batch of epoch {batch.epoch} follows one of epoch {epoch}"
        wanted = f"a batch of epoch {epoch} or later"
    else:
        return None
    return Damage(where=path, what=what, expected=wanted, position=batch.position, offset=batch.base_offset)


def framed(
    found: Iterator[RecordBatch | Damage], path: str, *, begins: bool = True, ends: bool = True
) -> Iterator[RecordBatch | Damage]:
    """Check that a snapshot begins with its header and ends with its footer; in a part, only the included end."""
    first = last = None
    header, footer = (
        "a control batch that begins with SnapshotHeaderRecord",
        "a control batch with SnapshotFooterRecord",
    )
    for item in found:
        if first is None:
            first = item
            if begins and isinstance(item, RecordBatch) and ControlRecordType.SNAPSHOT_HEADER not in _types(item)[:1]:
                what = "the snapshot does not begin with its header"
                yield Damage(where=path, what=what, expected=header, position=0)
        last = item
        yield item
    if first is None:
        yield Damage(where=path, what="the snapshot is empty", expected=header, position=0)
    elif ends and isinstance(last, RecordBatch) and ControlRecordType.SNAPSHOT_FOOTER not in _types(last)[-1:]:
        what = "the snapshot ends without its footer"
        yield Damage(where=path, what=what, expected=footer, position=last.end_position)


def _types(batch: RecordBatch) -> list[int]:
    try:
        return control_types(batch)
    except (CorruptBatch, DecodeError):
        return []


def read_log(
    disk: Disk, partition_directory: str, from_offset: int = 0, *, on_damage: OnDamage = OnDamage.SKIP
) -> Iterator[RecordBatch | Damage]:
    """The batches of all segments in a partition directory, in order, from the one that holds `from_offset` on.

    Args:
        disk: The disk.
        partition_directory: The partition directory.
        from_offset: The first offset.
        on_damage: The reaction to damage.

    Returns:
        Batches and damage. A gap between two segments is damage.

    Raises:
        DamagedFile: The log is damaged, and the mode is strict.
        OSError: A file is unreadable.
    """
    bases = [base for name in disk.list(partition_directory) if (base := parse_file_name(name)) is not None]
    end: int | None = None  # of the segment before; unknown after damage
    for index, base in enumerate(bases):
        if index + 1 < len(bases) and bases[index + 1] <= from_offset:
            continue
        path = f"{partition_directory}/{base:020d}{LOG_SUFFIX}"
        if (gap := gap_before(path, base, end)) is not None:
            last = stops(gap, on_damage)
            yield gap
            if last:
                return
        end = base
        for item in read_file(disk, path, on_damage=on_damage):
            if isinstance(item, Damage):
                yield item
                if stops(item, on_damage):
                    return
                end = None
            else:
                end = item.next_offset
                if end > from_offset:
                    yield item


def gap_before(path: str, base_offset: int, end_offset: int | None) -> Damage | None:
    """The damage if a segment does not begin at the end of the one before; None if it does, or if that is unknown."""
    if end_offset is None or base_offset == end_offset:
        return None
    return Damage(
        where=path,
        what=f"the segment begins at offset {base_offset} where {end_offset} comes next",
        expected=f"a segment file that begins at offset {end_offset}",
        position=0,
        offset=end_offset,
    )
