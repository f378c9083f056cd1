"""The linearizability checker: against brute force, on the examples of the books, and what it says of a violation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, combinations, permutations
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from kraft.sim.workloads.linearizability import BUDGET, Finding, Operation, Verdict, check
from kraft.sim.workloads.response_search import OrderSearch, ResponseSearch


def register(state: int, asked: tuple[str, int]) -> tuple[int, int | None]:
    """A number that can be written, added to, and read."""
    match asked:
        case ("write", value):
            return value, None
        case ("add", value):
            return state + value, state + value
        case _:
            return state, state


def op(client: int, invoked: int, returned: int | None, asked: tuple[str, int], output: Any = None) -> Operation:
    return Operation(client=client, invoked=invoked, returned=returned, input=asked, output=output)


WRITE_0, WRITE_1, WRITE_2, READ = ("write", 0), ("write", 1), ("write", 2), ("read", 0)


def decide(*history: Operation) -> Finding:
    return check(history, 0, register)


def test_linearizable_histories_are_accepted() -> None:
    """A read beside a write may see it or not; a read after it must."""
    assert decide(op(1, 0, 10, WRITE_1), op(2, 5, 15, READ, 0)).verdict is Verdict.LINEARIZABLE
    assert decide(op(1, 0, 10, WRITE_1), op(2, 5, 15, READ, 1)).verdict is Verdict.LINEARIZABLE
    assert decide(op(1, 0, 10, WRITE_1), op(2, 11, 15, READ, 0)).verdict is Verdict.VIOLATED
    assert decide().verdict is Verdict.LINEARIZABLE


def test_a_violation_names_the_impossible_answer_and_the_possible_ones() -> None:
    found = decide(
        op(1, 0, 10, WRITE_1),
        op(2, 12, 30, WRITE_2),
        op(3, 15, 20, READ, 7),
        op(4, 40, 50, READ, 2),
    )
    assert found.verdict is Verdict.VIOLATED
    assert found.culprit == op(3, 15, 20, READ, 7)
    assert found.why.splitlines() == [
        "client 3 asked ('read', 0) at 15 and heard 7 at 20 is explained by no order of the 3 operations until then.",
        "Explained would be: 1, 2.",
        "At the same time: client 2 asked ('write', 2) at 12, unanswered.",
        "Before: client 1 asked ('write', 1) at 0 and heard None at 10.",
    ]


def test_an_overlong_search_is_undecided() -> None:
    """Thirty additions of unknown fate, and a sum that none of their subsets makes."""
    open_ones = [op(number, 0, None, ("add", 1 << number)) for number in range(30)]
    asked = [*open_ones, op(99, 1, 2, READ, -1)]
    assert check(asked, 0, register, budget=10_000).verdict is Verdict.UNDECIDED
    looks: list[bool] = []

    def is_late() -> bool:
        looks.append(True)
        return len(looks) > 3

    found = check(asked, 0, register, is_late=is_late)
    assert found.verdict is Verdict.UNDECIDED
    assert len(looks) == 4


def test_the_order_of_a_log_decides_a_history_that_no_other_search_decides() -> None:
    """Thirty additions of unknown fate, and the sum of fifteen of them, which a log has in this order."""
    open_ones = [op(number, 0, None, ("add", 1 << number)) for number in range(30)]
    logged = [one.input for one in reversed(open_ones[::2])]
    asked = [*open_ones, op(99, 1, 2, READ, sum(value for _, value in logged))]
    assert check(asked, 0, register, budget=10_000).verdict is Verdict.UNDECIDED
    found = check(asked, 0, register, budget=10_000, witness=[(None, one) for one in logged])
    assert found.verdict is Verdict.LINEARIZABLE
    assert found.steps < 2_000
    for wrong in (logged[1:], logged[:-1], [("add", 1 << 31), *logged]):
        found = check(asked, 0, register, budget=10_000, witness=[(None, one) for one in wrong])
        assert found.verdict is Verdict.UNDECIDED


def test_equal_pending_operations_are_searched_once() -> None:
    """The sums of subsets of thirty equal additions are only thirty-one."""
    open_ones = [op(number, 0, None, ("add", 1)) for number in range(30)]
    assert check([*open_ones, op(99, 1, 2, READ, 17)], 0, register).verdict is Verdict.LINEARIZABLE
    found = check([*open_ones, op(99, 1, 2, READ, 31)], 0, register)
    assert found.verdict is Verdict.VIOLATED
    assert found.steps < 2000


def _orders(history: Sequence[Operation]) -> Iterator[tuple[Operation, ...]]:
    """Every order of every choice of what happened."""
    answered = [one for one in history if one.returned is not None]
    others = [one for one in history if one.returned is None]
    choices = chain.from_iterable(combinations(others, count) for count in range(len(others) + 1))
    return chain.from_iterable(permutations([*answered, *chosen]) for chosen in choices)


def _explains(order: tuple[Operation, ...]) -> bool:
    for place, one in enumerate(order):
        if any(later.returned is not None and later.returned < one.invoked for later in order[place + 1 :]):
            return False
    state = 0
    for one in order:
        state, output = register(state, one.input)
        if one.returned is not None and output != one.output:
            return False
    return True


@st.composite
def histories(draw: st.DrawFn) -> list[Operation]:
    """Up to five operations in a short time; most answers are such that they could be right."""
    made = []
    for client in range(draw(st.integers(0, 5))):
        invoked = draw(st.integers(0, 6))
        returned = draw(st.none() | st.integers(invoked, 8))
        asked = (draw(st.sampled_from(("write", "add", "read"))), draw(st.integers(0, 2)))
        output = None if asked[0] == "write" else draw(st.integers(0, 4))
        made.append(op(client, invoked, returned, asked, output))
    return made


@given(histories())
@example([op(1, 0, None, WRITE_1), op(2, 0, None, WRITE_2), op(3, 1, 1, READ, 1), op(4, 2, 2, READ, 2)])
def test_checker_agrees_with_brute_force_on_random_histories(history: list[Operation]) -> None:
    possible = any(map(_explains, _orders(history)))
    found = decide(*history)
    assert found.verdict is (Verdict.LINEARIZABLE if possible else Verdict.VIOLATED)
    if not possible:
        assert found.culprit in history
        assert found.why


@st.composite
def longer_histories(draw: st.DrawFn) -> list[Operation]:
    """Up to twelve operations on one register, which overlap, or leave moments without an operation in flight."""
    made = []
    now = 0
    for client in range(draw(st.integers(0, 12))):
        now += draw(st.integers(0, 3))
        returned = draw(st.none() | st.integers(now, now + 4))
        asked = (draw(st.sampled_from(("write", "add", "read"))), draw(st.integers(0, 2)))
        output = None if asked[0] == "write" else draw(st.integers(0, 5))
        made.append(op(client, now, returned, asked, output))
    return made


@st.composite
def true_histories(draw: st.DrawFn) -> list[Operation]:
    """A history with the outputs of an actual order; some responses are lost, and one output may be wrong."""
    asked = draw(st.lists(st.tuples(st.sampled_from(("write", "add", "read")), st.integers(0, 2)), max_size=12))
    state, made = 0, list[Operation]()
    for moment, one in enumerate(asked):
        state, output = register(state, one)
        invoked = 10 * moment - draw(st.integers(0, 25))
        returned = None if draw(st.integers(0, 3)) == 0 else 10 * moment + draw(st.integers(0, 25))
        made.append(op(moment, invoked, returned, one, output))
    is_wrong: bool = draw(st.booleans()) if made else False
    if is_wrong:
        place = draw(st.integers(0, len(made) - 1))
        made[place] = replace(made[place], output=draw(st.integers(0, 5)))
    return made


@given(st.one_of(histories(), longer_histories(), true_histories()))
@example([op(1, 0, 10, WRITE_0), op(2, 0, 10, WRITE_1), op(3, 11, 12, READ, 0)])
def test_the_partitioned_search_agrees_with_the_plain_search(history: list[Operation]) -> None:
    """The first search of `check` goes from response to response, the second one through whole orders."""
    plain = OrderSearch(history, 0, register, BUDGET).run()
    assert plain is not Verdict.UNDECIDED
    assert ResponseSearch(history, 0, register, BUDGET).run() is plain


@given(st.one_of(histories(), longer_histories(), true_histories()), st.data())
@example([op(1, 0, 10, WRITE_0), op(2, 0, 10, WRITE_1), op(3, 11, 12, READ, 0)], None)
def test_a_proposed_order_changes_no_verdict(history: list[Operation], data: st.DataObject | None) -> None:
    """Neither the inputs in some order, nor a part of them, nor inputs of no operation."""
    inputs = [*(one.input for one in history), WRITE_1, ("add", 2)]
    count = 0 if data is None else data.draw(st.integers(0, len(inputs)))
    proposed = inputs if data is None else data.draw(st.permutations(inputs))[:count]
    found = check(history, 0, register, witness=[(None, one) for one in proposed])
    assert found.verdict is OrderSearch(history, 0, register, BUDGET).run()


def test_the_partitioned_search_decides_a_long_history_in_steps_that_grow_with_its_length() -> None:
    """Each round has a moment without an operation in flight, and five additions that any order explains."""

    def rounds(count: int) -> list[Operation]:
        made = []
        for one in range(count):
            at = 100 * one
            made += [op(n, at, at + 50, ("add", 0), 15 * one) for n in range(5)]
            made += [op(10 + n, at + 60, at + 70, ("write", 15 * (one + 1))) for n in range(3)]
            made.append(op(20, at + 80, None, ("add", 1)))
        return made

    steps = []
    for count in (20, 40):
        search = ResponseSearch([*rounds(count), op(99, 10**6, 10**6 + 1, READ, 15 * count)], 0, register, BUDGET)
        assert search.run() is Verdict.LINEARIZABLE
        steps.append(search.steps)
    assert steps[1] < 3 * steps[0]


@pytest.mark.parametrize(("operations", "histories"), [(2, 4_000), pytest.param(3, 100_000, marks=pytest.mark.soak)])
def test_checker_agrees_with_brute_force_on_all_small_histories(operations: int, histories: int) -> None:
    """Three writes, reads and additions with every small answer, at all places in four moments, answered or not."""
    answers = [
        (WRITE_0, None),
        (WRITE_1, None),
        (WRITE_2, None),
        *((READ, n) for n in range(3)),
        *((("add", 1), n) for n in range(1, 4)),
    ]
    kinds: list[tuple[int, int | None, tuple[str, int], int | None]]
    kinds = [(begin, end, *answer) for begin in range(4) for end in range(begin, 4) for answer in answers]
    kinds += [(begin, None, asked, None) for begin in range(4) for asked in (WRITE_1, WRITE_2, READ, ("add", 1))]
    checked = 0
    for chosen in combinations(kinds, operations):
        history = [op(client, *one) for client, one in enumerate(chosen)]
        possible = any(map(_explains, _orders(history)))
        assert (decide(*history).verdict is Verdict.LINEARIZABLE) == possible, history
        assert (OrderSearch(history, 0, register, BUDGET).run() is Verdict.LINEARIZABLE) == possible, history
        checked += 1
    assert checked > histories
