"""Moves of replicas between the log directories of one broker (KIP-113, KIP-858; Kafka: `ReplicaAlterLogDirsThread`).

A copy follows the log until both end at the same offset. Then the controller learns of the new directory, and once the
metadata names it, the copy takes the place of the log.
"""

from __future__ import annotations

from msgspec import Struct

from kraft.agenda import Slot
from kraft.limits import MOVE_STEP_BYTES
from kraft.partitions.log.outcomes import RefusedAppend
from kraft.partitions.replicas.epoch_ends import end_of_epoch, truncation
from kraft.partitions.replicas.hosted_partition import Copy, HostedPartition
from kraft.partitions.replicas.hosting import Hosting
from kraft.partitions.replicas.key import PartitionKey
from kraft.partitions.replicas.throttles import UNLIMITED
from metadata_log.errors import MetadataLogError
from metadata_log.log.partition_names import PartitionName
from metadata_log.records.batch import scan
from metadata_log.types import NEVER_MS, Uuid
from transport.protocol.errors import Error

IDLE_MS = 100
"""The pause of a copy that has all records, until the metadata names its directory."""
ASK_AGAIN_MS = 10_000
"""The time after which the controller is told once more."""
MOST_PREFERRED = 10_000
"""For how many replicas that are not here a directory is remembered; beyond, the oldest are forgotten."""
_FLUSH_BYTES = 4 << 20
_STEPS_PER_SECOND = 10
"""Of a copy with a bound, which is at most so long ahead of it."""
_CATCHES_UP_MS = 1000
"""So much lateness of its steps a copy with a bound makes up for."""
_ANY_EPOCH = 2**31 - 1
_LONGEST_NAME = 255
_TAG = ".0123456789abcdef0123456789abcdef-future"


class _Move(Struct):
    """One move under way."""

    due_ms: int
    asked_ms: int | None = None
    """When the controller was told last; None before the copy had all records for the first time."""
    unsynced: int = 0


class Moves:
    """The moves of one broker.

    Args:
        hosting: The replicas.
    """

    def __init__(self, hosting: Hosting) -> None:
        self._hosting = hosting
        self.under_way: dict[PartitionKey, _Move] = {}
        """The moves by partition."""
        self.preferred: dict[PartitionName, Uuid] = {}
        """The directories of replicas that are not here yet (KIP-113); at most `MOST_PREFERRED`."""
        self._wanted: dict[PartitionKey, Uuid] = {}
        """The directories that the controller has to learn of."""
        own = hosting.settings.move_bytes_per_second
        self._bytes_per_second = UNLIMITED if own is None else own
        self._free_ms = 0
        """No copy before this time, for the bound of bytes in a second."""

    # ------------------------------------------------------------------------------------------------- begin and end

    def alter(self, key: PartitionKey, path: str, now_ms: int) -> Error:
        """Move a replica to a log directory (`ReplicaManager.alterReplicaLogDirs`).

        Args:
            key: The partition.
            path: The log directory, as the configuration names it. That of the replica ends a move.
            now_ms: The time in ms since 1970.

        Returns:
            NONE if the replica is there, or moves from now on; else the error.
        """
        hosting = self._hosting
        directory = hosting.store.directory_of(path)
        part = hosting.partitions.get(key)
        if directory is None:
            return Error.LOG_DIR_NOT_FOUND
        if directory not in hosting.store.online:
            return Error.KAFKA_STORAGE_ERROR
        if part is None:
            return Error.REPLICA_NOT_AVAILABLE
        if part.is_offline:
            return Error.KAFKA_STORAGE_ERROR
        if len(f"{part}{_TAG}") > _LONGEST_NAME:
            return Error.INVALID_TOPIC_EXCEPTION
        hosting.agenda.now(Slot.AGENT)
        if part.copy is not None and part.copy.directory != directory:
            self.give_up(part, now_ms)
        if part.copy is None and part.directory != directory and not part.is_offline:
            return self._begin(part, directory, now_ms)
        return Error.NONE

    def prefer(self, name: PartitionName, path: str) -> None:
        """Note where a replica shall be made that is not here yet (`LogManager.maybeUpdatePreferredLogDir`).

        The metadata's own directory goes before it, and a restart forgets it, as in Kafka.
        """
        directory = self._hosting.store.directory_of(path)
        if directory is None:
            return
        self.preferred.pop(name, None)
        self.preferred[name] = directory
        if len(self.preferred) > MOST_PREFERRED:
            del self.preferred[next(iter(self.preferred))]

    def _begin(self, part: HostedPartition, directory: Uuid, now_ms: int) -> Error:
        store = self._hosting.store
        try:
            copy = store.create_copy(directory, part.name, part.key[0], part.log.options, now_ms)
        except OSError as failed:
            self._hosting.fail_directory(directory, failed)
            return Error.KAFKA_STORAGE_ERROR
        self.go_on(part, Copy(directory, copy), now_ms)
        return Error.NONE

    def go_on(self, part: HostedPartition, copy: Copy, now_ms: int) -> None:
        """Let a copy follow the log of its replica: a new one, or one that a start has found."""
        part.copy = copy
        self.under_way[part.key] = _Move(now_ms)

    def give_up(self, part: HostedPartition, now_ms: int) -> None:
        """End a move: the replica stays where it is, and the copy is deleted."""
        copy, move = part.copy, self.under_way.pop(part.key, None)
        if copy is None:
            return
        part.copy = None
        if move is not None and move.asked_ms is not None and part.directory is not None:
            self._wanted[part.key] = part.directory
        store = self._hosting.store
        try:
            store.delete_copy(copy.directory, part.name, part.key[0], now_ms)
        except OSError as failed:
            self._hosting.fail_directory(copy.directory, failed)

    def limit(self, bytes_per_second: int) -> None:
        """Copy at most so much in a second from now on."""
        if bytes_per_second != self._bytes_per_second:
            self._bytes_per_second = bytes_per_second
            self._free_ms = 0

    def directory_of(self, part: HostedPartition) -> Uuid | None:
        """The directory of a replica for the controller: that of the copy once the copy has all records."""
        move = self.under_way.get(part.key)
        if part.copy is not None and move is not None and move.asked_ms is not None:
            return part.copy.directory
        return part.directory

    def take_wanted(self) -> dict[PartitionKey, Uuid]:
        """The directories that the controller has to learn of, since the last call."""
        wanted, self._wanted = self._wanted, {}
        return wanted

    # ----------------------------------------------------------------------------------------------------------- time

    def deadline_ms(self) -> int:
        """When the next step is due."""
        if not self.under_way:
            return NEVER_MS
        return max(min(move.due_ms for move in self.under_way.values()), self._free_ms)

    def run(self, now_ms: int) -> None:
        """Go a step further with the copy that waits longest, if a step is due."""
        if now_ms < self.deadline_ms():
            return
        key, move = min(self.under_way.items(), key=lambda each: each[1].due_ms)
        part = self._hosting.partitions.get(key)
        if part is None or part.copy is None:
            del self.under_way[key]
            if part is not None and not part.is_offline and move.asked_ms is not None and part.directory is not None:
                # The directory of the copy has failed after the controller learned of it.
                self._wanted[key] = part.directory
            return
        copy = part.copy
        move.due_ms = now_ms + IDLE_MS
        next_records = self._next_records(part, copy)
        if isinstance(next_records, str):
            self._hosting.report(f"{part} does not move: {next_records}")
            self.give_up(part, now_ms)
        elif next_records is not None:
            self._guarded(part, copy, move, next_records, now_ms)

    def _next_records(self, part: HostedPartition, copy: Copy) -> bytes | str | None:
        """The next batches of the log for the copy; a text if they are damaged; None if the replica is offline."""
        log = part.log
        offset = max(min(self._common_end(part, copy), log.end_offset), log.local_start)
        try:
            records = log.read(offset, min(MOVE_STEP_BYTES, max(1, self._bytes_per_second // _STEPS_PER_SECOND)))
        except OSError as failed:
            self._hosting.fail(part, failed)
            return None
        except MetadataLogError as bad:
            return str(bad)
        return records.text if isinstance(records, RefusedAppend) else records

    def _common_end(self, part: HostedPartition, copy: Copy) -> int:
        """The offset up to which the copy has the history of the log."""
        log, made = part.log, copy.log
        epoch = made.epochs.last_epoch
        if epoch is None:
            return made.end_offset if log.epochs.last_epoch is None else made.start_offset
        end = end_of_epoch(log.epochs, epoch, log.end_offset)
        if end is None:
            return made.epochs.entries[-1].offset
        return truncation(made.epochs, made.end_offset, end).offset

    def _guarded(self, part: HostedPartition, copy: Copy, move: _Move, found: bytes, now_ms: int) -> None:
        """Write a step of the copy. A failure is one of the copy's directory: the replica stays where it is."""
        try:
            self._step(part, copy, move, found, now_ms)
        except OSError as failed:
            self._hosting.fail_directory(copy.directory, failed)
        except MetadataLogError as bad:
            self._hosting.report(f"{part} does not move: {bad}")
            self.give_up(part, now_ms)

    def _step(self, part: HostedPartition, copy: Copy, move: _Move, found: bytes, now_ms: int) -> None:
        log, made = part.log, copy.log
        common = self._common_end(part, copy)
        if common < log.local_start or made.end_offset < log.local_start:
            first = next(scan(found, verify=False), None)
            made.reset(log.local_start if first is None else first.base_offset, now_ms=now_ms)
        elif common < made.end_offset:
            made.truncate(common, now_ms=now_ms)
            move.due_ms = now_ms
            return
        if found:
            made.append_as_follower(found, leader_epoch=_ANY_EPOCH, now_ms=now_ms)
            move.unsynced += len(found)
            move.due_ms = now_ms + 1
            self._throttle(len(found), now_ms)
            if move.unsynced >= _FLUSH_BYTES:
                move.unsynced = 0
                made.flush()
        made.raise_high_watermark(log.high_watermark)
        made.raise_start(min(log.start_offset, made.high_watermark))
        if made.end_offset == log.end_offset:
            self._finish(part, copy, move, now_ms)

    def _throttle(self, size: int, now_ms: int) -> None:
        began_ms = self._free_ms if now_ms - self._free_ms <= _CATCHES_UP_MS else now_ms
        self._free_ms = began_ms + size * 1000 // max(1, self._bytes_per_second)

    def _finish(self, part: HostedPartition, copy: Copy, move: _Move, now_ms: int) -> None:
        """Replace the log by its copy if the metadata names the directory of the copy; otherwise tell the controller.

        Before KIP-858 the metadata names no directory of this broker: then the log is replaced, too.
        """
        named = self._hosting.directory_in_metadata(part.key)
        if named == copy.directory or all(named != own.id for own in self._hosting.settings.directories):
            self._replace(part, copy, now_ms)
        elif move.asked_ms is None or now_ms >= move.asked_ms + ASK_AGAIN_MS:
            move.asked_ms = now_ms
            self._wanted[part.key] = copy.directory

    def _replace(self, part: HostedPartition, copy: Copy, now_ms: int) -> None:
        """Put the copy in the place of the log (`replaceCurrentWithFutureLog`); raises `OSError` for the copy.

        The copy is on disk before the original goes, and the original has another name before the copy takes its own:
        a start in between finds one of them.
        """
        hosting, store = self._hosting, self._hosting.store
        assert part.directory is not None
        copy.log.succeed(part.log)
        copy.log.flush()
        store.write_checkpoints(copy.directory)
        try:
            store.delete(part.directory, part.name, part.key[0], now_ms)
        except OSError as failed:
            hosting.fail(part, failed)
            return
        del self.under_way[part.key]
        try:
            store.make_current(copy.directory, part.name)
        except OSError:
            part.replace_log(copy.directory, None)
            raise
        part.replace_log(copy.directory, copy.log)
        hosting.report(f"{part} has moved to {copy.log.directory}")
        hosting.touch(part)
