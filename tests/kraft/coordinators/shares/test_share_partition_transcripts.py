"""The answers of a leader of share partitions, and what it lets be written, command by command; the README beside the
files has the rules.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from support.transcripts.driver import check_scenes, follow
from support.transcripts.share_partitions import SharePartitionPlayer

HERE = Path(__file__).parents[3] / "transcripts" / "share_partitions"
TRANSCRIPTS = sorted(HERE.glob("*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(path: Path, pytestconfig: pytest.Config) -> None:
    """A leader that does otherwise than here breaks a rule of the README, or the rule has changed on purpose."""
    follow(path, SharePartitionPlayer(), pytestconfig)


def test_every_rule_has_a_scene_and_every_scene_a_rule() -> None:
    check_scenes(HERE, "share-partitions")
