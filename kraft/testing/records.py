"""Checks the records of the brokers of a `Cluster`: what their files hold, and what producers were told.

All running brokers are looked at in one moment, after each change of any of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from kraft.invariants.cluster_model import PartitionKey, PartitionModel, model_of_image
from kraft.invariants.records import RecordLedger, Replica
from kraft.invariants.stored_batches import StoredBatch, stored_batches
from kraft.invariants.violation import InvariantViolated
from kraft.partitions.replicas import HostedPartition, ReplicaManager
from kraft.sim.workloads.record_watch import replica_of
from metadata_log.image import MetadataImage, ResourceType
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.batch import scan
from metadata_log.records.record import Record, records

MIN_ISR: Final = "min.insync.replicas"
_RECOVERING: Final = 1


class Acknowledged(Struct, frozen=True):
    """A record that a producer with acks=all was told to be written."""

    topic: str
    key: PartitionKey
    offset: int
    value: bytes | None


class _Look(Struct):
    """The last look at a replica."""

    part: HostedPartition
    replica: Replica
    batches: list[StoredBatch]


class _Life(Struct):
    """One life of a broker. `manager` is None while the broker is down."""

    manager: ReplicaManager | None = None
    lost_power: bool = False
    was_clean: bool = False
    looks: dict[PartitionKey, _Look] = {}


class RecordCheck:
    """The ledger of records of one cluster. Every method raises `InvariantViolated`.

    Args:
        flush_messages: The setting `log.flush.interval.messages` of the brokers; None for no flush.
    """

    def __init__(self, flush_messages: int | None) -> None:
        self.ledger = RecordLedger(self, flush_messages)
        self._image = MetadataImage()
        self._partitions: dict[PartitionKey, PartitionModel] = {}
        self._min_isr: dict[PartitionKey, int] = {}
        self._lives: dict[int, _Life] = {}
        self._acknowledged: list[Acknowledged] = []

    # The committed metadata, for the ledger

    def partition_of(self, key: PartitionKey) -> PartitionModel | None:
        """The partition; None if its topic is deleted."""
        return self._partitions.get(key)

    def least_min_isr(self, key: PartitionKey) -> int:
        """The smallest `min.insync.replicas` that the partition ever had."""
        return self._min_isr.get(key, 1)

    def _use(self, image: MetadataImage) -> None:
        if image.end.offset <= self._image.end.offset:
            return
        self._image = image
        known = self._partitions
        self._partitions = {
            (topic_id, number): model_of_image(partition)
            for topic_id, topic in image.topics.by_id.items()
            for number, partition in enumerate(topic.partitions)
        }
        for key, partition in self._partitions.items():
            before = known.get(key)
            is_unclean = partition.leader_recovery_state == _RECOVERING or (
                before is not None
                and before.leader_epoch != partition.leader_epoch
                and partition.leader not in (-1, *before.isr, *before.elr)
            )
            if is_unclean:
                self.ledger.elected_uncleanly(key, partition.leader_epoch)
            configs = image.configs.of((ResourceType.TOPIC, image.topics.by_id[key[0]].name))
            wanted = min(int(configs.get(MIN_ISR) or 1), len(partition.replicas))
            self._min_isr[key] = min(wanted, self._min_isr.get(key, wanted))
            for broker_id in () if before is None else before.replicas:
                if broker_id not in partition.replicas and self._life(broker_id).manager is None:
                    # The broker puts its log aside at the next start, even if the replica comes back.
                    self.ledger.removed(broker_id, key)

    # Lives of brokers

    def _life(self, broker_id: int) -> _Life:
        return self._lives.setdefault(broker_id, _Life())

    def started(self, broker_id: int, manager: ReplicaManager) -> None:
        """A broker has started."""
        self._life(broker_id).manager = manager

    def ended(self, broker_id: int, *, lost_power: bool, was_clean: bool) -> None:
        """A broker has ended: by a power failure, by a clean shutdown, or else by the end of its process alone."""
        before = self._life(broker_id)
        lost_power = lost_power or (before.lost_power and not before.looks)
        self._lives[broker_id] = _Life(lost_power=lost_power, was_clean=was_clean)

    # Looks

    def look(self, image: MetadataImage, disks: Mapping[int, MemoryDisk]) -> None:
        """Look at all replicas of the running brokers: first at the batches, then at what the leaders say of them."""
        self._use(image)
        seen = list[Replica]()
        for broker_id, life in self._lives.items():
            if life.manager is not None and life.manager.is_loaded:
                seen += self._look_at(broker_id, life, life.manager, disks[broker_id])
        for replica in seen:
            self.ledger.moved(replica, len(self.ledger.held_by(replica.broker_id, replica.key)), ())

    def _look_at(self, broker_id: int, life: _Life, manager: ReplicaManager, disk: MemoryDisk) -> Iterable[Replica]:
        for key in list(manager.partitions):
            part = manager.partitions.get(key)
            if part is None or part.is_offline:
                continue
            replica = replica_of(broker_id, part)
            look = life.looks.get(key)
            if look is not None and look.part is part and look.replica == replica:
                continue
            batches = [
                batch for segment in part.log.segments for batch in stored_batches(disk.peek(segment.batches.file.path))
            ]
            if look is None or look.part is not part:
                self.ledger.loaded(
                    replica, batches, lost_power=life.lost_power, was_clean=life.was_clean, was_failing=False
                )
            else:
                kept = 0
                for old, new in zip(look.batches, batches, strict=False):
                    if old.content != new.content:
                        break
                    kept += 1
                # The other brokers may be behind, so that watermark, start and leadership wait for the second round.
                former = look.replica
                quiet = replace(
                    replica,
                    start_offset=former.start_offset,
                    high_watermark=former.high_watermark,
                    is_leader=False,
                )
                self.ledger.moved(quiet, kept, batches[kept:])
            life.looks[key] = _Look(part, replica, batches)
            yield replica
        for key in [one for one in life.looks if manager.partitions.get(one) is None]:
            del life.looks[key]
            self.ledger.removed(broker_id, key)

    # Producers

    def acknowledged(self, topic: str, partition: int, offset: int, value: bytes | None) -> None:
        """A producer with acks=all was told the offset of its record."""
        key = self._image.topics[topic].id, partition
        self._acknowledged.append(Acknowledged(topic, key, offset, value))

    def check(self) -> None:
        """Every acknowledged record is committed at its offset, unless its loss is allowed, or its topic is deleted."""
        for one in self._acknowledged:
            if self.partition_of(one.key) is None or self.ledger.may_lack(one.key, one.offset):
                continue
            batch = self.ledger.committed_at(one.key, one.offset)
            values = {} if batch is None else {each.offset: each.value for each in _records(batch)}
            if one.offset not in values or values[one.offset] != one.value:
                raise InvariantViolated(
                    f"the record that was acknowledged at offset {one.offset} of {one.topic}-{one.key[1]} is not"
                    f" committed there: {'nothing is' if batch is None else f'there is {batch}'}"
                )


def _records(batch: StoredBatch) -> Iterable[Record]:
    for frame in scan(batch.content):
        yield from records(frame)
