"""The partition logs of one log directory, with the checkpoint files that they share (Kafka: `LogManager`)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping

from kraft.partitions.log.checkpoints import (
    CHECKPOINTS,
    CLEANED,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    format_offsets,
    read_offsets,
    write_offsets,
)
from kraft.partitions.log.loading import Pace
from kraft.partitions.log.options import LogOptions
from kraft.partitions.log.partition_log import PartitionLog
from metadata_log.disk import Disk, make_directory, replace_file
from metadata_log.errors import MetadataLogError
from metadata_log.log.clean_shutdown import CLEAN_SHUTDOWN_FILE, take_clean_shutdown, write_clean_shutdown
from metadata_log.log.partition_names import FUTURE, PartitionName, parse_partition_name
from metadata_log.serde.codec import finished
from metadata_log.types import PARTITION_DIRECTORY

OptionsOf = Callable[[PartitionName], LogOptions]


def _names_in(disk: Disk, path: str) -> list[str] | None:
    """The names in a directory; None if the path is none. Raises `OSError`."""
    try:
        return disk.list(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


class LogDirectory:
    """The logs of a log directory. `open` is the only way to create one. One damaged partition stops no other.

    Args:
        disk: The disk.
        path: The log directory.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        self.path = path
        self.logs: dict[PartitionName, PartitionLog] = {}
        self.futures: dict[PartitionName, PartitionLog] = {}
        """The copies that move here from another log directory."""
        self.failed: dict[PartitionName, MetadataLogError] = {}
        """The partitions with files that cannot be read, with the reason."""
        self.findings: list[str] = []
        """The damaged checkpoint files, as texts."""
        self.is_clean = False
        """Whether the last run ended with a clean shutdown."""
        self._kept: dict[str, dict[PartitionName, int]] = {}
        """By checkpoint file the offsets of the logs that were not opened."""
        self._has_cleaned = False
        """Whether there is a checkpoint file of the cleaner, or will be soon."""
        self._disk = disk

    @classmethod
    def open(cls, disk: Disk, path: str, options_of: OptionsOf, *, now_ms: int) -> LogDirectory:
        """Load all partition logs of a log directory.

        The file that proves a clean shutdown is removed once the logs are loaded, as in Kafka.

        Args:
            disk: The disk.
            path: The log directory; made if missing.
            options_of: The settings of a partition's log.
            now_ms: The time in ms since 1970.

        Returns:
            The logs; directories of deleted and stray partitions are left alone.

        Raises:
            OSError: The disk failed.
        """
        return finished(cls.opening(disk, path, options_of, now_ms=now_ms))

    @classmethod
    def opening(
        cls,
        disk: Disk,
        path: str,
        options_of: OptionsOf,
        *,
        now_ms: int,
        is_clean: bool | None = None,
        left_alone: Mapping[str, MetadataLogError] = {},
        logs_per_step: int = 1,
    ) -> Generator[None, None, LogDirectory]:
        """As `open`, in steps of some milliseconds.

        `is_clean` says whether the last run ended with a clean shutdown, for a caller that has taken the file that
        proves it; None to look for the file. `left_alone` are the names of directories that are not to be opened, with
        the reason; a partition among them counts as failed. A step opens `logs_per_step` logs and segments.
        """
        made = cls(disk, path)
        make_directory(disk, path)
        made.is_clean = disk.exists(f"{path}/{CLEAN_SHUTDOWN_FILE}") if is_clean is None else is_clean
        checkpoints = {file: made._read(file) for file in (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, CLEANED)}
        recovery_points, starts, watermarks, cleaned = checkpoints.values()
        pace = Pace(logs_per_step, logs_per_step)
        for directory in disk.list(path):
            name = parse_partition_name(directory)
            if name is None or name.suffix not in {"", FUTURE} or directory == PARTITION_DIRECTORY:
                continue
            is_copy, name = name.suffix == FUTURE, PartitionName(name.topic, name.number)
            if directory in left_alone:
                if not is_copy:
                    made.failed[name] = left_alone[directory]
                continue
            names = _names_in(disk, f"{path}/{directory}")
            if names is None:
                continue
            try:
                log = yield from PartitionLog.opening(
                    disk,
                    f"{path}/{directory}",
                    options_of(name),
                    now_ms=now_ms,
                    start_checkpoint=starts.get(name, 0),
                    recovery_point=recovery_points.get(name, 0),
                    high_watermark=watermarks.get(name, 0),
                    is_clean=made.is_clean,
                    names=names,
                    pace=pace,
                )
            except MetadataLogError as bad:
                if is_copy:
                    made.findings.append(f"left the copy in {directory} alone: {bad}")
                else:
                    made.failed[name] = bad
            else:
                log.cleaned_offset = cleaned.get(name)
                (made.futures if is_copy else made.logs)[name] = log
            if pace.is_to_pause():
                yield None
        # What is known of a log that was not opened stays in the files, for the start after its repair.
        made._kept = {
            file: {name: offsets[name] for name in made.failed if name in offsets}
            for file, offsets in checkpoints.items()
            if file != RECOVERY_POINTS
        }
        made._forget_gone(checkpoints)
        take_clean_shutdown(disk, [path])
        return made

    def _forget_gone(self, checkpoints: dict[str, dict[PartitionName, int]]) -> None:
        """Take the partitions that are not here out of the checkpoint files: one of their names may be made again, and
        must not begin with these offsets if the broker ends before the files are written the next time.
        """
        here = self.logs.keys() | self.futures.keys() | self.failed.keys()
        for file, offsets in checkpoints.items():
            kept = {name: offset for name, offset in offsets.items() if name in here}
            if len(kept) < len(offsets):
                write_offsets(self._disk, self.path, file, kept)

    def _read(self, file: str) -> dict[PartitionName, int]:
        offsets, defect = read_offsets(self._disk, self.path, file)
        if defect is not None:
            self.findings.append(f"took {file} for empty: {defect}")
        return offsets

    def add(self, name: PartitionName, options: LogOptions, *, now_ms: int) -> PartitionLog:
        """Make the log of a new partition; raises `OSError`."""
        log = PartitionLog.open(self._disk, f"{self.path}/{name}", options, now_ms=now_ms)
        self.logs[name] = log
        return log

    @property
    def _all(self) -> dict[PartitionName, PartitionLog]:
        """The logs, and the copies of logs in other directories."""
        return {**self.futures, **self.logs}

    def high_watermarks(self) -> dict[PartitionName, int]:
        """The high watermark of each log."""
        return {name: log.high_watermark for name, log in self._all.items()}

    def cleaned_offsets(self) -> dict[PartitionName, int]:
        """The offset up to which each log was cleaned; without the logs that no cleaner has looked at."""
        return {name: log.cleaned_offset for name, log in self.logs.items() if log.cleaned_offset is not None}

    def log_starts(self) -> dict[PartitionName, int]:
        """The log starts that no segment begins with, and those of all logs with tiered storage."""
        return {
            name: log.start_offset
            for name, log in self._all.items()
            if log.options.is_tiered or log.start_offset != log.segments[0].base_offset
        }

    def recovery_points(self) -> dict[PartitionName, int]:
        """The part of each log that is on disk, for the next start."""
        return {name: log.recovery_point for name, log in self._all.items()}

    def offsets_of(self, file: str) -> dict[PartitionName, int]:
        """The present offsets for a checkpoint file, one of `CHECKPOINTS`."""
        if file == RECOVERY_POINTS:
            return self.recovery_points()
        if file == HIGH_WATERMARKS:
            return self.high_watermarks()
        if file == LOG_STARTS:
            return self.log_starts()
        assert file == CLEANED, file
        return self.cleaned_offsets()

    def content_of(self, file: str, offsets: dict[PartitionName, int]) -> bytes | None:
        """The content of a checkpoint file with the present offsets; None for a file that need not be there."""
        if file == RECOVERY_POINTS:
            return format_offsets(offsets)
        if file == CLEANED:
            self._has_cleaned = self._has_cleaned or bool(offsets) or self._disk.exists(f"{self.path}/{CLEANED}")
            if not self._has_cleaned:
                return None
        return format_offsets({**self._kept.get(file, {}), **offsets})

    def write(self, *files: str) -> dict[str, dict[PartitionName, int]]:
        """Write checkpoint files durably, and return the offsets of each; raises `OSError`."""
        written = {file: self.offsets_of(file) for file in files}
        for file, offsets in written.items():
            content = self.content_of(file, offsets)
            if content is not None:
                replace_file(self._disk, self.path, file, content)
        return written

    def close(self, *, broker_epoch: int) -> None:
        """Close all logs, write the checkpoint files, and prove the clean shutdown.

        Args:
            broker_epoch: The epoch of the broker, for the clean-shutdown file.

        Raises:
            OSError: The disk failed. Then the shutdown is not clean.
        """
        for log in (*self.logs.values(), *self.futures.values()):
            log.close()
        self.write(*CHECKPOINTS)
        if not self.failed:
            write_clean_shutdown(self._disk, self.path, broker_epoch)
