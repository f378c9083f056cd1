"""The assignors by name, and what the uniform one chooses between (Kafka: `ConsumerGroupPartitionAssignor`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kraft.coordinators.groups.assignors.heterogeneous import assign_heterogeneous
from kraft.coordinators.groups.assignors.homogeneous import assign_homogeneous
from kraft.coordinators.groups.assignors.members import GroupSpec, PartitionsByTopic
from kraft.coordinators.groups.assignors.ranges import assign_ranges


def assign_uniformly(group: GroupSpec) -> dict[str, PartitionsByTopic]:
    """As many partitions for each member as for any other, and each where it was if possible (`UniformAssignor`).

    Returns:
        The target of each member.
    """
    return assign_homogeneous(group) if group.homogeneous else assign_heterogeneous(group)


ASSIGNORS: Final[dict[str, Callable[[GroupSpec], dict[str, PartitionsByTopic]]]] = {
    "uniform": assign_uniformly,
    "range": assign_ranges,
}
"""The assignors by the names that members ask for (Kafka: `group.consumer.assignors`)."""
