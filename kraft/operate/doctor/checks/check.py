"""A check as a value, and short forms that several checks share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from msgspec import Struct

from kraft.operate.doctor.facts.finding import Finding, Need
from kraft.operate.doctor.facts.node import Facts, Node
from metadata_log.times import iso_time

MOST_NAMES: Final = 8
"""The number of partitions or brokers that a sentence names."""


class Check(Struct, frozen=True):
    """One check: its id, the function, and the inputs without which the check is skipped."""

    id: str
    find: Callable[[Facts], Iterator[Finding]]
    needs: tuple[Need, ...] = ()


def listed(names: Iterable[object], most: int = MOST_NAMES) -> str:
    """`a, b, c`, or the first names and how many more there are."""
    texts = [str(name) for name in names]
    shown = ", ".join(texts[:most])
    return shown if len(texts) <= most else f"{shown} and {len(texts) - most:,} more"


def at(timestamp_ms: int) -> str:
    """A time, for sentences."""
    return iso_time(timestamp_ms) or "an unknown time"


def minutes(milliseconds: float) -> str:
    """A duration, for sentences."""
    seconds = milliseconds / 1000
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def bytes_text(size: int) -> str:
    """A size, for sentences."""
    for unit, bytes_ in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= bytes_:
            return f"{size / bytes_:.1f} {unit}"
    return f"{size} bytes"


def pairs(nodes: Sequence[Node]) -> Iterator[tuple[Node, Node]]:
    """Each two nodes once."""
    for number, one in enumerate(nodes):
        for other in nodes[number + 1 :]:
            yield one, other
