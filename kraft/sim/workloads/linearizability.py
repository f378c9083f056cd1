"""Checks histories for linearizability: whether an order of all operations explains the responses (Herlihy and Wing;
the search of Wing and Gong with Lowe's cache, as in Porcupine and Knossos).

The module is self-contained: a history is a list of `Operation`, a model a function from a state and an input to a new
state and an output. An operation without a return may take effect at any time after its call, or never.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from enum import Enum
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

Step = Callable[[Any, Any], tuple[Any, Any]]
"""From a state and an input to the new state and the output. States are hashable and never changed in place."""
BUDGET: Final = 1_000_000
"""The maximal number of steps of the model in a search, which take seconds."""
_SHOWN: Final = 6
_CLOCK_STEPS: Final = 1024
_MOST_OPEN: Final = (1, 2, 4)
_PARTS: Final = (10_000, 100_000)


class Operation(Struct, frozen=True, kw_only=True):
    """One operation of a client. `invoked` and `returned` are times of one clock; equal times count as concurrent.

    `returned` is None without a response; `output` has no meaning then. Operations of different keys do not affect each
    other: the search checks the history of each key alone, which keeps long histories feasible.
    """

    client: Hashable
    invoked: int
    returned: int | None
    input: Any
    output: Any = None
    key: Hashable = None


class Verdict(Enum):
    """The result of a search. `UNDECIDED` means that the search exceeded its budget."""

    LINEARIZABLE = "linearizable"
    VIOLATED = "violated"
    UNDECIDED = "undecided"


class Finding(Struct, frozen=True, kw_only=True):
    """The verdict. For a violation also the key, the operation with an inexplicable response, and the reason."""

    verdict: Verdict
    key: Hashable = None
    culprit: Operation | None = None
    why: str = ""
    steps: int = 0
    """The number of calls of the model."""


def check(
    history: Iterable[Operation],
    initial: Any,
    step: Step,
    *,
    budget: int = BUDGET,
    is_late: Callable[[], bool] | None = None,
) -> Finding:
    """Decide whether a history is linearizable.

    Args:
        history: The operations, in any order.
        initial: The initial state of the model for each key.
        step: The model: from a state and an input to the new state and the output. States are hashable.
        budget: The maximal number of calls of `step`.
        is_late: Called from time to time; the search ends when it returns true.

    Returns:
        The verdict, `UNDECIDED` if the search has ended early. A violation of one key is reported even if other keys
        stay undecided.
    """
    by_key: dict[Hashable, list[Operation]] = {}
    for operation in history:
        by_key.setdefault(operation.key, []).append(operation)
    steps, undecided = 0, False
    for key, operations in by_key.items():
        search = _Search(operations, initial, step, budget - steps, is_late)
        verdict = search.run()
        steps += search.steps
        if verdict is Verdict.VIOLATED:
            culprit, why = _explain(operations, initial, step, budget)
            return Finding(verdict=verdict, key=key, culprit=culprit, why=why, steps=steps)
        undecided |= verdict is Verdict.UNDECIDED
    return Finding(verdict=Verdict.UNDECIDED if undecided else Verdict.LINEARIZABLE, steps=steps)


class _Search:
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
        for part in (*_PARTS, self._budget):
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
        if self._is_late is not None and self.steps % _CLOCK_STEPS == 0 and self._is_late():
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


def _explain(operations: Sequence[Operation], initial: Any, step: Step, budget: int) -> tuple[Operation, str]:
    """The first response that no order explains: the history before the response is linearizable, with it it is not.

    Every beginning of a linearizable history is linearizable, so a binary search finds the response.
    """
    ends = sorted({one.returned for one in operations if one.returned is not None})
    good, bad = -1, len(ends) - 1
    while bad - good > 1:
        middle = (good + bad) // 2
        if _Search(_until(operations, ends[middle]), initial, step, budget).run() is Verdict.VIOLATED:
            bad = middle
        else:
            good = middle
    culprit, history = _first_to_blame(_until(operations, ends[bad]), ends[bad], initial, step, budget)
    explained = _explained_outputs(history, culprit, initial, step, budget)
    around = [one for one in history if one is not culprit and _overlap(one, culprit)]
    lines = [
        f"{_told(culprit)} is explained by no order of the {len(history)} operations until then.",
        f"Explained would be: {', '.join(map(repr, explained[:_SHOWN])) or 'nothing'}.",
        *(f"At the same time: {_told(one)}." for one in around[:_SHOWN]),
    ]
    before = sorted(
        (one for one in history if one.returned is not None and one.returned < culprit.invoked),
        key=lambda one: one.returned or 0,
    )
    lines += [f"Before: {_told(one)}." for one in before[-_SHOWN:]]
    return culprit, "\n".join(lines)


def _until(operations: Sequence[Operation], end: int) -> list[Operation]:
    """The history at that time: without later calls, and with later responses still open."""
    return [
        one if one.returned is not None and one.returned <= end else replace(one, returned=None, output=None)
        for one in operations
        if one.invoked <= end
    ]


def _first_to_blame(
    history: list[Operation], end: int, initial: Any, step: Step, budget: int
) -> tuple[Operation, list[Operation]]:
    """The first of the responses at time `end` that makes the history illegal, and the history up to this response."""
    last = [place for place, one in enumerate(history) if one.returned == end]
    answers = [history[place] for place in last]
    for place in last:
        history[place] = replace(history[place], returned=None, output=None)
    for place, answer in zip(last, answers, strict=True):
        history[place] = answer
        if _Search(history, initial, step, budget).run() is Verdict.VIOLATED:
            break
    return answer, history


def _explained_outputs(
    history: Sequence[Operation], culprit: Operation, initial: Any, step: Step, budget: int
) -> list[Any]:
    """The outputs of the culprit that some order explains; the search tries each of them within the budget."""
    tried: list[Any] = []
    others = [one for one in history if one is not culprit]

    def noting(state: Any, asked: Any) -> tuple[Any, Any]:
        _, output = step(state, culprit.input)
        if output not in tried:
            tried.append(output)
        return step(state, asked)

    _Search([*others, replace(culprit, output=_Never())], initial, noting, budget).run()
    return [
        output
        for output in tried
        if _Search([*others, replace(culprit, output=output)], initial, step, budget).run() is Verdict.LINEARIZABLE
    ]


class _Never:
    """A value that differs from every output, so that a search for this output visits every state."""


def _overlap(one: Operation, other: Operation) -> bool:
    ends_before = one.returned is not None and one.returned < other.invoked
    begins_after = other.returned is not None and one.invoked > other.returned
    return not (ends_before or begins_after)


def _told(one: Operation) -> str:
    if one.returned is None:
        return f"client {one.client} asked {one.input!r} at {one.invoked}, unanswered"
    return f"client {one.client} asked {one.input!r} at {one.invoked} and heard {one.output!r} at {one.returned}"
