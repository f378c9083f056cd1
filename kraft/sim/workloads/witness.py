"""An order that may explain a history: the order of a log. The check of linearizability tries that order first.

The order is only a proposal. A search in this order uses the same operations, times and outputs as any other search,
so that a wrong order decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kraft.sim.workloads.operations import Step

_IMPOSSIBLE: Final = object()
"""An output that equals no output of a history."""


def in_order(witness: Sequence[Any], initial: Any, step: Step) -> Step:
    """A model in which only the next input of a witness changes the state.

    Each transition of this model is one of the given model with the same output. So an order of operations that this
    model explains, the given model explains, too.

    Args:
        witness: The inputs that change the state, in their order. Inputs that change nothing are skipped.
        initial: The initial state of the given model.
        step: The given model.

    Returns:
        The model. Its states are the numbers of inputs that have taken effect, from 0 on.
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
