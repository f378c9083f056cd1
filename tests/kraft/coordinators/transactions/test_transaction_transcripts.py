"""The deeds of transaction coordinators, command by command, in files for a reviewer; the README beside them has the
rules.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.broker.transcript_transactions import TransactionTranscript
from support.kraft.transcript_format import followed

HERE = Path(__file__).parents[3] / "transcripts" / "transactions"
TRANSCRIPTS = sorted(HERE.glob("*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(path: Path, pytestconfig: pytest.Config) -> None:
    """A coordinator that does otherwise than here breaks a rule of the README, or the rule has changed on purpose."""
    now, text = followed(path, TransactionTranscript().run, pytestconfig)
    assert now == text


def test_every_rule_has_a_scene_and_every_scene_a_rule() -> None:
    rules = re.findall(r"^\| `([a-z0-9-]+)` \| .+ \| (\w+)\.txt \|$", (HERE / "README.md").read_text(), re.MULTILINE)
    assert len(rules) > 25
    scenes = []
    for path in TRANSCRIPTS:
        for scene in path.read_text().strip().split("\n\n"):
            head = re.match(r"# \[([a-z0-9-]+)\] ", scene)
            assert head, f"{path.name}: {scene[:60]}"
            assert "\n> cluster" in scene, head[1]
            scenes.append((head[1], path.stem))
    assert sorted(rules) == sorted(scenes)
