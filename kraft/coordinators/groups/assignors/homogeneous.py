"""The uniform assignor where all members want the same topics (Kafka: `UniformHomogeneousAssignmentBuilder`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kraft.coordinators.groups.assignors.members import AssignmentMember, GroupSpec, Partitions, PartitionsByTopic
from metadata_log.types import Uuid

Run = tuple[Uuid, Sequence[int]]
"""Some partitions of a topic, in the order in which they are handed out."""


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
    free = _unassigned(members, topics, counts)
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
    _hand_out(result, unfilled, free)
    return result


def _unassigned(members: Sequence[AssignmentMember], topics: Sequence[Uuid], counts: Mapping[Uuid, int]) -> list[Run]:
    held: dict[Uuid, set[int]] = {}
    for member in members:
        for topic, partitions in member.target.items():
            held.setdefault(topic, set()).update(partitions)
    runs: list[Run] = []
    for topic in topics:
        every = range(counts[topic])
        taken = held.get(topic)
        runs.append((topic, every if not taken else [one for one in every if one not in taken]))
    return runs


def _keep(
    target: PartitionsByTopic, wanted: frozenset[Uuid], room: int, free: list[Run]
) -> tuple[dict[Uuid, Partitions], int]:
    """The part of its target that a member keeps, and the room that is left then; the rest is added to `free`."""
    kept: dict[Uuid, Partitions] = {}
    for topic, partitions in target.items():
        if topic not in wanted:
            continue
        if room:
            kept[topic] = partitions[:room]
        if len(partitions) > room:
            free.append((topic, partitions[room:]))
        room = max(room - len(partitions), 0)
    return kept, room


def _hand_out(result: dict[str, PartitionsByTopic], unfilled: list[tuple[str, int]], free: list[Run]) -> None:
    runs = iter(free)
    topic, numbers = next(runs, (Uuid.ZERO, ()))
    at = 0
    for member_id, its_room in unfilled:
        room = its_room
        given: dict[Uuid, list[int]] = {}
        while room:
            if at == len(numbers):
                run = next(runs, None)
                if run is None:
                    break
                (topic, numbers), at = run, 0
            some = numbers[at : at + room]
            if some:
                given.setdefault(topic, []).extend(some)
            at += len(some)
            room -= len(some)
        target = dict(result[member_id])
        for one, partitions in given.items():
            target[one] = tuple(sorted((*target.get(one, ()), *partitions)))
        result[member_id] = target
