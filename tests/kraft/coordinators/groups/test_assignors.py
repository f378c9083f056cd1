"""The assignors give what those of Apache Kafka 4.3.1 gave for the same groups, and keep what assignors promise."""

from __future__ import annotations

import json
import lzma
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.coordinators.groups.assignors import ASSIGNORS, AssignmentMember, GroupSpec, PartitionsByTopic
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
