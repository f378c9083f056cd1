"""The order of a `HashSet` of Java: the id of a subscription is computed over the text of one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kraft.handling.coordinators import java_hash

_LEAST: Final = 16


def in_order(names: Iterable[str]) -> list[str]:
    """Different names in the order in which a `HashSet` lists them that has grown by one after the other.

    Names in one bucket stay in the order in which they came. A bucket of more than eight becomes a tree in Java, with
    an order of its own; a set of names that nobody has made for that has none.
    """
    unique = list(dict.fromkeys(names))
    size = _LEAST
    while len(unique) > size * 3 // 4:
        size *= 2
    return sorted(unique, key=lambda name: _spread(name) & (size - 1))


def _spread(name: str) -> int:
    value = java_hash(name) & 0xFFFF_FFFF
    return value ^ value >> 16
