"""Whole quorums in one thread and virtual time, everything drawn from a seed: the production code under faults."""

from kraft.sim.invariants import InvariantViolated
from kraft.sim.simulator import Result, Simulator, controller_member, core_member, replica_member, run

__all__ = [
    "InvariantViolated",
    "Result",
    "Simulator",
    "controller_member",
    "core_member",
    "replica_member",
    "run",
]
