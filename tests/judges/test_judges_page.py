"""The page of judges says what the judges printed, and no more."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.judges import table
from support.judges.table import KINDS, PAGE, Row, Sitting, keep, kept, kind_of, line, main, page, shown

ROWS = [
    Row("ATest", 3, {"testB[2]": "release: other | words"}, 12.0),
    Row("CTest", 1, {"testD": "no kind of it", "testE": "ours: slow"}, commit="0123abcd"),
]
SITTING = Sitting(
    "some", "A suite", "1.2", "2026-11-29", "89abcdef", "Two cores.", ROWS, {"FTest": "inside: metrics()"}
)


def test_a_line_and_a_page_tell_each_failure_with_its_reason() -> None:
    assert line(ROWS[0]) == "| ATest | 3 | 1 | testB[2]: release: other / words |"
    text = page([SITTING])
    assert "| [some](#some) | A suite | 1.2 | 2026-11-29 | 89abcdef | 4 | 3 |" in text
    assert "A suite 1.2: 4 passed, 3 failed (1 ours, 1 unexplained, 1 release). Two cores." in text
    assert "| ATest: testB[2] | release: other / words |" in text
    assert "| CTest | 1 | 2 | 0123abcd |" in text
    assert "| FTest | inside: metrics() |" in text
    assert all(f"| {kind} |" in text for kind in KINDS)


def test_what_is_kept_is_what_the_page_is_made_of(tmp_path: Path) -> None:
    assert kept(tmp_path) == []
    assert keep(SITTING, tmp_path).name == "some.json"
    assert kept(tmp_path) == [SITTING]


@pytest.mark.parametrize(
    ("why", "kind"), [("ours: x", "ours"), ("jvm too: y: z", "jvm too"), ("x: y", "unexplained"), ("", "unexplained")]
)
def test_a_reason_of_no_kind_is_unexplained(why: str, kind: str) -> None:
    assert kind_of(why) == kind


def test_a_long_reason_is_cut() -> None:
    assert len(shown("word " * 200)) == 300


def test_the_page_is_written_from_what_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert PAGE.read_text() == page(kept()), "uv run poe judge page"
    monkeypatch.setattr(table, "PAGE", tmp_path / "judges.md")
    monkeypatch.setattr(table, "ROOT", tmp_path)
    assert main(["more"]) == 2
    assert main([]) == 0
    assert (tmp_path / "judges.md").read_text() == PAGE.read_text()
    assert capsys.readouterr().out == "judges.md\n"
