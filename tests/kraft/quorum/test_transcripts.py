"""The effects of one core, event by event, in files that a reviewer can read beside the protocol's specification."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraft.quorum.quorum_state import TO_HIGHER_EPOCH, WITHIN_EPOCH
from support.transcripts.driver import follow
from support.transcripts.quorum import QuorumPlayer

FOLDER = Path(__file__).parents[2] / "transcripts"
TRANSCRIPTS = sorted(FOLDER.glob("*.txt"))
BEHAVIOURS = sorted((FOLDER / "behaviours").glob("*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(path: Path, pytestconfig: pytest.Config) -> None:
    """A core that answers otherwise than here no longer speaks Kafka's protocol, or has lost a safety rule."""
    follow(path, QuorumPlayer(), pytestconfig)


@pytest.mark.parametrize("path", BEHAVIOURS, ids=lambda path: path.stem)
def test_behaviour(path: Path, pytestconfig: pytest.Config) -> None:
    """What TLC has found that the specification allows (`bench/behaviours.py`), the cores do, step by step."""
    follow(path, QuorumPlayer(), pytestconfig)


def test_every_transition_of_the_table_is_in_a_transcript() -> None:
    """A transition that no transcript shows has no reviewed answer to the question what else happens with it."""
    shown = {transition for path in TRANSCRIPTS for transition in _transitions(path.read_text())}
    table = {(source, target, "within") for source, targets in WITHIN_EPOCH.items() for target in targets}
    table |= {(source, target, "higher") for source, targets in TO_HIGHER_EPOCH.items() for target in targets}
    assert table == shown


def _transitions(text: str) -> Iterator[tuple[str, str, str]]:
    """From, to, and whether into a higher epoch or within the same."""
    epochs: dict[str, str] = {}
    for node, source, target, epoch in re.findall(r"^(\d+): (\w+) -> (\w+) epoch=(\d+)", text, re.MULTILINE):
        if source != "Start":
            yield source, target, "within" if epochs[node] == epoch else "higher"
        epochs[node] = epoch
