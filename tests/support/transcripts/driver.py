"""The one notation and the one driver of all transcripts; a player of each room carries out its commands.

`>` begins a command, `#` a comment, and the lines below a command are its effects. A blank line ends a scene.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

import pytest
from msgspec import Struct

from support import ROOT

REWRITE = "--rewrite-transcripts"


class Player(Protocol):
    """Carries out the commands of one file."""

    @property
    def settings(self) -> Mapping[str, str]:
        """The settings `name=value` of each command that has its own; another one is a mistake."""

    def act(self, name: str, words: tuple[str, ...]) -> list[str]:
        """Carry out a command; returns its effects."""


class Step(Struct):
    """A command of a file, with what stands below it."""

    line: int
    command: str
    effects: list[str]
    comments: list[str]
    """Comments and blank lines, which may stand between the effects; the driver puts them behind."""


def follow(path: Path, player: Player, config: pytest.Config) -> None:
    """Play a file and compare the effects of each command, or write them into the file with `--rewrite-transcripts`."""
    head, steps = _read(path.read_text())
    if config.getoption(REWRITE):
        for step in steps:
            step.effects = _act(player, step.command)
        path.write_text(_written(head, steps))
        return
    scene = _scene(head)
    for step in steps:
        where = f"{path.relative_to(ROOT)}:{step.line}"
        try:
            effects = _act(player, step.command)
        except Exception as error:
            error.add_note(f"{where}: {step.command}\nin the scene: {scene}")
            raise
        if effects != step.effects:
            pytest.fail("\n".join(_difference(where, scene, step, effects)), pytrace=False)
        scene = _scene(step.comments) or scene


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


def fields(words: tuple[str, ...]) -> dict[str, str]:
    """The settings `name=value` of a command; a name alone has an empty value."""
    return dict(word.partition("=")[::2] for word in words)


def parted(words: tuple[str, ...]) -> tuple[list[str], dict[str, str]]:
    """The words of a command that are no settings, and its settings."""
    return [one for one in words if "=" not in one], fields(tuple(one for one in words if "=" in one))


def _act(player: Player, command: str) -> list[str]:
    name, *words = command.split("#", maxsplit=1)[0].split()
    known = player.settings.get(name)
    unknown = set() if known is None else parted(tuple(words))[1].keys() - set(known.split())
    assert not unknown, f"{name} has no {unknown}"
    return player.act(name, tuple(words))


def _read(text: str) -> tuple[list[str], list[Step]]:
    """The lines before the first command, and the commands."""
    head: list[str] = []
    steps: list[Step] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(">"):
            steps.append(Step(number, line[1:].strip(), [], []))
        elif line.startswith("#") or not line.strip():
            (steps[-1].comments if steps else head).append(line)
        else:
            steps[-1].effects.append(line)
    return head, steps


def _written(head: list[str], steps: list[Step]) -> str:
    lines = list(head)
    for step in steps:
        lines += [f"> {step.command}", *step.effects, *step.comments]
    return "\n".join(lines) + "\n"


def _scene(comments: list[str]) -> str:
    """The first line of the scene that begins with these comments, if one does."""
    return next((line.lstrip("# ") for line in comments if line.startswith("#")), "")


def _difference(where: str, scene: str, step: Step, effects: list[str]) -> Iterator[str]:
    yield f"{where}, in the scene: {scene}"
    yield f"> {step.command}"
    for line in [*step.effects, *(one for one in effects if one not in step.effects)]:
        mark = " " if line in effects and line in step.effects else "-" if line in step.effects else "+"
        yield f"{mark} {line}"
    yield f"(- is in the file, + is what happens now; {REWRITE} writes what happens now, for a review of the diff)"
