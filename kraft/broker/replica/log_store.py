"""The logs of a broker in all of its log directories: load, new, deleted and stray ones (Kafka: `LogManager`).

A failure of one directory takes the directory offline, and no other; a damaged partition takes only itself offline.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from hashlib import blake2b
from typing import Final

from msgspec import Struct

from kraft.broker.log.checkpoints import HIGH_WATERMARKS, write_offsets
from kraft.broker.log.log_directory import LogDirectory
from kraft.broker.log.options import LogOptions
from kraft.broker.log.partition_log import PartitionLog
from kraft.broker.replica.settings import DataDirectory
from kraft.broker.replicas import PartitionKey
from metadata_log.disk import DirectoryDisk, make_directory, replace_file
from metadata_log.errors import DirectoryError, MetadataLogError
from metadata_log.log.log_dir import PARTITION_DIRECTORY, PARTITION_METADATA, parse_partition_metadata
from metadata_log.log.partition_names import DELETE, STRAY, PartitionName, parse_partition_name
from metadata_log.types import NEVER_MS, Uuid

OptionsOf = Callable[[str], LogOptions]
"""The settings of the logs of a topic, by its name."""
IsAssigned = Callable[[PartitionKey], bool]
_LONGEST_NAME: Final = 255


class FoundLog(Struct, frozen=True):
    """A partition directory that a load has found: its log directory, and the log or the reason why there is none."""

    name: PartitionName
    directory: Uuid
    log: PartitionLog | None
    damage: str | None = None


class LogStore:
    """The log directories of one broker.

    Args:
        disk: The disk.
        directories: The log directories, the metadata log's among them or not.
        delete_delay_ms: `log.segment.delete.delay.ms`: how long the files of deleted topics and segments stay.
    """

    def __init__(self, disk: DirectoryDisk, directories: tuple[DataDirectory, ...], delete_delay_ms: int) -> None:
        self.online: dict[Uuid, LogDirectory] = {}
        """The directories that were loaded and have not failed."""
        self.failures: dict[Uuid, str] = {}
        """The directories that have failed, with the reason."""
        self.findings: list[str] = []
        """What the load found and changed, as texts for the log."""
        self._disk = disk
        self._directories = directories
        self._delete_delay_ms = delete_delay_ms
        self._to_delete: list[tuple[int, Uuid, str]] = []
        """When a directory is to be removed in ms since 1970, its log directory, and its path."""
        self._files: list[tuple[int, Uuid, str]] = []
        """The same for the files of deleted segments."""
        self._written: dict[Uuid, dict[PartitionName, int]] = {}
        """The high watermarks in the checkpoint file of each directory."""

    # ------------------------------------------------------------------------------------------------------- loading

    def loading(
        self, is_assigned: IsAssigned, options_of: OptionsOf, now_ms: int
    ) -> Generator[None, None, dict[PartitionKey, FoundLog]]:
        """Load every log, in steps of some milliseconds.

        A partition directory of a topic that is gone, or of a partition that is not assigned to this broker, is renamed
        with `-stray` and stays on disk.

        Args:
            is_assigned: Whether the metadata assigns a partition to this broker.
            options_of: The settings of a topic's logs.
            now_ms: The time in ms since 1970.

        Returns:
            The logs by partition.
        """
        found: dict[PartitionKey, FoundLog] = {}
        for directory in self._directories:
            try:
                yield from self._load(directory, is_assigned, options_of, found, now_ms)
            except OSError as failed:
                self.fail(directory.id, failed)
        return found

    def _load(
        self,
        directory: DataDirectory,
        is_assigned: IsAssigned,
        options_of: OptionsOf,
        found: dict[PartitionKey, FoundLog],
        now_ms: int,
    ) -> Generator[None, None, None]:
        make_directory(self._disk, directory.path)
        keys = self._look(directory, is_assigned, found, now_ms)
        yield None
        logs = yield from LogDirectory.opening(
            self._disk,
            directory.path,
            lambda name: options_of(name.topic),
            now_ms=now_ms,
            is_clean=directory.is_clean,
        )
        self.findings += logs.findings
        self.online[directory.id] = logs
        for name, log in logs.logs.items():
            found[keys[name]] = FoundLog(name, directory.id, log)
            self.findings += [f"{log.directory}: {finding}" for finding in log.recovered]
        for name, damage in logs.failed.items():
            found[keys[name]] = FoundLog(name, directory.id, None, str(damage))

    def _look(
        self, directory: DataDirectory, is_assigned: IsAssigned, found: dict[PartitionKey, FoundLog], now_ms: int
    ) -> dict[PartitionName, PartitionKey]:
        """The partitions in a log directory; stray ones are renamed, and deleted ones are scheduled for removal."""
        keys: dict[PartitionName, PartitionKey] = {}
        for entry in self._disk.list(directory.path):
            name = parse_partition_name(entry)
            if name is None or entry == PARTITION_DIRECTORY:
                continue
            path = f"{directory.path}/{entry}"
            if name.suffix == DELETE:
                self._to_delete.append((now_ms + self._delete_delay_ms, directory.id, path))
            elif not name.suffix:
                topic_id, reason = self._topic_of(path)
                key = (topic_id, name.number)
                if reason is None and not is_assigned(key):
                    reason = f"the metadata does not assign partition {name.number} of topic {topic_id} to this broker"
                if reason is None and key in found:
                    reason = f"another log directory holds partition {name.number} of topic {topic_id}, too"
                if reason is None:
                    keys[name] = key
                else:
                    target = self._put_aside(directory.path, name, topic_id, STRAY)
                    self.findings.append(f"renamed {path} to {target}: {reason}")
        return keys

    def _topic_of(self, path: str) -> tuple[Uuid, str | None]:
        """The topic id of a partition directory, or why there is none."""
        file = f"{path}/{PARTITION_METADATA}"
        if not self._disk.exists(file):
            return Uuid.ZERO, f"{file} is missing"
        try:
            return parse_partition_metadata(self._disk.read(file), where=file), None
        except MetadataLogError as bad:
            return Uuid.ZERO, str(bad)

    # ------------------------------------------------------------------------------------------- new and deleted logs

    def create(
        self, directory: Uuid, name: PartitionName, topic_id: Uuid, options: LogOptions, now_ms: int
    ) -> PartitionLog:
        """Make the log of a new replica; raises `OSError`.

        The partition.metadata is on disk before the log: a directory without that file is stray at the next start.
        """
        logs = self.online[directory]
        path = f"{logs.path}/{name}"
        make_directory(self._disk, path)
        text = f"version: 0\ntopic_id: {topic_id}".encode("ascii")
        replace_file(self._disk, path, PARTITION_METADATA, text)
        return logs.add(name, options, now_ms=now_ms)

    def delete(self, directory: Uuid, name: PartitionName, topic_id: Uuid, now_ms: int) -> None:
        """Rename the directory of a replica with `-delete`; `remove_due` removes it later. Raises `OSError`."""
        logs = self.online[directory]
        log = logs.logs.pop(name, None)
        if log is not None:
            log.abandon()
        target = self._put_aside(logs.path, name, topic_id, DELETE)
        self._to_delete.append((now_ms + self._delete_delay_ms, directory, target))
        # A later partition of the same name must not begin with these offsets.
        self.write_checkpoints(directory)

    def _put_aside(self, path: str, name: PartitionName, topic_id: Uuid, suffix: str) -> str:
        """Give a partition directory a name that no load opens; returns the new path."""
        for count in range(1 << 16):
            tag = blake2b(topic_id + bytes(str(name.number), "ascii") + count.to_bytes(2, "big"), digest_size=16)
            end = f"-{name.number}.{tag.hexdigest()}-{suffix}"
            target = f"{path}/{name.topic[: _LONGEST_NAME - len(end)]}{end}"
            if not self._disk.exists(target):
                break
        self._disk.rename_directory(f"{path}/{name}", target)
        self._disk.fsync_dir(path)
        return target

    def removal_deadline_ms(self) -> int:
        """When `remove_due` is due."""
        return min((due_ms for due_ms, _, _ in (*self._to_delete, *self._files)), default=NEVER_MS)

    def schedule_removals(self, now_ms: int) -> None:
        """Schedule the removal of the files of segments that were deleted or truncated since the last call."""
        for directory, logs in self.online.items():
            for log in logs.logs.values():
                if log.doomed:
                    self._files += [(now_ms + self._delete_delay_ms, directory, path) for path in log.doomed]
                    log.doomed = []

    def remove_due(self, now_ms: int) -> None:
        """Remove the files of deleted segments and partitions after the delay; a failure takes their log directory
        offline.
        """
        if now_ms < self.removal_deadline_ms():
            return
        due_files = [each for each in self._files if each[0] <= now_ms]
        due = [each for each in self._to_delete if each[0] <= now_ms]
        self._files = [each for each in self._files if each[0] > now_ms]
        self._to_delete = [each for each in self._to_delete if each[0] > now_ms]
        for _, directory, path in due_files:
            self._remove(directory, path, self._disk.remove)
        for _, directory, path in due:
            self._remove(directory, path, self._remove_partition)

    def _remove(self, directory: Uuid, path: str, remove: Callable[[str], None]) -> None:
        # The files of a segment are gone with the directory of their partition.
        if directory in self.online and self._disk.exists(path):
            try:
                remove(path)
            except OSError as failed:
                self.fail(directory, failed)

    def _remove_partition(self, path: str) -> None:
        for file in self._disk.list(path):
            self._disk.remove(f"{path}/{file}")
        self._disk.remove_directory(path)

    # ------------------------------------------------------------------------------------ checkpoints, failures, stop

    def write_watermarks(self) -> None:
        """Write the high watermarks that have changed; a failure takes the directory offline."""
        for directory, logs in list(self.online.items()):
            watermarks = {name: log.high_watermark for name, log in logs.logs.items()}
            if watermarks == self._written.get(directory):
                continue
            try:
                write_offsets(self._disk, logs.path, HIGH_WATERMARKS, watermarks)
            except OSError as failed:
                self.fail(directory, failed)
            else:
                self._written[directory] = watermarks

    def write_offsets(self) -> None:
        """Write recovery points and log starts; a failure takes the directory offline."""
        for directory, logs in list(self.online.items()):
            try:
                logs.write_recovery_points()
                logs.write_log_starts()
            except OSError as failed:
                self.fail(directory, failed)

    def write_checkpoints(self, directory: Uuid) -> None:
        """Write all checkpoint files of a directory; raises `OSError`."""
        logs = self.online[directory]
        logs.write_recovery_points()
        logs.write_log_starts()
        logs.write_high_watermarks()
        self._written[directory] = {name: log.high_watermark for name, log in logs.logs.items()}

    def take_offline(self, directory: Uuid, name: PartitionName, reason: str) -> None:
        """Close one log for good. Its directory claims no clean shutdown: the next start looks at the log again."""
        logs = self.online.get(directory)
        log = None if logs is None else logs.logs.pop(name, None)
        if logs is not None and log is not None:
            log.abandon()
            logs.failed[name] = DirectoryError(reason, where=log.directory)

    def fail(self, directory: Uuid, failure: OSError) -> None:
        """Take a directory offline, for good; its files are closed."""
        self.failures.setdefault(directory, str(failure))
        logs = self.online.pop(directory, None)
        for log in () if logs is None else logs.logs.values():
            log.abandon()

    def directory_of(self, path: str) -> Uuid | None:
        """The id of a log directory by its path."""
        return next((each.id for each in self._directories if each.path == path), None)

    def close(self, *, broker_epoch: int) -> None:
        """Stop cleanly: flush and close every log, write the checkpoint files and the clean-shutdown file.

        A directory that fails keeps no clean-shutdown file, and the next start recovers its logs.
        """
        for directory, logs in list(self.online.items()):
            try:
                logs.close(broker_epoch=broker_epoch)
            except OSError as failed:
                self.failures.setdefault(directory, str(failed))
        self.online.clear()
