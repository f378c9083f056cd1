"""A limit on the long work that all coordinators of a broker do in one turn. The rest is carried to the next turn."""

from __future__ import annotations

from kraft.limits import COORDINATOR_UNITS_PER_TURN


class Budget:
    """The units that are left of a turn: records to write, answers, or as much other work as one of these. Each takes
    some 20 microseconds.

    Whoever does work in portions looks at `is_spent` before each, and takes what the portion has cost.
    """

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = COORDINATOR_UNITS_PER_TURN

    def take(self, units: int = 1) -> None:
        """Count work that was done."""
        self.left -= units

    @property
    def is_spent(self) -> bool:
        """Whether the rest is for the next turn."""
        return self.left <= 0

    @property
    def is_low(self) -> bool:
        """Whether more than half of the budget is gone, perhaps by the work of several turns: it is renewed soon."""
        return self.left < COORDINATOR_UNITS_PER_TURN // 2

    def renew(self) -> None:
        """Begin the next turn with the full budget."""
        self.left = COORDINATOR_UNITS_PER_TURN
