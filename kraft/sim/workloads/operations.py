"""Operations of clients and models of what they should do: the input of the check of linearizability."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from enum import Enum
from typing import Any, Final

from msgspec import Struct

Step = Callable[[Any, Any], tuple[Any, Any]]
"""From a state and an input to the new state and the output. States are hashable and never changed in place."""
FIRST_BUDGETS: Final = (10_000, 100_000)
"""The steps that a way of searching gets before the next way is tried; the last round gets the whole budget."""
CLOCK_STEPS: Final = 1024
"""A search reads the clock once in so many steps."""


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
