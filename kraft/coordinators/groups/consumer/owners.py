"""The partitions that are held, so that nobody else may be given them, and at which member epoch each is.

The partitions of a topic are kept in blocks, and a change copies those that it touches. A member may have tens of
thousands of partitions, and a topic thousands of members: a map that shares its parts by partition takes several times
as long for the one, and a copy of the whole topic for the others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import groupby
from typing import Final, TypeAlias

from kraft.coordinators.groups.consumer.member import Assigned, Member
from metadata_log.image.persistent_map import Map, with_changes
from metadata_log.types import Uuid

BLOCK: Final = 256
"""The numbers of a block."""
Block = Mapping[int, int]
"""The held partitions of a block, each with the member epoch at which it is held. Nobody changes one."""
Owners: TypeAlias = "Map[tuple[Uuid, int], Block]"
"""The blocks of each topic; none is empty."""
_NOBODY: Final[Block] = {}


def held_near(owners: Owners, topic_id: Uuid, numbers: Collection[int]) -> Block:
    """The held partitions of a topic in the blocks of these numbers."""
    if len(numbers) == 1:
        (number,) = numbers
        return owners.get((topic_id, number // BLOCK), _NOBODY)
    held: dict[int, int] = {}
    for at in dict.fromkeys([number // BLOCK for number in numbers]):
        held.update(owners.get((topic_id, at), _NOBODY))
    return held


def changed_owners(owners: Owners, old: Member | None, new: Member | None) -> Owners:
    """The owners after a change of a member; None for one that is not there.

    A partition that another member holds meanwhile, at another epoch, stays with that one.
    """
    before, after = _held(old), _held(new)
    if old is not None and new is not None and old.epoch == new.epoch:
        if old.assigned is new.assigned and old.revoking is new.revoking:
            return owners
        # What it must give up, it still holds.
        same = {one for one, has in before.items() if one in after and has.keys() == after[one].keys()}
        before = {one: has for one, has in before.items() if one not in same}
        after = {one: has for one, has in after.items() if one not in same}
    blocks: dict[tuple[Uuid, int], dict[int, int]] = {}
    if old is not None:
        epoch = old.epoch
        for block, numbers in _copied(owners, blocks, before):
            for number in numbers:
                if block.get(number) == epoch:
                    del block[number]
    if new is not None:
        for block, numbers in _copied(owners, blocks, after):
            block.update(dict.fromkeys(numbers, new.epoch))
    return with_changes(owners, {key: block or None for key, block in blocks.items()})


def _copied(
    owners: Owners, blocks: dict[tuple[Uuid, int], dict[int, int]], partitions: Assigned
) -> Iterator[tuple[dict[int, int], Iterable[int]]]:
    """A copy of each block with the numbers of some partitions that are in it; the copies are in `blocks`."""
    for topic_id, numbers in partitions.items():
        for at, some in _by_block(numbers):
            key = topic_id, at
            block = blocks.get(key)
            if block is None:
                block = blocks[key] = dict(owners.get(key, _NOBODY))
            yield block, some


def _by_block(numbers: Collection[int]) -> Iterable[tuple[int, Iterable[int]]]:
    if len(numbers) == 1:
        (number,) = numbers
        return ((number // BLOCK, numbers),)
    if len(numbers) >= BLOCK:
        return groupby(numbers, BLOCK.__rfloordiv__)
    by_block: dict[int, list[int]] = {}
    for number in numbers:
        by_block.setdefault(number // BLOCK, []).append(number)
    return by_block.items()


def _held(member: Member | None) -> Assigned:
    """The partitions that a member has, with those that it must give up."""
    if member is None:
        return {}
    if not member.revoking:
        return member.assigned
    held = dict(member.assigned)
    for topic_id, epochs in member.revoking.items():
        held[topic_id] = {**held.get(topic_id, {}), **epochs}
    return held
