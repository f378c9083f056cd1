"""`bench/worth.py` sets lines and seconds of test files beside the bugs that they were the first to find."""

from __future__ import annotations

import sys
from pathlib import Path

from support import ROOT

sys.path.insert(0, str(ROOT / "bench"))

from worth import Worth, judged, seconds_of, table

RESULTS = """<testsuites><testsuite>
<testcase classname="tests.kraft.test_a" name="test_one" time="1.5"/>
<testcase classname="tests.kraft.test_a.TestAll" name="test_two" time="0.5"/>
<testcase classname="tests.spark.test_c" name="test_four" time="9"/>
</testsuite></testsuites>"""


def test_files_stand_in_the_order_of_the_bugs_that_they_found(tmp_path: Path) -> None:
    (tmp_path / "tests.xml").write_text(RESULTS)
    seconds = seconds_of(tmp_path / "tests.xml")
    assert seconds == {"tests/kraft/test_a.py": 2.0, "tests/spark/test_c.py": 9.0}
    texts = {"tests/kraft/test_a.py": "a\nb\n", "tests/spark/test_c.py": "c\n", "tests/test_d.py": "def test_d"}
    kept = {"tests/spark/test_c.py": 0, "tests/test_d.py::test_d": 3}
    tests = (["tests/a_former_place/test_a.py::test_one[1]", "kraft sim run", ""], ["tests/test_d.py::test_d"] * 2)
    rows = judged(texts, seconds, kept, (*tests, [], []))
    assert rows == [
        Worth("tests/spark/test_c.py", 1, 9.0, "full", (0, 0, 0, 0)),
        Worth("tests/kraft/test_a.py", 2, 2.0, "short", (1, 0, 0, 0)),
        Worth("tests/test_d.py", 0, 0.0, "sample", (0, 2, 0, 0)),
    ]
    assert list(table(rows))[2] == "| 1 | 9.0 | full | — | — | — | — | `tests/spark/test_c.py` |"
