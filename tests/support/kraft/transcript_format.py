"""The form of all transcripts: `>` begins a command, `#` a comment, and the lines below a command are its effects."""

from __future__ import annotations

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


def fields(settings: tuple[str, ...]) -> dict[str, str]:
    """The settings `name=value` of a command; a name alone has an empty value."""
    return dict(setting.partition("=")[::2] for setting in settings)
