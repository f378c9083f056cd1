"""Topics and their partitions (Kafka: `TopicsImage`, `TopicImage`, `PartitionRegistration`).

The topics have an exact index of the partitions that each broker is in sync for, and of those without a leader.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from msgspec import Struct

from metadata_log.errors import ReplayError
from metadata_log.image.persistent_map import Map, in_key_order, in_key_order_by_runs
from metadata_log.records.metadata import PartitionChangeRecord, PartitionRecord
from metadata_log.types import Uuid

NO_LEADER: Final = -1
NO_LEADER_CHANGE: Final = -2
NO_RECOVERY_CHANGE: Final = -1
RECOVERY_STATES: Final = (0, 1)
"""The recovery states: recovered, and recovering from an unclean election (KIP-704)."""
LEADERLESS: Final = NO_LEADER
"""The index key of partitions without a leader."""
MIGRATING: Final = Uuid.ZERO
"""The log directory of a replica that no broker has reported yet (KIP-858)."""
UNASSIGNED: Final = Uuid(bytes(15) + b"\x01")
"""The log directory of a replica for which its broker still chooses one."""
LOST: Final = Uuid(bytes(15) + b"\x02")
"""The log directory of a replica whose broker has lost it."""


class Partition(Struct, frozen=True, gc=False):
    """The state of a partition. `directories` has one id for each of `replicas`; all other ids are those of brokers.

    `leader` is -1 for none, `elr` the eligible leader replicas (KIP-966). `leader_recovery_state` is 1 from an unclean
    election until the leader has recovered.
    """

    replicas: tuple[int, ...]
    directories: tuple[Uuid, ...]
    isr: tuple[int, ...]
    removing_replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    elr: tuple[int, ...]
    last_known_elr: tuple[int, ...]
    leader: int
    leader_recovery_state: int
    leader_epoch: int
    partition_epoch: int

    @property
    def is_reassigning(self) -> bool:
        """Whether a reassignment of the partition is in progress."""
        return bool(self.adding_replicas or self.removing_replicas)


class TopicImage(Struct, frozen=True, gc=False):
    """A topic; the index of `partitions` is the partition's number."""

    name: str
    id: Uuid
    partitions: tuple[Partition, ...] = ()


NO_PARTITIONS: Final[Map[Uuid, int]] = Map()


class TopicsImage(Struct, frozen=True):
    """All topics. `members` maps each broker, and `LEADERLESS`, to a bit set of partitions for each topic.

    Bit n of a broker's set means that the broker is in the ISR of partition n. `reassigning` has the topics with
    partitions under reassignment. Neither map has empty sets.
    """

    by_id: Map[Uuid, TopicImage] = Map()
    by_name: Map[str, Uuid] = Map()
    members: Map[int, Map[Uuid, int]] = Map()
    reassigning: Map[Uuid, int] = Map()

    def __getitem__(self, name: str) -> TopicImage:
        return self.by_id[self.by_name[name]]

    def __contains__(self, name: str) -> bool:
        return name in self.by_name

    def get(self, name: str) -> TopicImage | None:
        """The topic of this name, if there is one."""
        topic_id = self.by_name.get(name)
        return None if topic_id is None else self.by_id[topic_id]

    def __iter__(self) -> Iterator[str]:
        for name, _ in in_key_order(self.by_name):
            yield name

    def __len__(self) -> int:
        return len(self.by_id)


def index_keys(partition: Partition) -> tuple[int, ...]:
    """The keys of a partition in `TopicsImage.members`; a key repeats if the ISR names a broker twice."""
    return (*partition.isr, LEADERLESS) if partition.leader == NO_LEADER else partition.isr


def memberships(topics: TopicsImage, broker: int) -> Iterator[tuple[Uuid, int, Partition]]:
    """The partitions that a broker is in sync for, or those without a leader, by topic id and number."""
    for topic_id, bits in in_key_order(topics.members.get(broker, NO_PARTITIONS)):
        partitions = topics.by_id[topic_id].partitions
        for number in numbers(bits):
            yield topic_id, number, partitions[number]


def memberships_by_steps(topics: TopicsImage, broker: int) -> Iterator[tuple[Uuid, int, Partition] | None]:
    """As `memberships`, with None from time to time, where work may pause."""
    for entry in in_key_order_by_runs(topics.members.get(broker, NO_PARTITIONS)):
        if entry is None:
            yield None
            continue
        topic_id, bits = entry
        partitions = topics.by_id[topic_id].partitions
        for number in numbers(bits):
            yield topic_id, number, partitions[number]


def reassigning(topics: TopicsImage) -> Iterator[tuple[Uuid, int, Partition]]:
    """The partitions under reassignment, by topic id and number."""
    for topic_id, bits in in_key_order(topics.reassigning):
        partitions = topics.by_id[topic_id].partitions
        for number in numbers(bits):
            yield topic_id, number, partitions[number]


def numbers(bits: int) -> Iterator[int]:
    """The numbers of the set bits, from the lowest."""
    text = f"{bits:b}"[::-1]
    at = text.find("1")
    while at >= 0:
        yield at
        at = text.find("1", at + 1)


Shared = dict[tuple[Any, ...], tuple[Any, ...]]
"""A cache that makes equal tuples one object: a cluster has few distinct replica lists."""


def partition_of(record: PartitionRecord, shared: Shared | None = None) -> Partition:
    """The partition of a complete record; raises `ReplayError` for an invalid one.

    With `shared`, which is for bulk loading, equal replica lists are stored once.
    """
    if record.leader_recovery_state not in RECOVERY_STATES:
        raise ReplayError(f"{record.leader_recovery_state} is no leader recovery state")
    replicas, isr = record.replicas, record.isr
    directories = _directories(record.directories, replicas)
    if shared is not None:
        replicas = shared.setdefault(replicas, replicas)
        isr = shared.setdefault(isr, isr)
        directories = shared.setdefault(directories, directories)
    return Partition(
        replicas,
        directories,
        isr,
        record.removing_replicas,
        record.adding_replicas,
        record.eligible_leader_replicas or (),
        record.last_known_elr or (),
        record.leader,
        record.leader_recovery_state,
        record.leader_epoch,
        record.partition_epoch,
    )


def merge(old: Partition, record: PartitionChangeRecord) -> Partition:
    """The partition after a change; raises `ReplayError` for an invalid change.

    The partition epoch rises with every change. The leader epoch rises whenever the record names a leader, even the
    present one. No record contains the leader epoch: the order of the log alone determines its value.
    """
    # Each of the thousands of changes of a fencing passes here, on every node: a field is read once.
    leader, leader_epoch = record.leader, old.leader_epoch
    if leader == NO_LEADER_CHANGE:
        leader = old.leader
    else:
        leader_epoch += 1
    recovery = record.leader_recovery_state
    if recovery == NO_RECOVERY_CHANGE:
        recovery = old.leader_recovery_state
    elif recovery not in RECOVERY_STATES:
        raise ReplayError(f"{recovery} is no leader recovery state")
    replicas, directories = record.replicas, record.directories
    if replicas is None and directories is None:
        replicas, directories = old.replicas, old.directories
    else:
        replicas = old.replicas if replicas is None else replicas
        directories = _directories(old.directories if directories is None else directories, replicas)
    isr, removing, adding = record.isr, record.removing_replicas, record.adding_replicas
    elr, last_known_elr = record.eligible_leader_replicas, record.last_known_elr
    return Partition(
        replicas,
        directories,
        old.isr if isr is None else isr,
        old.removing_replicas if removing is None else removing,
        old.adding_replicas if adding is None else adding,
        old.elr if elr is None else elr,
        old.last_known_elr if last_known_elr is None else last_known_elr,
        leader,
        recovery,
        leader_epoch,
        old.partition_epoch + 1,
    )


def _directories(directories: tuple[Uuid, ...], replicas: tuple[int, ...]) -> tuple[Uuid, ...]:
    if directories.count(MIGRATING) == len(directories):
        return (MIGRATING,) * len(replicas)
    if len(directories) != len(replicas):
        raise ReplayError(f"there are {len(replicas)} replicas and {len(directories)} log directories")
    return directories
