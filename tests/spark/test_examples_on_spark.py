"""The example that needs Spark: the nightly job on a cluster, into Parquet and Delta Lake."""

from __future__ import annotations

import os
import re
import subprocess
import sys
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


@pytest.mark.spark_cluster
def test_the_nightly_job_runs_on_a_standalone_cluster(home: Path, tmp_path: Path) -> None:
    """spark-submit to a master and a worker; twice for each format, and behind a gate that damage closes."""
    place = ("--host", "127.0.0.1", "--webui-port", "0")
    root = "org.apache.spark.deploy"
    with spark_class(f"{root}.master.Master", *place, "--port", "0", log=tmp_path / "master.log") as master:
        found = re.search(r"spark://127\.0\.0\.1:\d+", master.wait_for(r"Starting Spark master at spark://"))
        assert found is not None
        work = ("--cores", "1", "--memory", "1g", "--work-dir", str(tmp_path / "work"), found[0])
        with spark_class(f"{root}.worker.Worker", *place, *work, log=tmp_path / "worker.log") as worker:
            worker.wait_for("Successfully registered with master")

            def night(form: str = "parquet") -> subprocess.CompletedProcess[str]:
                environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(ROOT)}
                environment |= {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
                home_of_spark = Path(sys.modules["pyspark"].__file__ or "").parent
                submit = [f"{home_of_spark}/bin/spark-submit", "--master", found[0], "--conf", "spark.ui.enabled=false"]
                job = [str(EXAMPLES / "nightly" / "nightly_job.py"), f"{home}/backup/*", f"{tmp_path}/{form}"]
                return subprocess.run(
                    [*submit, *job, "fail", form], env=environment, capture_output=True, text=True, check=False
                )

            nights = [(night(form), night(form)) for form in ("parquet", "delta")]
            (log,) = (home / "backup" / "failover").rglob("00000000000000000000.log")
            content = log.read_bytes()
            log.write_bytes(content + b"\x00" * 8 + content[:200])
            damaged = night()
            log.write_bytes(content)
    for first, second in nights:
        assert (first.returncode, second.returncode) == (0, 0), first.stderr[-2000:]
        assert "A3gcw2Qkrwsj8xyJO7bBIw new: 3660 records" in first.stdout
        assert "A3gcw2Qkrwsj8xyJO7bBIw nothing new: 0 records" in second.stdout
    assert damaged.returncode == 1, damaged.stdout
    assert ds.dataset(f"{tmp_path}/parquet/runs").count_rows() == 6
    rows = DeltaTable(f"{tmp_path}/delta/leader_history").to_pyarrow_table().num_rows
    assert rows == ds.dataset(f"{tmp_path}/parquet/leader_history").count_rows() > 1_000
