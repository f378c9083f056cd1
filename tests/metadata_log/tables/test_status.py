"""The warnings of `kraft fleet status`: old clusters, failed gates, and open rows that only grow."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kraft.cli.main import main
from metadata_log.disk import OsDisk
from metadata_log.spark.materialize import make_job, write_run
from metadata_log.tables.cluster import Change, ClusterOutcome, Gate, Identity, Job, Status
from metadata_log.tables.status import PROBLEMS, fleet_status

NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)


def night(job: Job, days_ago: float, **outcomes: dict[str, Any]) -> None:
    at = NOW - timedelta(days=days_ago)
    told = [
        ClusterOutcome(cluster=cluster, directory="/d", **{"status": Status.NEW, "open_rows": 1, **facts})
        for cluster, facts in outcomes.items()
    ]
    write_run(OsDisk(), job, told, at, at)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return make_job(str(tmp_path / "tables"), run="r")


def problems(job: Job, **settings: Any) -> dict[str, list[str]]:
    found = fleet_status(OsDisk(), job.root, NOW, max_age=timedelta(hours=26), **settings)
    return {one.cluster: one.problems for one in found}


def test_old_clusters_failed_gates_and_growing_open_rows_are_told(job: Job) -> None:
    night(job, 3, old={}, failed={}, stopped={}, fine={}, damaged={"damage": "a gap"}, behind={})
    for days in range(2, -1, -1):
        night(job, days, fine={"status": Status.NOTHING}, grows={"open_rows": 10 - days})
    change = Change(Identity.RESTORED, "the log has other records")
    night(
        job,
        0.01,
        failed={"status": Status.FAILED, "text": "no log"},
        stopped={"status": Status.STOPPED, "change": change},
        damaged={"damage": "a gap"},
        behind={"status": Status.BEHIND},
    )
    assert problems(job, growing=2) == {
        "old": ["stale"],
        "failed": ["stale", "gate"],
        "stopped": ["stale", "gate"],
        "damaged": ["stale", "gate"],
        "behind": ["stale"],
        "fine": [],
        "grows": ["growing"],
    }
    assert problems(job, growing=3)["grows"] == []


def test_a_gate_that_warns_is_no_failure(tmp_path: Path) -> None:
    job = make_job(str(tmp_path / "tables"), run="r", gate=Gate.WARN)
    night(job, 0, damaged={"damage": "a gap"}, changed={"change": Change(Identity.TRIMMED, "short")})
    assert problems(job) == {"damaged": [], "changed": []}


def test_the_file_for_prometheus_has_a_sample_for_each_cluster_and_check(job: Job, tmp_path: Path) -> None:
    name = 'a"b\\c\nd'
    night(job, 2, **{name: {"open_rows": 5}}, failed={"status": Status.FAILED, "open_rows": None, "text": "no"})
    with pytest.raises(SystemExit):
        main(("fleet", "status", job.root, "--prometheus", str(tmp_path / "k.prom")))
    families = {one.name: one for one in text_string_to_metric_families((tmp_path / "k.prom").read_text())}
    assert {one.type for one in families.values()} == {"gauge"}
    values = {
        (family.name.removeprefix("kraft_fleet_"), *sorted(sample.labels.values())): sample.value
        for family in families.values()
        for sample in family.samples
    }
    assert values.pop(("age_seconds", name)) > 172_800 - 86_400
    assert values == {
        ("open_rows", name): 5,
        **{("problem", *sorted((name, check))): check == "stale" for check in PROBLEMS},
        **{("problem", *sorted(("failed", check))): check != "growing" for check in PROBLEMS},
    }


def test_the_command_ends_with_1_for_a_problem_and_writes_the_file(
    job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at = datetime.now(UTC)
    write_run(OsDisk(), job, [ClusterOutcome(cluster="c", directory="/d", status=Status.NEW, open_rows=3)], at, at)
    codes = []
    for words in ((), ("--max-age", "0m"), ("--max-age", "1h", "--json", "--prometheus", str(tmp_path / "k.prom"))):
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(("fleet", "status", job.root, *words))
        codes.append(ended.value.code)
    assert codes == [0, 1, 0]
    assert json.loads(capsys.readouterr().out)["open_rows"] == [3]
    assert 'kraft_fleet_open_rows{cluster="c"} 3.0' in (tmp_path / "k.prom").read_text()


THREADS = """
import os, sys
import pyarrow.parquet
from datetime import UTC, datetime, timedelta
from metadata_log.disk import OsDisk
from metadata_log.tables.status import fleet_status
before = os.listdir("/proc/self/task")
assert fleet_status(OsDisk(), sys.argv[1], datetime.now(UTC), max_age=timedelta(1))
assert os.listdir("/proc/self/task") == before, "pyarrow has started threads"
"""


def test_the_check_starts_no_thread_that_could_abort_its_end(job: Job) -> None:
    """A thread of pyarrow that released a Python object after the end of the interpreter aborted one run of forty."""
    night(job, 1, a={}, b={})
    subprocess.run([sys.executable, "-c", THREADS, job.root], check=True)
