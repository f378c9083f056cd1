"""One replica of this broker, with its log: led, followed, or offline (Kafka: `Partition`, `HostedPartition`)."""

from __future__ import annotations

from msgspec import Struct

from kraft.broker.log.partition_log import PartitionLog
from kraft.broker.partitions.leading import Leading
from kraft.broker.replicas import PartitionKey
from metadata_log.image import Partition
from metadata_log.log.partition_names import PartitionName
from metadata_log.types import Uuid

NO_LEADER = -1
NO_LEADER_EPOCH = -1


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

    def __init__(
        self, key: PartitionKey, topic: str, directory: Uuid | None, log: PartitionLog | None, min_isr: int
    ) -> None:
        self.key = key
        self.topic = topic
        self.directory = directory
        self.leader_id = NO_LEADER
        """The leader in the metadata; -1 for none."""
        self.leader_epoch = NO_LEADER_EPOCH
        """The leader epoch in the metadata; -1 before the first."""
        self.partition_epoch = -1
        self.replicas: tuple[int, ...] = ()
        """The brokers with an assigned replica."""
        self.leading: Leading | None = None
        self.min_isr_setting = min_isr
        self.copy: Copy | None = None
        """The copy of the log that moves to another log directory."""
        self._log = log

    def __str__(self) -> str:
        """The topic and the number, such as `orders-0`."""
        return f"{self.topic}-{self.number}"

    def note(self, partition: Partition) -> None:
        """Take over leader, epochs and replicas from the metadata."""
        self.leader_id, self.leader_epoch = partition.leader, partition.leader_epoch
        self.replicas, self.partition_epoch = partition.replicas, partition.partition_epoch

    @property
    def name(self) -> PartitionName:
        """The topic and the number."""
        return PartitionName(self.topic, self.key[1])

    @property
    def number(self) -> int:
        """The number of the partition."""
        return self.key[1]

    @property
    def log(self) -> PartitionLog:
        """The log. The caller first checks `is_offline`."""
        assert self._log is not None, f"{self} is offline"
        return self._log

    @property
    def is_offline(self) -> bool:
        """Whether the log directory or the log has failed: requests get KAFKA_STORAGE_ERROR."""
        return self._log is None

    def replace_log(self, directory: Uuid, log: PartitionLog | None) -> None:
        """The copy is the log now; None if the directory has failed meanwhile."""
        self.directory, self._log, self.copy = directory, log, None
        if log is None:
            self.leading = None

    def go_offline(self) -> None:
        """Take the log away, after a failure."""
        self._log = self.leading = self.copy = None

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

    @property
    def min_isr(self) -> int:
        """The least size of the ISR for acks=all: `min.insync.replicas`, at most the number of replicas."""
        return min(self.min_isr_setting, max(1, len(self.replicas)))

    @property
    def high_watermark(self) -> int:
        """The offset up to which consumers may read."""
        return self.log.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The offset up to which consumers of committed records may read."""
        return self.log.last_stable_offset

    @property
    def start_offset(self) -> int:
        """The first offset of the log."""
        return self.log.start_offset

    @property
    def end_offset(self) -> int:
        """The offset of the next record."""
        return self.log.end_offset
