"""The picture of the states of a replica is drawn from the module."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "bench"))

from protocol_picture import MODULE, PICTURE, edges, picture


def test_the_picture_is_that_of_the_module() -> None:
    text = MODULE.read_text()
    assert PICTURE.read_text() == picture(text), "python bench/protocol_picture.py draws it again"


def test_an_action_is_an_edge() -> None:
    found = edges(MODULE.read_text())
    assert found["Candidate", "Leader"] == ["Win"]
    assert found["Prospective", "Candidate"] == ["Stand", "StandAlone"]
    assert "GiveUp" in found["Prospective", "Follower"]
    assert ("Leader", "Candidate") not in found
