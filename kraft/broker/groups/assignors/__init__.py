"""The assignors of consumer groups: which member should get which partitions."""

from kraft.broker.groups.assignors.members import AssignmentMember, GroupSpec, Partitions, PartitionsByTopic
from kraft.broker.groups.assignors.table import ASSIGNORS

__all__ = ["ASSIGNORS", "AssignmentMember", "GroupSpec", "Partitions", "PartitionsByTopic"]
