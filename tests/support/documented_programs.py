"""Programs that pages of the documentation show, and runs of such programs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from support import ROOT

HOWTO = ROOT / "docs" / "howto"
BLOCK = re.compile(r"^```\n(?P<text>\$ .*?)^```$", re.MULTILINE | re.DOTALL)
ELLIPSIS = "…"
VARIABLE = re.compile(
    r"(?P<id>\b(?:cluster|id|ClusterId:) +[\w-]{22})|(?P<crc>0x[0-9a-f]+)|(?P<number>\d+)|(?P<space> +)"
)
PYTHON = re.compile(r"^```python\n# (?P<name>\S+\.py)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


def program(page: str, name: str, folder: Path) -> Path:
    """Write a program of a page into a folder."""
    found = {match["name"]: match["code"] for match in PYTHON.finditer((HOWTO / page).read_text())}
    path = folder / name
    path.write_text(found[name])
    return path


def run_program(*arguments: str, folder: Path) -> str:
    """Run Python in a folder with this tree's packages; what it printed."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def commands(page: Path) -> list[tuple[str, list[str]]]:
    """The commands of a page with the lines that it shows below each."""
    return commands_of(line for block in BLOCK.finditer(page.read_text()) for line in block["text"].splitlines())


def commands_of(lines: Iterable[str]) -> list[tuple[str, list[str]]]:
    """The commands among these lines with the lines below each; the first line is a command."""
    found: list[tuple[str, list[str]]] = []
    for line in lines:
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


def run(command: str, folder: Path) -> list[str]:
    """Run a command, return its output and errors; `kraft`, `python3`, examples and data are those of this tree."""
    words = {
        "kraft": f"{sys.executable} -m kraft",
        "python3": sys.executable,
    }
    name, _, rest = command.partition(" ")
    here = re.sub(r"\b(?=tests/data/|examples/)", f"{ROOT}/", rest)
    done = subprocess.run(
        f"{words[name]} {here}",
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


def shape(text: str) -> list[str]:
    """The lines without what differs from run to run: ids, numbers, and the width of columns."""
    return [VARIABLE.sub(lambda found: f"<{found.lastgroup}>", line.rstrip()) for line in text.splitlines()]
