"""The pages that answer operators' questions are true: their commands are run, and print what the pages show."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HOWTO = ROOT / "docs" / "howto"
PAGES = (
    "if-a-rack-fails.md",
    "keep-the-history.md",
    "materialize.md",
    "no-controller.md",
    "recover-a-quorum.md",
    "unavailable-partitions.md",
    "what-is-wrong-with-a-quorum.md",
    "who-changed-a-config.md",
    "who-led-a-partition.md",
)
BLOCK = re.compile(r"^```\n(?P<text>\$ .*?)^```$", re.MULTILINE | re.DOTALL)
PROGRAM = re.compile(r"^```python\n# (?P<name>\w+\.py)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
ELLIPSIS = "…"
STARTS_SPARK = re.compile(r"kraft fleet (?!materialize )")


def commands(page: str) -> list[tuple[str, list[str]]]:
    """The commands of a page with the lines that it shows below each."""
    found: list[tuple[str, list[str]]] = []
    for block in BLOCK.finditer((HOWTO / page).read_text()):
        for line in block["text"].splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            else:
                found[-1][1].append(line)
    return found


def run(command: str, folder: Path) -> list[str]:
    """What a command prints, errors included; `kraft` and `python3` are those of this tree."""
    words = {
        "kraft": f"{sys.executable} -m kraft",
        "python3": sys.executable,
    }
    name, _, rest = command.partition(" ")
    done = subprocess.run(
        f"{words[name]} {rest.replace('tests/data/', f'{ROOT}/tests/data/')}",
        shell=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stdout, done.stdout
    # A node says so when the machine was too busy for one of its turns.
    return [line for line in done.stdout.splitlines() if not line.startswith("long-turn ")]


def matches(shown: list[str], printed: list[str]) -> bool:
    """Whether a page shows what was printed; a line with an ellipsis alone stands for any lines."""
    if not shown:
        return not printed
    if shown[0] == ELLIPSIS:
        return any(matches(shown[1:], printed[at:]) for at in range(len(printed) + 1))
    return bool(printed) and shown[0] == printed[0] and matches(shown[1:], printed[1:])


@pytest.mark.parametrize("page", PAGES)
def test_commands_print_what_the_page_shows(page: str, tmp_path: Path) -> None:
    for program in PROGRAM.finditer((HOWTO / page).read_text()):
        (tmp_path / program["name"]).write_text(program["code"])
    run_commands = [(command, shown) for command, shown in commands(page) if not STARTS_SPARK.match(command)]
    assert len(run_commands) > 1
    for command, shown in run_commands:
        printed = run(command, tmp_path)
        assert matches(shown, printed), "\n".join([f"$ {command}", *printed])


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        (["a", "b"], ["a", "b"], True),
        (["a", ELLIPSIS, "d"], ["a", "b", "c", "d"], True),
        (["a", ELLIPSIS], ["a"], True),
        (["a", ELLIPSIS, "d"], ["a", "b"], False),
        (["a"], ["a", "b"], False),
        ([], ["a"], False),
    ],
)
def test_matches_accepts_only_equal_output_with_ellipses(shown: list[str], printed: list[str], same: bool) -> None:
    assert matches(shown, printed) is same
