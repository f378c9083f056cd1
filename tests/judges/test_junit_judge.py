"""The judge of Kafka's own tests: its table, its reading of reports, and a class of tests that it runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.interop.kafka_or_skip import skip_here
from support.judges import junit
from support.judges.junit import Expected, Found, main, read, row, table, verdicts

KNOWN = Expected("a.B", passed=2, failed={"testC": "release: other words"}, sometimes={"testF": "a race"})
REPORT = """<testsuite>
<testcase name="testA()[1]" classname="a.B"/>
<testcase name="testA()[2]" classname="a.B"><skipped/></testcase>
<testcase name="testD(ClusterInstance)[1]" classname="a.B"><system-out>x</system-out></testcase>
<testcase name="testC(ClusterInstance)[1]" classname="a.B"><failure message="expected: 0" type="E"/></testcase>
<testcase name="testE()[1]" classname="a.B"><error type="java.lang.RuntimeException"/></testcase>
</testsuite>"""


def test_each_class_of_the_table_is_there_once_with_reasons() -> None:
    known = table()
    assert len({one.short for one in known}) == len(known) >= 10
    assert all(one.passed > 0 and all(one.reasons.values()) for one in known)
    assert {one.cluster for one in known} <= {"isolated", "combined", "both"}


def test_a_report_is_read(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    found = read(report)
    assert (found.passed, found.failed) == (2, {"testC": "expected: 0", "testE": "java.lang.RuntimeException"})
    assert row(KNOWN, found) == (
        "| B | 2 | 2 | testC: release: other words; testE: unknown: java.lang.RuntimeException |"
    )


@pytest.mark.parametrize(
    ("found", "is_jvm", "told"),
    [
        (Found(2, {"testC": "x"}), False, []),
        (Found(2, {"testC": "x", "testE": "y"}), False, ["testE: y"]),
        (Found(2, {"testC": "x", "testF": "y"}), False, []),
        (Found(1, {"testC": "x"}), False, ["1 tests passed, and 2 should"]),
        (Found(3), False, ["testC passes: take it out of the table"]),
        (Found(3), True, []),
    ],
)
def test_what_is_otherwise_is_told(found: Found, told: list[str], *, is_jvm: bool) -> None:
    assert verdicts(KNOWN, found, is_jvm=is_jvm) == told


def test_a_class_that_is_not_in_the_table_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["NoSuchTest"])
    assert stopped.value.code == 2
    assert "NoSuchTest" in capsys.readouterr().err


@pytest.mark.soak
@pytest.mark.kafka
@pytest.mark.parametrize("name", [one.short for one in table()])
def test_a_class_of_kafkas_tests_passes(name: str) -> None:
    if junit.missing():
        skip_here(junit.missing())
    assert main([name]) == 0
