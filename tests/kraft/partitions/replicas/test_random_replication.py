"""Random runs of three brokers: what is committed stays, replicas agree below the watermark, and all agree at the end.

Brokers are killed, cut off and started again, leaders are elected from the ISR, and fetches, answers of the controller
and time come in any order. Each failure names its seed.
"""

from __future__ import annotations

import pytest

from support.kraft.random_replicas import RandomRun


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
