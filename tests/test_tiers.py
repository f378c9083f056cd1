"""How the suite runs: the short run is the same for everybody, long files start first, what a machine lacks is said."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import ROOT
from support.left_out import WITHOUT, leave_out
from support.progress import Progress, repeat_command
from support.tiers import (
    FULL,
    IS_SHORT,
    KINDS,
    LEFT_TO_FULL,
    REST,
    SHORT,
    first_line,
    kind_of,
    left_files,
    left_to_full,
    read_kept,
    sample,
    without_parameters,
)

KEPT = read_kept(LEFT_TO_FULL.read_text())


@given(total=st.integers(0, 60), count=st.integers(0, 70))
def test_a_sample_has_as_many_cases_as_are_kept_with_the_first(total: int, count: int) -> None:
    cases = [f"tests/a.py::test_a[{number}]" for number in range(total)]
    found = sample(cases, count)
    assert len(set(found)) == len(found) == min(total, count)
    assert found == sorted(found, key=cases.index)
    assert not found or found[0] == cases[0]


def test_the_short_run_leaves_out_what_the_table_lists() -> None:
    cases = ["tests/a.py::test_a[1]", "tests/a.py::test_a[2]", "tests/a.py::test_b", "tests/c.py::test_c"]
    assert left_to_full(cases, {"tests/a.py": 0}) == set(cases[:3])
    assert left_to_full(cases, {"tests/a.py::test_a": 1}) == {cases[1]}
    assert left_to_full(cases, kept := {"tests/a.py": 0, "tests/a.py::test_b": 1}) == set(cases[:2])
    assert left_to_full(cases, {"tests/a.py::test_a": 0, "tests/a.py::test_a[2]": 1}) == {cases[0]}
    assert left_files(kept | {"tests/c.py": 0, "tests/d.py": 3}) == {"tests/c.py"}


@pytest.mark.parametrize("name", KEPT)
def test_the_table_lists_tests_that_exist(name: str) -> None:
    file, *_, function = [*name.split("::"), ""] if "::" not in name else without_parameters(name).split("::")
    source = (ROOT / file).read_text()
    assert not function or re.search(rf"^ *(?:async )?def {function}\(", source, re.MULTILINE)


def test_the_first_line_tells_about_how_many_tests_this_run_has(request: pytest.FixtureRequest) -> None:
    """A run of the whole suite has the tests that it promises, by a tenth more or less."""
    is_short = request.config.stash[IS_SHORT]
    if not is_short and not request.config.option.full:
        pytest.skip("this run takes the tests that its command line names")
    promised = SHORT if is_short else FULL
    assert abs(len(request.session.items) - promised.tests) < promised.tests / 10
    assert f"{promised.tests:,} tests" in first_line(is_short)


def test_each_kind_of_proof_has_its_files() -> None:
    files = [f"{path.relative_to(ROOT)}::test_a" for path in (ROOT / "tests").rglob("test_*.py")]
    assert {kind_of(file) for file in files} == {*KINDS, REST}
    assert kind_of("tests/interop/quorum/test_chaos.py::test_a[transcripts]") == "beside Kafka"
    assert kind_of("tests/kraft/quorum/test_transcripts.py::test_transcript[a]") == "transcripts"
    assert kind_of("tests/kraft/quorum/test_election.py::test_a") == REST


class Terminal:
    """Keeps the lines that progress writes."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._tw = self
        self.hasmarkup = False

    def ensure_newline(self) -> None:
        """Each line here is whole."""

    def write_line(self, line: str, *, red: bool = False) -> None:
        self.lines.append(f"red {line}" if red else line)


def test_progress_counts_each_kind_and_names_a_failure_at_once() -> None:
    terminal = Terminal()
    progress = Progress(terminal)  # type: ignore[arg-type]
    names = [f"tests/kraft/quorum/test_a.py::test_{number}" for number in range(9)]
    progress.expect([*names, "tests/interop/test_b.py::test_b"])
    for name in names:
        failed = name.endswith("3")
        for when, outcome in (("call", "failed" if failed else "passed"), ("teardown", "passed")):
            report = pytest.TestReport(name, ("", None, ""), {}, outcome, None, when)  # type: ignore[arg-type]
            progress.pytest_runtest_logreport(report)
    assert terminal.lines[0] == " 10 %  rules 1/9 · beside Kafka 0/1"
    assert terminal.lines[-1] == " 90 %  1 FAILED  rules 9/9 · beside Kafka 0/1"
    assert [line for line in terminal.lines if line.startswith("red")] == [f"red FAILED {names[3]} (call)"]


def test_the_command_that_repeats_a_failure_has_the_order_of_tasks() -> None:
    sections = [("Captured order of tasks setup", "TRIO_SEED=17\n")]
    assert repeat_command("tests/a.py::test_a[x y]", sections) == "TRIO_SEED=17 uv run pytest 'tests/a.py::test_a[x y]'"
    assert repeat_command("tests/a.py::test_a", []) == "uv run pytest 'tests/a.py::test_a'"


# What a machine lacks is left out only where somebody has said so.


def test_a_missing_program_fails_under_ci_unless_the_machine_is_to_do_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    monkeypatch.setenv(WITHOUT, "pyright")
    with pytest.raises(pytest.fail.Exception, match=r"no postgres here. If this .*: TESTS_WITHOUT=postgresql"):
        leave_out("postgresql", "no postgres here")
    with pytest.raises(pytest.skip.Exception, match="no pyright here"):
        leave_out("pyright", "no pyright here")
    monkeypatch.delenv("CI")
    with pytest.raises(pytest.skip.Exception, match="no postgres here"):
        leave_out("postgresql", "no postgres here")
