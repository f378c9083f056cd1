"""The holders of partitions are kept in blocks, and are those of a plain table."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kraft.coordinators.groups.consumer.member import Assigned, Member
from kraft.coordinators.groups.consumer.owners import BLOCK, Owners, changed_owners, held_near
from metadata_log.types import Uuid

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
    owners, table = Owners(), Table()
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
    owners = changed_owners(Owners(), None, member)
    half = {number: 2 for number in numbers if number % 2}
    rest = {number: 2 for number in numbers if not number % 2}
    giving = replace(member, assigned={TOPICS[0]: half}, revoking={TOPICS[0]: rest})
    assert changed_owners(owners, member, giving) is owners
    done = changed_owners(owners, giving, replace(giving, epoch=3, revoking={}))
    assert held_near(done, TOPICS[0], [*numbers]) == dict.fromkeys(half, 3)
