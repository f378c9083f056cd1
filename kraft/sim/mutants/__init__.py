"""Bugs with names, to be planted on purpose: a simulation that does not find them would be worth nothing."""

from kraft.sim.mutants import elections, replication
from kraft.sim.mutants.registry import MUTANTS, Mutant, Patches, Scope, planted

__all__ = ["MUTANTS", "Mutant", "Patches", "Scope", "elections", "planted", "replication"]
