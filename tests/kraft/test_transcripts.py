"""What one core does, event by event, in files that a reviewer can read beside the protocol's specification."""

from __future__ import annotations

from pathlib import Path

import pytest
from transcript import rewritten

TRANSCRIPTS = sorted((Path(__file__).parent.parent / "transcripts").glob("*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(path: Path, pytestconfig: pytest.Config) -> None:
    """A core that answers otherwise than here no longer speaks Kafka's protocol, or has lost a safety rule."""
    text = path.read_text()
    now = rewritten(text)
    if pytestconfig.getoption("--rewrite-transcripts"):
        path.write_text(now)
    else:
        assert now == text


def test_there_are_transcripts() -> None:
    assert TRANSCRIPTS
