"""The assignors give what those of Kafka 4.3.1 gave, and the holders of partitions are those of a plain table."""

from __future__ import annotations

import json
import lzma
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kraft.coordinators.groups.assignors import ASSIGNORS, AssignmentMember, GroupSpec, PartitionsByTopic
from kraft.coordinators.groups.consumer.member import Assigned, Member
from kraft.coordinators.groups.consumer.owners import BLOCK, Owners, changed_owners, held_near
from metadata_log.image.persistent_map import Map
from metadata_log.types import Uuid
from support import DATA

CASES: list[dict[str, Any]] = [
    json.loads(line) for line in lzma.decompress((DATA / "assignors.jsonl.xz").read_bytes()).splitlines()
]
"""Groups that were asked of Kafka's assignors: chains in which each group follows from the one before."""


def spec_of(case: dict[str, Any]) -> GroupSpec:
    ids = {name: Uuid.parse(topic["id"]) for name, topic in case["topics"].items()}
    order = case.get("topic_iteration_order") or list(ids)
    members = [
        AssignmentMember(
            one["member_id"],
            one["instance_id"],
            tuple(ids[name] for name in order if name in one["subscribed"]),
            {ids[name]: tuple(partitions) for name, partitions in one["current_target"].items() if name in ids},
        )
        for one in case["members"]
    ]
    counts = {ids[name]: topic["partitions"] for name, topic in case["topics"].items()}
    return GroupSpec(members, counts, case["subscription_type"] == "homogeneous")


def plain(result: Mapping[str, PartitionsByTopic]) -> dict[str, dict[Uuid, list[int]]]:
    return {
        member: {topic: sorted(partitions) for topic, partitions in target.items() if partitions}
        for member, target in result.items()
    }


def test_there_are_cases_of_each_kind() -> None:
    kinds = Counter((case["assignor"], case["subscription_type"]) for case in CASES)
    assert len(CASES) >= 200
    assert set(kinds) == {(name, kind) for name in ASSIGNORS for kind in ("homogeneous", "heterogeneous")}
    assert min(kinds.values()) > 50


@pytest.mark.parametrize("chain", sorted({case["chain"] for case in CASES}))
def test_assigns_as_kafka(chain: int) -> None:
    for case in CASES:
        if case["chain"] == chain:
            ids = {name: Uuid.parse(topic["id"]) for name, topic in case["topics"].items()}
            expected = {
                member: {ids[name]: sorted(partitions) for name, partitions in target.items() if partitions}
                for member, target in case["result"].items()
            }
            assert plain(ASSIGNORS[case["assignor"]](spec_of(case))) == expected, case["step"]


@st.composite
def groups(draw: st.DrawFn) -> tuple[list[tuple[str, str | None, frozenset[int]]], dict[int, int]]:
    counts = {topic: draw(st.integers(1, 12)) for topic in range(draw(st.integers(1, 5)))}
    wanted = st.frozensets(st.sampled_from(sorted(counts)))
    same = draw(st.none() | wanted)
    members = [
        (f"m{index}", f"i{index}" if draw(st.booleans()) else None, wanted_here if same is None else same)
        for index, wanted_here in enumerate(draw(st.lists(wanted, min_size=1, max_size=7)))
    ]
    return members, counts


def assigned(
    name: str,
    members: list[tuple[str, str | None, frozenset[int]]],
    counts: dict[int, int],
    before: Mapping[str, PartitionsByTopic],
) -> tuple[GroupSpec, dict[str, PartitionsByTopic]]:
    ids = {topic: Uuid(bytes(15) + bytes([topic + 1])) for topic in counts}
    spec = GroupSpec(
        [
            AssignmentMember(
                member_id, instance, tuple(ids[topic] for topic in sorted(wanted)), before.get(member_id, {})
            )
            for member_id, instance, wanted in members
        ],
        {ids[topic]: count for topic, count in counts.items()},
        len({wanted for _, _, wanted in members}) == 1,
    )
    return spec, ASSIGNORS[name](spec)


def check_complete(spec: GroupSpec, result: Mapping[str, PartitionsByTopic]) -> None:
    """Each partition of a topic that somebody wants has one owner, who wants it."""
    wanted = {member.member_id: set(member.topics) for member in spec.members}
    owned = Counter(
        (topic, partition)
        for member_id, target in result.items()
        for topic, partitions in target.items()
        for partition in partitions
        if topic in wanted[member_id]
    )
    topics = {topic for member in spec.members for topic in member.topics}
    assert owned == Counter((topic, partition) for topic in topics for partition in range(spec.counts[topic]))
    assert set(result) == set(wanted)
    assert all(set(target) <= wanted[member_id] for member_id, target in result.items())


@given(first=groups(), joins=st.booleans(), leaves=st.booleans(), name=st.sampled_from(sorted(ASSIGNORS)))
def test_every_partition_has_one_owner(
    first: tuple[list[tuple[str, str | None, frozenset[int]]], dict[int, int]], joins: bool, leaves: bool, name: str
) -> None:
    members, counts = first
    spec, result = assigned(name, members, counts, {})
    check_complete(spec, result)
    changed = [*members[leaves:], *([("joined", None, members[-1][2])] if joins else [])]
    if changed:
        check_complete(*assigned(name, changed, {topic: count + joins for topic, count in counts.items()}, result))


@given(first=groups(), members_after=st.integers(1, 9))
def test_uniform_is_balanced_and_moves_as_little_as_it_may(
    first: tuple[list[tuple[str, str | None, frozenset[int]]], dict[int, int]], members_after: int
) -> None:
    """With equal wishes loads differ by one at most; a partition moves only if its owner has left or has too many."""
    members, counts = first
    same = members[0][2]
    _, before = assigned("uniform", [(*member[:2], same) for member in members], counts, {})
    now: list[tuple[str, str | None, frozenset[int]]] = [(f"m{index}", None, same) for index in range(members_after)]
    _, after = assigned("uniform", now, counts, before)

    def load(target: PartitionsByTopic) -> int:
        return sum(map(len, target.values()))

    assert max(map(load, after.values())) - min(map(load, after.values())) <= 1
    quota = -(-sum(counts[topic] for topic in same) // members_after)
    for member_id, target in before.items():
        if member_id in after:
            kept = sum(
                len(set(partitions) & set(after[member_id].get(topic, ()))) for topic, partitions in target.items()
            )
            assert kept >= min(load(target), quota) - 1


# The holders of partitions are kept in blocks, and are those of a plain table.


TOPICS = [Uuid(bytes([number]) * 16) for number in (1, 2)]
NUMBERS = (0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 5 * BLOCK, 2**31 - 1)
PARTITIONS = st.dictionaries(
    st.sampled_from(TOPICS), st.dictionaries(st.sampled_from(NUMBERS), st.just(0), min_size=1), max_size=2
)
CHANGES = st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.tuples(st.integers(-2, 3), PARTITIONS, PARTITIONS)))
Table = dict[tuple[Uuid, int], int]


def held_by(member: Member) -> set[tuple[Uuid, int]]:
    return {(topic, one) for of in (member.assigned, member.revoking) for topic, some in of.items() for one in some}


def changed_table(table: Table, old: Member | None, new: Member | None) -> Table:
    before, after = held_by(old) if old else set(), held_by(new) if new else set()
    if old and new and old.epoch == new.epoch:
        unchanged = {topic for topic in TOPICS if _of(before, topic) == _of(after, topic)}
        before = {one for one in before if one[0] not in unchanged}
        after = {one for one in after if one[0] not in unchanged}
    rest = {one: epoch for one, epoch in table.items() if not (old and one in before and epoch == old.epoch)}
    return rest | (dict.fromkeys(after, new.epoch) if new else {})


def _of(places: set[tuple[Uuid, int]], topic: Uuid) -> set[tuple[Uuid, int]]:
    return {one for one in places if one[0] == topic}


@settings(max_examples=40)
@given(CHANGES)
def test_the_blocks_are_a_table(changes: list[tuple[str, tuple[int, Assigned, Assigned] | None]]) -> None:
    members: dict[str, Member] = {}
    table = Table()
    owners: Owners = Map()
    for name, change in changes:
        old = members.pop(name, None)
        new = None
        if change is not None:
            epoch, assigned, revoking = change
            new = members[name] = Member(name, epoch=epoch, assigned=assigned, revoking=revoking)
        owners, table = changed_owners(owners, old, new), changed_table(table, old, new)
        found = {(topic, number): at for (topic, _), block in owners.items() for number, at in block.items()}
        assert found == table
        assert all(owners.values()), "no block is empty"
    for topic in TOPICS:
        for some in ((), NUMBERS[:1], NUMBERS[2:5], NUMBERS):
            near = held_near(owners, topic, some)
            assert {one: near.get(one) for one in some} == {one: table.get((topic, one)) for one in some}


def test_what_a_member_must_give_up_stays_where_it_is() -> None:
    numbers = dict.fromkeys(range(3 * BLOCK), 2)
    member = Member("m", epoch=2, assigned={TOPICS[0]: numbers})
    owners = changed_owners(Map(), None, member)
    half = {number: 2 for number in numbers if number % 2}
    rest = {number: 2 for number in numbers if not number % 2}
    giving = replace(member, assigned={TOPICS[0]: half}, revoking={TOPICS[0]: rest})
    assert changed_owners(owners, member, giving) is owners
    done = changed_owners(owners, giving, replace(giving, epoch=3, revoking={}))
    assert held_near(done, TOPICS[0], [*numbers]) == dict.fromkeys(half, 3)
