"""One replica of this broker, with its log: led, followed, or offline (Kafka: `Partition`, `HostedPartition`)."""

from __future__ import annotations

from msgspec import Struct

from kraft.partitions.log.partition_log import PartitionLog
from kraft.partitions.replicas.key import PartitionKey
from kraft.partitions.replicas.leading import Leading
from kraft.partitions.replicas.watermarks import effective_min_isr
from metadata_log.image import Partition
from metadata_log.image.topics import NO_LEADER
from metadata_log.log.partition_names import PartitionName
from metadata_log.types import NO_EPOCH, Uuid


class Copy(Struct, frozen=True):
    """A copy of a log in another log directory (Kafka: a future replica)."""

    directory: Uuid
    log: PartitionLog


class HostedPartition:
    """A replica of this broker. Only the `ReplicaManager` changes it; other rooms read.

    Args:
        key: The topic id and the number of the partition.
        topic: The name of the topic.
        directory: The id of its log directory; None for a replica that has no place.
        log: The log; None for a replica that is offline.
        min_isr: The setting `min.insync.replicas`.
    """

    log: PartitionLog
    """The log; there is none while `is_offline`."""

    def __init__(
        self, key: PartitionKey, topic: str, directory: Uuid | None, log: PartitionLog | None, min_isr: int
    ) -> None:
        self.key = key
        self.topic = topic
        self.number = key[1]
        self.name = PartitionName(topic, key[1])
        self.directory = directory
        self.leader_id = NO_LEADER
        """The leader in the metadata; -1 for none."""
        self.leader_epoch = NO_EPOCH
        """The leader epoch in the metadata; -1 before the first."""
        self.partition_epoch = NO_EPOCH
        self.replicas: tuple[int, ...] = ()
        """The brokers with an assigned replica."""
        self.leading: Leading | None = None
        self.set_min_isr(min_isr)
        self.leads_throttled = self.follows_throttled = False
        """Whether the throttles of replication hold this replica back as the leader, or as a follower."""
        self.copy: Copy | None = None
        """The copy of the log that moves to another log directory."""
        self.is_offline = log is None
        """Whether the log directory or the log has failed: requests get KAFKA_STORAGE_ERROR."""
        if log is not None:
            self.log = log

    def __str__(self) -> str:
        """The topic and the number, such as `orders-0`."""
        return f"{self.topic}-{self.number}"

    def note(self, partition: Partition) -> None:
        """Take over leader, epochs and replicas from the metadata."""
        self.leader_id, self.leader_epoch = partition.leader, partition.leader_epoch
        self.replicas, self.partition_epoch = partition.replicas, partition.partition_epoch
        self.set_min_isr(self.min_isr_setting)

    def set_min_isr(self, setting: int) -> None:
        """Take over `min.insync.replicas`."""
        self.min_isr_setting = setting
        self.min_isr = effective_min_isr(setting, max(1, len(self.replicas)))
        """The least size of the ISR for acks=all."""

    def replace_log(self, directory: Uuid, log: PartitionLog | None) -> None:
        """Put the copy in the place of the log; None if the directory has failed meanwhile."""
        self.directory, self.copy = directory, None
        if log is None:
            self.go_offline()
        else:
            self.log = log

    def go_offline(self) -> None:
        """Take the log away, after a failure."""
        if not self.is_offline:
            self.is_offline = True
            del self.log
        self.leading = self.copy = None

    @property
    def is_leader(self) -> bool:
        """Whether this broker leads the partition."""
        return self.leading is not None

    @property
    def isr(self) -> tuple[int, ...]:
        """The committed ISR; empty if this broker does not lead."""
        return self.leading.isr if self.leading is not None else ()

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """Every replica that the controller may hold for a member of the ISR; empty if this broker does not lead."""
        return self.leading.maximal_isr if self.leading is not None else ()
