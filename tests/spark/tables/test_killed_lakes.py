"""A standalone cluster that writes Delta Lake or Iceberg: executors and drivers are killed while clusters commit their
steps, and between the commits of two tables.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from random import Random

import pytest
from eventually import eventually
from fleets import write_random_fleet
from other_pyspark import PYSPARK, python_with, spark_home
from spark_processes import LOOPBACK
from standalone import executors, standalone

from metadata_log.spark.materialize import find_fleet, make_job, run_here

ROOT = Path(__file__).parent.parent.parent.parent
COMPARE = Path(__file__).parent / "lake_compare.py"
VIEWS = ("config_history", "partition_history", "leader_history", "topic_history")
CLUSTERS = 6
SECONDS = 600

pytestmark = pytest.mark.soak  # six minutes each, most of them for PySpark and jars


def plan_is_open(staging: Path) -> bool:
    """Whether a publication is under way."""
    state = staging / "_kraft" / "published.json"
    return state.exists() and json.loads(state.read_bytes()).get("plan") is not None


def commits(out: Path, kind: str) -> int:
    """The commits of all tables; a table of Iceberg begins with one that has no rows."""
    if kind == "delta":
        return len(list(out.glob("*/_delta_log/*.json")))
    tables = [path for path in out.glob("fleet/*/metadata") if path.is_dir()]
    return sum(len(list(path.glob("snap-*.avro"))) for path in tables)


@pytest.mark.parametrize("kind", sorted(PYSPARK))
def test_executors_and_drivers_are_killed_and_no_row_is_doubled_or_lost(kind: str, tmp_path: Path) -> None:
    seed = Random().randrange(2**32)
    print(f"seed {seed}")
    write_random_fleet(tmp_path / "fleet", CLUSTERS, seed, 100)
    python = python_with(PYSPARK[kind], tmp_path / "venv")
    out, wanted = tmp_path / "out", tmp_path / "wanted"
    staging = out / "_staging"
    environment = {**os.environ, **LOOPBACK, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": str(python)}

    def staged() -> int:
        return len(list(staging.glob("_kraft/*/head.json")))

    with standalone(tmp_path, 2, cores=1, home=spark_home(tmp_path / "venv")) as (master, workers):
        command = [str(python), "-m", "kraft", "fleet", "materialize", f"{tmp_path}/fleet/*", "--out", str(out)]
        command += ["--format", kind, "--master", master, "--conf", "spark.executor.memory=512m"]
        command += ["--conf", "spark.sql.shuffle.partitions=2", "--conf", f"spark.executorEnv.PYTHONPATH={ROOT}"]
        command += [word for view in VIEWS for word in ("--view", view)]

        def run() -> subprocess.Popen[bytes]:
            return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, cwd=tmp_path)

        def kill_an_executor() -> None:
            os.kill(executors(workers)[0], signal.SIGKILL)

        def goes_on(process: subprocess.Popen[bytes], what: str) -> None:
            assert process.poll() is None, f"the driver ended before {what}"

        # The first run dies while its clusters commit their steps.
        first = run()
        try:
            eventually(lambda: staged() >= 1 or first.poll() is not None, "one cluster is done", timeout=SECONDS)
            goes_on(first, "an executor was killed")
            kill_an_executor()
            done = staged()
            eventually(lambda: staged() > done, "the other executor goes on", timeout=SECONDS)
            goes_on(first, "the driver was killed")
        finally:
            first.kill()
            first.wait()
        assert commits(out, kind) == 0

        # The second run loses an executor while it writes, and dies between the commits of two tables.
        second = run()
        try:
            eventually(lambda: plan_is_open(staging) or second.poll() is not None, "a plan", timeout=SECONDS)
            goes_on(second, "it published")
            kill_an_executor()
            eventually(lambda: commits(out, kind) >= 1, "one table is written", timeout=SECONDS)
        finally:
            second.kill()
            second.wait()
        assert plan_is_open(staging)
        before = commits(out, kind)
        assert 1 <= before < len(VIEWS)

        # The third run finishes that publication, without an executor that it began with.
        third = run()
        try:
            eventually(lambda: commits(out, kind) > before or third.poll() is not None, "a commit", timeout=SECONDS)
            goes_on(third, "an executor was killed")
            kill_an_executor()
            assert third.wait(SECONDS) == 0
        finally:
            third.kill()
            third.wait()
    assert not plan_is_open(staging)
    assert not list(staging.rglob("*.parquet"))
    found = find_fleet([f"{tmp_path}/fleet/*"], {})
    assert run_here(found, make_job(str(wanted), run="only", views=VIEWS)).is_sound
    settings = {"root": str(tmp_path), "format": kind, "out": str(out), "wanted": str(wanted), "views": VIEWS}
    compared = subprocess.run(
        [python, COMPARE, json.dumps(settings)],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert compared.returncode == 0, compared.stderr[-5000:]
    assert min(json.loads(compared.stdout.splitlines()[-1]).values()) > 10
