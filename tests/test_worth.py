"""`bench/worth.py` sets the seconds of test files beside the bugs that they were the first to find."""

from __future__ import annotations

import sys
from pathlib import Path

from support import ROOT

sys.path.insert(0, str(ROOT / "bench"))

from worth import Worth, judged, seconds_of, table

RESULTS = """<testsuites><testsuite>
<testcase classname="tests.kraft.test_a" name="test_one" time="1.5"/>
<testcase classname="tests.kraft.test_a.TestAll" name="test_two" time="0.5"/>
<testcase classname="tests.kraft.test_b" name="test_three" time="3"/>
<testcase classname="tests.spark.test_c" name="test_four" time="9"/>
</testsuite></testsuites>"""


def test_a_file_is_judged_where_its_folder_finds_bugs(tmp_path: Path) -> None:
    (tmp_path / "tests.xml").write_text(RESULTS)
    seconds = seconds_of(tmp_path / "tests.xml")
    assert seconds == {"tests/kraft/test_a.py": 2.0, "tests/kraft/test_b.py": 3.0, "tests/spark/test_c.py": 9.0}
    rows = judged(seconds, ["tests/kraft/test_a.py::test_one[1]", "tests/kraft/test_a.py::test_two", ""])
    assert rows == [Worth("tests/kraft/test_b.py", 3.0, 0), Worth("tests/kraft/test_a.py", 2.0, 2)]
    assert list(table(rows))[1:] == [
        "| 3.0 | 0 | — | `tests/kraft/test_b.py` |",
        "| 2.0 | 2 | 1.00 | `tests/kraft/test_a.py` |",
    ]
