"""The examples below `docs/examples` run: the notebook, the steps of the nightly job, and what the bundle names."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from real_data import unpack

from metadata_log.cluster_names import parse_cluster_names
from metadata_log.disk import OsDisk
from metadata_log.history import VIEWS, rows
from metadata_log.reading.timeline import read_timeline
from metadata_log.spark.materialize import find_fleet, make_job, run_here

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"
NIGHTLY = EXAMPLES / "nightly"
sys.path[:0] = [str(EXAMPLES), str(NIGHTLY)]

import fleet_commands  # noqa: E402
import run_notebook  # noqa: E402

NAMES = """
[clusters.A3gcw2Qkrwsj8xyJO7bBIw]
name = "orders-eu"
[clusters.c92P2-zHd3OC2pYwL82DeQ]
name = "audit-eu"
"""
LOGS = {"audit-eu": ("static3", "nodes/c1"), "orders-eu": ("clusters", "failover/nodes/c1")}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two recorded clusters, their names, and their tables."""
    where = tmp_path_factory.mktemp("examples")
    for name, (archive, prefix) in LOGS.items():
        unpack(archive, prefix, where / "backup" / name)
    (where / "clusters.toml").write_text(NAMES)
    run = run_here(find_fleet([f"{where}/backup/*"], {}), make_job(f"{where}/lake", run="night-1"), processes=1)
    assert run.is_sound
    return where


@pytest.fixture(scope="module")
def answers(home: Path) -> Iterator[dict[str, Any]]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("KRAFT_LAKE", f"{home}/lake")
        patched.setenv("KRAFT_CLUSTERS", f"{home}/clusters.toml")
        (home / "pictures").mkdir()
        yield run_notebook.run_notebook(EXAMPLES / "operations-review.ipynb", home / "pictures")


def told(home: Path, name: str, view: str) -> list[dict[str, Any]]:
    """The rows of a view by the history engine itself."""
    items = read_timeline(OsDisk(), f"{home}/backup/{name}")
    return [dict(zip(VIEWS[view].names, row, strict=True)) for _, row in rows(items, {view}, cluster=name)]


def test_the_notebook_answers_ten_questions_from_the_tables(home: Path, answers: dict[str, Any]) -> None:
    for name in LOGS:
        outages, drift = told(home, name, "unavailability"), told(home, name, "config_drift")
        lost = sum(row["seconds"] for row in outages if row["kind"] == "leaderless")
        assert answers["answer_1"].loc[name, "leaderless_partition_seconds"] == pytest.approx(lost)
        assert answers["answer_5"].loc[name, "count"] == len(told(home, name, "unclean_elections"))
        assert (answers["answer_8"]["cluster"] == name).sum() == sum(row["valid_to"] is None for row in drift)
        assert answers["answer_10"].loc[name, "unknown ranges"] == 0
        moves = told(home, name, "leadership_changes")
        of_topic = [number for (cluster, topic), number in answers["answer_7"].items() if cluster == name]
        assert all(0 < number <= len(moves) for number in of_topic)
    assert next(iter(answers["answer_2"]["incident"])) == "1944/bulk0-catalog-2-3-2"
    assert set(answers["answer_3"].index) == {"session-timeout", "controlled-shutdown"}
    assert ("orders-eu", 102) in answers["answer_4"].index
    assert set(answers["answer_6"].index.get_level_values("cluster")) == set(LOGS)
    assert answers["answer_9"].empty
    pictures = sorted((home / "pictures").glob("*.png"))
    assert len(pictures) == 3
    assert all(5_000 < path.stat().st_size < 60_000 for path in pictures)


def test_the_notebook_has_ten_questions_and_keeps_no_output() -> None:
    notebook = json.loads((EXAMPLES / "operations-review.ipynb").read_text())
    texts = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "markdown"]
    assert [int(found[1]) for text in texts if (found := re.match(r"## (\d+)\. .*\?$", text))] == list(range(1, 11))
    assert all(not cell["outputs"] for cell in notebook["cells"] if cell["cell_type"] == "code")
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)


def test_the_dag_runs_the_steps_and_no_other_command(home: Path, tmp_path: Path) -> None:
    """Airflow is not needed: the DAG's lines come from `fleet_commands` alone, and the first step is run here."""
    tree = ast.parse((NIGHTLY / "kraft_fleet_dag.py").read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert {"DAG", "BashOperator", "shell"} <= imported
    lines = [word for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg == "bash_command"
             for word in [ast.unparse(node.value)]]  # fmt: skip
    assert lines == ["line"]
    steps = fleet_commands.commands("night-2")
    used = {node.slice.value for node in ast.walk(tree)
            if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant)}  # fmt: skip
    assert used == set(steps)
    (tmp_path / "backup").symlink_to(home / "backup")
    for _ in range(2):
        words = [sys.executable, "-m", "kraft", *steps["materialize"][1:], "--jobs", "1"]
        done = subprocess.run(
            words, cwd=tmp_path, env={"PYTHONPATH": str(ROOT), "PATH": ""}, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
    assert "run night-2: 2 clusters (2 nothing new), 0 records" in done.stdout


def test_the_bundle_names_a_program_that_takes_its_parameters() -> None:
    bundle = yaml.safe_load((NIGHTLY / "databricks.yml").read_text())
    (job,) = bundle["resources"]["jobs"].values()
    clusters = {each["job_cluster_key"] for each in job["job_clusters"]}
    for task in job["tasks"]:
        program = NIGHTLY / task["spark_python_task"]["python_file"]
        tree = ast.parse(program.read_text())
        (entry,) = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "main"]
        given = task["spark_python_task"]["parameters"]
        assert len(entry.args.args) - len(entry.args.defaults) <= len(given) <= len(entry.args.args)
        variables = {found[1] for text in given if (found := re.fullmatch(r"\$\{var\.(\w+)\}", text))}
        assert variables == set(bundle["variables"])
        assert task["job_cluster_key"] in clusters
        assert task["libraries"] == [{"pypi": {"package": "trio-kraft[spark]"}}]


def test_the_names_of_the_examples_are_read() -> None:
    names = parse_cluster_names(NAMES.encode(), form="toml", where="clusters.toml")
    assert sorted(one.name for one in names.by_id.values()) == sorted(LOGS)
