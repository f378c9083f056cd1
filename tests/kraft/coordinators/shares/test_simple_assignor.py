"""The simple assignor shares partitions out as that of Apache Kafka 4.4.0 for the same groups.

Which members and partitions win among equals follows from the order of Java's hash maps there, so that sizes are
compared, and how much everybody keeps.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.coordinators.groups.assignors import PartitionsByTopic
from kraft.coordinators.groups.shares.assignor import SharingMember, assigning
from metadata_log.serde.codec import finished
from metadata_log.types import Uuid
from support import DATA

CASES: Final[list[dict[str, Any]]] = [
    json.loads(line)
    for line in gzip.decompress((DATA / "share" / "group" / "assignors.jsonl.gz").read_bytes()).splitlines()
]
"""Groups that were asked of Kafka's assignor: chains in which each group follows from the one before."""
GREEDY: Final = (13, 3)
"""Where Kafka's last step leaves a member one short, as the only one below its number already has the partition."""
Held = dict[tuple[str, int], set[str]]


def assigned(case: dict[str, Any]) -> dict[str, dict[str, list[int]]]:
    """What our assignor gives for a case, by member and name of the topic."""
    ids = {name: Uuid.parse(topic["id"]) for name, topic in case["topics"].items()}
    names = {topic_id: name for name, topic_id in ids.items()}
    members = [
        SharingMember(
            one["member_id"],
            frozenset(ids[name] for name in one["subscribed"] if name in ids),
            {ids[name]: tuple(numbers) for name, numbers in one["current_target"].items() if name in ids},
        )
        for one in case["members"]
    ]
    assignable = {ids[name]: range(topic["partitions"]) for name, topic in case["topics"].items()}
    found = finished(assigning(members, assignable, homogeneous=case["subscription_type"] == "homogeneous"))
    return {
        member: {names[topic_id]: list(numbers) for topic_id, numbers in topics.items() if numbers}
        for member, topics in found.items()
    }


def sizes(result: dict[str, dict[str, list[int]]], *, by_topic: bool) -> dict[str, Any]:
    """How many partitions each member has, of each topic if these are shared out on their own."""
    if by_topic:
        return {member: {name: len(of) for name, of in topics.items() if of} for member, topics in result.items()}
    return {member: sum(map(len, topics.values())) for member, topics in result.items()}


def holders(result: dict[str, dict[str, list[int]]]) -> Held:
    held: Held = {}
    for member, topics in result.items():
        for name, numbers in topics.items():
            for number in numbers:
                held.setdefault((name, number), set()).add(member)
    return held


def kept(case: dict[str, Any], result: dict[str, dict[str, list[int]]]) -> int:
    """How many partitions stay with the members that had them."""
    return sum(
        len(set(numbers) & set(result[one["member_id"]].get(name, ())))
        for one in case["members"]
        for name, numbers in one["current_target"].items()
    )


@pytest.mark.parametrize("chain", sorted({case["chain"] for case in CASES}))
def test_shares_out_as_kafka(chain: int) -> None:
    for case in CASES:
        if case["chain"] != chain or (chain, case["step"]) == GREEDY:
            continue
        ours, theirs, by_topic = assigned(case), case["result"], case["subscription_type"] == "heterogeneous"
        assert sizes(ours, by_topic=by_topic) == sizes(theirs, by_topic=by_topic), case["step"]
        count = Counter(map(len, holders(ours).values()))
        assert count == Counter(map(len, holders(theirs).values())), case["step"]
        assert kept(case, ours) >= kept(case, theirs), case["step"]


def test_where_kafka_is_one_short_every_partition_has_its_members() -> None:
    (case,) = [one for one in CASES if (one["chain"], one["step"]) == GREEDY]
    ours = holders(assigned(case))
    assert {place: len(members) for place, members in ours.items()} == {("t0", 0): 3, ("t0", 1): 3, ("t2", 0): 3}


TOPICS: Final = [Uuid(bytes([number] * 16)) for number in range(1, 4)]


@given(
    st.lists(st.sets(st.sampled_from(TOPICS)), max_size=9),
    st.lists(st.integers(0, 12), min_size=3, max_size=3),
    st.lists(st.sets(st.sampled_from(TOPICS)), max_size=9),
    st.lists(st.integers(0, 12), min_size=3, max_size=3),
)
def test_every_partition_of_a_wanted_topic_has_a_member(
    wanted: list[set[Uuid]], counts: list[int], wanted_then: list[set[Uuid]], counts_then: list[int]
) -> None:
    """Also from targets that were found for other members and topics; nobody gets what it does not want."""
    targets: dict[str, PartitionsByTopic] = {}
    for wishes, numbers in ((wanted, counts), (wanted_then, counts_then)):
        assignable = {topic: range(number) for topic, number in zip(TOPICS, numbers, strict=True)}
        members = [SharingMember(str(at), frozenset(wish), targets.get(str(at), {})) for at, wish in enumerate(wishes)]
        is_homogeneous = all(wish == wishes[0] for wish in wishes)
        targets = finished(assigning(members, assignable, homogeneous=is_homogeneous))
        every = set().union(*wishes)
        held = [(one, topic, number) for one, of in targets.items() for topic in of for number in of[topic]]
        got = {(topic, number) for _, topic, number in held if topic in every}
        assert got == {(topic, number) for topic in every for number in assignable[topic]}
        for member in members:
            assert set(targets[member.member_id]) & every <= member.topics
