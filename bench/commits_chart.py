"""The bar chart of writes that survive, from the table of the page of performance.

python bench/commits_chart.py     # draw docs/pictures/commits-light.svg and commits-dark.svg again
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bar_chart import Bar, Chart, draw

PAGE: Final = Path(__file__).parent.parent / "docs" / "performance.md"
SECTION: Final = "## A write that survives\n"
CLIENTS: Final = (1, 16, 128)
OURS: Final = "trio-kraft"


def rates(page: str) -> dict[str, list[int]]:
    """By system its commits a second with so many clients as `CLIENTS` says."""
    section = page.partition(SECTION)[2].partition("\n## ")[0]
    rows = (line.split("|")[1:-1] for line in section.splitlines() if line.startswith("| "))
    # Each cell begins with the median, as in `2,919 (2,437 to 3,422), 4.99`.
    return {
        name.strip(): [int(cell.split()[0].replace(",", "")) for cell in cells]
        for name, *cells in rows
        if name.strip(" -")
    }


def chart(page: str) -> Chart:
    """The chart of the page's figures."""
    measured = re.search(r"on (\d{4}-\d\d-\d\d)", page)
    assert measured, "the page does not say when its figures were measured"
    return Chart(
        name="commits",
        meaning="Writes a second that a majority has on disk, beside etcd, ZooKeeper and Apache Kafka",
        title="Writes a second that a majority has on disk (logarithmic)",
        bars=list(_bars(rates(page))),
        note=f"Three nodes of each on two cores. Medians, {measured[1]}; the spread is on the page of performance.",
        least=50,
        most=20_000,
    )


def _bars(found: dict[str, list[int]]) -> Iterator[Bar]:
    for at, clients in enumerate(CLIENTS):
        for name, row in found.items():
            label = f"{clients} {'client' if clients == 1 else 'clients'}: {name.partition(',')[0]}"
            yield Bar(label, row[at], f"{row[at]:,}", name == OURS)


if __name__ == "__main__":
    draw(chart(PAGE.read_text()))
