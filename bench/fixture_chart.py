"""The bar chart of the fixture, from the figures that `fixture.py --save` has stored.

python bench/fixture_chart.py     # draw docs/pictures/fixture-light.svg and fixture-dark.svg again
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec
from bar_chart import Bar, Chart, draw
from msgspec import Struct

STORED: Final = Path(__file__).parent / "fixture.json"


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


def chart(stored: Stored) -> Chart:
    """The chart of stored figures."""
    busy = f"beside {stored.load:.0f} busy processes" if stored.load >= 2 else "on a quiet machine"
    return Chart(
        name="fixture",
        meaning="Time until a test has a Kafka",
        title="Until a test has a Kafka (logarithmic)",
        bars=[
            *(
                _bar(text, stored.medians[target][name], is_ours=target.startswith("ours"))
                for target, name, text in BARS
                if name in stored.medians.get(target, {})
            ),
            *(_bar(one.what, one.milliseconds, is_ours=False) for one in PUBLISHED),
        ],
        note=f"Medians of {stored.reps}, {stored.day}, {busy}. * reported by a user, of another machine",
        least=10,
        most=100_000,
    )


def _bar(label: str, milliseconds: float, *, is_ours: bool) -> Bar:
    text = f"{milliseconds:.0f} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.1f} s"
    return Bar(label, milliseconds, text, is_ours)


def load() -> Stored:
    """Load the stored measurements."""
    return msgspec.json.decode(STORED.read_bytes(), type=Stored)


def save(stored: Stored) -> None:
    """Store the figures, and draw them."""
    STORED.write_bytes(msgspec.json.format(msgspec.json.encode(stored), indent=2) + b"\n")
    draw(chart(stored))


if __name__ == "__main__":
    save(load())
