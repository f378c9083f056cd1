"""The uniform assignor where all members want the same topics (Kafka: `UniformHomogeneousAssignmentBuilder`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from kraft.broker.groups.assignors.members import AssignmentMember, GroupSpec, Partitions, PartitionsByTopic
from metadata_log.types import Uuid


def assign_homogeneous(group: GroupSpec) -> dict[str, PartitionsByTopic]:
    """Share all partitions out by quotas that differ by one at most; each member keeps what fits into its quota.

    Returns:
        The target of each member.
    """
    members, counts = group.members, group.counts
    if not members:
        return {}
    topics = members[0].topics
    wanted = frozenset(topics)
    quota, extra = divmod(sum(counts[topic] for topic in topics), len(members))
    free = list(_unassigned(members, topics, counts))
    result: dict[str, PartitionsByTopic] = {}
    unfilled: list[tuple[str, int]] = []
    for index, member in enumerate(members):
        has_extra = extra > 0
        kept, room = _keep(member.target, wanted, quota + has_extra, free)
        if room > 0 and has_extra and len(members) - index > extra:
            room -= 1
            has_extra = False
        extra -= has_extra
        result[member.member_id] = kept
        if room > 0:
            unfilled.append((member.member_id, room))
    _hand_out(result, unfilled, iter(free))
    return result


def _unassigned(
    members: Sequence[AssignmentMember], topics: Sequence[Uuid], counts: Mapping[Uuid, int]
) -> Iterator[tuple[Uuid, int]]:
    held: dict[Uuid, set[int]] = {}
    for member in members:
        for topic, partitions in member.target.items():
            held.setdefault(topic, set()).update(partitions)
    for topic in topics:
        taken = held.get(topic, ())
        yield from ((topic, partition) for partition in range(counts[topic]) if partition not in taken)


def _keep(
    target: PartitionsByTopic, wanted: frozenset[Uuid], room: int, free: list[tuple[Uuid, int]]
) -> tuple[dict[Uuid, Partitions], int]:
    """What a member keeps of its target, and how much room it has then; the rest becomes free."""
    kept: dict[Uuid, Partitions] = {}
    for topic, partitions in target.items():
        if topic not in wanted:
            continue
        if room:
            kept[topic] = partitions[:room]
        free.extend((topic, partition) for partition in partitions[room:])
        room = max(room - len(partitions), 0)
    return kept, room


def _hand_out(
    result: dict[str, PartitionsByTopic], unfilled: list[tuple[str, int]], free: Iterator[tuple[Uuid, int]]
) -> None:
    for member_id, room in unfilled:
        given: dict[Uuid, list[int]] = {}
        for topic, partition in islice(free, room):
            given.setdefault(topic, []).append(partition)
        target = dict(result[member_id])
        for topic, partitions in given.items():
            target[topic] = tuple(sorted((*target.get(topic, ()), *partitions)))
        result[member_id] = target
