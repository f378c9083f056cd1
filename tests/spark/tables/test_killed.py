"""A standalone cluster of two workers: an executor and the driver are killed in the middle of `materialize`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from metadata_log.spark.materialize import find_fleet, make_job, run_here
from metadata_log.tables.cluster import Status
from standalone_spark import executors, standalone
from support.eventually import eventually
from support.spark.fleets import table_rows, write_random_fleet
from support.spark.spark_processes import LOOPBACK

ROOT = Path(__file__).parent.parent.parent.parent
VIEWS = ("config_history", "partition_history", "leader_history", "retention")
CLUSTERS = 8
SECONDS = 600

pytestmark = pytest.mark.spark_cluster


def committed(out: Path) -> int:
    """The clusters with a committed step."""
    return len(list(out.glob("_kraft/*/head.json")))


def test_an_executor_and_the_driver_are_killed_and_no_row_is_doubled_or_lost(tmp_path: Path) -> None:
    seed = Random().randrange(2**32)
    print(f"seed {seed}")
    write_random_fleet(tmp_path / "fleet", CLUSTERS, seed, 150)
    out, wanted = tmp_path / "out", tmp_path / "wanted"
    found = find_fleet([f"{tmp_path}/fleet/*"], {})
    environment = {**os.environ, **LOOPBACK, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    with standalone(tmp_path, 2, cores=1) as (master, workers):
        command = [sys.executable, "-m", "kraft", "fleet", "materialize", f"{tmp_path}/fleet/*", "--out", str(out)]
        command += ["--master", master, "--conf", "spark.executor.memory=512m"]
        command += [word for view in VIEWS for word in ("--view", view)]
        first = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
        try:
            eventually(lambda: committed(out) >= 1, "one cluster is done", timeout=SECONDS)
            assert first.poll() is None, "the driver ended before it could be killed"
            os.kill(executors(workers)[0], signal.SIGKILL)
            done = committed(out)
            eventually(lambda: committed(out) > done, "the other executor goes on", timeout=SECONDS)
            assert first.poll() is None, "the driver ended before it could be killed"
        finally:
            first.kill()
            first.wait()
        assert committed(out) < CLUSTERS
        second = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
        try:
            eventually(lambda: committed(out) >= min(CLUSTERS, done + 2), "the second run works", timeout=SECONDS)
            alive = executors(workers)
            for executor in alive[:1]:
                os.kill(executor, signal.SIGKILL)
            assert second.wait(SECONDS) == 0
        finally:
            second.kill()
            second.wait()
    assert {one.status for one in run_here(found, make_job(str(out), run="last", views=VIEWS)).outcomes} == {
        Status.NOTHING
    }
    assert run_here(found, make_job(str(wanted), run="only", views=VIEWS)).is_sound
    for view in VIEWS:
        assert table_rows(out, view) == table_rows(wanted, view)
        assert sum(table_rows(out, view).values()) > 0
    assert not list(out.rglob(".*.part"))
