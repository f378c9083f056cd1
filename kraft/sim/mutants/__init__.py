"""Bugs with names, to be planted on purpose: a simulation that does not find them would be worth nothing."""

from kraft.sim.mutants import (
    brokers,
    commits,
    elections,
    hostile,
    loaded,
    machines,
    membership,
    replication,
    snapshots,
    storage,
)
from kraft.sim.mutants.registry import MUTANTS, Mutant, Patches, Scope, planted

__all__ = [
    "MUTANTS",
    "Mutant",
    "Patches",
    "Scope",
    "brokers",
    "commits",
    "elections",
    "hostile",
    "loaded",
    "machines",
    "membership",
    "planted",
    "replication",
    "snapshots",
    "storage",
]
