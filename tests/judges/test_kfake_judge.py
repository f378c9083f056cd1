"""The judge of franz-go's tests of its fake broker: its table, its reading of events, and what it says of both."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from support.judges import kfake
from support.judges.kfake import Expected, Found, faults_of, found_in, main, read, rows, table, verdicts
from support.judges.table import Row

FILES = {"TestA": "share_test.go", "TestB": "kafka_tests/b_test.go", "TestC": "share_test.go"}
KNOWN = Expected(
    2, failed={"TestC": "jvm too: it asks once"}, sometimes={"TestB": "test: a race"}, not_run={"TestD": "inside: x"}
)
EVENTS = """go: downloading something
{"Action":"run","Test":"TestA"}
{"Action":"output","Test":"TestC","Output":"=== RUN TestC\\n"}
{"Action":"output","Test":"TestC","Output":"    share_test.go:7: got 0\\n"}
{"Action":"pass","Test":"TestA/part"}
{"Action":"pass","Test":"TestA","Elapsed":1.5}
{"Action":"fail","Test":"TestC","Elapsed":0.5}
{"Action":"fail","Package":"kfake"}"""


def test_the_table_has_reasons() -> None:
    assert faults_of(table()) == []
    assert faults_of(Expected(1, failed={"TestA": "whatever: x"}, not_run={"TestB": "inside: y"})) == ["whatever: x"]


def test_the_events_of_go_are_read() -> None:
    found = read(EVENTS.splitlines(), FILES)
    assert found.files == {"TestA": "share_test.go", "TestC": "share_test.go"}
    assert found.failed == {"TestC": "share_test.go:7: got 0"}
    assert rows(KNOWN, found) == [Row("share_test.go", 1, {"TestC": "jvm too: it asks once"})]


@pytest.mark.parametrize(
    ("failed", "told"),
    [
        ({"TestC": "x"}, []),
        ({"TestC": "x", "TestB": "y"}, []),
        ({}, ["TestC passes: take it out of the table", "3 tests passed or may, where the table says 2"]),
        ({"TestC": "x", "TestA": "z"}, ["TestA: z", "1 tests passed or may, where the table says 2"]),
    ],
)
def test_what_is_otherwise_is_told(failed: dict[str, str], told: list[str]) -> None:
    found = Found(files=FILES, failed=failed)
    assert verdicts(KNOWN, found, is_whole=True) == told
    assert verdicts(KNOWN, found, is_whole=False) == [one for one in told if "tests passed" not in one]
    found.is_jvm = True
    assert verdicts(KNOWN, found, is_whole=True) == [one for one in told if one.startswith("TestA")]


def test_tests_are_found_with_their_files(tmp_path: Path) -> None:
    (tmp_path / "kafka_tests").mkdir()
    (tmp_path / "kafka_tests" / "b_test.go").write_text("func TestB(t *testing.T) {\n}\nfunc helper() {}\n")
    (tmp_path / "share_test.go").write_text("\nfunc TestA(t *testing.T) {\n\tfunc TestNot(\n}\n")
    assert found_in(tmp_path) == {"TestA": "share_test.go", "TestB": "kafka_tests/b_test.go"}


def test_the_last_results_are_printed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kfake, "OUT", tmp_path)
    (tmp_path / "results-kraft.json").write_bytes(
        msgspec.json.encode(Found("0123abcd", "2026-11-29", files={"TestX": "x_test.go"}))
    )
    assert main(["--print", "TestX"]) == 0
    assert "| x_test.go | 1 | 0 |  |" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["--no-such"])
