"""The simple assignor: each partition goes to as many members as are needed for every member to have one, and each
member gets as many as any other (Kafka: `SimpleAssignor`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from itertools import accumulate, pairwise

from msgspec import Struct

from kraft.coordinators.groups.assignors import PartitionsByTopic
from kraft.limits import SHARE_PARTITIONS_PER_STEP
from metadata_log.types import Uuid

Steps = Generator[None, None, None]
_Held = dict[int, None]
"""The partitions that a member has, by their places among all."""


class SharingMember(Struct, frozen=True):
    """A member: the topics that it wants, and the partitions that it should have had until now."""

    member_id: str
    topics: frozenset[Uuid]
    target: PartitionsByTopic


def assigning(
    members: Sequence[SharingMember], assignable: Mapping[Uuid, Sequence[int]], *, homogeneous: bool
) -> Generator[None, None, dict[str, PartitionsByTopic]]:
    """Find the target of each member, in portions.

    Args:
        members: The members of a group. Their order decides who gets more, where somebody must.
        assignable: The partitions of each topic that may be given to members.
        homogeneous: Whether all members want the same topics. Otherwise each topic is shared out among those that want
            it, whatever else they have.
    """
    found: dict[str, dict[Uuid, list[int]]] = {one.member_id: {} for one in members}
    wanted = sorted({topic_id for one in members for topic_id in one.topics} & set(assignable))
    if homogeneous:
        yield from _sharing(members, {topic_id: assignable[topic_id] for topic_id in wanted}, found)
    else:
        for member in members:
            # As Kafka does not look at a topic that nobody wants any more; a member takes of its target what it wants.
            left = sorted((set(member.target) & set(assignable)).difference(wanted))
            found[member.member_id] |= {topic_id: list(member.target[topic_id]) for topic_id in left}
        yield None
        for topic_id in wanted:
            some = [one for one in members if topic_id in one.topics]
            yield from _sharing(some, {topic_id: assignable[topic_id]}, found)
    result: dict[str, PartitionsByTopic] = {}
    for member_id, topics in found.items():
        result[member_id] = {topic_id: tuple(sorted(numbers)) for topic_id, numbers in topics.items()}
        if sum(map(len, topics.values())) >= SHARE_PARTITIONS_PER_STEP:
            yield None
    return result


def _sharing(
    members: Sequence[SharingMember], topics: Mapping[Uuid, Sequence[int]], found: dict[str, dict[Uuid, list[int]]]
) -> Steps:
    """Share partitions out among members that all may have them, and add these to what is `found`."""
    count = sum(map(len, topics.values()))
    if not count or not members:
        return
    sharing = -(-len(members) // count)
    ends = [-(-sharing * count * at // len(members)) for at in range(len(members) + 1)]
    quotas = [end - begin for begin, end in pairwise(ends)]
    firsts = dict(zip(topics, accumulate(map(len, topics.values()), initial=0), strict=False))
    places: dict[Uuid, dict[int, int]] = {}
    for topic_id, numbers in topics.items():
        places[topic_id] = {number: place for place, number in enumerate(numbers, firsts[topic_id])}
        if len(numbers) >= SHARE_PARTITIONS_PER_STEP:
            yield None
    holders = [0] * count
    yield None
    held: list[_Held] = []
    for member in members:
        mine: _Held = {}
        for topic_id in sorted(set(places) & set(member.target)):
            known = places[topic_id]
            mine |= dict.fromkeys([known[number] for number in member.target[topic_id] if number in known])
        for place in mine:
            holders[place] += 1
        held.append(mine)
        if len(mine) >= SHARE_PARTITIONS_PER_STEP:
            yield None
    yield from _giving_up(held, quotas, holders, sharing)
    yield from _filling(held, quotas, holders, sharing)
    named = [(topic_id, number) for topic_id, numbers in topics.items() for number in numbers]
    yield None
    for member, mine in zip(members, held, strict=True):
        topics_of = found[member.member_id]
        for place in mine:
            topic_id, number = named[place]
            topics_of.setdefault(topic_id, []).append(number)
        if len(mine) >= SHARE_PARTITIONS_PER_STEP:
            yield None


def _giving_up(held: Sequence[_Held], quotas: Sequence[int], holders: list[int], sharing: int) -> Steps:
    """Members with too many partitions give some up, first those that too many have; then these go from others, too."""
    for mine, quota in zip(held, quotas, strict=True):
        excess = len(mine) - quota
        if excess > 0:
            crowded = [place for place in mine if holders[place] > sharing][:excess]
            _drop(mine, crowded, holders)
            _drop(mine, list(mine)[: len(mine) - quota], holders)
        if len(mine) >= SHARE_PARTITIONS_PER_STEP:
            yield None
    for mine in reversed(held):
        _drop(mine, [place for place in mine if holders[place] > sharing], holders)
        if len(mine) >= SHARE_PARTITIONS_PER_STEP:
            yield None


def _drop(mine: _Held, places: Iterable[int], holders: list[int]) -> None:
    for place in places:
        del mine[place]
        holders[place] -= 1


def _filling(held: Sequence[_Held], quotas: Sequence[int], holders: list[int], sharing: int) -> Steps:
    """Give each partition to so many members, one after the other; a member with its number gets no more."""
    below = [at for at, (mine, quota) in enumerate(zip(held, quotas, strict=True)) if len(mine) < quota]
    turn = looks = 0
    for place, count in enumerate(holders):
        missing, misses = sharing - count, 0
        while missing > 0 and misses < len(below):
            turn %= len(below)
            at = below[turn]
            looks += 1
            if place in held[at]:
                misses += 1
                turn += 1
                continue
            held[at][place] = None
            missing, misses = missing - 1, 0
            if len(held[at]) >= quotas[at]:
                del below[turn]
            else:
                turn += 1
        if looks >= SHARE_PARTITIONS_PER_STEP:
            looks = 0
            yield None
