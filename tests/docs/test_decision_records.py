"""A decision record is short: a paragraph or a list for what was the case, what was decided, and what that costs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support import ROOT

RECORDS = sorted((ROOT / "docs" / "decisions").glob("0*.md"))
LONGEST = 490
"""So many words has a record at most: two minutes of a reader."""
LONGEST_CONTEXT = 180
SECTIONS = ["Context", "Decision", "Consequences"]
NUMBERS = r"{one}(?:, {one})*(?: and {one})?"
LINKS = NUMBERS.format(one=r"\[\d{4}\]\([\w.-]+\.md\)")
MARK = rf"Superseded (?:by {LINKS}\.|in part by {LINKS}: [^\n]+\.)"
"""What follows the title of a record that no longer holds, or holds in part: what replaces it, and in which point."""
SHORT_MARK = r" \(superseded (in part )?by ({all})\) \|$".format(all=NUMBERS.format(one=r"\d{4}"))


def form(block: str) -> str:
    """Whether a block of a page is a paragraph, a list or a table."""
    return {"|": "table", "-": "list"}.get(block[0], "paragraph")


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.name[:4])
def test_a_record_has_three_short_sections(record: Path) -> None:
    """A paragraph, a list or a table each; a paragraph may lead into a list or a table."""
    text = record.read_text()
    title, *parts = re.split(r"^## (.*)\n", text, flags=re.MULTILINE)
    assert re.fullmatch(rf"# {record.name[:4]}\. .+\n\n(?:{MARK}\n\n)?", title), "a title, perhaps a mark"
    assert parts[::2] == SECTIONS
    for section, body in zip(SECTIONS, parts[1::2], strict=True):
        forms = [form(block) for block in body.strip().split("\n\n")]
        assert len(forms) == 1 or (len(forms) == 2 and forms[0] == "paragraph" != forms[1]), (section, forms)
    assert len(parts[1].split()) <= LONGEST_CONTEXT
    assert sum(len(body.split()) for body in parts[1::2]) <= LONGEST


def superseded(text: str) -> tuple[bool, list[str]] | None:
    """Whether a record is superseded in part only, and the numbers of the records that supersede it."""
    mark = next((line for line in text.splitlines() if line.startswith("Superseded ")), None)
    if mark is None:
        return None
    return mark.startswith("Superseded in part"), re.findall(r"\[(\d{4})\]", mark.split(": ")[0])


def superseded_in_the_list(line: str) -> tuple[bool, list[str]] | None:
    """The same of the line of the record in the list of all records."""
    found = re.search(SHORT_MARK, line)
    assert (found is not None) == ("superseded" in line), line
    return None if found is None else (found[1] is not None, re.findall(r"\d{4}", found[2]))


def test_the_list_marks_each_record_that_is_superseded() -> None:
    lines = [line for line in (RECORDS[0].parent / "README.md").read_text().splitlines() if line.startswith("| [0")]
    assert [line[3:7] for line in lines] == [record.name[:4] for record in RECORDS]
    pages = {record.name[:4]: superseded(record.read_text()) for record in RECORDS}
    assert {line[3:7]: superseded_in_the_list(line) for line in lines} == pages
    later = {number: mark[1] for number, mark in pages.items() if mark}
    assert {number: by for number, by in later.items() if not all(number < other in pages for other in by)} == {}
    assert len(later) > 10
