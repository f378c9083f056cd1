"""The spread of the suite over processes: no fixture starts twice, long files start first, ports are separate."""

from __future__ import annotations

import re

import pytest

from support import ROOT, longest_first
from support.longest_first import FIRST, LAYERS, TOGETHER, clearness_of, place_of, unit_of
from support.loopback import PORTS, free_ports, own_ports


@pytest.mark.parametrize(
    ("nodeid", "unit"),
    [
        ("tests/spark/test_source.py::test_a[x::y]", "the Spark session"),
        ("tests/spark/test_fleet.py::test_b", "the Spark session"),
        ("tests/interop/files/test_kafka_tools.py::test_c", "a quorum of each make"),
        ("tests/kraft/sim/test_sim.py::test_d[1]", "tests/kraft/sim/test_sim.py"),
    ],
)
def test_tests_of_a_file_or_shared_fixture_run_in_one_process(nodeid: str, unit: str) -> None:
    assert unit_of(nodeid) == unit


def test_each_path_of_the_start_order_exists() -> None:
    named = {unit for unit in FIRST if unit not in TOGETHER}.union(LAYERS, *TOGETHER.values())
    assert sorted(path for path in named if not (ROOT / path).exists()) == []


UNITS = (
    "tests/kraft/admin/test_admin.py",
    "tests/interop/files/test_files_nodes.py",
    "tests/test_processes.py",
    *TOGETHER,
)


def test_tests_that_start_clusters_are_scheduled_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(longest_first, "are_there", lambda: True)
    assert sorted(UNITS, key=place_of) == [*TOGETHER, UNITS[1], UNITS[2], UNITS[0]]


def test_tests_that_wait_for_kafkas_jars_are_scheduled_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(longest_first, "are_there", lambda: False)
    spark, kafka = TOGETHER
    assert sorted(UNITS, key=place_of) == [spark, UNITS[2], UNITS[0], UNITS[1], kafka]


def test_a_run_that_ends_at_its_first_failure_begins_with_the_clearest() -> None:
    spark, kafka = TOGETHER
    transcripts, log = "tests/kraft/quorum/test_transcripts.py", "tests/metadata_log/log/test_log.py"
    sorted_units = sorted((*UNITS, log, transcripts), key=clearness_of)
    assert sorted_units == [transcripts, log, UNITS[0], UNITS[2], spark, UNITS[1], kafka]


def test_all_users_of_the_two_quorums_are_together() -> None:
    """Each of the two session fixtures starts three nodes; `request.getfixturevalue` takes them by name, too."""
    asks = re.compile(r'def test_\w+\([^)]*\b(?:ours|theirs): Nodes|\["ours", "theirs"\]')
    files = (ROOT / "tests" / "interop").rglob("test_*.py")
    found = {str(path.relative_to(ROOT)) for path in files if asks.search(path.read_text())}
    assert found == set(TOGETHER["a quorum of each make"])


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_test_processes_use_distinct_ports(monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", str(workers))
    taken: set[int] = set()
    for worker in range(workers):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", f"gw{worker}")
        ports = free_ports(3)
        assert len(set(ports)) == 3
        assert set(ports) <= set(own_ports()) <= set(PORTS)
        assert taken.isdisjoint(own_ports())
        taken.update(own_ports())
    assert len(taken) > len(PORTS) - workers
