"""Each measurement has a command that a bench understands, and the page for readers has no figure of its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RECORD = (ROOT / "docs" / "measurements.md").read_text()
SECTIONS = {
    match[1]: match[2] for match in re.finditer(r"^## (.+?)\n(.*?)(?=^## |\Z)", RECORD, re.MULTILINE | re.DOTALL)
}
COMMAND = re.compile(r"`(?:chrt -r 1 )?python bench/(\w+\.py)([^`]*)`")


def tables(section: str) -> list[list[str]]:
    """The rows of each table, the heading among them."""
    return [match[0].splitlines() for match in re.finditer(r"(?:^\|.*\|\n)+", section, re.MULTILINE)]


@pytest.mark.parametrize("title", [title for title in SECTIONS if title != "Conditions"])
def test_each_table_has_a_command(title: str) -> None:
    """Above the table, or in each row where a column names commands."""
    section = SECTIONS[title]
    assert tables(section)
    for table in tables(section):
        above = section[: section.index(table[0])]
        if table[0].endswith("| command |"):
            assert [row for row in table[2:] if not COMMAND.search(row)] == []
        else:
            assert COMMAND.search(above), table[0]


@pytest.mark.parametrize("title", SECTIONS)
def test_commands_name_benches_and_their_options(title: str) -> None:
    for match in COMMAND.finditer(SECTIONS[title]):
        text = (ROOT / "bench" / match[1]).read_text()
        named = re.match(r" ([a-z]+)", match[2])  # a subcommand has a module of its own
        if named:
            text += "".join(one.read_text() for one in (ROOT / "bench").glob(f"*/{named[1]}.py"))
        if "parse_options" in text:  # the options that every bench of brokers has
            text += (ROOT / "bench" / "data_brokers" / "report.py").read_text()
        for option in re.findall(r"--[a-z-]+", match[2]):
            assert f'"{option}"' in text, f"{match[1]} has no option {option}"


def test_the_page_for_readers_has_no_figure_of_its_own() -> None:
    rows = [row for table in tables((ROOT / "docs" / "performance.md").read_text()) for row in table]
    assert len(rows) > 20
    assert [row for row in rows if f"\n{row}\n" not in RECORD] == []
