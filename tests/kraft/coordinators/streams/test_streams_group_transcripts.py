"""The answers of a coordinator of streams groups, command by command, in files for a reviewer; the README beside them
has the rules.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from support.transcripts.driver import check_scenes, follow
from support.transcripts.streams_groups import StreamsGroupPlayer

HERE = Path(__file__).parents[3] / "transcripts" / "streams_groups"
TRANSCRIPTS = sorted(HERE.glob("*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(path: Path, pytestconfig: pytest.Config) -> None:
    """A coordinator that does otherwise than here breaks a rule of the README, or the rule has changed on purpose."""
    follow(path, StreamsGroupPlayer(), pytestconfig)


def test_every_rule_has_a_scene_and_every_scene_a_rule() -> None:
    check_scenes(HERE, "streams-groups")
