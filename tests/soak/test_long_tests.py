"""Each long test has its turn, the parts take equally long, and the turn follows from the commit."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.soak import turns
from support.soak.turns import (
    COMMITS,
    LONG_TESTS,
    NUMBER,
    PARTS,
    parts,
    read_lengths,
    seconds_of_run,
    store,
    turn,
    without_parameters,
)

PART_SECONDS = 600
"""What the long tests of one turn may take together by `turns.txt`: three processes need a third of it."""

drawn_tests = st.dictionaries(
    st.tuples(st.sampled_from("abc"), st.integers(0, 40)).map(lambda drawn: "tests/{}/t.py::test_{}".format(*drawn)),
    st.tuples(st.integers(1, 20), st.floats(0.1, 60)),
    max_size=40,
)


@given(drawn=drawn_tests)
def test_each_long_test_runs_within_as_many_turns_as_parts(drawn: dict[str, tuple[int, float]]) -> None:
    cases = [f"{test}[{number}]" for test, (count, _) in drawn.items() for number in range(count)]
    lengths = {test: seconds for test, (_, seconds) in drawn.items()}
    found = parts([*cases, "tests/d.py::test_quick"], lengths)
    assert len(found) == PARTS
    assert sorted(case for part in found for case in part) == sorted(cases)
    assert found == parts(reversed(cases), lengths)
    loads = [sum(lengths[without_parameters(case)] for case in part) for part in found]
    assert max(loads) - min(loads) <= 2 * max(lengths.values(), default=0)


def test_the_tests_of_a_file_that_share_a_cluster_have_one_turn() -> None:
    cases = [f"tests/a.py::test_{name}" for name in "abcdefgh"]
    assert sorted(parts(cases, {"tests/a.py": 80}), key=len) == [[]] * (PARTS - 1) + [cases]


def test_no_line_is_within_another() -> None:
    lengths = read_lengths(LONG_TESTS.read_text())
    assert [name for name in lengths if "::" in name and name.partition("::")[0] in lengths] == []


def test_the_long_tests_of_this_turn_take_no_more_than_they_may(request: pytest.FixtureRequest) -> None:
    """By the seconds that are stored, not by those of this run, which may have a busy machine."""
    lengths = read_lengths(LONG_TESTS.read_text())
    names = [item.nodeid for item in request.session.items]
    whole = {file for name in names if (file := name.partition("::")[0]) in lengths}
    single = [without_parameters(name) for name in names if without_parameters(name) in lengths]
    taken = sum(lengths[name] for name in [*whole, *single])
    assert request.config.stash[NUMBER] is None or taken <= PART_SECONDS


def test_the_turn_follows_from_the_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOAK_TURN", raising=False)
    monkeypatch.setattr(turns, "ROOT", tmp_path)
    assert turn() == 0, "without a history"
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.com"]
    subprocess.run([*git, "init", "-q"], check=True)
    monkeypatch.setattr(turns, "COMMITS", 2)
    found = []
    for _ in range(5):
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "a"], check=True)
        found.append(turn())
    assert found == [0, 1, 1, 2, 2]
    monkeypatch.setenv("SOAK_TURN", "7")
    assert turn() == 7
    assert COMMITS > 1


RESULTS = """<testsuites><testsuite>
<testcase classname="tests.soak.test_long_tests" name="test_a[1-a]" time="2.0"/>
<testcase classname="tests.soak.test_long_tests" name="test_a[2-b]" time="4.0"/>
<testcase classname="tests.soak.test_soak.TestB" name="test_b" time="5.0"/>
<testcase classname="tests.test_tidy" name="test_c" time="0.5"/>
<testcase classname="tests.test_tidy" name="test_d" time="9.0"/>
</testsuite></testsuites>"""


def test_the_times_of_a_run_are_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the tests that are listed; those that are long and in every turn are printed."""
    run, listed = tmp_path / "tests.xml", tmp_path / "turns.txt"
    run.write_text(RESULTS)
    assert seconds_of_run(run)["tests/soak/test_soak.py::TestB::test_b"] == [5.0]
    lines = ["# one", "7 tests/soak/test_long_tests.py::test_a", "9 tests/test_docs.py", "1 tests/soak/test_soak.py"]
    listed.write_text("".join(f"{line}\n" for line in lines))
    monkeypatch.setattr(turns, "LONG_TESTS", listed)
    store(run)
    rows = ["# one", "3 tests/soak/test_long_tests.py::test_a", "5 tests/soak/test_soak.py", "9 tests/test_docs.py"]
    assert listed.read_text().splitlines() == rows
    assert [line.split() for line in capsys.readouterr().out.splitlines()[1:]] == [
        ["9.0", "tests/test_tidy.py::test_d"]
    ]
