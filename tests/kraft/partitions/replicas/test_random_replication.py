"""Random runs of brokers and their clients: what is committed stays, is written once, and all agree at the end."""

from __future__ import annotations

import pytest

from random_replicas import ClientsRun, RandomRun


def random_run(seed: int, *, steps: int = 120, loses_power: bool = False) -> None:
    print(f"seed {seed}, power failures {loses_power}")
    RandomRun(seed, loses_power=loses_power).run(steps)


@pytest.mark.parametrize("seed", range(12))
def test_committed_records_survive_and_replicas_agree(seed: int) -> None:
    random_run(seed)


@pytest.mark.parametrize("seed", range(8))
def test_committed_records_that_are_flushed_survive_power_failures(seed: int) -> None:
    random_run(seed, loses_power=True)


@pytest.mark.soak
@pytest.mark.parametrize("loses_power", [False, True])
def test_committed_records_survive_in_many_random_runs(loses_power: bool) -> None:
    for seed in range(100, 400):
        random_run(seed, steps=250, loses_power=loses_power)


# Clients of three brokers under random faults.


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
