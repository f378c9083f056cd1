"""The steps of a partition's reassignment (KIP-455; Kafka: `PartitionReassignmentReplicas`).

The partition holds the whole state: `replicas` is the target, followed by the replicas to remove. `adding_replicas`
must get in sync; `removing_replicas` leave at the end.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from metadata_log.image import Partition


class Assignment(Struct, frozen=True):
    """The replicas of a partition, the ISR, and the reassignment in progress."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    removing: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()


def begin(partition: Partition, target: Sequence[int]) -> Assignment:
    """The assignment at the start of a reassignment to `target`, also if another one is in progress.

    If a list gets no new replica, Kafka keeps the old list. A replica that was being added and is now to be removed
    would be in both lists, and the reassignment could never complete. Here the replica is only in the list of those to
    remove.
    """
    removing = tuple(sorted(replica for replica in partition.replicas if replica not in target))
    adding = tuple(sorted(replica for replica in target if replica not in partition.replicas))
    removing = removing or partition.removing_replicas
    adding = tuple(replica for replica in adding or partition.adding_replicas if replica not in removing)
    leaving = tuple(replica for replica in removing if replica not in target)
    return Assignment((*target, *leaving), partition.isr, removing, adding)


def complete(assignment: Assignment) -> Assignment:
    """The completed assignment if the ISR permits; otherwise the unchanged assignment."""
    removing, adding = assignment.removing, assignment.adding
    if not removing and not adding:
        return assignment
    replicas = tuple(replica for replica in assignment.replicas if replica not in removing)
    isr = tuple(replica for replica in assignment.isr if replica not in removing)
    if (removing and not isr) or not replicas or any(replica not in isr for replica in adding):
        return assignment
    if len(adding) < len(removing) and any(replica not in isr for replica in replicas):
        return assignment  # the reassignment shrinks the partition: each remaining replica has to be in sync first
    return Assignment(replicas, isr)
