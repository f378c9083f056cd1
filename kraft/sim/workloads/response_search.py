"""The searches for an order of all operations: partitioned by time, from one response to the next (Lowe's just-in-time
linearization); and the plain one, depth first (Wing and Gong, with the cache of Lowe).

After each response the first search keeps only the possible *situations*. A situation is a state, with the operations
in flight and the unanswered operations that have taken effect. How a situation came about no longer matters. At a
moment without an operation in flight, the situations are states of the model, and the history splits there into two
parts.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, Final

from msgspec import Struct

from kraft.sim.workloads.operations import CLOCK_STEPS, FIRST_BUDGETS, Operation, Step, Verdict

_MOST_OPEN: Final = (1, 2, 4)


class OrderSearch:
    """One search through the orders of one key's operations, depth first.

    A doubly linked list contains the calls and returns by time, without those of already ordered operations. Every
    operation called before the first remaining return may be the next in the order. The search visits no pair of
    ordered operations and state twice.
    """

    def __init__(
        self,
        operations: Sequence[Operation],
        initial: Any,
        step: Step,
        budget: int,
        is_late: Callable[[], bool] | None = None,
    ) -> None:
        self.steps = 0
        self._operations = sorted(operations, key=lambda one: one.invoked)
        self._initial = initial
        self._step = step
        self._budget = budget
        self._is_late = is_late
        self._is_out_of_time = False
        self._answered = sum(one.returned is not None for one in operations)
        self._link()

    def _link(self) -> None:
        """The list: call of operation n is entry 2n, its return 2n + 1; a call comes before a return of its moment."""
        entries = [(one.invoked, 0, 2 * number) for number, one in enumerate(self._operations)]
        entries += [
            (one.returned, 1, 2 * number + 1) for number, one in enumerate(self._operations) if one.returned is not None
        ]
        order = [entry for _, _, entry in sorted(entries)]
        self._head = head = 2 * len(self._operations)
        self._next = [head] * (head + 1)
        self._previous = [head] * (head + 1)
        for one, other in zip([head, *order], [*order, head], strict=True):
            self._next[one] = other
            self._previous[other] = one

    def run(self) -> Verdict:
        """Search until an order is found, no order is left, or the budget is exhausted.

        In most histories few unanswered operations took effect in a row, so further searches try only such orders. The
        length of a search is not known in advance, so each search first gets a small part of the budget.
        """
        if self._answered == 0:
            return Verdict.LINEARIZABLE
        limits = dict.fromkeys((len(self._operations), *_MOST_OPEN))
        for part in (*FIRST_BUDGETS, self._budget):
            for most_open in tuple(limits):
                verdict = self._search(most_open, min(self.steps + part, self._budget))
                is_whole = most_open == len(self._operations)
                if verdict is Verdict.LINEARIZABLE or (verdict is Verdict.VIOLATED and is_whole):
                    return verdict
                if verdict is Verdict.VIOLATED:
                    del limits[most_open]
                elif self.steps >= self._budget or self._is_out_of_time:
                    return verdict
        return Verdict.UNDECIDED

    def _search(self, most_open: int, last_step: int) -> Verdict:
        """Search the orders with a maximal number of unanswered operations between two answered ones."""
        state, taken, answered, streak = self._initial, 0, 0, 0
        seen = {(taken, state, streak)}
        path: list[tuple[int, Any, int, Iterator[tuple[int, Any]]]] = []
        options = self._options(state, most_open)
        while True:
            if self.steps >= last_step or self._is_out_of_time:
                self._undo(path)
                return Verdict.UNDECIDED
            for number, after in options:
                is_open = self._operations[number].returned is None
                place = (taken | 1 << number, after, streak + 1 if is_open else 0)
                if place in seen:
                    continue
                seen.add(place)
                path.append((number, state, streak, options))
                taken, state, streak = place
                answered += not is_open
                self._take(number)
                options = self._options(state, most_open - streak)
                break
            else:
                if not path:
                    return Verdict.VIOLATED
                number, state, streak, options = path.pop()
                self._put_back(number)
                taken ^= 1 << number
                answered -= self._operations[number].returned is not None
                continue
            if answered == self._answered:
                self._undo(path)
                return Verdict.LINEARIZABLE

    def _undo(self, path: list[tuple[int, Any, int, Iterator[tuple[int, Any]]]]) -> None:
        while path:
            self._put_back(path.pop()[0])

    def _options(self, state: Any, most_open: int) -> Iterator[tuple[int, Any]]:
        """The possible next operations, each with the state after it; unanswered ones only while `most_open` allows.

        Answered operations that leave the state as it is come first, as later states explain a read no better. The
        search must try the other answered ones, too: a write of the present value may be needed after another write.
        Unanswered operations come last; of several with equal inputs, the first represents all.
        """
        unchanging: list[tuple[int, Any]] = []
        answered: list[tuple[int, Any]] = []
        open_ones: list[tuple[int, Any]] = []
        inputs: list[Any] = []
        entry = self._next[self._head]
        while entry != self._head and entry % 2 == 0:
            number = entry // 2
            entry = self._next[entry]
            operation = self._operations[number]
            is_open = operation.returned is None
            if is_open and (most_open <= 0 or operation.input in inputs):
                continue
            self._count_step()
            after, output = self._step(state, operation.input)
            if is_open:
                inputs.append(operation.input)
                if after != state:
                    open_ones.append((number, after))
            elif output == operation.output:
                if after == state:
                    unchanging.append((number, after))
                else:
                    answered.append((number, after))
        return iter(unchanging + answered + open_ones)

    def _count_step(self) -> None:
        self.steps += 1
        if self._is_late is not None and self.steps % CLOCK_STEPS == 0 and self._is_late():
            self._is_out_of_time = True

    def _take(self, number: int) -> None:
        for entry in self._entries(number):
            before, behind = self._previous[entry], self._next[entry]
            self._next[before], self._previous[behind] = behind, before

    def _put_back(self, number: int) -> None:
        for entry in reversed(self._entries(number)):
            self._next[self._previous[entry]] = entry
            self._previous[self._next[entry]] = entry

    def _entries(self, number: int) -> tuple[int, ...]:
        if self._operations[number].returned is None:
            return (2 * number,)
        return (2 * number, 2 * number + 1)


Situation = tuple[Any, int, int]
"""A state, and as bits the operations in flight that have taken effect, and the unanswered ones that have."""
_CACHED: Final = 20_000
"""The number of results of the model that the search keeps."""
_COMPARED: Final = 64
"""The number of situations of one state that are compared with each other."""


class _Way(Struct, frozen=True):
    """The orders that a search tries. A way that omits orders decides only if it finds an order."""

    is_eager: bool
    """Whether an operation with the right output that leaves the state as it is takes effect at once. The search then
    omits orders in which the same operation changes a later state.
    """
    most_open: int | None
    """The maximal number of unanswered operations in a row; None for any number."""

    @property
    def is_whole(self) -> bool:
        """Whether this way tries all orders."""
        return not self.is_eager and self.most_open is None


_WAYS: Final = (_Way(True, 1), _Way(True, 2), _Way(True, 4), _Way(True, None), _Way(False, None))


class ResponseSearch:
    """One search through the orders of one key's operations, breadth first in the order of the responses."""

    def __init__(
        self,
        operations: Sequence[Operation],
        initial: Any,
        step: Step,
        budget: int,
        is_late: Callable[[], bool] | None = None,
    ) -> None:
        self.steps = 0
        self._operations = sorted(operations, key=lambda one: one.invoked)
        self._inputs = _numbered([one.input for one in self._operations])
        self._initial = initial
        self._step = step
        self._budget = budget
        self._is_late = is_late
        self.is_out_of_time = False
        self._results: dict[tuple[Any, int], tuple[Any, Any]] = {}
        self._in_flight: list[int] = []
        """The operations with a call in the past and a response in the future."""
        self._unanswered: list[int] = []
        """The operations with a call in the past and without a response."""

    def run(self) -> Verdict:
        """Search until an order is found, no order is left, or the budget is exhausted.

        The search tries several ways. The quick ways omit orders, so only the last way can find a violation. The length
        of a search is not known in advance, so each way first gets a small part of the budget.
        """
        ways = list(_WAYS)
        for part in (*FIRST_BUDGETS, self._budget):
            for way in tuple(ways):
                verdict = self._search(way, min(self.steps + part, self._budget))
                if verdict is Verdict.LINEARIZABLE or (verdict is Verdict.VIOLATED and way.is_whole):
                    return verdict
                if verdict is Verdict.VIOLATED:
                    ways.remove(way)
                elif self.steps >= self._budget or self.is_out_of_time:
                    return verdict
        return Verdict.UNDECIDED

    def _search(self, way: _Way, last_step: int) -> Verdict:
        self._in_flight, self._unanswered = [], []
        situations: set[Situation] = {(self._initial, 0, 0)}
        for is_response, number in self._moments():
            if is_response:
                passed = self._pass(situations, number, way, last_step)
                if passed is None:
                    return Verdict.UNDECIDED
                if not passed:
                    return Verdict.VIOLATED
                self._in_flight.remove(number)
                situations = _without_the_dominated(passed)
            elif self._operations[number].returned is None:
                self._unanswered.append(number)
            else:
                self._in_flight.append(number)
        return Verdict.LINEARIZABLE

    def _moments(self) -> Iterator[tuple[bool, int]]:
        """The calls and responses in the order of time; a call comes before a response of its moment."""
        moments = [(one.invoked, False, number) for number, one in enumerate(self._operations)]
        moments += [
            (one.returned, True, number) for number, one in enumerate(self._operations) if one.returned is not None
        ]
        return ((is_response, number) for _, is_response, number in sorted(moments))

    def _pass(self, situations: Iterable[Situation], number: int, way: _Way, last_step: int) -> set[Situation] | None:
        """The situations after the response of an operation, which has taken effect by then; None without a budget."""
        arrived = 1 << number
        passed: set[Situation] = set()
        waiting = [(situation, 0) for situation in situations]
        seen = set(waiting)
        while waiting:
            if self.steps >= last_step or self.is_out_of_time:
                return None
            (state, taken, used), streak = waiting.pop()
            changes = []
            for other in self._in_flight:
                after = None if taken >> other & 1 else self._explained(state, other)
                if after is None:
                    continue
                if way.is_eager and after[0] == state:
                    taken |= 1 << other
                else:
                    changes.append((other, after[0]))
            if taken & arrived:
                passed.add((state, taken ^ arrived, used))
                continue
            nexts: list[tuple[Situation, int]] = [((after, taken | 1 << other, used), 0) for other, after in changes]
            if way.most_open is None or streak < way.most_open:
                nexts += [((after, taken, used | 1 << other), streak + 1) for other, after in self._opened(state, used)]
            for one in nexts:
                if one not in seen:
                    seen.add(one)
                    waiting.append(one)
        return passed

    def _explained(self, state: Any, number: int) -> tuple[Any] | None:
        """The state after an answered operation; None if its output would be another one."""
        after, output = self._result(state, number)
        return (after,) if output == self._operations[number].output else None

    def _opened(self, state: Any, used: int) -> Iterator[tuple[int, Any]]:
        """The unanswered operations that would change the state; of several with equal inputs, the first."""
        inputs: set[int] = set()
        for number in self._unanswered:
            if not used >> number & 1 and self._inputs[number] not in inputs:
                inputs.add(self._inputs[number])
                after, _ = self._result(state, number)
                if after != state:
                    yield number, after

    def _result(self, state: Any, number: int) -> tuple[Any, Any]:
        self.steps += 1
        if self._is_late is not None and self.steps % CLOCK_STEPS == 0 and self._is_late():
            self.is_out_of_time = True
        place = state, self._inputs[number]
        result = self._results.get(place)
        if result is None:
            if len(self._results) >= _CACHED:
                self._results.clear()
            result = self._results[place] = self._step(state, self._operations[number].input)
        return result


def _numbered(inputs: Iterable[Any]) -> list[int]:
    """A number for each input; equal inputs have equal numbers if they are hashable."""
    known: dict[Hashable, int] = {}
    numbers = []
    for place, one in enumerate(inputs):
        try:
            numbers.append(known.setdefault(one, place))
        except TypeError:
            numbers.append(place)
    return numbers


def _without_the_dominated(situations: Iterable[Situation]) -> set[Situation]:
    """Without each situation that differs from another one only in further unanswered operations that took effect: the
    other situation has every continuation of this one.
    """
    groups: dict[tuple[Any, int], list[int]] = {}
    for state, taken, used in situations:
        groups.setdefault((state, taken), []).append(used)
    kept: set[Situation] = set()
    for (state, taken), many in groups.items():
        many.sort(key=int.bit_count)
        least: list[int] = []
        for used in many:
            if not any(one & used == one for one in least[:_COMPARED]):
                least.append(used)
        kept.update((state, taken, used) for used in least)
    return kept
