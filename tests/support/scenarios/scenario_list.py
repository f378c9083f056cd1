"""The list of the scenarios: each is a function over a cluster, with the id of the test plan that it belongs to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import Struct

from support.scenarios.scenario_cluster import MAKES, PLAIN, Cluster, Kind


class Scenario(Struct, frozen=True):
    """A scenario; `by_default` says whether it is quick enough for the default run of the tests."""

    id: str
    run: Callable[[Cluster], None]
    by_default: bool
    kind: Kind
    makes: frozenset[str]
    """The makes of clusters that can run it; a row of the documentation says why another one cannot."""

    @property
    def name(self) -> str:
        """The id and the name of the function, which says what must hold."""
        return f"{self.id}-{self.run.__name__}"


SCENARIOS: Final[list[Scenario]] = []


def scenario(
    plan_id: str, *, by_default: bool = True, kind: Kind = PLAIN, makes: tuple[str, ...] = tuple(MAKES)
) -> Callable[[Callable[[Cluster], None]], Callable[[Cluster], None]]:
    """Put a function into the list."""

    def listed(run: Callable[[Cluster], None]) -> Callable[[Cluster], None]:
        SCENARIOS.append(Scenario(plan_id, run, by_default, kind, frozenset(makes)))
        return run

    return listed
