"""The form of all transcripts: `>` begins a command, `#` a comment, and the lines below a command are its effects."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[[str], list[str]]
"""Carries out one command; returns the lines that it prints."""


def rewritten(text: str, run: Run) -> str:
    """The transcript with what its commands print now; comments and commands stay as they are."""
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith(">"):
            lines.append(line)
            lines += run(line[1:].split("#")[0].strip())
        elif line.startswith("#") or not line.strip():
            lines.append(line)
    return "\n".join(lines) + "\n"


def followed(path: Path, run: Run, config: pytest.Config) -> tuple[str, str]:
    """The present output of the commands of a file, and the file, which `--rewrite-transcripts` makes equal."""
    text = path.read_text()
    now = rewritten(text, run)
    if config.getoption("--rewrite-transcripts"):
        path.write_text(now)
        return now, now
    return now, text


def rules_and_scenes(folder: Path, begins: str) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """The rules in the table of a folder's README, and the scenes of its transcripts, each with the name of its file.

    A scene has one rule, in brackets at its beginning, and a command that makes what it is about (`begins`).
    """
    rules = re.findall(r"^\| `([a-z0-9-]+)` \| .+ \| (\w+)\.txt \|$", (folder / "README.md").read_text(), re.MULTILINE)
    scenes = []
    for path in sorted(folder.glob("*.txt")):
        for scene in path.read_text().strip().split("\n\n"):
            head = re.match(r"# \[([a-z0-9-]+)\] ", scene)
            assert head, f"{path.name}: {scene[:60]}"
            assert f"\n> {begins}" in scene, head[1]
            scenes.append((head[1], path.stem))
    return rules, scenes


def fields(settings: tuple[str, ...]) -> dict[str, str]:
    """The settings `name=value` of a command; a name alone has an empty value."""
    return dict(setting.partition("=")[::2] for setting in settings)
