"""One history of a directory: a snapshot, or the first record, and the following log (Kafka: `MetadataLoader`).

The reader takes no locks and writes nothing: the directory may belong to a running node, which appends to the log and
deletes its oldest segments.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator, Iterable, Iterator
from datetime import datetime, timedelta
from itertools import chain
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from metadata_log.disk import Disk, check_exists
from metadata_log.errors import MetadataLogError
from metadata_log.log.log_dir import read_meta_properties
from metadata_log.log.segment import file_name, parse_file_name
from metadata_log.log.snapshot import list_snapshots, parse_snapshot_name, read_snapshot_start, snapshot_name
from metadata_log.reading.damage import Damage, OnDamage, stops
from metadata_log.reading.entries import Entry, read_entries
from metadata_log.reading.file_kinds import FileKind, kind_of
from metadata_log.reading.missing import check_topic, holes, missing_end, segments_in
from metadata_log.reading.place import Place
from metadata_log.reading.reader import read_file
from metadata_log.records.batch import RecordBatch
from metadata_log.times import EPOCH, iso_time
from metadata_log.types import BOOTSTRAP_SNAPSHOT, PARTITION_DIRECTORY, OffsetAndEpoch

_ATTEMPTS: Final = 3
NAMELESS: Final = OffsetAndEpoch(epoch=0, offset=0)
"""The end of a snapshot with a name that does not state it, such as `bootstrap.checkpoint`."""


class At(Struct, frozen=True):
    """A point in a history (inclusive); without a field the end of the history, with both fields the earlier point.

    Args:
        offset: After the record at this offset.
        timestamp_ms: Before the first batch with a later timestamp.
    """

    offset: int | None = None
    timestamp_ms: int | None = None


END: Final = At()

WHAT_TO_NAME: Final = (
    "Name a log directory, a segment or a snapshot. Only `kraft fleet` reads packed files: unpack them (gunzip, unzip)."
)


def parse_at(text: str) -> At:
    """Parse an offset (`12345`) or a time with its zone (`2026-11-20T10:00:00Z`, `2026-11-20 12:00:00.5+02:00`).

    Args:
        text: The text.

    Returns:
        The point.

    Raises:
        ValueError: The text is neither; the message is for the user.
    """
    text = text.strip()
    if text.isascii() and text.isdecimal():
        return At(offset=int(text))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is neither an offset, such as 12345, nor a time, such as 2026-11-20T10:00:00Z"
        ) from None
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} does not say in which time zone; add Z for UTC, or an offset such as +02:00")
    return At(timestamp_ms=(moment - EPOCH) // timedelta(milliseconds=1))


def moment_text(at: At) -> str:
    """A point in the form of `parse_at`: the offset, or the time in UTC."""
    if at.offset is not None or at.timestamp_ms is None:
        return f"offset {at.offset}" if at.offset is not None else "the end"
    return iso_time(at.timestamp_ms) or f"{at.timestamp_ms} ms"


class Base(Struct, frozen=True, kw_only=True):
    """A snapshot at the beginning of a history, in place of everything below `end`.

    `timestamp_ms` is the time of the last record that the snapshot covers. The offsets of `entries` are positions in
    the file.
    """

    path: str
    end: OffsetAndEpoch
    timestamp_ms: int
    entries: Iterator[Entry | Damage]
    """Every record, each once. Damage is an item only if the caller allows it; else reading raises `DamagedFile`."""


class TimelineBatch(Struct, frozen=True, kw_only=True):
    """A batch of the log. Its records from `from_offset` to before `end_offset` belong to the history."""

    path: str
    batch: RecordBatch
    from_offset: int
    end_offset: int
    on_damage: OnDamage
    pass_newer: bool = False

    @property
    def end(self) -> OffsetAndEpoch:
        """The end of the history after this batch."""
        return OffsetAndEpoch(epoch=self.batch.epoch, offset=self.end_offset)

    def entries(self) -> Iterator[Entry | Damage]:
        """The records, decoded during iteration; damage is an item only if the caller allows damage."""
        items = read_entries(self.batch, self.path, on_damage=self.on_damage, pass_newer=self.pass_newer)
        if self.from_offset <= self.batch.base_offset and self.end_offset >= self.batch.next_offset:
            return items
        return (one for one in items if isinstance(one, Damage) or self.from_offset <= one.offset < self.end_offset)


From = Literal["earliest", "latest"]


def read_timeline(
    disk: Disk,
    path: str,
    *,
    until: At | None = None,
    from_base: From | None = "earliest",
    on_damage: OnDamage = OnDamage.STRICT,
    pass_newer: bool = False,
) -> Iterator[Base | TimelineBatch | Damage]:
    """The history of a log directory, a partition directory, a segment or a snapshot, oldest first.

    A history that does not begin at offset 0 begins with a `Base`, and so does the history after a gap. A torn end,
    which a running node may be writing, is a `Damage` with `unfinished` set and is never raised.

    Args:
        disk: The disk.
        path: The path.
        until: The end of the history; None for the end of the log.
        from_base: "earliest" for the longest known history; "latest" for the shortest one, from the newest snapshot at
            or before `until`; None for the stored batches without a base, with or without gaps.
        on_damage: The reaction to damage and gaps.
        pass_newer: Whether a record of a later release is an entry in strict mode too, without a decoded record.

    Returns:
        Bases, batches and damage, in order (Kafka's `MetadataLoader`).

    Raises:
        MetadataLogError: The files do not cover the time before `until`, or the path holds no history.
        DamagedFile: The log is damaged or has a gap, and the mode is strict.
    """
    walk = _Walk(disk, until or END, on_damage, pass_newer=pass_newer)
    if _is_directory(disk, path):
        inner = f"{path.rstrip('/')}/{PARTITION_DIRECTORY}"
        yield from walk.directory(inner if disk.exists(inner) else path.rstrip("/"), from_base)
    elif kind_of(disk, path) is FileKind.SNAPSHOT:
        name = path.rpartition("/")[2]
        yield walk.base(path, parse_snapshot_name(name.removesuffix(".deleted")) or NAMELESS)
    elif kind_of(disk, path) is FileKind.SEGMENT:
        yield from walk.single_segment(path, from_base)
    else:
        raise MetadataLogError(
            "this is neither a directory, nor a segment, nor a snapshot of a log", where=path, hint=WHAT_TO_NAME
        )


def place_of(item: Base | TimelineBatch) -> Place:
    """The place after an item."""
    if isinstance(item, Base):
        return Place(item.end.offset, item.end.epoch)
    batch, segment = item.batch, parse_file_name(item.path.rpartition("/")[2])
    return Place(item.end_offset, batch.epoch, batch.crc, segment, batch.position, batch.end_position)


def continue_timeline(
    disk: Disk, directory: str, place: Place, *, on_damage: OnDamage = OnDamage.STRICT, pass_newer: bool = False
) -> Iterator[Base | TimelineBatch | Damage]:
    """The history of a partition directory after a place, as the second half of `read_timeline`.

    Args:
        disk: The disk.
        directory: The partition directory.
        place: A place in this log; the caller knows that the log holds the batch of the place.
        on_damage: The reaction to damage and gaps.
        pass_newer: As in `read_timeline`.

    Returns:
        Bases, batches and damage, in order.

    Raises:
        MetadataLogError: The directory is that of a topic.
        DamagedFile: The log is damaged or has a gap, and the mode is strict.
    """
    return _Walk(disk, END, on_damage, pass_newer=pass_newer).behind(directory, place)


def _is_directory(disk: Disk, path: str) -> bool:
    check_exists(disk, path)
    try:
        disk.list(path)
    except (NotADirectoryError, FileNotFoundError):
        return False
    return True


class _Walk:
    """The state of one reading."""

    def __init__(self, disk: Disk, until: At, on_damage: OnDamage, *, pass_newer: bool) -> None:
        self._disk = disk
        self._until = until
        self._on_damage = on_damage
        self._pass_newer = pass_newer
        self._position: int | None = None
        """The next expected offset; None if unknown, at the beginning and after damage."""
        self._over = False
        self._base_end = 0
        self._log_end = 0
        """The end of the last read batch, inside or outside of the history."""
        self._directory: str | None = None
        """The directory to search for a snapshot after damage, if wanted."""
        self._next_base: OffsetAndEpoch | None = None
        """The snapshot to continue with after damage."""
        self._resumed: tuple[str, Place] | None = None
        """The segment that was read up to a place before, and that place."""

    def base(self, path: str, end: OffsetAndEpoch) -> Base:
        """A snapshot as the beginning. Its file is open from now on, so that the node may remove it."""
        header = read_snapshot_start(self._disk, path).header
        batches = read_file(self._disk, path, on_damage=self._on_damage)
        entries = self._entries(path, chain((next(batches),), batches))
        self._position = self._base_end = end.offset
        return Base(path=path, end=end, timestamp_ms=header.last_contained_log_timestamp, entries=entries)

    def _entries(self, path: str, batches: Iterable[RecordBatch | Damage]) -> Iterator[Entry | Damage]:
        for item in batches:
            if isinstance(item, Damage):
                yield item
            else:
                yield from read_entries(item, path, on_damage=self._on_damage, pass_newer=self._pass_newer)

    def single_segment(self, path: str, from_base: From | None) -> Iterator[TimelineBatch | Damage]:
        """One file, which begins the history only if the file begins at offset 0."""
        first = parse_file_name(path.rpartition("/")[2])
        if first and from_base is not None:
            gap = _gap(path, first, 0)
            yield gap
            if stops(gap, self._on_damage):
                return
        self._position = first
        yield from self._segment(path)

    def directory(self, directory: str, from_base: From | None) -> Iterator[Base | TimelineBatch | Damage]:
        """The base snapshot, if any, and the log after it; after a gap the next snapshot.

        A missing segment below a snapshot is reported before the snapshot in the longest history, and last in the
        shortest.
        """
        check_topic(self._disk, directory)
        segments = segments_in(self._disk, directory)
        if from_base is None:
            self._position = segments[0] if segments else None
            yield from self._log(directory, segments, from_base)
            return
        self._directory = directory
        snapshots = list_snapshots(self._disk, directory)
        start = self._begin(directory, from_base)
        below: list[Damage] = []
        if isinstance(start, Base):
            below = list(holes(self._disk, directory, segments, self._base_end, covered=self._base_end))
        if from_base == "earliest" and (yield from self._tell(below)):
            return
        if start is not None:
            yield start
            if isinstance(start, Damage) and stops(start, self._on_damage):
                return
        yield from self._log(directory, segments, from_base)
        if not self._over:
            yield from self._end(directory, segments, snapshots)
        if from_base == "latest":
            yield from self._tell(below)

    def behind(self, directory: str, place: Place) -> Iterator[Base | TimelineBatch | Damage]:
        """The log after a place."""
        check_topic(self._disk, directory)
        segments = segments_in(self._disk, directory)
        snapshots = list_snapshots(self._disk, directory)
        self._directory = directory
        self._position = self._log_end = place.offset
        if place.segment is not None:
            self._resumed = f"{directory}/{file_name(place.segment)}", place
        yield from self._log(directory, segments, "earliest")
        if not self._over:
            yield from self._end(directory, segments, snapshots)

    def _tell(self, damages: Iterable[Damage]) -> Generator[Damage, None, bool]:
        """Report damage; returns whether reading ends."""
        for damage in damages:
            yield damage
            if stops(damage, self._on_damage):
                self._over = True
        return self._over

    def _log(
        self, directory: str, segments: list[int], from_base: From | None
    ) -> Iterator[Base | TimelineBatch | Damage]:
        """The segments from `_position` on."""
        while not self._over:
            at = self._position
            segment = _segment_with(segments, at)
            if segment is None:
                return
            if at is not None and segment > at:
                if (yield from self._tell([_gap(f"{directory}/{file_name(segment)}", segment, at)])):
                    return
                yield from self._behind_gap(directory, segment, from_base)
                continue
            try:
                yield from self._segment(f"{directory}/{file_name(segment)}")
            except FileNotFoundError:
                # Retention has deleted this segment; continue with the present content of the directory.
                segments = segments_in(self._disk, directory)
                if segment in segments:
                    raise
                continue
            if self._next_base is not None:
                yield self.base(f"{directory}/{snapshot_name(self._next_base)}", self._next_base)
                self._next_base = None
                continue
            segments = segments[bisect_right(segments, segment) :]

    def _end(self, directory: str, segments: list[int], snapshots: Iterable[OffsetAndEpoch]) -> Iterator[Base | Damage]:
        """The evidence that the log was longer, and the last snapshot beyond its end.

        `segments` and `snapshots` are those of the start of the reading: a later addition by a running node is no loss.
        """
        at = self._position
        if at is None:
            return
        end = max(self._log_end, segments[-1] if segments else 0)
        known = [one for one in snapshots if self._is_before(directory, one)]
        for damage in missing_end(self._disk, directory, segments, known, end):
            yield replace(damage, offset=max(at, damage.offset or 0))
            if stops(damage, self._on_damage):
                return
        newer = [one for one in known if one.offset > at]
        if newer:
            yield self.base(f"{directory}/{snapshot_name(newer[-1])}", newer[-1])

    def _begin(self, directory: str, from_base: From) -> Base | Damage | None:
        """Set `_position` and return the beginning; a snapshot may vanish before it is open."""
        for attempt in range(_ATTEMPTS):
            start = self._start(directory, segments_in(self._disk, directory), from_base)
            if isinstance(start, OffsetAndEpoch):
                try:
                    return self.base(f"{directory}/{snapshot_name(start)}", start)
                except FileNotFoundError:
                    if attempt + 1 == _ATTEMPTS:
                        raise
            else:
                self._position = 0 if start is None else start.offset
                return start
        raise AssertionError("the last attempt ends in one way or the other")

    def _node_below(self, directory: str) -> str:
        """A hint to the directories of nodes in a folder, such as that of a quickstart; empty if there are none."""
        try:
            names = self._disk.list(directory)
        except OSError:
            return ""
        nodes = [f"{directory}/{one}" for one in sorted(names) if self._is_of_node(f"{directory}/{one}")]
        return f"Did you mean {nodes[0]}?" if nodes else ""

    def _is_of_node(self, directory: str) -> bool:
        try:
            return PARTITION_DIRECTORY in self._disk.list(directory)
        except OSError:
            return False

    def _start(self, directory: str, segments: list[int], from_base: From) -> OffsetAndEpoch | Damage | None:
        """The base snapshot, or None to begin at offset 0."""
        has_beginning = bool(segments) and segments[0] == 0
        if has_beginning and from_base == "earliest":
            return None
        snapshots = [one for one in list_snapshots(self._disk, directory) if self._is_before(directory, one)]
        if has_beginning and snapshots[:1] == [BOOTSTRAP_SNAPSHOT]:
            # No node loads this one: its records come into the log when the first leader writes them.
            del snapshots[0]
        if from_base == "latest":
            if snapshots:
                return snapshots[-1]
        else:
            reached = [one for one in snapshots if not segments or one.offset >= segments[0]]
            if reached:
                return reached[0]
        if has_beginning:
            return None
        if not segments:
            read_meta_properties(self._disk, directory)  # which may say that the node never had a metadata log
            hint = self._node_below(directory) or WHAT_TO_NAME
            raise MetadataLogError("there is neither a log nor a snapshot here", where=directory, hint=hint)
        if list_snapshots(self._disk, directory):
            earliest = list_snapshots(self._disk, directory)[0]
            raise MetadataLogError(
                f"the history here begins at offset {earliest.offset}; nothing is known of the time before",
                where=directory,
            )
        return _gap(f"{directory}/{file_name(segments[0])}", segments[0], 0)

    def _is_before(self, directory: str, snapshot: OffsetAndEpoch) -> bool:
        """Whether a snapshot holds nothing later than the end of this reading."""
        until = self._until
        if until.offset is not None and snapshot.offset - 1 > until.offset:
            return False
        if until.timestamp_ms is None:
            return True
        header = read_snapshot_start(self._disk, f"{directory}/{snapshot_name(snapshot)}").header
        return header.last_contained_log_timestamp <= until.timestamp_ms

    def _behind_gap(self, directory: str, segment: int, from_base: From | None) -> Iterator[Base]:
        """Continue with the first snapshot that the log follows, or without a snapshot."""
        self._position = segment
        if from_base is None:
            return
        for snapshot in list_snapshots(self._disk, directory):
            if snapshot.offset >= segment and self._is_before(directory, snapshot):
                yield self.base(f"{directory}/{snapshot_name(snapshot)}", snapshot)
                return

    def _snapshot_behind(self, damage: Damage) -> OffsetAndEpoch | None:
        """The first snapshot that covers the damage and holds nothing later than the end."""
        if self._directory is None or damage.offset is None:
            return None
        for snapshot in list_snapshots(self._disk, self._directory):
            if snapshot.offset > damage.offset and self._is_before(self._directory, snapshot):
                return snapshot
        return None

    def _segment(self, path: str) -> Iterator[TimelineBatch | Damage]:
        """The next batches of one file."""
        until, on_damage = self._until, self._on_damage
        last_offset = until.offset
        # This method judges damage itself: damage below the base snapshot is irrelevant.
        resumed = self._resumed[1] if self._resumed is not None and self._resumed[0] == path else None
        behind = (0, None, 0) if resumed is None else (resumed.end_position, resumed.offset, resumed.epoch)
        for item in read_file(self._disk, path, on_damage=OnDamage.SKIP, behind=behind):
            if isinstance(item, Damage):
                if item.offset is not None and item.offset < self._base_end:
                    continue
                last = stops(item, on_damage) or item.unfinished
                yield item
                if last:
                    self._over = True
                    return
                self._next_base = self._snapshot_behind(item)
                if self._next_base is not None:
                    return
                self._position = None
                continue
            from_offset = item.base_offset if self._position is None else max(item.base_offset, self._position)
            end_offset = self._log_end = item.next_offset
            if from_offset >= end_offset:
                continue
            if last_offset is not None and end_offset > last_offset:
                self._over = True
                end_offset = last_offset + 1
            if until.timestamp_ms is not None and item.max_timestamp > until.timestamp_ms:
                self._over = True
                return
            if from_offset < end_offset:
                self._position = end_offset
                yield TimelineBatch(
                    path=path,
                    batch=item,
                    from_offset=from_offset,
                    end_offset=end_offset,
                    on_damage=on_damage,
                    pass_newer=self._pass_newer,
                )
            if self._over:
                return


def _segment_with(segments: list[int], offset: int | None) -> int | None:
    """The segment that holds an offset, or else the next segment."""
    if not segments:
        return None
    if offset is None:
        return segments[0]
    return segments[max(0, bisect_right(segments, offset) - 1)]


def _gap(path: str, begins: int, wanted: int) -> Damage:
    """The history lacks records before a segment."""
    return Damage(
        where=path,
        what=f"the log goes on at offset {begins}, and nothing is known from offset {wanted} to there",
        expected=f"a segment that begins at offset {wanted}, or a snapshot that ends at offset {begins} or later",
        position=0,
        offset=begins,
    )
