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


def check_scenes(folder: Path, begins: str) -> None:
    """Check that each rule in the table of a folder's README has a scene in the file that it names, and each scene one.

    A scene has its rules, in brackets at its beginning, and a command that makes what it is about (`begins`). A rule
    that no scene shows has nothing to be reviewed by; without a rule nobody would know what a scene is for.
    """
    rules = re.findall(r"^\| `([a-z0-9-]+)` \| .+ \| (\w+)\.txt \|$", (folder / "README.md").read_text(), re.MULTILINE)
    scenes = set()
    for path in sorted(folder.glob("*.txt")):
        for scene in path.read_text().strip().split("\n\n"):
            heads = re.findall(r"^# ((?:\[[a-z0-9-]+\] )+)", scene, re.MULTILINE)
            assert scene.startswith("# ["), f"{path.name}: a scene without a rule: {scene[:60]}"
            assert f"\n> {begins}" in scene, f"{path.name}: no {begins}: {scene[:60]}"
            scenes |= {(rule, path.stem) for head in heads for rule in re.findall(r"[a-z0-9-]+", head)}
    assert rules
    assert sorted(rules) == sorted(scenes)


def fields(settings: tuple[str, ...]) -> dict[str, str]:
    """The settings `name=value` of a command; a name alone has an empty value."""
    return dict(setting.partition("=")[::2] for setting in settings)
