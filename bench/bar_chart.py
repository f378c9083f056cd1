"""Bar charts as SVG, in light and in dark colours: bars on a logarithmic scale, ours in a colour of its own."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Final

from msgspec import Struct

PICTURES: Final = Path(__file__).parent.parent / "docs" / "pictures"
WIDTH: Final = 760
ROW: Final = 30
LABEL: Final = 340


class Bar(Struct, frozen=True):
    """One bar: its label, its length, the text at its end, and whether it is ours."""

    label: str
    value: float
    text: str
    is_ours: bool


class Chart(Struct, frozen=True, kw_only=True):
    """A chart. Bars are as long as their logarithm says, between the least and the most value of the scale."""

    name: str
    """The pictures are `NAME-light.svg` and `NAME-dark.svg`."""
    meaning: str
    """What it shows, for who does not see it."""
    title: str
    bars: Sequence[Bar]
    note: str
    least: float
    most: float


class Colours(Struct, frozen=True):
    """The colours of a scheme; the background is that of the reader's page."""

    ink: str
    soft: str
    ours: str
    other: str


SCHEMES: Final = {
    "light": Colours(ink="#1f2328", soft="#59636e", ours="#009e73", other="#8c959f"),
    "dark": Colours(ink="#f0f6fc", soft="#9198a1", ours="#2fbf94", other="#6e7681"),
}


def draw(chart: Chart) -> None:
    """Write both pictures of a chart."""
    PICTURES.mkdir(exist_ok=True)
    for scheme, colours in SCHEMES.items():
        (PICTURES / f"{chart.name}-{scheme}.svg").write_text(drawn(chart, colours))


def drawn(chart: Chart, colours: Colours) -> str:
    """The text of a picture."""
    height = 40 + ROW * len(chart.bars) + 34
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        f'role="img" aria-label="{escape(chart.meaning)}">',
        "<style>text { font: 13px system-ui, sans-serif; } .title { font-weight: 600; font-size: 15px; }</style>",
        f'<text class="title" x="8" y="22" fill="{colours.ink}">{escape(chart.title)}</text>',
        *(line for at, bar in enumerate(chart.bars) for line in _bar(40 + ROW * at, bar, chart, colours)),
        f'<text x="8" y="{height - 12}" fill="{colours.soft}">{escape(chart.note)}</text>',
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _bar(y: int, bar: Bar, chart: Chart, colours: Colours) -> Iterator[str]:
    room = WIDTH - LABEL - 90
    share = math.log(max(bar.value, chart.least) / chart.least) / math.log(chart.most / chart.least)
    width = max(3, round(room * share))
    yield f'<text x="{LABEL - 10}" y="{y + 18}" text-anchor="end" fill="{colours.ink}">{escape(bar.label)}</text>'
    fill = colours.ours if bar.is_ours else colours.other
    yield f'<rect x="{LABEL}" y="{y + 4}" width="{width}" height="{ROW - 10}" rx="3" fill="{fill}"/>'
    yield f'<text x="{LABEL + width + 8}" y="{y + 18}" fill="{colours.ink}">{escape(bar.text)}</text>'
