"""Adds reads to a run: to each run with voter changes, and to a share of the other runs.

Only logs are read here. The clients of a state machine read by its own workload, and a controller confirms no reads.
"""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Final

from kraft.sim.runs.simulator import Simulator
from kraft.sim.workloads.read_workload import ReadWorkload
from kraft.sim.world.actions import Read

SHARES: Final = {"dynamic": 1.0, "core": 0.25, "replica": 0.25}
"""The share of the seeds with reads, by the kind of members. All other seeds have the same run as without reads."""


def begin_reads(simulator: Simulator) -> None:
    """Schedule the reads of a run, if the seed has any."""
    scenario = simulator.scenario
    rng = Random(f"reads:{scenario.seed}")
    if rng.random() < SHARES.get(scenario.members, 0):
        workload = ReadWorkload(rng)
        simulator.queue.schedule(workload.pause_ms(), partial(_read, simulator, workload))


def _read(simulator: Simulator, workload: ReadWorkload) -> None:
    for node_id, read_id in workload.next_reads(simulator.world):
        simulator.queue.perform_when_awake(Read(simulator.now_ms, node_id, read_id))
    simulator.queue.schedule(workload.pause_ms(), partial(_read, simulator, workload))
