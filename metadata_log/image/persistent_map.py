"""The one door to the persistent map: `Map`, whose changed copies share what stays the same; iteration in key order.

A `Map` iterates in an order of its own, which differs between processes; wherever order can show, go through
`in_key_order`. Which library it is by depends on what can be installed for this Python without a compiler.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from operator import itemgetter
from typing import Any, TypeVar

if sys.version_info >= (3, 14):
    from metadata_log.image.map_of_rpds import Map, with_changes, with_entry, without_key
else:
    from metadata_log.image.map_of_immutables import Map, with_changes, with_entry, without_key

K = TypeVar("K")
V = TypeVar("V")

__all__ = ["Map", "in_key_order", "with_changes", "with_entry", "without_key"]

_KEY: Any = itemgetter(0)


def in_key_order(entries: Map[K, V]) -> Iterator[tuple[K, V]]:
    """The entries of a map, smallest key first."""
    return iter(sorted(entries.items(), key=_KEY))
