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


def form(block: str) -> str:
    """Whether a block of a page is a paragraph, a list or a table."""
    return {"|": "table", "-": "list"}.get(block[0], "paragraph")


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.name[:4])
def test_a_record_has_three_short_sections(record: Path) -> None:
    """A paragraph, a list or a table each; a paragraph may lead into a list or a table."""
    text = record.read_text()
    title, *parts = re.split(r"^## (.*)\n", text, flags=re.MULTILINE)
    assert re.fullmatch(rf"# {record.name[:4]}\. .+\n\n", title)
    assert parts[::2] == SECTIONS
    for section, body in zip(SECTIONS, parts[1::2], strict=True):
        forms = [form(block) for block in body.strip().split("\n\n")]
        assert len(forms) == 1 or (len(forms) == 2 and forms[0] == "paragraph" != forms[1]), (section, forms)
    assert len(parts[1].split()) <= LONGEST_CONTEXT
    assert len(text.split()) <= LONGEST
