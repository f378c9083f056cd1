"""Checks histories for linearizability: whether an order of all operations explains the responses (Herlihy and Wing).

The check is partitioned by key, and by time (`ResponseSearch`). A history that this search leaves undecided goes
through the plain search (`OrderSearch`), which Porcupine and Knossos use. The order of a log, if the caller knows one,
is tried first: a search in this order uses the same operations, times and outputs as any other search, so that a wrong
order decides nothing.

A history is a list of `Operation`, a model a function from a state and an input to a new state and an output. An
operation without a return may take effect at any time after its call, or never.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from kraft.sim.workloads.operations import Operation, Step, Verdict
from kraft.sim.workloads.response_search import OrderSearch, ResponseSearch

_IMPOSSIBLE: Final = object()
"""An output that equals no output of a history."""


def in_order(witness: Sequence[Any], initial: Any, step: Step) -> Step:
    """A model in which only the next input of a witness changes the state; its states are numbers of such inputs, from
    0 on.

    Each transition of this model is one of the given model with the same output. So an order of operations that this
    model explains, the given model explains, too. Inputs of the witness that change nothing are skipped.
    """
    states, inputs = [initial], []
    for one in witness:
        after, _ = step(states[-1], one)
        if after != states[-1]:
            states.append(after)
            inputs.append(one)

    def step_in_order(place: int, asked: Any) -> tuple[int, Any]:
        after, output = step(states[place], asked)
        if after == states[place]:
            return place, output
        if place < len(inputs) and inputs[place] == asked:
            return place + 1, output
        return place, _IMPOSSIBLE

    return step_in_order


__all__ = ["BUDGET", "Finding", "Operation", "Step", "Verdict", "check"]

BUDGET: Final = 2_000_000
"""The maximal number of steps of the model in a search, which take some seconds. Each of two searches has a half."""
_SHOWN: Final = 6


class Finding(Struct, frozen=True, kw_only=True):
    """The verdict. For a violation also the key, the operation with an inexplicable response, and the reason."""

    verdict: Verdict
    key: Hashable = None
    culprit: Operation | None = None
    why: str = ""
    steps: int = 0
    """The number of transitions of the model that the search tried."""


def check(
    history: Iterable[Operation],
    initial: Any,
    step: Step,
    *,
    budget: int = BUDGET,
    is_late: Callable[[], bool] | None = None,
    witness: Iterable[tuple[Hashable, Any]] = (),
) -> Finding:
    """Decide whether a history is linearizable.

    Args:
        history: The operations, in any order.
        initial: The initial state of the model for each key.
        step: The model: from a state and an input to the new state and the output. States are hashable.
        budget: The maximal number of transitions of the model that the search tries.
        is_late: Called from time to time; the search ends when it returns true.
        witness: Keys and inputs in an order that may explain the history, such as that of a log. The check tries this
            order first. A wrong or incomplete witness costs time and changes no verdict but `UNDECIDED`.

    Returns:
        The verdict, `UNDECIDED` if the search has ended early. A violation of one key is reported even if other keys
        stay undecided.
    """
    by_key: dict[Hashable, list[Operation]] = {}
    for operation in history:
        by_key.setdefault(operation.key, []).append(operation)
    witness_by_key: dict[Hashable, list[Any]] = {}
    for key, asked in witness:
        witness_by_key.setdefault(key, []).append(asked)
    steps, undecided = 0, False
    for key, operations in by_key.items():
        verdict, taken = _decide(operations, initial, step, budget - steps, is_late, witness_by_key.get(key))
        steps += taken
        if verdict is Verdict.VIOLATED:
            culprit, why = _explain(operations, initial, step, budget)
            return Finding(verdict=verdict, key=key, culprit=culprit, why=why, steps=steps)
        undecided |= verdict is Verdict.UNDECIDED
    return Finding(verdict=Verdict.UNDECIDED if undecided else Verdict.LINEARIZABLE, steps=steps)


def _decide(
    operations: Sequence[Operation],
    initial: Any,
    step: Step,
    budget: int,
    is_late: Callable[[], bool] | None = None,
    witness: Sequence[Any] | None = None,
) -> tuple[Verdict, int]:
    """The verdict on the history of one key, and the number of steps. A search in the order of a witness has a quarter
    of the budget. Each of two searches through all orders has a half of the rest.
    """
    tried = 0
    if witness is not None:
        in_its_order = ResponseSearch(operations, 0, in_order(witness, initial, step), budget // 4, is_late)
        if in_its_order.run() is Verdict.LINEARIZABLE:
            return Verdict.LINEARIZABLE, in_its_order.steps
        tried = in_its_order.steps
        if in_its_order.is_out_of_time:
            return Verdict.UNDECIDED, tried
    verdict, steps = _decide_by_all_orders(operations, initial, step, budget - tried, is_late)
    return verdict, tried + steps


def _decide_by_all_orders(
    operations: Sequence[Operation],
    initial: Any,
    step: Step,
    budget: int,
    is_late: Callable[[], bool] | None,
) -> tuple[Verdict, int]:
    by_response = ResponseSearch(operations, initial, step, budget - budget // 2, is_late)
    verdict = by_response.run()
    if verdict is not Verdict.UNDECIDED or by_response.is_out_of_time:
        return verdict, by_response.steps
    by_depth = OrderSearch(operations, initial, step, budget - by_response.steps, is_late)
    return by_depth.run(), by_response.steps + by_depth.steps


def _explain(operations: Sequence[Operation], initial: Any, step: Step, budget: int) -> tuple[Operation, str]:
    """The first response that no order explains: the history before the response is linearizable, with it it is not.

    Every beginning of a linearizable history is linearizable, so a binary search finds the response.
    """
    ends = sorted({one.returned for one in operations if one.returned is not None})
    good, bad = -1, len(ends) - 1
    while bad - good > 1:
        middle = (good + bad) // 2
        if _decide(_until(operations, ends[middle]), initial, step, budget)[0] is Verdict.VIOLATED:
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
        if _decide(history, initial, step, budget)[0] is Verdict.VIOLATED:
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

    OrderSearch([*others, replace(culprit, output=_Never())], initial, noting, budget).run()
    return [
        output
        for output in tried
        if _decide([*others, replace(culprit, output=output)], initial, step, budget)[0] is Verdict.LINEARIZABLE
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
