"""The assignors of consumer groups: which member should get which partitions."""

from kraft.coordinators.groups.assignors.members import AssignmentMember, GroupSpec, Partitions, PartitionsByTopic
from kraft.coordinators.groups.assignors.table import ASSIGNORS

__all__ = ["ASSIGNORS", "AssignmentMember", "GroupSpec", "Partitions", "PartitionsByTopic"]
