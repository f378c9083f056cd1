"""Each soak test is in a portion, and the report says what each did."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support import ROOT, TESTS
from support.soak.portions import LENGTHS, PORTIONS, portion_of, read_lengths, whole_seconds, with_measured
from support.soak.soak import markdown, report_of
from support.soak.soak_report import Case, read_cases


def test_a_test_is_in_the_portion_of_the_longest_beginning_of_its_name() -> None:
    assert portion_of("tests/kraft/sim/test_sim.py::test_a[1]") == "simulation"
    assert portion_of("tests/kraft/node/test_a.py::test_b") == "nodes"
    assert portion_of("tests/interop/doctor/test_a.py::test_b") == "kafka-repairs"
    with pytest.raises(KeyError, match="in no portion of soak"):
        portion_of("elsewhere/test_a.py::test_b")
    assert {portion_of(test) for test in read_lengths(LENGTHS.read_text())} == set(PORTIONS)


def test_the_seconds_of_cases_are_summed() -> None:
    assert whole_seconds(["tests/a.py::test_a[1]", "tests/a.py::test_a[2]"], {"tests/a.py::test_a": 3.5}) == 7.0


def test_measured_lengths_replace_estimates_and_keep_the_heading() -> None:
    text = "# one\n~600 tests/a.py::test_a\n5 tests/b.py::test_b\n"
    stored = with_measured(text, {"tests/a.py::test_a": 612.34, "tests/c.py::test_c": 0.123})
    assert stored == "# one\n6.1e+02 tests/a.py::test_a\n5 tests/b.py::test_b\n0.12 tests/c.py::test_c\n"
    assert read_lengths(stored)["tests/a.py::test_a"] == 610


def test_lengths_are_of_tests_that_exist() -> None:
    lengths = read_lengths(LENGTHS.read_text())
    assert len(lengths) > 5
    for name, seconds in lengths.items():
        file, *_, function = name.split("::")
        assert re.search(rf"^ *(?:async )?def {function}\(", (ROOT / file).read_text(), re.MULTILINE), name
        assert seconds > 0


SAMPLE = """
import os, pytest

def test_passes():
    print("seeds 100 to 149, 3 nodes")
    print("seed 7")

def test_fails():
    print("seed 9")
    assert [] == [1]

@pytest.fixture
def broken():
    yield
    raise OSError("teardown")

def test_ends_badly(broken):
    pass

@pytest.mark.skipif(True, reason="no IPv6")
def test_is_skipped():
    pass

def test_ends_its_process():
    os._exit(3)
"""


def run_sample(folder: Path, *arguments: str) -> list[Case]:
    (folder / "test_sample.py").write_text(SAMPLE)
    results = folder / "cases.jsonl"
    plugin = ["-p", "support.soak.soak_report", "-p", "no:cacheprovider", f"--soak-results={results}", *arguments]
    command = [sys.executable, "-m", "pytest", "-c", os.devnull, f"--rootdir={folder}", *plugin, "test_sample.py"]
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False)
    return read_cases(results)


def test_the_report_has_what_each_case_did(tmp_path: Path) -> None:
    """Also where one ends its process: the others have results, and that one fails."""
    cases = run_sample(tmp_path, "-n", "1")
    found = {case.id.partition("::")[2]: case for case in cases}
    assert {name: case.outcome for name, case in found.items()} == {
        "test_passes": "passed",
        "test_fails": "failed",
        "test_ends_badly": "failed",
        "test_is_skipped": "skipped",
        "test_ends_its_process": "failed",
    }
    assert found["test_passes"].seeds == ((100, 149), (7, 7))
    assert "assert [] == [1]" in found["test_fails"].reason
    assert "OSError: teardown" in found["test_ends_badly"].reason
    assert found["test_is_skipped"].reason == "no IPv6"
    wanted = [*(case.id for case in cases), "test_sample.py::test_lost"]
    report = report_of("a sample", wanted, cases, 12.0, "2026-01-01 00:00 UTC", (1.0, 2.0))
    assert (report.passed, report.failed, report.skipped) == (1, 3, 1)
    assert report.missing == ("test_sample.py::test_lost",)
    assert report.seeds == 52
    page = "\n".join(markdown(report))
    assert "**1 passed, 3 failed, 1 skipped, 1 without a result; 52 printed seeds; 0 min 12 s.**" in page
    assert "`test_sample.py::test_fails`, seeds 9 to 9" in page


@pytest.mark.parametrize("chosen", ["skipped", "passes"])
def test_the_summary_of_continuous_integration_lists_what_the_machine_left_out(tmp_path: Path, chosen: str) -> None:
    """The hook of tests/conftest.py, on other tests; also where nothing was left out."""
    (tmp_path / "test_sample.py").write_text(SAMPLE)
    plugins = ["-p", "conftest", "-p", "no:cacheprovider", "-n", "0", "-k", chosen]
    command = [sys.executable, "-m", "pytest", "-c", os.devnull, f"--rootdir={tmp_path}", *plugins, "test_sample.py"]
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    printed = {
        ci: subprocess.run(
            command,
            cwd=tmp_path,
            env={**environment, "CI": ci},
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        ).stdout
        for ci in ("true", "")
    }
    assert "left out on this machine" not in printed[""]
    [line] = re.findall(r"^=+ left out on this machine =+\n(.*)$", printed["true"], re.MULTILINE)
    assert line.startswith("1 tests: no IPv6" if chosen == "skipped" else "nothing:")
