"""What the parts of a broker's replicas share: the partitions, the metadata, the changes, failures of disks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kraft.broker.log.outcomes import Refused
from kraft.broker.partitions.hosted_partition import HostedPartition
from kraft.broker.partitions.log_store import LogStore
from kraft.broker.partitions.settings import DataSettings
from kraft.broker.replicas import PartitionKey
from metadata_log.disk import DirectoryDisk
from metadata_log.errors import MetadataLogError
from metadata_log.image import MetadataImage, Partition
from metadata_log.log.partition_names import PartitionName
from metadata_log.types import Uuid
from transport.protocol.errors import Error

MOST_FINDINGS: Final = 1000


class Hosting:
    """The replicas of one broker and their logs.

    Args:
        disk: The disk of the log directories.
        settings: The settings of the broker.
    """

    def __init__(self, disk: DirectoryDisk, settings: DataSettings) -> None:
        self.settings = settings
        self.store = LogStore(disk, settings.directories, settings.file_delete_delay_ms)
        self.partitions: dict[PartitionKey, HostedPartition] = {}
        self.by_name: dict[PartitionName, PartitionKey] = {}
        self.image = MetadataImage()
        self.unwritten: dict[PartitionKey, None] = {}
        """The partitions with a snapshot of producers that is written in steps."""
        self.changed: dict[PartitionKey, None] = {}
        """The partitions that may have moved since the last look of the purgatories."""
        self.moved: dict[PartitionKey, None] = {}
        """The partitions that may have moved since the last request to a leader."""
        self.findings: list[str] = []
        """What the broker should log."""
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

    def touch(self, part: HostedPartition) -> None:
        """A partition may have moved."""
        self.changed[part.key] = self.moved[part.key] = None
        if not part.is_offline and part.log.producers.unwritten is not None:
            self.unwritten[part.key] = None

    def refusal(self, key: PartitionKey, current_leader_epoch: int, *, needs_leader: bool) -> Refused | None:
        """Why a request for a partition is refused; see `ReplicaManager.refusal`."""
        part = self.partitions.get(key)
        if part is None:
            return Refused(Error.NOT_LEADER_OR_FOLLOWER, f"this broker has no replica of partition {key[1]}")
        if part.is_offline:
            return Refused(Error.KAFKA_STORAGE_ERROR, f"the log of {part} is offline")
        if current_leader_epoch >= 0 and current_leader_epoch != part.leader_epoch:
            is_old = current_leader_epoch < part.leader_epoch
            return Refused(
                Error.FENCED_LEADER_EPOCH if is_old else Error.UNKNOWN_LEADER_EPOCH,
                f"{part}: the leader epoch is {part.leader_epoch}, not {current_leader_epoch}",
            )
        if needs_leader and not part.is_leader:
            return Refused(Error.NOT_LEADER_OR_FOLLOWER, f"this broker does not lead {part}")
        return None

    def report(self, finding: str) -> None:
        """Keep a text for the log of the broker; beyond the bound later texts are dropped."""
        if len(self.findings) < MOST_FINDINGS:
            self.findings.append(finding)

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
        self.touch(part)

    def fail(self, part: HostedPartition, failure: OSError) -> None:
        """The disk has failed at the log of a replica: its log directory is offline, with every replica there."""
        directory = part.directory
        assert directory is not None, part.key
        if directory not in self.store.failures:
            self.report(f"a log directory has failed, and its partitions are offline: {failure}")
        self.store.fail(directory, failure)
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
        for part in self.partitions.values():
            if part.copy is not None and part.copy.directory in self.store.failures:
                self.report(f"{part} stays in its log directory: {self.store.failures[part.copy.directory]}")
                part.copy = None
            if part.directory in self.store.failures and not part.is_offline:
                self.go_offline(part, self.store.failures[part.directory])
