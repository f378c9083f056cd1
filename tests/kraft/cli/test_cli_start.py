"""What a command loads before it does anything: who types `kraft --help` waits for each module."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest
import real_data

from kraft.cli.commands import COMMANDS
from kraft.cli.main import kraft

COUNT = """
import sys
before = set(sys.modules)
from kraft.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit as ended:
    print(ended.code, len(set(sys.modules) - before), file=sys.stderr)
"""


def modules_loaded(*words: str) -> int:
    """How many modules a command of `kraft` loads on top of those of a bare interpreter."""
    done = subprocess.run([sys.executable, "-c", COUNT, *words], capture_output=True, text=True, check=True)
    code, count = map(int, done.stderr.split())
    assert code == 0, done
    assert done.stdout, done
    return count


@pytest.mark.parametrize(("words", "most"), [(["--help"], 100), (["--version"], 160)])
def test_help_and_version_load_few_modules(words: list[str], most: int) -> None:
    assert modules_loaded(*words) <= most


def test_a_dump_loads_few_modules(tmp_path: Path) -> None:
    path, content, _ = min(real_data.real_files(), key=lambda one: len(one[1]))
    file = tmp_path / Path(path).name
    file.write_bytes(content)
    assert modules_loaded("dump", str(file)) <= 270


def test_the_help_says_of_each_command_what_its_own_help_begins_with() -> None:
    context = click.Context(kraft)
    for name, command in COMMANDS.items():
        found = kraft.get_command(context, name)
        assert found is not None, name
        assert found.get_short_help_str(limit=100) == command.about, name
