"""Topics and their partitions (Kafka: `TopicsImage`, `TopicImage`, `PartitionRegistration`).

Beside the topics stands one exact index: which partitions a broker is in sync for, and which have no leader.
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
"""Recovered, and recovering from an unclean election (KIP-704)."""
LEADERLESS: Final = NO_LEADER
"""The key of the index under which the partitions without a leader are."""
MIGRATING: Final = Uuid.ZERO
"""The log directory of a replica that nobody has told yet (KIP-858)."""


class Partition(Struct, frozen=True, gc=False):
    """A partition as it stands. `directories` has one id for each of `replicas`; all others are ids of brokers.

    `leader` is -1 if there is none, `elr` the eligible leader replicas (KIP-966), `leader_recovery_state` 1 after an
    unclean election until the leader has recovered.
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
        """Whether a reassignment of it has begun and not ended."""
        return bool(self.adding_replicas or self.removing_replicas)


class TopicImage(Struct, frozen=True, gc=False):
    """A topic; the index of `partitions` is the partition's number."""

    name: str
    id: Uuid
    partitions: tuple[Partition, ...] = ()


NO_PARTITIONS: Final[Map[Uuid, int]] = Map()


class TopicsImage(Struct, frozen=True):
    """All topics. `members` has for each broker, and under `LEADERLESS`, the partitions of each topic as a bit set:

    of a broker those whose ISR it is in, bit n for partition n. `reassigning` has topics with partitions whose
    reassignment has not ended. What is empty is in neither map.
    """

    by_id: Map[Uuid, TopicImage] = Map()
    by_name: Map[str, Uuid] = Map()
    members: Map[int, Map[Uuid, int]] = Map()
    reassigning: Map[Uuid, int] = Map()

    def __getitem__(self, name: str) -> TopicImage:
        return self.by_id[self.by_name[name]]

    def __contains__(self, name: str) -> bool:
        return name in self.by_name

    def __iter__(self) -> Iterator[str]:
        for name, _ in in_key_order(self.by_name):
            yield name

    def __len__(self) -> int:
        return len(self.by_id)


def index_keys(partition: Partition) -> tuple[int, ...]:
    """Under what a partition stands in `TopicsImage.members`; a key may come twice if the ISR names it twice."""
    return (*partition.isr, LEADERLESS) if partition.leader == NO_LEADER else partition.isr


def memberships(topics: TopicsImage, broker: int) -> Iterator[tuple[Uuid, int, Partition]]:
    """The partitions that a broker is in sync for, or those without a leader, by topic id and number."""
    for topic_id, bits in in_key_order(topics.members.get(broker, NO_PARTITIONS)):
        partitions = topics.by_id[topic_id].partitions
        for number in numbers(bits):
            yield topic_id, number, partitions[number]


def memberships_by_steps(topics: TopicsImage, broker: int) -> Iterator[tuple[Uuid, int, Partition] | None]:
    """As `memberships`, with None now and then, where work may pause."""
    for entry in in_key_order_by_runs(topics.members.get(broker, NO_PARTITIONS)):
        if entry is None:
            yield None
            continue
        topic_id, bits = entry
        partitions = topics.by_id[topic_id].partitions
        for number in numbers(bits):
            yield topic_id, number, partitions[number]


def reassigning(topics: TopicsImage) -> Iterator[tuple[Uuid, int, Partition]]:
    """The partitions whose reassignment has not ended, by topic id and number."""
    for topic_id, bits in in_key_order(topics.reassigning):
        partitions = topics.by_id[topic_id].partitions
        for number in numbers(bits):
            yield topic_id, number, partitions[number]


def numbers(bits: int) -> Iterator[int]:
    """The numbers of the bits that are set, from the lowest on."""
    text = f"{bits:b}"[::-1]
    at = text.find("1")
    while at >= 0:
        yield at
        at = text.find("1", at + 1)


Shared = dict[tuple[Any, ...], tuple[Any, ...]]
"""Tuples that were seen, so that equal ones become one: a cluster has few different lists of replicas."""


def partition_of(record: PartitionRecord, shared: Shared | None = None) -> Partition:
    """The partition that a record describes in full; raises `ReplayError` if it cannot be.

    With `shared`, which is for loading many, equal lists of replicas are kept once.
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
    """The partition after a change; raises `ReplayError` if the change makes no sense.

    The partition epoch goes up with every change. The leader epoch goes up whenever the record names a leader, also the
    present one; it stands in no record, so the order of the log is all there is to it.
    """
    replicas = old.replicas if record.replicas is None else record.replicas
    directories = old.directories if record.directories is None else record.directories
    leader, leader_epoch = old.leader, old.leader_epoch
    if record.leader != NO_LEADER_CHANGE:
        leader, leader_epoch = record.leader, leader_epoch + 1
    recovery = record.leader_recovery_state
    if recovery == NO_RECOVERY_CHANGE:
        recovery = old.leader_recovery_state
    elif recovery not in RECOVERY_STATES:
        raise ReplayError(f"{recovery} is no leader recovery state")
    if replicas is not old.replicas or directories is not old.directories:
        directories = _directories(directories, replicas)
    return Partition(
        replicas,
        directories,
        old.isr if record.isr is None else record.isr,
        old.removing_replicas if record.removing_replicas is None else record.removing_replicas,
        old.adding_replicas if record.adding_replicas is None else record.adding_replicas,
        old.elr if record.eligible_leader_replicas is None else record.eligible_leader_replicas,
        old.last_known_elr if record.last_known_elr is None else record.last_known_elr,
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
