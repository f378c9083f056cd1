"""The deeds of brokers, command by command, in files for a reviewer; the README beside them has the rules."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.kraft.transcript_broker import Transcript
from support.kraft.transcript_format import followed

HERE = Path(__file__).parents[2] / "transcripts" / "broker"
TRANSCRIPTS = sorted(HERE.glob("*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(path: Path, pytestconfig: pytest.Config) -> None:
    """A broker that does otherwise than here breaks a rule of its README, or the rule has changed on purpose."""
    now, text = followed(path, Transcript().run, pytestconfig)
    assert now == text


def test_every_rule_has_a_scene_and_every_scene_a_rule() -> None:
    """A rule that no scene shows has nothing to be reviewed by; the table names the file of its scene."""
    rules = re.findall(r"^\| `([a-z-]+)` \| .+ \| (\w+)\.txt \|$", (HERE / "README.md").read_text(), re.MULTILINE)
    assert len(rules) > 40
    scenes = {(rule, path.stem) for path in TRANSCRIPTS for rule in _rules_of(path.read_text())}
    assert sorted(rules) == sorted(scenes)


def test_every_scene_begins_with_its_rules() -> None:
    """A scene is new brokers below a comment; without the name of a rule nobody would know what it is for."""
    for path in TRANSCRIPTS:
        for scene in path.read_text().strip().split("\n\n"):
            first, *rest = scene.splitlines()
            assert _rules_of(first), f"{path.name}: {first}"
            assert next(line for line in rest if not line.startswith("#")).startswith("> brokers "), first


def _rules_of(text: str) -> list[str]:
    """The names in brackets at the beginning of comments."""
    heads = re.findall(r"^# ((?:\[[a-z-]+\] )+)", text, re.MULTILINE)
    return [rule for head in heads for rule in re.findall(r"[a-z-]+", head)]
