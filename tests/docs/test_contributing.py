"""CONTRIBUTING.md, the tasks, the hooks and continuous integration agree with each other."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from support import ROOT

TASKS: dict[str, dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["poe"]["tasks"]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
CI = (ROOT / ".ci" / "run").read_text()
README_TEST_COMMAND = "uv run pytest"


def words_of(task: str) -> list[list[str]]:
    """The command lines of a task; a sequence of names stands for their commands."""
    steps = TASKS[task].get("sequence", [TASKS[task]])
    return [
        line for step in steps for line in (words_of(step) if isinstance(step, str) else [shlex.split(step["cmd"])])
    ]


def test_the_page_describes_each_task() -> None:
    described = re.findall(r"^\| `uv run poe ([\w-]+)` \| .+ \|$", PAGE, re.MULTILINE)
    assert sorted(described) == sorted(TASKS)


@pytest.mark.parametrize("task", TASKS)
def test_programs_and_files_named_by_tasks_exist(task: str) -> None:
    for program, *arguments in words_of(task):
        assert (Path(sys.executable).parent / program).exists() or (ROOT / program).is_file()
        assert not [word for word in arguments if word.startswith("tests/") and not (ROOT / word).exists()]


def test_continuous_integration_runs_tasks_and_the_test_command_of_the_readme() -> None:
    ran = re.findall(r"^task ([\w-]+)$", CI, re.MULTILINE)
    checks = {"lint", "types", "types-of-tests", "docs", "wheel", "binaries"}
    assert checks | {"second-python", "test-spark", "interop"} == set(ran)
    assert set(ran) <= set(TASKS)
    assert f"\n{README_TEST_COMMAND}\n" in (ROOT / "README.md").read_text()
    assert f"\n${README_TEST_COMMAND} --full" in CI


def test_files_and_tests_of_the_page_exist() -> None:
    """The commands for pytest and Python name files and tests that are there; test_docs.py looks at the rest."""
    for path, name in re.findall(r"uv run pytest (tests/[\w/]+\.py)(?:::(\w+))?", PAGE):
        assert f"def {name}" in (ROOT / path).read_text()
    for path in re.findall(r"uv run python ([\w/]+\.py)", PAGE):
        assert (ROOT / path).is_file()
    named = re.findall(
        r"`(kraft/\S+\.py)`\) and name it there in\n? *`([A-Z_]+)`|`([A-Z_]+)` of `(kraft/\S+\.py)`", PAGE
    )
    tables = [(first or last, name or table) for first, name, table, last in named]
    assert [name for _, name in tables] == ["STRIKES", "COMMANDS"]
    for path, name in tables:
        assert re.search(rf"^{name}: ", (ROOT / path).read_text(), re.MULTILINE)


def test_declarations_are_regenerated_by_the_command_of_the_page() -> None:
    command = re.search(r"^uv run python -m (\S+) (\S+)$", PAGE, re.MULTILINE)
    assert command is not None
    module, facts = command.groups()
    done = subprocess.run(
        [sys.executable, "-m", module, facts, "--diff"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == ""
