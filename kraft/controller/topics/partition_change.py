"""Computes the change of one partition, at most one record (Kafka: `PartitionChangeBuilder`).

Each change of a leader, an ISR, an ELR or an assignment goes through `partition_change`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import Struct

from kraft.controller.topics.leader_selection import Candidates, Election, elect
from kraft.controller.topics.reassignment_steps import Assignment, complete
from metadata_log.image import Partition
from metadata_log.image.features import DIRECTORIES_SINCE
from metadata_log.image.topics import NO_LEADER, NO_LEADER_CHANGE, NO_RECOVERY_CHANGE
from metadata_log.records.metadata import PartitionChangeRecord
from metadata_log.types import Uuid

RECOVERED: Final = 0
RECOVERING: Final = 1
_SHRINK_KEEPS_LEADER_EPOCH_FROM: Final = 12
_ELR_RECORDS_FROM: Final = 23


def record_version(metadata_version: int) -> int:
    """The version of PartitionChange and Partition records under a metadata.version."""
    if metadata_version >= _ELR_RECORDS_FROM:
        return 2
    return 1 if metadata_version >= DIRECTORIES_SINCE else 0


class Rules(Struct, frozen=True):
    """The cluster's state that a change of a partition depends on.

    `is_acceptable` states whether a broker can lead the partition. `default_directory` gives the directory of a replica
    that is new on a broker. `min_isr` is the topic's min.insync.replicas, at most its replication factor. `elr_enabled`
    means eligible.leader.replicas.version at level 1.
    """

    is_acceptable: Callable[[Partition, int], bool]
    default_directory: Callable[[int], Uuid]
    metadata_version: int
    min_isr: int
    elr_enabled: bool


class PartitionTarget(Struct, frozen=True):
    """The target state of the partition. None leaves a field unchanged.

    `directories` maps brokers to new directories. `unclean_shutdown` are brokers that may have lost records.
    """

    isr: tuple[int, ...] | None = None
    replicas: tuple[int, ...] | None = None
    removing: tuple[int, ...] | None = None
    adding: tuple[int, ...] | None = None
    leader_recovery_state: int | None = None
    directories: dict[int, Uuid] = {}
    unclean_shutdown: tuple[int, ...] = ()


UNCHANGED: Final = PartitionTarget()
"""The unchanged partition: only its leader is elected again."""


def partition_change(
    topic_id: Uuid,
    number: int,
    partition: Partition,
    target: PartitionTarget,
    rules: Rules,
    election: Election = Election.ONLINE,
) -> PartitionChangeRecord | None:
    """The record that changes `partition` to `target`, or None if nothing changes."""
    wanted = Assignment(
        replicas=partition.replicas if target.replicas is None else target.replicas,
        isr=partition.isr if target.isr is None else target.isr,
        removing=partition.removing_replicas if target.removing is None else target.removing,
        adding=partition.adding_replicas if target.adding is None else target.adding,
    )
    wanted = complete(wanted)
    isr = wanted.isr
    elr = _eligible(partition, isr, target.unclean_shutdown, rules)
    candidates = Candidates(partition, wanted.replicas, isr, elr, rules.is_acceptable)
    elected = elect(candidates, election, elr_enabled=rules.elr_enabled)

    leader = NO_LEADER_CHANGE
    recovery = NO_RECOVERY_CHANGE
    if elected.leader != partition.leader:
        leader = elected.leader
        if leader in elr:
            isr = (leader,)
            elr = tuple(replica for replica in elr if replica != leader)
        if elected.is_unclean:
            isr = (leader,)
            if partition.leader_recovery_state != RECOVERING:
                recovery = RECOVERING
    elif wanted.replicas is not partition.replicas and not set(partition.replicas) <= set(wanted.replicas):
        leader = partition.leader  # repeating the leader bumps the leader epoch, so that a removed replica notices

    is_unclean = leader >= 0 and elected.is_unclean
    if is_unclean or not rules.elr_enabled:
        elr = ()
    # With ELR disabled, the last member of an ISR stays in it, as the only trace of a replica with all records.
    isr_changes = is_unclean or ((isr or rules.elr_enabled) and isr != partition.isr)
    if (
        rules.metadata_version < _SHRINK_KEEPS_LEADER_EPOCH_FROM
        and leader == NO_LEADER_CHANGE
        and isr_changes
        and any(replica not in isr for replica in partition.isr)
    ):
        leader = partition.leader
    if target.leader_recovery_state is not None and target.leader_recovery_state != partition.leader_recovery_state:
        recovery = target.leader_recovery_state
    directories = _directories(partition, wanted.replicas, target.directories, rules)
    change = PartitionChangeRecord(
        partition_id=number,
        topic_id=topic_id,
        isr=isr if isr_changes else None,
        leader=leader,
        replicas=_if_changed(wanted.replicas, partition.replicas) if wanted.replicas else None,
        removing_replicas=_if_changed(wanted.removing, partition.removing_replicas),
        adding_replicas=_if_changed(wanted.adding, partition.adding_replicas),
        leader_recovery_state=recovery,
        directories=directories,
        eligible_leader_replicas=_if_changed(elr, partition.elr),
        last_known_elr=_last_known(partition, leader) if rules.elr_enabled else None,
    )
    return None if _is_nothing(change) else change


def _is_nothing(change: PartitionChangeRecord) -> bool:
    """Whether a record would change only the partition's epoch (`PartitionChangeBuilder.changeRecordIsNoOp`)."""
    return (
        change.leader == NO_LEADER_CHANGE
        and change.isr is None
        and change.leader_recovery_state == NO_RECOVERY_CHANGE
        and change.eligible_leader_replicas is None
        and change.last_known_elr is None
        and change.replicas is None
        and change.removing_replicas is None
        and change.adding_replicas is None
        and change.directories is None
    )


def _if_changed(new: tuple[int, ...], old: tuple[int, ...]) -> tuple[int, ...] | None:
    return None if new == old else new


def _eligible(
    partition: Partition, isr: tuple[int, ...], unclean_shutdown: tuple[int, ...], rules: Rules
) -> tuple[int, ...]:
    """The replicas outside the new ISR that still have all committed records.

    While fewer than min.insync.replicas are in sync, the high watermark does not advance. A replica that leaves the ISR
    then has all committed records.
    """
    if not rules.elr_enabled:
        return partition.elr
    if len(isr) >= rules.min_isr:
        return ()
    eligible = in_hash_order((*partition.elr, *partition.isr))
    return tuple(replica for replica in eligible if replica not in isr and replica not in unclean_shutdown)


def in_hash_order(ids: tuple[int, ...]) -> tuple[int, ...]:
    """Distinct ids in the iteration order of a Java HashSet, in which Kafka writes the ELR."""
    distinct = tuple(dict.fromkeys(ids))
    buckets = 16
    while len(distinct) > buckets * 3 // 4:
        buckets *= 2
    return tuple(sorted(distinct, key=lambda replica: (replica ^ replica >> 16) & (buckets - 1)))


def _last_known(partition: Partition, leader: int) -> tuple[int, ...] | None:
    """The leader that the partition loses now, kept until the partition has a leader again (KIP-966)."""
    if leader == NO_LEADER and not partition.last_known_elr:
        return (partition.leader,)
    has_leader = leader >= 0 or (leader == NO_LEADER_CHANGE and partition.leader != NO_LEADER)
    return () if has_leader and partition.last_known_elr else None


def _directories(
    partition: Partition, replicas: tuple[int, ...], explicit: dict[int, Uuid], rules: Rules
) -> tuple[Uuid, ...] | None:
    if not replicas or rules.metadata_version < DIRECTORIES_SINCE:
        return None
    if replicas is partition.replicas and not explicit:
        return None
    known = {**dict(zip(partition.replicas, partition.directories, strict=True)), **explicit}
    directories = tuple(
        known[replica] if replica in known else rules.default_directory(replica) for replica in replicas
    )
    return None if directories == partition.directories else directories
