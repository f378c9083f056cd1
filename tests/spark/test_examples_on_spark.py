"""The example that needs Spark: the nightly job on a cluster, into Parquet and Delta Lake."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable

from support import ROOT
from support.real_data import unpack
from support.spark.spark_processes import spark_class

EXAMPLES = ROOT / "examples" / "fleet"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("models")
    unpack("clusters", "failover/nodes/c1", where / "backup" / "failover")
    unpack("clusters", "old39/nodes/c3", where / "backup" / "old39")
    return where


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a master that has a worker."""
    where = tmp_path_factory.mktemp("spark")
    place = ("--host", "127.0.0.1", "--webui-port", "0")
    root = "org.apache.spark.deploy"
    with spark_class(f"{root}.master.Master", *place, "--port", "0", log=where / "master.log") as running:
        found = re.search(r"spark://127\.0\.0\.1:\d+", running.wait_for(r"Starting Spark master at spark://"))
        assert found is not None
        work = ("--cores", "1", "--memory", "1g", "--work-dir", str(where / "work"), found[0])
        with spark_class(f"{root}.worker.Worker", *place, *work, log=where / "worker.log") as worker:
            worker.wait_for("Successfully registered with master")
            yield found[0]


def night(master: str, home: Path, lake: Path, form: str) -> subprocess.CompletedProcess[str]:
    """spark-submit to the master."""
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(ROOT)}
    environment |= {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    home_of_spark = Path(sys.modules["pyspark"].__file__ or "").parent
    submit = [f"{home_of_spark}/bin/spark-submit", "--master", master, "--conf", "spark.ui.enabled=false"]
    job = [str(EXAMPLES / "nightly" / "nightly_job.py"), f"{home}/backup/*", str(lake)]
    return subprocess.run([*submit, *job, "fail", form], env=environment, capture_output=True, text=True, check=False)


@pytest.mark.spark_cluster
@pytest.mark.parametrize("form", ["parquet", pytest.param("delta", marks=pytest.mark.soak)])
def test_the_nightly_job_runs_on_a_standalone_cluster(master: str, home: Path, tmp_path: Path, form: str) -> None:
    """Two nights, and a third one behind a gate that damage closes."""
    first, second = night(master, home, tmp_path, form), night(master, home, tmp_path, form)
    (log,) = (home / "backup" / "failover").rglob("00000000000000000000.log")
    content = log.read_bytes()
    log.write_bytes(content + b"\x00" * 8 + content[:200])
    damaged = night(master, home, tmp_path, form)
    log.write_bytes(content)
    assert (first.returncode, second.returncode) == (0, 0), first.stderr[-2000:]
    assert "A3gcw2Qkrwsj8xyJO7bBIw new: 3660 records" in first.stdout
    assert "A3gcw2Qkrwsj8xyJO7bBIw nothing new: 0 records" in second.stdout
    assert damaged.returncode == 1, damaged.stdout
    if form == "parquet":
        assert ds.dataset(f"{tmp_path}/runs").count_rows() == 6
        rows = ds.dataset(f"{tmp_path}/leader_history").count_rows()
    else:
        rows = DeltaTable(f"{tmp_path}/leader_history").to_pyarrow_table().num_rows
    assert rows > 1_000
