"""The uniform assignor where members want different topics (Kafka: `UniformHeterogeneousAssignmentBuilder`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kraft.coordinators.groups.assignors.members import AssignmentMember, GroupSpec, Partitions, PartitionsByTopic
from metadata_log.types import Uuid

ROUNDS: Final = 16
"""How often the balancing goes through the topics at most."""
NOBODY: Final = -1


def assign_heterogeneous(group: GroupSpec) -> dict[str, PartitionsByTopic]:
    """Keep what each member has, give the rest to the least loaded, then move partitions from the most loaded.

    Returns:
        The target of each member.
    """
    members, counts = group.members, group.counts
    subscribers: dict[Uuid, list[int]] = {}
    for index, member in enumerate(members):
        for topic in member.topics:
            subscribers.setdefault(topic, []).append(index)
    loads = [0] * len(members)
    owners = {topic: [NOBODY] * counts[topic] for topic in subscribers}
    for index, member in enumerate(members):
        wanted = frozenset(member.topics)
        for topic, partitions in member.target.items():
            if topic in wanted:
                for partition in partitions:
                    owners[topic][partition] = index
                loads[index] += len(partitions)

    topics = sorted(
        subscribers,
        key=lambda topic: (-counts[topic] / len(subscribers[topic]), len(subscribers[topic]), _signed(topic)),
    )
    for topic in topics:
        _assign_rest(owners[topic], subscribers[topic], loads)
    _balance([(owners[topic], subscribers[topic]) for topic in topics if len(subscribers[topic]) > 1], loads)
    return _by_member(members, owners)


def _signed(topic: Uuid) -> tuple[int, int]:
    """How Java compares ids: two signed numbers of 64 bits."""
    return int.from_bytes(topic[:8], "big", signed=True), int.from_bytes(topic[8:], "big", signed=True)


def _assign_rest(owners: list[int], subscribers: list[int], loads: list[int]) -> None:
    balancer = _Balancer(subscribers, loads)
    for partition, owner in enumerate(owners):
        if owner == NOBODY:
            owners[partition] = balancer.next_least_loaded()
            loads[owners[partition]] += 1


def _balance(topics: list[tuple[list[int], list[int]]], loads: list[int]) -> None:
    """Balance topic after topic, round after round, until a whole round has changed nothing."""
    last_changed = NOBODY
    for _ in range(ROUNDS):
        for at, (owners, subscribers) in enumerate(topics):
            if at == last_changed:
                return
            if _balance_topic(owners, subscribers, loads) or last_changed == NOBODY:
                last_changed = at


def _balance_topic(owners: list[int], subscribers: list[int], loads: list[int]) -> bool:
    balancer = _Balancer(subscribers, loads)
    held: dict[int, list[int]] = {}
    for partition, owner in enumerate(owners):
        held.setdefault(owner, []).append(partition)
    changed = False
    while not balancer.is_balanced():
        while (giver := balancer.next_most_loaded()) != NOBODY and not held.get(giver):
            balancer.exclude_most_loaded()
        if giver == NOBODY:
            break
        partition = held[giver].pop()
        taker = balancer.next_least_loaded()
        if balancer.is_balanced():
            break
        loads[giver] -= 1
        loads[taker] += 1
        owners[partition] = taker
        changed = True
    return changed


class _Balancer:
    """The subscribers of a topic by load, with a range at each end: of those that are least and most loaded.

    All members of a range count as equally loaded; a range grows by those that have come to its level, when each of its
    members has had its turn.
    """

    __slots__ = ("_high", "_high_end", "_high_load", "_high_start", "_loads", "_low", "_low_end", "_low_load", "_order")

    def __init__(self, subscribers: list[int], loads: list[int]) -> None:
        self._loads = loads
        self._order = sorted(subscribers, key=lambda index: (loads[index], index))
        self._low = self._low_end = 0
        self._low_load = loads[self._order[0]] - 1
        self._high_start = self._high_end = len(self._order)
        self._high_load = loads[self._order[-1]] + 1
        self._high = self._high_end - 1

    def is_balanced(self) -> bool:
        return self._high_load - self._low_load <= 1

    def next_least_loaded(self) -> int:
        if self._low >= self._low_end:
            self._low_load += 1
            while self._low_end < len(self._order) and self._loads[self._order[self._low_end]] == self._low_load:
                self._low_end += 1
            self._low = 0
        self._low += 1
        return self._order[self._low - 1]

    def next_most_loaded(self) -> int:
        if self._high < self._high_start:
            if self._high_end <= self._high_start and self._high_start > 0:
                self._high_load = self._loads[self._order[self._high_start - 1]]
            else:
                self._high_load -= 1
            while self._high_start > 0 and self._loads[self._order[self._high_start - 1]] == self._high_load:
                self._high_start -= 1
            self._high = self._high_end - 1
        if self._high < 0:
            return NOBODY
        self._high -= 1
        return self._order[self._high + 1]

    def exclude_most_loaded(self) -> None:
        """Take the one that came last out of the range: it has nothing to give."""
        at, end = self._high + 1, self._high_end - 1
        self._order[at], self._order[end] = self._order[end], self._order[at]
        self._high_end -= 1


def _by_member(members: Sequence[AssignmentMember], owners: dict[Uuid, list[int]]) -> dict[str, PartitionsByTopic]:
    result: list[dict[Uuid, Partitions]] = [{} for _ in members]
    for topic, all_owners in owners.items():
        held: dict[int, list[int]] = {}
        for partition, owner in enumerate(all_owners):
            held.setdefault(owner, []).append(partition)
        for owner, partitions in held.items():
            result[owner][topic] = tuple(partitions)
    return {member.member_id: target for member, target in zip(members, result, strict=True)}
