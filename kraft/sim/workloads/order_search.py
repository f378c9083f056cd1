"""The plain search for an order of all operations, depth first (Wing and Gong, with the cache of Lowe)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

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
