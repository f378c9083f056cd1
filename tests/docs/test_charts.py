"""The charts show the figures that their benches and the page of performance have now."""

from __future__ import annotations

import sys

import pytest

from support import ROOT

sys.path.insert(0, str(ROOT / "bench"))

import commits_chart
import fixture_chart
from bar_chart import PICTURES, SCHEMES, Chart, drawn


def test_every_bar_of_the_fixture_has_a_figure() -> None:
    stored = fixture_chart.load()
    assert all(name in stored.medians[target] for target, name, _ in fixture_chart.BARS)


@pytest.mark.parametrize(
    "chart", [fixture_chart.chart(fixture_chart.load()), commits_chart.chart(commits_chart.PAGE.read_text())]
)
def test_a_picture_shows_the_present_figures(chart: Chart) -> None:
    for scheme, colours in SCHEMES.items():
        text = (PICTURES / f"{chart.name}-{scheme}.svg").read_text()
        assert text == drawn(chart, colours), f"python bench/{chart.name}_chart.py draws it again"
