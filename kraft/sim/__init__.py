"""Whole quorums in one thread and virtual time, everything drawn from a seed: the production code under faults."""

from kraft.invariants.violation import InvariantViolated
from kraft.sim.nodes.members import MakeMember, controller_member, core_member, replica_member
from kraft.sim.nodes.trial import Trial, trial_of
from kraft.sim.runs.brokers import run_cluster
from kraft.sim.runs.scenario import Scenario
from kraft.sim.runs.simulator import Result, Simulator, run
from kraft.sim.world.world import NoProgress, World

__all__ = [
    "InvariantViolated",
    "MakeMember",
    "NoProgress",
    "Result",
    "Scenario",
    "Simulator",
    "Trial",
    "World",
    "controller_member",
    "core_member",
    "replica_member",
    "run",
    "run_cluster",
    "trial_of",
]
