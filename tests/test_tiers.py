"""How the suite runs: the short run is the same for everybody, and what a machine lacks is said."""

from __future__ import annotations

import re

import pytest

from support import ROOT
from support.left_out import WITHOUT, leave_out
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
    without_parameters,
)

KEPT = read_kept(LEFT_TO_FULL.read_text())


def test_the_short_run_leaves_out_what_the_table_lists() -> None:
    cases = ["tests/a.py::test_a[1]", "tests/a.py::test_a[2]", "tests/a.py::test_b", "tests/c.py::test_c"]
    assert left_to_full(cases, {"tests/a.py": 0}) == set(cases[:3])
    assert left_to_full(cases, {"tests/a.py::test_a": 1}) == {cases[1]}
    assert left_to_full(cases, kept := {"tests/a.py": 0, "tests/a.py::test_b": 1}) == set(cases[:2])
    assert left_to_full(cases, {"tests/a.py::test_a": 0, "tests/a.py::test_a[2]": 1}) == {cases[0]}
    assert left_files(kept | {"tests/c.py": 0, "tests/d.py": 3}) == {"tests/c.py"}


def test_the_table_lists_tests_that_exist() -> None:
    listed = {tuple(without_parameters(name).split("::")) for name in KEPT}
    assert [name for name in sorted(listed) if not is_there(*name)] == []


def is_there(file: str, *names: str) -> bool:
    """Whether a file has a test."""
    source = (ROOT / file).read_text()
    return all(re.search(rf"^ *(?:(?:async )?def|class) {name}\b", source, re.MULTILINE) for name in names)


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
