"""Simulates whole quorums: the production code under faults, in one thread and virtual time, all drawn from a seed."""

from kraft.invariants.violation import InvariantViolated
from kraft.sim.nodes.member_kinds import MakeMember, controller_member, core_member, replica_member
from kraft.sim.nodes.workload_spec import WorkloadSpec, workload_spec_of
from kraft.sim.runs.brokers import run_cluster
from kraft.sim.runs.scenario import Scenario
from kraft.sim.runs.seeded_run import Result, run
from kraft.sim.runs.simulator import Simulator
from kraft.sim.world.world import NoProgress, World

__all__ = [
    "InvariantViolated",
    "MakeMember",
    "NoProgress",
    "Result",
    "Scenario",
    "Simulator",
    "WorkloadSpec",
    "World",
    "controller_member",
    "core_member",
    "replica_member",
    "run",
    "run_cluster",
    "workload_spec_of",
]
