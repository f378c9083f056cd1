"""The range assignor: of each topic a range of partitions for each member (Kafka: `RangeAssignor`)."""

from __future__ import annotations

from collections import Counter

from kraft.coordinators.groups.assignors.members import AssignmentMember, GroupSpec, Partitions, PartitionsByTopic
from metadata_log.types import Uuid


def assign_ranges(group: GroupSpec) -> dict[str, PartitionsByTopic]:
    """Give each member a range of each topic that it wants: members with the same topics get the same ranges of them.

    Returns:
        The target of each member.
    """
    ordered = sorted(group.members, key=_place)
    wanted = Counter(topic for member in ordered for topic in member.topics)
    at: dict[Uuid, int] = dict.fromkeys(wanted, 0)
    start: dict[Uuid, int] = dict.fromkeys(wanted, 0)
    result: dict[str, PartitionsByTopic] = {}
    for member in ordered:
        ranges: dict[Uuid, Partitions] = {}
        for topic in member.topics:
            quota, extra = divmod(group.counts[topic], wanted[topic])
            first = start[topic]
            start[topic] += quota + (at[topic] < extra)
            at[topic] += 1
            if start[topic] > first:
                ranges[topic] = tuple(range(first, start[topic]))
        result[member.member_id] = ranges
    return result


def _place(member: AssignmentMember) -> tuple[bool, bytes]:
    """The key by which members are ordered: static members first, by their instance, then the others by their id.

    Java compares the UTF-16 units of texts.
    """
    name = member.member_id if member.instance_id is None else member.instance_id
    return member.instance_id is None, name.encode("utf-16-be", "surrogatepass")
