"""The chart of the fixture is what its script draws from the stored figures."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "bench"))

from fixture_chart import BARS, load, pictures


def test_the_pictures_are_those_of_the_stored_figures() -> None:
    stored = load()
    assert all(name in stored.medians[target] for target, name, _ in BARS)
    for path, text in pictures(stored).items():
        assert path.read_text() == text, f"python bench/fixture_chart.py draws {path.name} again"
