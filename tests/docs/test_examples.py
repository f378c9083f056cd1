"""The examples run, print what their first lines promise, and stand on the page beside them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from support.documented_programs import commands_of, matches, run

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = sorted(path.name for path in EXAMPLES.glob("*.py"))


def first_lines(name: str) -> str:
    text = ast.get_docstring(ast.parse((EXAMPLES / name).read_text()))
    assert text is not None
    return text


@pytest.mark.parametrize("name", NAMES)
def test_an_example_prints_what_it_promises(name: str, tmp_path: Path) -> None:
    promised = re.findall(r"^    (.*)$", first_lines(name), re.MULTILINE)
    for command, lines in commands_of(promised):
        printed = run(command, tmp_path)
        assert matches(lines, printed), "\n".join([f"$ {command}", *printed])
    assert f"examples/{name}" in command


def test_the_page_lists_each_example_with_its_purpose() -> None:
    rows = re.findall(r"^\| \[(.+?)\]\(\1\) \| (.+) \|$", (EXAMPLES / "README.md").read_text(), re.MULTILINE)
    assert sorted(rows) == [(name, first_lines(name).partition("\n")[0]) for name in NAMES]
    assert len(rows) == 10
