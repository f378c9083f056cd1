"""Mutants: named bugs, planted on purpose to prove that the simulation finds them."""

from kraft.sim.mutants import (
    answers,
    brokers,
    commits,
    elections,
    fetching,
    flushes,
    hostile,
    leadership,
    loaded,
    machines,
    membership,
    replication,
    snapshot_rules,
    snapshots,
    storage,
    voter_requests,
)
from kraft.sim.mutants.former_names import FORMER_NAMES
from kraft.sim.mutants.registry import MUTANTS, Mutant, Patches, Scope, Survival, planted

__all__ = [
    "FORMER_NAMES",
    "MUTANTS",
    "Mutant",
    "Patches",
    "Scope",
    "Survival",
    "answers",
    "brokers",
    "commits",
    "elections",
    "fetching",
    "flushes",
    "hostile",
    "leadership",
    "loaded",
    "machines",
    "membership",
    "planted",
    "replication",
    "snapshot_rules",
    "snapshots",
    "storage",
    "voter_requests",
]
