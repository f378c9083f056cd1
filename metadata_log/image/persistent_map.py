"""The one door to the persistent map: `Map`, whose changed copies share what stays the same; iteration in key order.

A `Map` iterates in the order of `hash()`, which differs between processes for strings; wherever order can show, go
through `in_key_order`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from immutables import Map

K = TypeVar("K")
V = TypeVar("V")

__all__ = ["Map", "in_key_order"]


def in_key_order(entries: Map[K, V]) -> Iterator[tuple[K, V]]:
    """The entries of a map, smallest key first."""
    keys: list[Any] = list(entries)
    keys.sort()
    for key in keys:
        yield key, entries[key]
