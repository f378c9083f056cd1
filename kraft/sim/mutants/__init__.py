"""Mutants: named bugs, planted on purpose to prove that the simulation finds them."""

from kraft.sim.mutants import (
    brokers,
    commits,
    elections,
    focused,
    hostile,
    loaded,
    machines,
    membership,
    replication,
    snapshots,
    storage,
)
from kraft.sim.mutants.former_names import FORMER_NAMES
from kraft.sim.mutants.registry import MUTANTS, Mutant, Patches, Scope, planted

__all__ = [
    "FORMER_NAMES",
    "MUTANTS",
    "Mutant",
    "Patches",
    "Scope",
    "brokers",
    "commits",
    "elections",
    "focused",
    "hostile",
    "loaded",
    "machines",
    "membership",
    "planted",
    "replication",
    "snapshots",
    "storage",
]
