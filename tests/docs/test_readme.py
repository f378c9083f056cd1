"""The README is true: its programs run, and its commands print what it shows."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.documented_programs import PYTHON, commands, matches, run
from support.loopback import free_ports

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
STEP = re.compile(r"^✓ (?P<step>[\w ]+?)  ", re.MULTILINE)


def test_the_readme_is_short() -> None:
    assert len(README.read_text().splitlines()) <= 120


def test_its_commands_print_what_it_shows(tmp_path: Path) -> None:
    shown = commands(README)
    assert [command.split()[0] for command, _ in shown] == ["python3", "kraft", "kraft"]
    for command, lines in shown:
        printed = run(command, tmp_path)
        assert matches(lines, printed), "\n".join([f"$ {command}", *printed])


@pytest.mark.parametrize("name", [match["name"] for match in PYTHON.finditer(README.read_text())])
def test_its_programs_run(name: str, tmp_path: Path) -> None:
    code = next(match["code"] for match in PYTHON.finditer(README.read_text()) if match["name"] == name)
    (port,) = free_ports(1)
    (tmp_path / name).write_text(code.replace("19091", str(port)))
    command = ["-m", "pytest", "-q", "-p", "kraft.testing.plugin"] if name.startswith("test_") else []
    done = subprocess.run([sys.executable, *command, name], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_steps_of_the_tour_that_it_shows_are_those_of_the_tour() -> None:
    tour = (ROOT / "tests" / "test_quickstart.py").read_text()
    steps = STEP.findall(README.read_text())
    assert len(steps) == 3
    assert [step for step in steps if f'"{step}"' not in tour] == []
