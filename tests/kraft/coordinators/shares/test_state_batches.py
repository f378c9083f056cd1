"""Batches of a share partition are combined offset by offset: the larger delivery count wins, then the larger state."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from kraft.coordinators.shares.persister import NO_OFFSET, StateBatch
from kraft.coordinators.shares.state_batches import combined, cut, merged


def batches(*all_: tuple[int, int, int, int]) -> tuple[StateBatch, ...]:
    return tuple(StateBatch(*one) for one in all_)


def offsets(some: tuple[StateBatch, ...] | list[StateBatch], start: int = NO_OFFSET) -> dict[int, tuple[int, int]]:
    """The winner of each offset: the delivery count and the state."""
    found: dict[int, tuple[int, int]] = {}
    for one in some:
        for at in range(one.first_offset, one.last_offset + 1):
            if start == NO_OFFSET or at >= start:
                found[at] = max(found.get(at, (-1, -1)), (one.delivery_count, one.delivery_state))
    return found


def check(some: tuple[StateBatch, ...]) -> None:
    """Batches are in order, and no two neighbours overlap or could be joined."""
    for before, after in pairwise(some):
        assert before.first_offset <= before.last_offset < after.first_offset <= after.last_offset
        is_equal = (before.delivery_state, before.delivery_count) == (after.delivery_state, after.delivery_count)
        assert not (is_equal and before.last_offset + 1 == after.first_offset)


ONE = st.builds(
    lambda first, length, state, count: StateBatch(first, first + length, state, count),
    st.integers(0, 30),
    st.integers(0, 12),
    st.sampled_from((0, 2, 3, 4, 9)),
    st.integers(1, 3),
)


@settings(max_examples=60)
@given(st.lists(ONE, max_size=12))
def test_the_winner_of_each_offset_is_found_in_any_order(some: list[StateBatch]) -> None:
    found = combined(some)
    assert offsets(found) == offsets(some)
    check(found)
    assert combined(reversed(some)) == found


@settings(max_examples=60)
@given(st.lists(ONE, max_size=12), st.lists(ONE, max_size=5), st.integers(-1, 45))
def test_a_change_is_combined_with_what_is_known(known: list[StateBatch], added: list[StateBatch], start: int) -> None:
    found = merged(combined(known), added, start)
    assert offsets(found) == offsets([*known, *added], start)
    check(found)


@settings(max_examples=60)
@given(st.lists(ONE, max_size=12), st.integers(-1, 45))
def test_offsets_before_the_start_are_cut(known: list[StateBatch], start: int) -> None:
    assert offsets(cut(combined(known), start)) == offsets(known, start)


def test_examples_of_kafka() -> None:
    """A released record beats one that was not delivered again, and an acknowledged one a released one."""
    assert merged(batches((0, 9, 0, 1)), batches((3, 5, 0, 2)), 0) == batches((0, 2, 0, 1), (3, 5, 0, 2), (6, 9, 0, 1))
    assert merged(batches((0, 9, 0, 2)), batches((3, 5, 2, 2)), 4) == batches((4, 5, 2, 2), (6, 9, 0, 2))
    assert merged(batches((0, 9, 2, 2)), batches((3, 5, 0, 1)), 0) == batches((0, 9, 2, 2))
    assert merged(batches((0, 3, 2, 1)), batches((4, 6, 2, 1)), 0) == batches((0, 6, 2, 1)), "neighbours are joined"


def test_a_batch_that_ends_before_it_begins_has_no_offset() -> None:
    assert combined(batches((5, 4, 0, 1))) == ()
    assert combined(batches((5, 4, 0, 1), (7, 7, 0, 1))) == batches((7, 7, 0, 1))


def test_a_change_copies_what_it_does_not_touch() -> None:
    known = batches(*((at, at, at % 2 * 2, 1) for at in range(1000)))
    found = merged(known, batches((500, 500, 4, 3)), 0)
    assert len(found) == 1000
    assert all(one is other for one, other in zip(found, known, strict=True) if one.first_offset not in {499, 500, 501})
