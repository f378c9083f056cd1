"""The examples that need Spark: models and their tests over materialised tables, and the nightly job on a cluster."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from real_data import unpack
from spark_processes import spark_class

from metadata_log.spark import views
from metadata_log.spark.materialize import find_fleet, make_job, run_here

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"
sys.path.insert(0, str(EXAMPLES))

from run_models import run_models  # noqa: E402


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("models")
    unpack("clusters", "failover/nodes/c1", where / "backup" / "failover")
    unpack("clusters", "old39/nodes/c3", where / "backup" / "old39")
    (where / "clusters.csv").write_text(
        "cluster,name,environment\nA3gcw2Qkrwsj8xyJO7bBIw,orders-eu,production\nunseen,archive,test\n"
    )
    return where


def test_models_over_the_tables_hold_their_tests(spark: SparkSession, home: Path) -> None:
    """Their rows are those of the view `incidents`; an outage that is missing from the incidents is found."""
    lake, names = f"{home}/lake", f"{home}/names"
    assert run_here(find_fleet([f"{home}/backup/*"], {}), make_job(lake, run="night-1"), processes=1).is_sound
    views(spark, f"{home}/backup/*").clusters(clusters=f"{home}/clusters.csv").write.parquet(names)
    models = run_models(spark, lake, names)
    told = {row["cluster_name"]: row for row in models["availability_by_day"].collect()}
    assert set(told) == {"orders-eu", "PtaAjSk-0v471Y1B7d5ljA"}, "a name for each, and no cluster that has no table"
    orders = told["orders-eu"]
    assert (orders["environment"], str(orders["day"]), orders["incidents"]) == ("production", "2026-11-21", 1)
    assert (orders["leaderless_partition_seconds"], orders["below_min_isr_partition_seconds"]) == (174.685, 665.916)
    assert told["PtaAjSk-0v471Y1B7d5ljA"]["environment"] == "unknown"
    (part,) = Path(lake, "incidents", "cluster=A3gcw2Qkrwsj8xyJO7bBIw", "date=2026-11-21").glob("*.parquet")
    table = pq.read_table(part, partitioning=None)
    pq.write_table(table.slice(0, 0), part)
    with pytest.raises(ValueError, match="test_every_outage_has_an_incident"):
        run_models(spark, lake, names)


@pytest.mark.spark_cluster
def test_the_nightly_job_runs_on_a_standalone_cluster(home: Path, tmp_path: Path) -> None:
    """spark-submit to a master and a worker; twice, and behind a gate that damage closes."""
    place = ("--host", "127.0.0.1", "--webui-port", "0")
    root = "org.apache.spark.deploy"
    with spark_class(f"{root}.master.Master", *place, "--port", "0", log=tmp_path / "master.log") as master:
        found = re.search(r"spark://127\.0\.0\.1:\d+", master.wait_for(r"Starting Spark master at spark://"))
        assert found is not None
        work = ("--cores", "1", "--memory", "1g", "--work-dir", str(tmp_path / "work"), found[0])
        with spark_class(f"{root}.worker.Worker", *place, *work, log=tmp_path / "worker.log") as worker:
            worker.wait_for("Successfully registered with master")

            def night() -> subprocess.CompletedProcess[str]:
                environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(ROOT)}
                environment |= {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
                home_of_spark = Path(sys.modules["pyspark"].__file__ or "").parent
                submit = [f"{home_of_spark}/bin/spark-submit", "--master", found[0], "--conf", "spark.ui.enabled=false"]
                job = [str(EXAMPLES / "nightly" / "nightly_job.py"), f"{home}/backup/*", f"{tmp_path}/lake"]
                return subprocess.run([*submit, *job], env=environment, capture_output=True, text=True, check=False)

            first, second = night(), night()
            (log,) = (home / "backup" / "failover").rglob("00000000000000000000.log")
            content = log.read_bytes()
            log.write_bytes(content + b"\x00" * 8 + content[:200])
            damaged = night()
            log.write_bytes(content)
    assert (first.returncode, second.returncode) == (0, 0), first.stderr[-2000:]
    assert "A3gcw2Qkrwsj8xyJO7bBIw new: 3660 records" in first.stdout
    assert "A3gcw2Qkrwsj8xyJO7bBIw nothing new: 0 records" in second.stdout
    assert damaged.returncode == 1, damaged.stdout
    assert pq.read_table(f"{tmp_path}/lake/runs").num_rows >= 4
