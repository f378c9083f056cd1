"""The state that all parts of a broker's replicas share: partitions, metadata, changes, failures of disks."""

from __future__ import annotations

from collections.abc import Callable, Container, Set
from typing import Any

from kraft.agenda import Agenda, Slot
from kraft.limits import FINDINGS
from kraft.partitions.log.outcomes import Place, RefusedAppend
from kraft.partitions.replicas.hosted_partition import HostedPartition
from kraft.partitions.replicas.key import ANY_CHANGE, INTERNAL_TOPICS, PartitionKey
from kraft.partitions.replicas.log_store import LogStore
from kraft.partitions.replicas.settings import DataSettings
from kraft.partitions.replicas.throttles import Throttle
from metadata_log.disk import DirectoryDisk
from metadata_log.errors import MetadataLogError
from metadata_log.image import MetadataImage, Partition
from metadata_log.log.partition_names import PartitionName
from metadata_log.types import NO_EPOCH, Uuid
from transport.protocol.errors import Error


class Hosting:
    """The replicas of one broker and their logs.

    Args:
        disk: The disk of the log directories.
        settings: The settings of the broker.
    """

    def __init__(self, disk: DirectoryDisk, settings: DataSettings) -> None:
        self.settings = settings
        self.store = LogStore(disk, settings.directories, settings.file_delete_delay_ms, settings.logs_per_step)
        self.partitions: dict[PartitionKey, HostedPartition] = {}
        self.by_name: dict[PartitionName, PartitionKey] = {}
        self.image = MetadataImage()
        self.unwritten: dict[PartitionKey, None] = {}
        """The partitions with a snapshot of producers that is written in steps."""
        self.agenda = Agenda()
        """The times at which this broker has work to do."""
        self.watched: tuple[Container[Any], ...] = ()
        """The partitions of which somebody waits for a change."""
        self._changed: dict[PartitionKey, int] = {}
        """Those that have changed since `take_changes`, with what has changed of them."""
        self.moved: dict[PartitionKey, None] = {}
        """The partitions that may have moved since the last request to a leader."""
        self.led: dict[PartitionKey, None] = {}
        """The partitions of internal topics whose leadership may have changed since the coordinators last looked."""
        of_throttles = settings.replication.quota_samples, settings.replication.quota_window_ms
        self.leader_throttle = Throttle(*of_throttles)
        """The bound of what followers that catch up get from here."""
        self.follower_throttle = Throttle(*of_throttles)
        """The bound of what this broker fetches to catch up."""
        self.leads_throttled = False
        """Whether one of the replicas is throttled as a leader."""
        self.findings: list[str] = []
        """The findings that the broker should log."""
        self._judged_failures = 0
        """How many failed directories `look_at_failures` has judged. A failed directory gets no new replica."""

    def assigned(self, key: PartitionKey) -> Partition | None:
        """The metadata of a partition that is assigned to this broker, else None."""
        topic = self.image.topics.by_id.get(key[0])
        if topic is None or key[1] >= len(topic.partitions):
            return None
        partition = topic.partitions[key[1]]
        return partition if self.settings.broker_id in partition.replicas else None

    def directory_in_metadata(self, key: PartitionKey) -> Uuid | None:
        """The log directory that the metadata names for a partition of this broker; None for a partition of others."""
        partition = self.assigned(key)
        return None if partition is None else partition.directories[partition.replicas.index(self.settings.broker_id)]

    def touch(self, part: HostedPartition, change: int = ANY_CHANGE) -> None:
        """A partition may have moved; `change` says what of it has changed, one bit for each."""
        key = part.key
        for watched in self.watched:
            if key in watched:
                self._changed[key] = self._changed.get(key, 0) | change
                self.agenda.now(Slot.CHANGES)
                break
        self.moved[key] = None
        if not part.is_offline and part.log.producers.unwritten is not None:
            self.unwritten[key] = None
            self.agenda.now(Slot.AGENT)

    def served(self, key: PartitionKey, leader_epoch: int, *, needs_leader: bool) -> HostedPartition | RefusedAppend:
        """The replica that serves a request, or why there is none (`Partition.checkCurrentLeaderEpoch`,
        `localLogWithEpochOrThrow`).

        Args:
            key: The partition.
            leader_epoch: The leader epoch that the request names; -1 for none.
            needs_leader: Whether only the leader may answer.
        """
        part = self.partitions.get(key)
        if part is None:
            return RefusedAppend(Error.NOT_LEADER_OR_FOLLOWER, f"this broker has no replica of partition {key[1]}")
        if part.is_offline:
            return RefusedAppend(Error.KAFKA_STORAGE_ERROR, f"the log of {part} is offline")
        if leader_epoch >= 0 and leader_epoch != part.leader_epoch:
            is_old = leader_epoch < part.leader_epoch
            return RefusedAppend(
                Error.FENCED_LEADER_EPOCH if is_old else Error.UNKNOWN_LEADER_EPOCH,
                f"{part}: the leader epoch is {part.leader_epoch}, not {leader_epoch}",
            )
        if needs_leader and part.leading is None:
            return RefusedAppend(Error.NOT_LEADER_OR_FOLLOWER, f"this broker does not lead {part}")
        return part

    def read(
        self,
        part: HostedPartition,
        offset: int,
        max_bytes: int,
        *,
        end_offset: int | None = None,
        at_least_one: bool = True,
    ) -> bytes | RefusedAppend:
        """Read batches as `PartitionLog.read` does; a failure of the disk takes the log directory offline.

        The partition may be offline, or not here any more: a request may find it some steps before it reads.
        """
        if part.is_offline or self.partitions.get(part.key) is not part:
            return self._gone(part)
        try:
            return part.log.read(offset, max_bytes, end_offset=end_offset, at_least_one=at_least_one)
        except (OSError, MetadataLogError) as bad:
            return self._unreadable(part, bad)

    def place_of(self, part: HostedPartition, offset: int) -> Place | RefusedAppend:
        """Where a reader begins (`PartitionLog.place_of`); a failure of the disk takes the log directory offline."""
        if part.is_offline or self.partitions.get(part.key) is not part:
            return self._gone(part)
        try:
            return part.log.place_of(offset)
        except (OSError, MetadataLogError) as bad:
            return self._unreadable(part, bad)

    def _gone(self, part: HostedPartition) -> RefusedAppend:
        served = self.served(part.key, NO_EPOCH, needs_leader=False)
        return (
            served
            if isinstance(served, RefusedAppend)
            else RefusedAppend(Error.NOT_LEADER_OR_FOLLOWER, f"{part} was made again")
        )

    def _unreadable(self, part: HostedPartition, bad: OSError | MetadataLogError) -> RefusedAppend:
        if isinstance(bad, OSError):
            self.fail(part, bad)
            return RefusedAppend(Error.KAFKA_STORAGE_ERROR, str(bad))
        return RefusedAppend(Error.CORRUPT_MESSAGE, str(bad))

    def take_changes(self) -> dict[PartitionKey, int]:
        """The watched partitions whose end, watermark, stable offset, start, ISR or leadership may have moved since the
        last call, in the order of their first change, with what has changed.
        """
        changed, self._changed = self._changed, {}
        return changed

    def note_leadership(self, part: HostedPartition) -> None:
        """Note for the coordinators that the leadership of a partition may have changed."""
        if part.topic in INTERNAL_TOPICS:
            self.led[part.key] = None
            self.agenda.now(Slot.LEADERSHIPS)

    def take_led(self) -> Set[PartitionKey]:
        """The partitions of which the leadership may have changed since the last call."""
        led, self.led = self.led, {}
        return led.keys()

    def report(self, finding: str) -> None:
        """Keep a text for the log of the broker; beyond the bound later texts are dropped."""
        if len(self.findings) < FINDINGS:
            self.findings.append(finding)
            self.agenda.now(Slot.REPORTS)

    def take_findings(self) -> None:
        """Keep what the log directories have found."""
        for finding in self.store.findings:
            self.report(finding)
        self.store.findings.clear()

    def go_offline(self, part: HostedPartition, reason: str) -> None:
        """Take one replica offline; its files are closed."""
        if part.copy is not None:
            self.store.close_copy(part.copy.directory, part.name)
        part.go_offline()
        if part.directory is not None:
            self.store.take_offline(part.directory, part.name, reason)
        self.note_leadership(part)
        self.touch(part)

    def fail(self, part: HostedPartition, failure: OSError) -> None:
        """The disk has failed at the log of a replica: its log directory is offline, with every replica there."""
        assert part.directory is not None, part.key
        self.fail_directory(part.directory, failure)

    def fail_directory(self, directory: Uuid, failure: OSError) -> None:
        """The disk has failed in a log directory: it is offline, with every replica there."""
        if directory not in self.store.failures:
            self.report(f"a log directory has failed, and its partitions are offline: {failure}")
        self.store.fail(directory, failure)
        self.look_at_failures()

    def look_at_writes(self) -> None:
        """Take the log directories offline in which a checkpoint file could not be written, with their replicas."""
        self.store.look_at_writes()
        self.look_at_failures()

    def guarded(self, part: HostedPartition, act: Callable[[], None]) -> None:
        """Do something with the log of a replica. A failure of the disk takes the log directory offline, and damage in
        the files of the log takes this replica offline.
        """
        try:
            act()
        except OSError as failed:
            self.fail(part, failed)
        except MetadataLogError as bad:
            self.report(f"{part} is offline: {bad}")
            self.go_offline(part, str(bad))

    def look_at_failures(self) -> None:
        """Take the replicas in failed log directories offline; costs nothing while no further directory fails."""
        if len(self.store.failures) == self._judged_failures:
            return
        self._judged_failures = len(self.store.failures)
        self.agenda.now(Slot.AGENT)
        for part in self.partitions.values():
            if part.copy is not None and part.copy.directory in self.store.failures:
                self.report(f"{part} stays in its log directory: {self.store.failures[part.copy.directory]}")
                part.copy = None
            if part.directory in self.store.failures and not part.is_offline:
                self.go_offline(part, self.store.failures[part.directory])
