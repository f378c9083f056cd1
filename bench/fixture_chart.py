"""The bar chart of the fixture, from the figures that `fixture.py --save` has stored: in light and in dark colours.

python bench/fixture_chart.py     # draw docs/pictures/fixture-light.svg and fixture-dark.svg again
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

ROOT: Final = Path(__file__).parent.parent
STORED: Final = ROOT / "bench" / "fixture.json"
PICTURES: Final = ROOT / "docs" / "pictures"


class Stored(Struct, frozen=True, kw_only=True):
    """The medians of one run, in milliseconds, by target and figure."""

    day: str
    python: str
    reps: int
    load: float
    """How many processes waited for a core at the beginning."""
    medians: dict[str, dict[str, float]]


class Published(Struct, frozen=True):
    """A figure of somebody else, on another machine."""

    what: str
    milliseconds: float
    source: str


PUBLISHED: Final = (
    Published(
        "container, cp-kafka by Testcontainers*",
        22_956.5,
        "https://github.com/testcontainers/testcontainers-java/issues/4781",
    ),
)
"""Starts of containers, as their users reported them."""
BARS: Final = (
    ("ours", "start", "trio-kraft, one node"),
    ("ours-3+3", "start", "trio-kraft, three brokers and three controllers"),
    ("mock", "start", "mock inside librdkafka"),
    ("tansu", "start", "Tansu's binary, in memory"),
    ("jvm", "start", "Apache Kafka on a JVM"),
)


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
WIDTH: Final = 760
ROW: Final = 30
LABEL: Final = 340
LEAST_MS: Final = 10
MOST_MS: Final = 100_000


def rows(stored: Stored) -> list[tuple[str, float, bool]]:
    """The label, the milliseconds, and whether it is ours, of each bar."""
    found = [
        (text, stored.medians[target][name], target.startswith("ours"))
        for target, name, text in BARS
        if name in stored.medians.get(target, {})
    ]
    return found + [(one.what, one.milliseconds, False) for one in PUBLISHED]


def drawn(stored: Stored, colours: Colours) -> str:
    """The chart: bars on a logarithmic scale."""
    bars = rows(stored)
    height = 40 + ROW * len(bars) + 34
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        'role="img" aria-label="Time until a test has a Kafka">',
        "<style>text { font: 13px system-ui, sans-serif; } .title { font-weight: 600; font-size: 15px; }</style>",
        f'<text class="title" x="8" y="22" fill="{colours.ink}">Until a test has a Kafka (logarithmic)</text>',
        *(line for at, bar in enumerate(bars) for line in _bar(40 + ROW * at, bar, colours)),
        f'<text x="8" y="{height - 12}" fill="{colours.soft}">Medians of {stored.reps}, {stored.day}, '
        f"{_busy(stored)}. * reported by a user, of another machine</text>",
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _bar(y: int, bar: tuple[str, float, bool], colours: Colours) -> Iterator[str]:
    label, milliseconds, is_ours = bar
    room = WIDTH - LABEL - 90
    share = math.log(max(milliseconds, LEAST_MS) / LEAST_MS) / math.log(MOST_MS / LEAST_MS)
    width = max(3, round(room * share))
    yield f'<text x="{LABEL - 10}" y="{y + 18}" text-anchor="end" fill="{colours.ink}">{escape(label)}</text>'
    fill = colours.ours if is_ours else colours.other
    yield f'<rect x="{LABEL}" y="{y + 4}" width="{width}" height="{ROW - 10}" rx="3" fill="{fill}"/>'
    yield f'<text x="{LABEL + width + 8}" y="{y + 18}" fill="{colours.ink}">{_text(milliseconds)}</text>'


def _busy(stored: Stored) -> str:
    return f"beside {stored.load:.0f} busy processes" if stored.load >= 2 else "on a quiet machine"


def _text(milliseconds: float) -> str:
    return f"{milliseconds:.0f} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.1f} s"


def pictures(stored: Stored) -> dict[Path, str]:
    """The text of each file."""
    return {PICTURES / f"fixture-{name}.svg": drawn(stored, colours) for name, colours in SCHEMES.items()}


def load() -> Stored:
    """Load the stored measurements."""
    return msgspec.json.decode(STORED.read_bytes(), type=Stored)


def save(stored: Stored) -> None:
    """Store the figures, and draw them."""
    STORED.write_bytes(msgspec.json.format(msgspec.json.encode(stored), indent=2) + b"\n")
    PICTURES.mkdir(exist_ok=True)
    for path, text in pictures(stored).items():
        path.write_text(text)


if __name__ == "__main__":
    save(load())
