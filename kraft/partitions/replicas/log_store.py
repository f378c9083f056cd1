"""The logs of a broker in all of its log directories: load, new, deleted and stray ones (Kafka: `LogManager`).

A failure of one directory takes the directory offline, and no other; a damaged partition takes only itself offline.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from functools import partial
from hashlib import blake2b
from typing import Final

from msgspec import Struct

from kraft.limits import DIRECTORIES_LOOKED_AT_PER_STEP
from kraft.partitions.log.checkpoints import CHECKPOINTS, CLEANED, HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS
from kraft.partitions.log.log_directory import LogDirectory
from kraft.partitions.log.options import LogOptions
from kraft.partitions.log.partition_log import PartitionLog
from kraft.partitions.replicas.checkpoint_writer import AtOnce, CheckpointWriter
from kraft.partitions.replicas.key import PartitionKey
from kraft.partitions.replicas.settings import DataDirectory
from metadata_log.disk import DirectoryDisk, is_directory, is_of_one_name, make_directory, remove_tree, replace_file
from metadata_log.errors import DirectoryError, MetadataLogError
from metadata_log.image.topics import TopicsImage
from metadata_log.log.log_dir import PARTITION_METADATA, parse_partition_metadata
from metadata_log.log.partition_names import DELETE, FUTURE, STRAY, PartitionName, parse_partition_name
from metadata_log.types import NEVER_MS, PARTITION_DIRECTORY, Uuid

OptionsOf = Callable[[str], LogOptions]
"""The settings of the logs of a topic, by its name."""
Assigned = Callable[[PartitionKey], Uuid | None]
"""The log directory that the metadata names for a partition of this broker; None for a partition of others."""
_LONGEST_NAME: Final = 255
_REMEDY: Final = (
    "Write the file anew, with the lines `version: 0` and `topic_id: ID`; `kraft topics describe` shows the id. "
    "Without the file a start makes the directory -stray."
)


class FoundLog(Struct, frozen=True):
    """A partition directory that a load has found: its log directory, and the log or the reason why there is none."""

    name: PartitionName
    directory: Uuid
    log: PartitionLog | None
    damage: str | None = None


class _Misnamed(DirectoryError):
    """A partition directory does not say which topic it belongs to, or another one than its name says."""

    def __init__(
        self, what: str, *, where: str, field: str | None = None, hint: str | None = None, topic_id: Uuid | None = None
    ) -> None:
        super().__init__(what, where=where, field=field, hint=hint)
        self.topic_id = topic_id


def _unusable(failed: _Misnamed | OSError, path: str) -> _Misnamed:
    """Why a partition directory stays as it is; raises the failure of a disk."""
    if isinstance(failed, _Misnamed):
        return failed
    if not is_of_one_name(failed):
        raise failed
    return _Misnamed(failed.strerror or str(failed), where=failed.filename or path)


class LogStore:
    """The log directories of one broker.

    Args:
        disk: The disk.
        directories: The log directories, the metadata log's among them or not.
        delete_delay_ms: `log.segment.delete.delay.ms`: how long the files of deleted topics and segments stay.
        logs_per_step: How many logs and segments a step of a load opens.
    """

    def __init__(
        self,
        disk: DirectoryDisk,
        directories: tuple[DataDirectory, ...],
        delete_delay_ms: int,
        logs_per_step: int = 1,
    ) -> None:
        self.online: dict[Uuid, LogDirectory] = {}
        """The directories that were loaded and have not failed."""
        self.failures: dict[Uuid, str] = {}
        """The directories that have failed, with the reason."""
        self.findings: list[str] = []
        """The findings and changes of the load, as texts for the log."""
        self.futures: dict[PartitionKey, FoundLog] = {}
        """The copies that a load has found, and that no replica has claimed yet."""
        self._disk = disk
        self._directories = directories
        self._delete_delay_ms = delete_delay_ms
        self._logs_per_step = logs_per_step
        self._to_delete: list[tuple[int, Uuid, str]] = []
        """When a directory is to be removed in ms since 1970, its log directory, and its path."""
        self._files: list[tuple[int, Uuid, str]] = []
        """The same for the files of deleted segments."""
        self._written: dict[Uuid, dict[PartitionName, int]] = {}
        """The high watermarks in the checkpoint file of each directory."""
        self._cleaned: dict[Uuid, dict[PartitionName, int]] = {}
        """The offsets in the checkpoint file of the cleaner in each directory."""
        self.writer: CheckpointWriter = AtOnce(disk)
        """The writer of the periodic checkpoints."""
        self.outdated: dict[Uuid, None] = {}
        """The directories with checkpoint files that name a deleted partition; `write_outdated` is due."""
        self._gone: dict[Uuid, set[PartitionName]] = {}
        """The deleted partitions that a checkpoint file on disk may still name."""

    # ------------------------------------------------------------------------------------------------------- loading

    def loading(
        self, assigned: Assigned, topics: TopicsImage, options_of: OptionsOf, now_ms: int
    ) -> Generator[None, None, dict[PartitionKey, FoundLog]]:
        """Load every log, in steps of some milliseconds.

        A partition directory of a topic that is gone, of a partition that is not assigned to this broker, or without a
        partition.metadata, is renamed with `-stray` and stays on disk. One with an unreadable partition.metadata, or
        with that of a topic of another name, stays as it is, and its partition is offline.

        Args:
            assigned: The log directory of a partition in the metadata; None for a partition of other brokers.
            topics: The topics of the metadata.
            options_of: The settings of a topic's logs.
            now_ms: The time in ms since 1970.

        Returns:
            The logs by partition.
        """
        logs: dict[PartitionKey, FoundLog] = {}
        offline: dict[PartitionKey, FoundLog] = {}
        for directory in self._directories:
            try:
                yield from self._load(directory, assigned, topics, options_of, logs, offline, now_ms)
            except OSError as failed:
                self.findings.append(f"the log directory {directory.path} has failed: {failed}")
                self.fail(directory.id, failed)
        self._promote_orphans(assigned, logs)
        return offline | logs

    def _promote_orphans(self, assigned: Assigned, found: dict[PartitionKey, FoundLog]) -> None:
        """A copy without its original is the log: the broker ended in the middle of the replacement
        (`LogManager.recoverAbandonedFutureLogs`). The metadata names its directory then, or none of this broker.
        """
        own = {directory.id for directory in self._directories}
        for key, copy in list(self.futures.items()):
            logs = self.online.get(copy.directory)
            named = assigned(key)
            is_here = named == copy.directory or (named not in own and not self.failures)
            if key in found or logs is None or not is_here or self._disk.exists(f"{logs.path}/{copy.name}"):
                continue
            del self.futures[key]
            try:
                self._make_current(logs, copy.name)
            except OSError as failed:
                self.fail(copy.directory, failed)
            else:
                found[key] = copy
                self.findings.append(f"{logs.logs[copy.name].directory} is the log again: it had moved there")

    def _load(
        self,
        directory: DataDirectory,
        assigned: Assigned,
        topics: TopicsImage,
        options_of: OptionsOf,
        found: dict[PartitionKey, FoundLog],
        offline: dict[PartitionKey, FoundLog],
        now_ms: int,
    ) -> Generator[None, None, None]:
        make_directory(self._disk, directory.path)
        keys, left_alone = yield from self._looking(directory, assigned, topics, found, offline, now_ms)
        yield None
        logs = yield from LogDirectory.opening(
            self._disk,
            directory.path,
            lambda name: options_of(name.topic),
            now_ms=now_ms,
            is_clean=directory.is_clean,
            left_alone=left_alone,
            logs_per_step=self._logs_per_step,
        )
        self.findings += logs.findings
        self.online[directory.id] = logs
        self._cleaned[directory.id] = logs.cleaned_offsets()
        for name, log in logs.logs.items():
            found[keys[name]] = FoundLog(name, directory.id, log)
            self.findings += [f"{log.directory}: {finding}" for finding in log.recovered]
        for name, log in logs.futures.items():
            self.futures[keys[name]] = FoundLog(name, directory.id, log)
        for name, damage in logs.failed.items():
            if name in keys:
                found[keys[name]] = FoundLog(name, directory.id, None, f"{damage}. {damage.hint or ''}".rstrip())

    def _looking(
        self,
        directory: DataDirectory,
        assigned: Assigned,
        topics: TopicsImage,
        found: dict[PartitionKey, FoundLog],
        offline: dict[PartitionKey, FoundLog],
        now_ms: int,
    ) -> Generator[None, None, tuple[dict[PartitionName, PartitionKey], dict[str, MetadataLogError]]]:
        """Find the partitions in a log directory, and the entries that stay as they are, with the reason. Stray ones
        are renamed, and deleted ones are scheduled for removal. A plain file is no partition, whatever its name.
        """
        keys: dict[PartitionName, PartitionKey] = {}
        left_alone: dict[str, MetadataLogError] = {}
        for count, entry in enumerate(self._disk.list(directory.path), 1):
            if count % DIRECTORIES_LOOKED_AT_PER_STEP == 0:
                yield None
            name = parse_partition_name(entry)
            path = f"{directory.path}/{entry}"
            if name is None or entry == PARTITION_DIRECTORY or name.suffix == STRAY:
                continue
            if name.suffix == DELETE:
                if is_directory(self._disk, path):
                    self._to_delete.append((now_ms + self._delete_delay_ms, directory.id, path))
                continue
            plain = PartitionName(name.topic, name.number)
            try:
                topic_id = self._topic_of(path, name, topics)
                if topic_id is None and not is_directory(self._disk, path):
                    continue
                reason = f"{path}/{PARTITION_METADATA} is missing" if topic_id is None else None
                key = (topic_id or Uuid.ZERO, name.number)
                if reason is None and assigned(key) is None:
                    reason = f"the metadata does not assign partition {name.number} of topic {topic_id} to this broker"
                if reason is None and (plain in keys or key in (self.futures if name.suffix else found)):
                    reason = f"another log directory holds partition {name.number} of topic {topic_id}, too"
                if reason is None:
                    keys[plain] = key
                else:
                    target = self._put_aside(directory.path, plain, key[0], STRAY, entry)
                    self.findings.append(f"renamed {path} to {target}: {reason}")
            except (_Misnamed, OSError) as failed:
                bad = _unusable(failed, path)
                left_alone[entry] = bad
                for known in (topics.by_name.get(name.topic), bad.topic_id):
                    if known is not None and assigned((known, name.number)) is not None and not name.suffix:
                        offline[known, name.number] = FoundLog(plain, directory.id, None, str(bad))
                self.findings.append(f"left {path} as it is: {bad}. {bad.hint or ''}".rstrip())
        return keys, left_alone

    def _topic_of(self, path: str, name: PartitionName, topics: TopicsImage) -> Uuid | None:
        """The topic id of a partition directory; None if it has none. Raises `_Misnamed`, and `OSError`."""
        file = f"{path}/{PARTITION_METADATA}"
        try:
            topic_id = parse_partition_metadata(self._disk.read(file), where=file)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except MetadataLogError as bad:
            raise _Misnamed(bad.what, where=file, field=bad.field, hint=_REMEDY) from bad
        topic = topics.by_id.get(topic_id)
        if topic is not None and topic.name != name.topic:
            raise _Misnamed(
                f"the topic id {topic_id} is that of topic {topic.name}, not of {name.topic}",
                where=file,
                hint="Give the directories back the names of their topics.",
                topic_id=topic_id,
            )
        return topic_id

    # ------------------------------------------------------------------------------------------- new and deleted logs

    def create(
        self, directory: Uuid, name: PartitionName, topic_id: Uuid, options: LogOptions, now_ms: int
    ) -> PartitionLog:
        """Make the log of a new replica; raises `OSError`, and `DirectoryError` if something has its place.

        The partition.metadata is on disk before the log: a directory without that file is stray at the next start.
        """
        logs = self.online[directory]
        self._forget_former(directory, name)
        path = f"{logs.path}/{name}"
        if self._disk.exists(path):
            raise DirectoryError(
                "the place of a new log is taken", where=path, hint="Move it away, and start the broker again."
            )
        make_directory(self._disk, path)
        text = f"version: 0\ntopic_id: {topic_id}".encode("ascii")
        replace_file(self._disk, path, PARTITION_METADATA, text)
        return logs.add(name, options, now_ms=now_ms)

    def create_copy(
        self, directory: Uuid, name: PartitionName, topic_id: Uuid, options: LogOptions, now_ms: int
    ) -> PartitionLog:
        """Make the empty copy of a replica that is to move to a directory; raises `OSError`."""
        logs = self.online[directory]
        self._forget_former(directory, name)
        path = self._free_name(logs.path, name, topic_id, FUTURE)
        make_directory(self._disk, path)
        text = f"version: 0\ntopic_id: {topic_id}".encode("ascii")
        replace_file(self._disk, path, PARTITION_METADATA, text)
        copy = PartitionLog.open(self._disk, path, options, now_ms=now_ms)
        logs.futures[name] = copy
        return copy

    def delete_copy(self, directory: Uuid, name: PartitionName, topic_id: Uuid, now_ms: int) -> None:
        """Give up a copy; raises `OSError`."""
        logs = self.online[directory]
        copy = logs.futures.pop(name)
        copy.abandon()
        entry = copy.directory.rpartition("/")[2]
        target = self._put_aside(logs.path, name, topic_id, DELETE, entry)
        self._to_delete.append((now_ms + self._delete_delay_ms, directory, target))
        self.write_checkpoints(directory)

    def make_current(self, directory: Uuid, name: PartitionName) -> None:
        """The copy is the log: `delete` has retired the original. A start between the two does this, too.

        Raises:
            OSError: The disk failed.
        """
        self._make_current(self.online[directory], name)
        self.write_checkpoints(directory)

    def _make_current(self, logs: LogDirectory, name: PartitionName) -> None:
        copy = logs.futures[name]
        self._disk.rename_directory(copy.directory, f"{logs.path}/{name}")
        self._disk.fsync_dir(logs.path)
        copy.relocate(f"{logs.path}/{name}")
        logs.logs[name] = logs.futures.pop(name)

    def delete(self, directory: Uuid, name: PartitionName, topic_id: Uuid, now_ms: int) -> None:
        """Rename the directory of a replica with `-delete`; `remove_due` removes it later. Raises `OSError`."""
        logs = self.online[directory]
        log = logs.logs.pop(name, None)
        if log is not None:
            log.abandon()
        try:
            target = self._put_aside(logs.path, name, topic_id, DELETE)
        except OSError as failed:
            if not is_of_one_name(failed):
                raise
            self.findings.append(f"{logs.path}/{name} is of a deleted partition, and stays: {failed}")
        else:
            self._to_delete.append((now_ms + self._delete_delay_ms, directory, target))
        # A later partition of the same name must not begin with these offsets.
        self._gone.setdefault(directory, set()).add(name)
        self.outdated[directory] = None

    def _put_aside(self, path: str, name: PartitionName, topic_id: Uuid, suffix: str, entry: str | None = None) -> str:
        """Give a partition directory a name that no load opens; returns the new path. `entry` is its present name."""
        target = self._free_name(path, name, topic_id, suffix)
        self._disk.rename_directory(f"{path}/{entry or name}", target)
        self._disk.fsync_dir(path)
        return target

    def _free_name(self, path: str, name: PartitionName, topic_id: Uuid, suffix: str) -> str:
        """A path with a suffix that is not there yet."""
        for count in range(1 << 16):
            tag = blake2b(topic_id + bytes(str(name.number), "ascii") + count.to_bytes(2, "big"), digest_size=16)
            end = f"-{name.number}.{tag.hexdigest()}-{suffix}"
            target = f"{path}/{name.topic[: _LONGEST_NAME - len(end)]}{end}"
            if not self._disk.exists(target):
                break
        return target

    def removal_deadline_ms(self) -> int:
        """When `remove_due` is due: both lists are in the order of their times."""
        if not (self._to_delete or self._files):
            return NEVER_MS
        return min(each[0][0] for each in (self._to_delete, self._files) if each)

    def schedule_removals(self, now_ms: int) -> None:
        """Schedule the removal of the files of segments that were deleted or truncated since the last call."""
        for directory, logs in self.online.items():
            for log in (*logs.logs.values(), *logs.futures.values()):
                if log.doomed:
                    self._files += [(now_ms + self._delete_delay_ms, directory, path) for path in log.doomed]
                    log.doomed = []

    def remove_due(self, now_ms: int) -> None:
        """Remove the files of deleted segments and partitions after the delay. What cannot be removed stays, and is
        reported; a failure of the disk takes the log directory offline.
        """
        if not (self._to_delete or self._files) or now_ms < self.removal_deadline_ms():
            return
        due_files = [each for each in self._files if each[0] <= now_ms]
        due = [each for each in self._to_delete if each[0] <= now_ms]
        self._files = [each for each in self._files if each[0] > now_ms]
        self._to_delete = [each for each in self._to_delete if each[0] > now_ms]
        for _, directory, path in due_files:
            self._remove(directory, path, self._disk.remove)
        for _, directory, path in due:
            self._remove(directory, path, partial(remove_tree, self._disk))

    def _remove(self, directory: Uuid, path: str, remove: Callable[[str], None]) -> None:
        # The files of a segment are gone with the directory of their partition.
        if directory in self.online and self._disk.exists(path):
            try:
                remove(path)
            except OSError as failed:
                if is_of_one_name(failed):
                    self.findings.append(f"{path} cannot be removed, and stays: {failed}")
                else:
                    self.fail(directory, failed)

    # ------------------------------------------------------------------------------------ checkpoints, failures, stop

    # Whoever has files written looks afterwards whether that has failed: nothing here takes a directory offline while
    # the directories are walked through.

    def write_watermarks(self) -> None:
        """Have the high watermarks written that have changed; `look_at_writes` takes a failure."""
        for directory, logs in self.online.items():
            watermarks = logs.high_watermarks()
            if watermarks != self._written.get(directory):
                self._put(directory, logs, {HIGH_WATERMARKS: watermarks})

    def write_cleaned(self) -> None:
        """Have it written how far the logs were cleaned, if that has changed; `look_at_writes` takes a failure."""
        for directory, logs in self.online.items():
            cleaned = logs.cleaned_offsets()
            if cleaned != self._cleaned.get(directory, {}):
                self._put(directory, logs, {CLEANED: cleaned})

    def write_offsets(self) -> None:
        """Have recovery points and log starts written; `look_at_writes` takes a failure."""
        for directory, logs in self.online.items():
            self._put(directory, logs, {file: logs.offsets_of(file) for file in (RECOVERY_POINTS, LOG_STARTS)})

    def write_outdated(self) -> None:
        """Have the checkpoint files written that name partitions which were deleted since the last call."""
        outdated, self.outdated = self.outdated, {}
        for directory in outdated:
            logs = self.online.get(directory)
            if logs is not None:
                self._put(directory, logs, {file: logs.offsets_of(file) for file in CHECKPOINTS})

    def _put(self, directory: Uuid, logs: LogDirectory, offsets: Mapping[str, dict[PartitionName, int]]) -> None:
        """Have checkpoint files written with their present offsets, by the thread that does so if there is one."""
        for file, its_offsets in offsets.items():
            content = logs.content_of(file, its_offsets)
            if content is not None:
                self.writer.put(directory, logs.path, file, content)
        self._note_written(directory, offsets)

    def _note_written(self, directory: Uuid, offsets: Mapping[str, dict[PartitionName, int]]) -> None:
        if CLEANED in offsets:
            self._cleaned[directory] = offsets[CLEANED]
        if HIGH_WATERMARKS in offsets:
            self._written[directory] = offsets[HIGH_WATERMARKS]

    def look_at_writes(self) -> None:
        """Take the log directories offline in which a checkpoint file could not be written."""
        for directory, failed in self.writer.take_failures():
            if directory in self.online:
                self.findings.append(f"a log directory has failed, and its partitions are offline: {failed}")
            self.fail(directory, failed)
        if self._gone and not self.outdated and self.writer.is_idle:
            self._gone.clear()

    def write_checkpoints(self, directory: Uuid) -> None:
        """Write all checkpoint files of a directory before this returns; raises `OSError`."""
        logs = self.online[directory]
        # What was put before must not come after.
        self.writer.settle()
        self._note_written(directory, logs.write(*CHECKPOINTS))
        self.outdated.pop(directory, None)
        self._gone.pop(directory, None)

    def _forget_former(self, directory: Uuid, name: PartitionName) -> None:
        """Before a new log: the checkpoint files hold no offsets of a deleted one of its name. Raises `OSError`."""
        if name in self._gone.get(directory, ()):
            self.write_checkpoints(directory)

    def take_offline(self, directory: Uuid, name: PartitionName, reason: str) -> None:
        """Close one log for good. Its directory claims no clean shutdown: the next start looks at the log again."""
        logs = self.online.get(directory)
        log = None if logs is None else logs.logs.pop(name, None)
        if logs is not None and log is not None:
            log.abandon()
            logs.failed[name] = DirectoryError(reason, where=log.directory)

    def close_copy(self, directory: Uuid, name: PartitionName) -> None:
        """Close a copy, which stays on disk: the next start goes on with it."""
        logs = self.online.get(directory)
        copy = None if logs is None else logs.futures.pop(name, None)
        if copy is not None:
            copy.abandon()

    def fail(self, directory: Uuid, failure: OSError) -> None:
        """Take a directory offline, for good; its files are closed."""
        self.failures.setdefault(directory, str(failure))
        self.outdated.pop(directory, None)
        self._gone.pop(directory, None)
        logs = self.online.pop(directory, None)
        for log in () if logs is None else (*logs.logs.values(), *logs.futures.values()):
            log.abandon()

    def directory_of(self, path: str) -> Uuid | None:
        """The id of a log directory by its path."""
        return next((each.id for each in self._directories if each.is_at(path)), None)

    def space(self, directory: DataDirectory) -> tuple[int, int]:
        """The bytes of a log directory's file system, and those that may be written; -1 each if nobody can say."""
        if directory.id not in self.online:
            return (-1, -1)
        try:
            return self._disk.space(directory.path) or (-1, -1)
        except OSError:
            return (-1, -1)

    def close(self, *, broker_epoch: int) -> None:
        """Stop cleanly: flush and close every log, write the checkpoint files and the clean-shutdown file.

        A directory that fails keeps no clean-shutdown file, and the next start recovers its logs.
        """
        self.writer.settle()
        self.look_at_writes()
        for directory, logs in self.online.items():
            try:
                logs.close(broker_epoch=broker_epoch)
            except OSError as failed:
                self.failures.setdefault(directory, str(failed))
        self.online.clear()
