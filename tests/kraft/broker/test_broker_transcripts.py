"""The deeds of brokers, command by command, in files for a reviewer; the README beside them has the rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.transcripts.brokers import BrokerPlayer
from support.transcripts.driver import check_scenes, follow

HERE = Path(__file__).parents[2] / "transcripts" / "broker"
TRANSCRIPTS = sorted(HERE.glob("*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(path: Path, pytestconfig: pytest.Config) -> None:
    """A broker that does otherwise than here breaks a rule of its README, or the rule has changed on purpose."""
    follow(path, BrokerPlayer(), pytestconfig)


def test_every_rule_has_a_scene_and_every_scene_a_rule() -> None:
    check_scenes(HERE, "brokers")
