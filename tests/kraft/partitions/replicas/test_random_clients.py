"""Clients of three brokers under random faults: what was acknowledged stays, is written once, and is read as it is.

The brokers replicate through their request handlers and sessions, over encoded requests. Faults, elections and time are
those of the random runs of replication. Each failure names its seed.
"""

from __future__ import annotations

import pytest

from support.kraft.random_replicas import ClientsRun


def run_of(seed: int) -> ClientsRun:
    print(f"seed {seed}")
    made = ClientsRun(seed)
    made.run(200)
    return made


@pytest.mark.parametrize("seed", range(10))
def test_acknowledged_records_survive_once_and_are_read_as_they_are(seed: int) -> None:
    run_of(seed)


def test_the_runs_acknowledge_and_repeat() -> None:
    runs = [run_of(seed) for seed in range(20, 24)]
    assert sum(len(run.acknowledged) for run in runs) > 50
    assert sum(run.repeated for run in runs) > 5
