"""Bugs with names, to be planted on purpose: a simulation that does not find them would be worth nothing."""

from kraft.sim.mutants import brokers, commits, elections, membership, replication, snapshots, storage
from kraft.sim.mutants.registry import MUTANTS, Mutant, Patches, Scope, planted

AREAS = (elections, replication, storage, commits, snapshots, membership, brokers)
"""The modules that define them."""

__all__ = ["AREAS", "MUTANTS", "Mutant", "Patches", "Scope", "planted"]
