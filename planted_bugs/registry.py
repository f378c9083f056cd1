"""Named bugs, planted by replacing functions and methods temporarily.

The product's code does not change and does not refer to mutants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from types import ModuleType
from typing import Final

from msgspec import Struct

from kraft.sim.faults.nemesis import FAULTS
from kraft.sim.faults.profiles import BY_TURNS
from kraft.sim.search.seed_search import SeedSearch

CLASSIC_FAULTS: Final = tuple(
    name
    for name in FAULTS
    if name not in ("refused-connections", "stranded-leaders", "long-decisions", "absurd-frames")
)
"""The faults without the latest additions: runs with these faults stay the same."""


class Scope(StrEnum):
    """The kind of run for the search of a mutant: the cheapest one with the part that the mutant breaks."""

    CORE = "core"
    """Bare cores over logs in memory."""
    REPLICA = "replica"
    """Whole replicas with disks, over a raw log."""
    MACHINE = "state-machine"
    """Replicas that host a state machine, and clients with linearizable requests."""
    STORE = "store"
    """Replicas of a store, and clients with transactions or leases."""
    DYNAMIC = "dynamic"
    """Replicas with voter changes and snapshots."""
    UPGRADED = "upgraded-controller"
    """Controllers of a static quorum that becomes a dynamic one."""
    LOADED = "loaded"
    """Controllers that need a while for each record, and brokers that are in many ISRs."""
    CLUSTER = "cluster"
    """Controllers, brokers and an administrative workload."""
    DYNAMIC_CLUSTER = "dynamic-cluster"
    """The same with voter changes and small segments."""
    DATA_CLUSTER = "data-cluster"
    """Controllers, brokers with data, producers and consumers."""
    COORDINATOR_CLUSTER = "coordinator-cluster"
    """The same with members of groups, and with transactions that brokers coordinate."""
    SHARE_CLUSTER = "share-cluster"
    """The same with members of share groups."""


class Patches:
    """The replaced functions of one planted mutant."""

    def __init__(self) -> None:
        self.replaced: tuple[tuple[type | ModuleType, str, object], ...] = ()
        """The owner, the name and the original of each replaced attribute, oldest first."""

    def replace(self, owner: type | ModuleType, name: str, broken: object) -> None:
        """Replace the attribute `name` of `owner` by `broken`."""
        self.replaced = (*self.replaced, (owner, name, vars(owner)[name]))
        setattr(owner, name, broken)

    @property
    def where(self) -> tuple[str, ...]:
        """The names of the replaced attributes, as `module.Class.method`."""
        return tuple(f"{_name_of(owner)}.{name}" for owner, name, _ in self.replaced)

    def undo(self) -> None:
        """Restore all originals, the last replaced first."""
        for owner, name, sound in reversed(self.replaced):
            setattr(owner, name, sound)
        self.replaced = ()


def _name_of(owner: type | ModuleType) -> str:
    return f"{owner.__module__}.{owner.__qualname__}" if isinstance(owner, type) else owner.__name__


class Survival(Struct, frozen=True, kw_only=True):
    """The facts about a bug that no search finds."""

    because: str
    """Why the simulation does not see the bug, in one or two sentences."""
    killed_by: str | None
    """The id of a test that fails with the bug planted; None if no test of this repository is known to fail."""
    tried: int = 0
    """The number of seeds of the mutant's scope, in the profiles by turns, that did not find the bug."""
    tried_classic: int = 0
    """The number of seeds with the classic faults and three voters that did not find the bug. These searches are older
    than the profiles.
    """


class Mutant(Struct, frozen=True):
    """One bug. Runs of its scope find the bug within `budget` seeds, from any first seed. The budget is 0 if only a
    schedule shows the bug, and for a survivor.
    """

    name: str
    what: str
    """A description of the bug in one sentence."""
    scope: Scope
    budget: int
    plant: Callable[[Patches], None]
    faults: tuple[str, ...] | None = CLASSIC_FAULTS
    """The possible faults in the runs that search for the bug; None for the profiles of its members by turns."""
    profile: str = BY_TURNS
    """The profile of the runs that search for the bug; by default the profiles of its members take turns."""
    survival: Survival | None = None
    """Why no search finds the bug; None for a bug that a seed or a schedule shows."""


MUTANTS: Final[dict[str, Mutant]] = {}
"""All mutants by name, in the order of the modules that define them."""


def mutant(
    scope: Scope, *, budget: int, faults: tuple[str, ...] | None = CLASSIC_FAULTS, profile: str = BY_TURNS
) -> Callable[[Callable[[Patches], None]], Callable[[Patches], None]]:
    """Register a function that plants a bug. The name of the function, with dashes, is the name of the mutant, and its
    docstring the description.
    """

    return _registering(scope, budget, faults, profile, None)


def survivor(
    scope: Scope, *, because: str, killed_by: str | None, tried: int = 0, tried_classic: int = 0
) -> Callable[[Callable[[Patches], None]], Callable[[Patches], None]]:
    """Register a bug that no search finds, as `mutant` registers the others. `bench/mutants.py --tests` plants the bug
    and runs the test that must fail.
    """
    survival = Survival(because=because, killed_by=killed_by, tried=tried, tried_classic=tried_classic)
    return _registering(scope, 0, None, BY_TURNS, survival)


def _registering(
    scope: Scope, budget: int, faults: tuple[str, ...] | None, profile: str, survival: Survival | None
) -> Callable[[Callable[[Patches], None]], Callable[[Patches], None]]:
    def register(plant: Callable[[Patches], None]) -> Callable[[Patches], None]:
        name = plant.__name__.replace("_", "-")
        assert name not in MUTANTS, name
        what = " ".join((plant.__doc__ or "").split())
        assert what, name
        MUTANTS[name] = Mutant(name, what, scope, budget, plant, faults, profile, survival)
        return plant

    return register


def search_for(mutant: Mutant) -> SeedSearch:
    """The search for a planted bug, with the faults and the profile that its registration names."""
    return SeedSearch(members=mutant.scope, mutant=mutant.name, faults=mutant.faults, profile=mutant.profile)


@contextmanager
def planted(name: str | None) -> Iterator[Patches]:
    """Break the code of this process as a mutant does, until the block ends. Nothing else may run beside the block.

    Args:
        name: The name of the mutant; None for sound code.

    Yields:
        What the mutant has replaced.

    Raises:
        KeyError: There is no mutant of this name.
    """
    patches = Patches()
    try:
        if name is not None:
            MUTANTS[name].plant(patches)
        yield patches
    finally:
        patches.undo()
