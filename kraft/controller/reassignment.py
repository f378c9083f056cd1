"""The life of a reassignment (KIP-455; Kafka: `PartitionReassignmentReplicas`).

All of its state is in the partition: `replicas` is the target followed by those that leave, `adding_replicas` must come
into sync, `removing_replicas` go at the end.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from metadata_log.image import Partition


class Assignment(Struct, frozen=True):
    """Who holds a partition, who of them is in sync, and what a reassignment is changing about it."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    removing: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()


def begin(partition: Partition, target: Sequence[int]) -> Assignment:
    """The assignment with which a reassignment to `target` begins, also if another one is under way.

    Kafka keeps the old list where nothing is added (or removed) anew. A replica that it was adding and that is now to
    go would stand in both lists, and the reassignment could never complete: here it only goes.
    """
    removing = tuple(sorted(replica for replica in partition.replicas if replica not in target))
    adding = tuple(sorted(replica for replica in target if replica not in partition.replicas))
    removing = removing or partition.removing_replicas
    adding = tuple(replica for replica in adding or partition.adding_replicas if replica not in removing)
    leaving = tuple(replica for replica in removing if replica not in target)
    return Assignment((*target, *leaving), partition.isr, removing, adding)


def complete(assignment: Assignment) -> Assignment:
    """The assignment with its reassignment completed, if the ISR allows that; itself otherwise."""
    removing, adding = assignment.removing, assignment.adding
    if not removing and not adding:
        return assignment
    replicas = tuple(replica for replica in assignment.replicas if replica not in removing)
    isr = tuple(replica for replica in assignment.isr if replica not in removing)
    if (removing and not isr) or not replicas or any(replica not in isr for replica in adding):
        return assignment
    if len(adding) < len(removing) and any(replica not in isr for replica in replicas):
        return assignment  # it shrinks: everyone who stays has to be in sync first
    return Assignment(replicas, isr)
