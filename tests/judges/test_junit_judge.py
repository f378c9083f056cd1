"""The judge of Kafka's own tests: its table, its reading of reports, and a class of tests that it runs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from support.interop.kafka_or_skip import skip_here
from support.judges import junit
from support.judges.junit import (
    Expected,
    Found,
    add,
    as_row,
    faults_of,
    former,
    labelled,
    main,
    read,
    run,
    sitting,
    table,
    verdicts,
)
from support.judges.table import Row, Sitting

KNOWN = Expected("a.B", passed=3, failed={"testC": "release: other words"}, sometimes={"testF": "test: a race"})
LINES = """{"test":"testA[1]","name":"testA [1]","status":"successful","seconds":0.1,"why":""}
{"test":"testA[2]","name":"testA [2]","status":"aborted","seconds":0.1,"why":""}
{"test":"testC[1]","name":"testC [1]","status":"failed","seconds":0.1,"why":"expected: 0"}
{"test":"testE","name":"testE()","status":"failed","seconds":0.1,"why":"java.lang.RuntimeException"}
{"test":"testG","na"""


def test_each_class_of_the_table_is_there_once_with_reasons() -> None:
    known = table()
    names = [one.name for one in known.classes] + list(known.not_run)
    assert len(set(names)) == len(names) >= 10
    assert faults_of(known) == []
    assert len(labelled(known.classes)) == len(known.classes)
    assert {one.cluster for one in known.classes} <= {"isolated", "combined", "both"}


def test_the_lines_that_a_jvm_wrote_before_it_died_are_read(tmp_path: Path) -> None:
    lines = tmp_path / "tests.jsonl"
    assert read(lines) == (0, {})
    lines.write_text(LINES)
    assert read(lines) == (1, {"testC[1]": "expected: 0", "testE": "java.lang.RuntimeException"})


def test_a_row_has_the_reasons_of_the_table() -> None:
    found = Found("a.B", passed=1, failed={"testE": "expected: 0", "testC[1]": "expected: 1"}, commit="1")
    told = {"testC[1]": "release: other words", "testE": "unexplained: expected: 0"}
    assert as_row("B", KNOWN, found, "1") == Row("B", 1, told)
    found.ended = "time"
    assert as_row("B", KNOWN, found, "2") == Row(
        "B", 1, told | {"(the rest)": "unexplained: the run was cut: time"}, commit="1"
    )


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (Found("B", passed=3, failed={"testC[1]": "x", "testC[2]": "x"}), []),
        (Found("B", passed=3, failed={"testC": "x", "testE": "y"}), ["testE: y"]),
        (Found("B", passed=2, failed={"testC": "x", "testF": "y"}), []),
        (Found("B", passed=3, failed={"testC": "x"}, ended="died"), ["the run was cut: died"]),
        (
            Found("B", passed=2, failed={"testC": "x"}),
            ["2 tests passed and 0 of those that may, where the table says 3"],
        ),
        (
            Found("B", passed=4, failed={}),
            [
                "testC passes: take it out of the table",
                "4 tests passed and 0 of those that may, where the table says 3",
            ],
        ),
        (Found("B", "jvm", passed=4), []),
        (Found("B", "jvm", passed=3, failed={"testC": "x", "testE": "y"}), ["testE: y"]),
    ],
)
def test_what_is_otherwise_is_told(found: Found, told: list[str]) -> None:
    assert verdicts(KNOWN, found) == told


def test_a_class_that_nobody_has_counted_is_told() -> None:
    assert verdicts(Expected("a.B"), Found("a.B", passed=3)) == ["nobody has counted before: 3 passed"]


def test_classes_of_one_name_are_told_apart_by_their_packages() -> None:
    known = labelled([Expected("a.B"), Expected("c.B"), Expected("a.D")])
    assert {label: one.name for label, one in known.items()} == {"a.B": "a.B", "c.B": "c.B", "D": "a.D"}


def test_the_last_result_of_a_class_counts_beside_those_of_other_classes(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    assert former(path) == {}
    add(path, Found("a.B", passed=1, commit="old", date="2026-11-28"))
    add(path, last := Found("a.B", passed=3, failed={"testC": "x"}, commit="new", date="2026-11-29"))
    assert former(path) == {"a.B": last}
    whole = sitting(junit.Table([KNOWN, Expected("a.D", 1)]), former(path), "Two cores.")
    assert (whole.passed, whole.failed, whole.commit, whole.date) == (3, 1, "new", "2026-11-29")
    assert whole.not_run == {"a.D": "unexplained: not run in this sitting"}
    before = Sitting("junit", "", "", "", "old", "", [Row("B", 1), Row("D", 2), Row("E", 5), Row("F", 6, commit="new")])
    known = junit.Table([KNOWN, Expected("a.D", 1), Expected("a.F", 6)])
    beside = sitting(known, former(path), "Two cores.", before)
    assert [(row.name, row.passed, row.commit) for row in beside.rows] == [("B", 3, ""), ("D", 2, "old"), ("F", 6, "")]
    assert not beside.not_run


@pytest.mark.parametrize(
    ("program", "ended"),
    [("raise SystemExit(1)", "whole"), ("raise SystemExit(9)", "died"), ("while True: pass", "time")],
)
def test_a_run_that_is_cut_leaves_what_had_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, ended: str
) -> None:
    def instead(expected: Expected, jars: str, classes: Path, reports: Path) -> list[str]:
        written = f"open({str(reports / 'tests.jsonl')!r}, 'w').write({LINES!r})"
        return [sys.executable, "-c", f"{written}\n{program}"]

    monkeypatch.setattr(junit, "OUT", tmp_path)
    monkeypatch.setattr(junit, "command", instead)
    found = run(KNOWN, "", tmp_path, Found("a.B"), seconds=1.0 if ended == "time" else 60)
    assert (found.ended, found.passed, len(found.failed)) == (ended, 1, 2)


def test_a_class_that_is_not_in_the_table_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["NoSuchTest"])
    assert stopped.value.code == 2
    assert "NoSuchTest" in capsys.readouterr().err


@pytest.mark.soak
@pytest.mark.kafka
@pytest.mark.parametrize("name", [label for label, one in labelled(table().classes).items() if one.passed])
def test_a_class_of_kafkas_tests_passes(name: str) -> None:
    if junit.missing():
        skip_here(junit.missing())
    assert main([name]) == 0
