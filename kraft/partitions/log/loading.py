"""Loads the log of a partition at a start (Kafka: `LogLoader`, `UnifiedLog.rebuildProducerState`).

After a clean shutdown the index files and the newest producer snapshot are taken as they are. Otherwise every segment
from the recovery point on is checked batch by batch: the first damaged batch and everything after it is removed, and
the replica fetches those records again from the leader.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from msgspec import Struct

from kraft.limits import LOADED_BATCHES_PER_STEP
from kraft.partitions.log.data_segment import DATA_SUFFIXES, DataSegment
from kraft.partitions.log.options import LogOptions
from kraft.partitions.log.producer_files import ProducerStateManager
from metadata_log.disk import Disk, make_directory
from metadata_log.log.epochs import FILE_NAME as EPOCHS_FILE
from metadata_log.log.epochs import TOPIC_REMEDY, EpochHistory, parse_epochs, write_epochs
from metadata_log.log.segment import DELETED_SUFFIX, SUFFIX, Segment, parse_file_name, scan_headers

CLEANED_SUFFIX = ".cleaned"
"""A segment that the cleaner was writing."""
SWAP_SUFFIX = ".swap"
"""A segment that the cleaner has written, and that replaces others."""
_TEMPORARY: Final = (DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX)
_ENTRIES: Final = 4096
"""So many entries of an index are read in the time that it takes to open a segment."""


class Pace(Struct):
    """How many logs and segments a step of a load may still open. A large index counts as several; a log that needs
    more than a look, such as a recovery or a flush, ends the step.
    """

    logs_per_step: int = 1
    left: int = 1

    def is_to_pause(self, index_entries: int = 0) -> bool:
        """Count a log or a segment; whether the step ends here."""
        self.left -= 1 + index_entries // _ENTRIES
        if self.left > 0:
            return False
        self.left = self.logs_per_step
        return True

    def spend_all(self) -> None:
        """The step ends with the log, or segment, that is being opened."""
        self.left = 0


class LoadedLog(Struct, eq=False):
    """A log that can be read and written.

    Args:
        segments: The open segments in order; at least one.
        start_offset: The first offset that a client may read.
        end_offset: The offset of the next record.
        recovery_point: Everything below this offset is known to be on disk.
        epochs: The epochs of the log.
        epochs_are_written: Whether the file has these epochs, and not that of a leader without a record, too.
        producers: The producers at the end of the log.
        findings: What was truncated, removed or rebuilt, as texts.
        marked: The files that were renamed with `.deleted`, for later removal.
    """

    segments: list[DataSegment]
    start_offset: int
    end_offset: int
    recovery_point: int
    epochs: EpochHistory
    epochs_are_written: bool
    producers: ProducerStateManager
    findings: list[str]
    marked: list[str]


def loading(
    disk: Disk,
    directory: str,
    options: LogOptions,
    *,
    start_checkpoint: int,
    recovery_point: int,
    is_clean: bool,
    now_ms: int,
    names: list[str] | None = None,
    pace: Pace | None = None,
) -> Generator[None, None, LoadedLog]:
    """Load a log, in steps of some milliseconds. A generator that is closed before its end closes the files.

    Args:
        disk: The disk.
        directory: The partition directory; made if missing.
        options: The settings of the log.
        start_checkpoint: The log start in the checkpoint file; 0 for none.
        recovery_point: The recovery point in the checkpoint file; 0 for none.
        is_clean: Whether the last run ended with a clean shutdown.
        now_ms: The time in ms since 1970.
        names: What is in the directory, if somebody has just looked.
        pace: What the present step has done, for other logs too.

    Returns:
        The log, with everything that was rebuilt written and nothing of it flushed.

    Raises:
        DecodeError: The leader-epoch-checkpoint is damaged.
        OSError: The disk failed.
    """
    loader = _Loader(
        disk, directory, options, start_checkpoint, recovery_point, is_clean, now_ms, names, pace or Pace()
    )
    try:
        return (yield from loader.run())
    except BaseException:
        for segment in loader.segments:
            segment.close()
        raise


class _Loader:
    """One load; the steps are those of `LogLoader.load`, in its order."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        options: LogOptions,
        start_checkpoint: int,
        recovery_point: int,
        is_clean: bool,
        now_ms: int,
        names: list[str] | None,
        pace: Pace,
    ) -> None:
        self.segments: list[DataSegment] = []
        self._disk = disk
        self._directory = directory
        self._options = options
        self._start_checkpoint = start_checkpoint
        self._recovery_point = recovery_point
        self._is_clean = is_clean
        self._now_ms = now_ms
        self._pace = pace
        self._names = names
        """The names in the directory; None once the load has changed them."""
        self._epochs = EpochHistory()
        self._findings: list[str] = []
        self._marked: list[str] = []

    def run(self) -> Generator[None, None, LoadedLog]:
        disk, directory = self._disk, self._directory
        names = self._names
        if names is None:
            make_directory(disk, directory)
            names = disk.list(directory)
        if any(name.endswith(_TEMPORARY) for name in names):
            self._finish_interrupted_cleaning(names)
            names = disk.list(directory)
        self._names = names
        path = f"{directory}/{EPOCHS_FILE}"
        stored = disk.read(path) if EPOCHS_FILE in names else b""
        self._epochs = found = parse_epochs(stored, where=path, remedy=TOPIC_REMEDY)
        yield from self._open_segments(names)
        if not self._is_clean:
            self._pace.spend_all()
            yield from self._recover_unflushed()
        end_offset = self._drop_everything_below_the_start()
        # What is before the first segment may be in tiered storage.
        start_offset = self._start_checkpoint
        if not self._options.is_tiered:
            start_offset = max(start_offset, self.segments[0].base_offset)
        self._epochs = self._epochs.truncate_end(end_offset).truncate_start(self._start_checkpoint)
        is_written = self._epochs == found
        # That of a leader without a record is left out at each start; the next change of the file takes it away.
        if not is_written and self._epochs != found.truncate_end(end_offset):
            self._pace.spend_all()
            write_epochs(disk, directory, self._epochs)
            is_written = True
        producers = self._new_producers()
        producers.remove_stray_snapshots([segment.base_offset for segment in self.segments])
        yield from self._rebuild_producers(producers, start_offset, end_offset, trusts_absence=self._is_clean)
        self._findings += producers.findings
        recovery_point = end_offset if self._is_clean else min(self._recovery_point, end_offset)
        return LoadedLog(
            self.segments,
            start_offset,
            end_offset,
            recovery_point,
            self._epochs,
            is_written,
            producers,
            self._findings,
            self._marked,
        )

    def _new_producers(self) -> ProducerStateManager:
        expiration_ms = self._options.producer_expiration_ms
        return ProducerStateManager(self._disk, self._directory, expiration_ms, names=self._names)

    # -------------------------------------------------------------------------------- what a cleaner has left behind

    def _finish_interrupted_cleaning(self, names: list[str]) -> None:
        """Remove temporary files, and put finished `.swap` files into their places."""
        cleaned = [name for name in names if name.endswith(CLEANED_SUFFIX)]
        first_cleaned = min((base for name in cleaned if (base := _base_of(name)) is not None), default=None)
        swaps = []
        for name in names:
            if name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX)):
                self._remove(name, "a file that was about to be deleted")
            elif name.endswith(SWAP_SUFFIX):
                base = _base_of(name)
                if first_cleaned is not None and base is not None and base >= first_cleaned:
                    self._remove(name, "an unfinished replacement")
                else:
                    swaps.append(name)
        self._replace(swaps)

    def _replace(self, swaps: list[str]) -> None:
        logs = [name for name in swaps if name.endswith(SUFFIX + SWAP_SUFFIX)]
        ranges = [(base, self._end_of(name, base)) for name in logs if (base := _base_of(name)) is not None]
        if ranges:
            first, end = min(base for base, _ in ranges), max(end for _, end in ranges)
            for name in self._disk.list(self._directory):
                base = _base_of(name)
                if base is not None and first <= base < end and not name.endswith(SWAP_SUFFIX):
                    self._remove(name, "a file that a cleaned segment replaces")
        for name in swaps:
            target = name.removesuffix(SWAP_SUFFIX)
            self._disk.rename(f"{self._directory}/{name}", f"{self._directory}/{target}")
            self._findings.append(f"put {target} into its place after an interrupted cleaning")

    def _end_of(self, name: str, base_offset: int) -> int:
        """The offset after the last batch of a segment."""
        file = self._disk.open(f"{self._directory}/{name}", writable=False)
        try:
            return max((header.next_offset for header in scan_headers(file)), default=base_offset)
        finally:
            file.close()

    def _remove(self, name: str, what: str) -> None:
        self._disk.remove(f"{self._directory}/{name}")
        self._findings.append(f"removed {self._directory}/{name}, {what}")

    # ---------------------------------------------------------------------------------------------------- segments

    def _open_segments(self, names: list[str]) -> Generator[None, None, None]:
        bases = {base: None for name in names if (base := parse_file_name(name, SUFFIX)) is not None}
        for name in names:
            for suffix in DATA_SUFFIXES[1:]:
                base = parse_file_name(name, suffix)
                if base is not None and base not in bases:
                    self._remove(name, "an index without its segment")
        last = max(bases, default=None)
        for base in bases:
            segment = DataSegment.open(
                self._disk,
                self._directory,
                base,
                index_interval_bytes=self._options.index_interval_bytes,
                now_ms=self._now_ms,
            )
            self.segments.append(segment)
            reason = segment.load(is_active=base == last)
            if self._pace.is_to_pause(segment.batches.index_entries[0]):
                yield None
            if reason is not None and (self._is_clean or base < self._recovery_point):
                self._findings.append(f"recovered {segment.path(SUFFIX)}: {reason}")
                yield from self._recover(segment)

    def _recover(self, segment: DataSegment) -> Generator[None, None, bool]:
        """Recover one segment, with the producers before it; returns whether the segment was truncated."""
        self._names = None
        self._pace.spend_all()
        before = [each for each in self.segments if each.base_offset < segment.base_offset]
        producers = self._new_producers()
        later = [each for each in self.segments if each.base_offset > segment.base_offset]
        self.segments = [*before, segment]
        yield from self._rebuild_producers(
            producers, self._start_checkpoint, segment.base_offset, trusts_absence=False, segments=before
        )
        self._epochs, damage = yield from segment.recovering(producers, self._epochs)
        producers.take_snapshot()
        self._findings += producers.findings
        self.segments += later
        if damage is not None:
            self._findings.append(
                f"truncated {segment.path(SUFFIX)} to {segment.batches.size_bytes} bytes, before offset "
                f"{segment.batches.end_offset}: {damage}"
            )
        return damage is not None

    def _recover_unflushed(self) -> Generator[None, None, None]:
        """Recover the segments that hold or follow the recovery point; nothing stays after a damaged batch."""
        holding = [at for at, each in enumerate(self.segments) if each.base_offset <= self._recovery_point]
        for at in range(holding[-1] if holding else 0, len(self.segments)):
            if (yield from self._recover(self.segments[at])):
                for segment in self.segments[at + 1 :]:
                    self._findings.append(f"removed {segment.path(SUFFIX)}, which follows a damaged batch")
                    self._marked += segment.mark_deleted()
                    path = self._new_producers().path(segment.base_offset)
                    if self._disk.exists(path):
                        self._disk.remove(path)
                del self.segments[at + 1 :]
                return

    def _drop_everything_below_the_start(self) -> int:
        """The end of the log. A log that ends before its start has lost its records, and begins anew at the start."""
        if self.segments:
            end_offset = self.segments[-1].batches.end_offset
            if end_offset >= self._start_checkpoint:
                return end_offset
            self._findings.append(
                f"removed all segments of {self._directory}: the log ends at offset {end_offset}, before the log start "
                f"{self._start_checkpoint}"
            )
            for segment in self.segments:
                self._marked += segment.mark_deleted()
            self.segments.clear()
            self._names = None
            self._epochs = EpochHistory()
            self._new_producers().reset(self._start_checkpoint)
        self._pace.spend_all()
        self.segments.append(
            DataSegment.create(
                self._disk,
                self._directory,
                self._start_checkpoint,
                index_interval_bytes=self._options.index_interval_bytes,
                now_ms=self._now_ms,
            )
        )
        return self._start_checkpoint

    # ---------------------------------------------------------------------------------------------------- producers

    def _rebuild_producers(
        self,
        producers: ProducerStateManager,
        start_offset: int,
        end_offset: int,
        *,
        trusts_absence: bool,
        segments: list[DataSegment] | None = None,
    ) -> Generator[None, None, None]:
        yield from rebuild_producers(
            producers,
            self.segments if segments is None else segments,
            start_offset,
            end_offset,
            trusts_absence=trusts_absence,
            now_ms=self._now_ms,
        )


def rebuild_producers(
    producers: ProducerStateManager,
    segments: list[DataSegment],
    start_offset: int,
    end_offset: int,
    *,
    trusts_absence: bool,
    now_ms: int,
) -> Generator[None, None, None]:
    """Bring the producers to an offset: the newest sound snapshot, and the batches after it.

    Args:
        producers: The producers and their snapshots.
        segments: The segments of the log.
        start_offset: The log start.
        end_offset: The offset up to which the producers are wanted.
        trusts_absence: Whether a log without any snapshot has no producers, as Kafka takes it after a clean shutdown.
        now_ms: The time in ms since 1970.
    """
    bases = [segment.base_offset for segment in segments[-2:]]
    if not producers.snapshots and trusts_absence:
        for offset in (*bases, end_offset):
            producers.end_offset = offset
            producers.take_snapshot()
        return
    was_empty = not producers.states.producers and producers.end_offset >= end_offset
    producers.truncate_and_reload(start_offset, end_offset, now_ms)
    if end_offset > producers.end_offset and not was_empty:
        for segment in _segments_from(segments, producers.end_offset, end_offset):
            producers.end_offset = max(segment.base_offset, producers.end_offset, start_offset)
            if segment.base_offset in bases:
                producers.take_snapshot()
            yield from _replay(producers, segment.batches, end_offset)
    producers.end_offset = end_offset
    producers.take_snapshot()


def _segments_from(segments: list[DataSegment], offset: int, end_offset: int) -> list[DataSegment]:
    """The segments that may hold an offset of a range."""
    at = max((at for at, each in enumerate(segments) if each.base_offset <= offset), default=0)
    return [each for each in segments[at:] if each.base_offset < end_offset]


def _replay(producers: ProducerStateManager, batches: Segment, end_offset: int) -> Generator[None, None, None]:
    for number, batch in enumerate(batches.batches(producers.end_offset)):
        if batch.next_offset > end_offset:
            return
        ended = producers.note(batch)
        if ended is not None:
            producers.states.end(ended)
        if number % LOADED_BATCHES_PER_STEP == LOADED_BATCHES_PER_STEP - 1:
            yield None


def _base_of(name: str) -> int | None:
    """The offset in a file name of any suffix (`LogFileUtils.offsetFromFile`)."""
    stem = name.partition(".")[0]
    return int(stem) if len(stem) == 20 and stem.isascii() and stem.isdecimal() else None
