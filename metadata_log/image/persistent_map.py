"""The persistent map `Map` and its iteration in key order. A changed copy shares the unchanged parts.

The iteration order of a `Map` differs between processes; wherever the order has an effect, callers use `in_key_order`.
The library behind `Map` depends on the wheels that exist for this Python; a browser has none.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from heapq import merge
from itertools import islice
from operator import itemgetter
from typing import Any, Final, TypeVar

if sys.platform == "emscripten":
    from metadata_log.image.map_of_dicts import Map, with_changes, with_entry, without_key
elif sys.version_info >= (3, 14):
    from metadata_log.image.map_of_rpds import Map, with_changes, with_entry, without_key
else:
    from metadata_log.image.map_of_immutables import Map, with_changes, with_entry, without_key

K = TypeVar("K")
V = TypeVar("V")

__all__ = [
    "Map",
    "in_key_order",
    "in_key_order_by_runs",
    "keys_in_order_by_runs",
    "with_changes",
    "with_entry",
    "without_key",
]

_KEY: Any = itemgetter(0)
RUN: Final = 1000
"""How many entries `in_key_order_by_runs` sorts at a time."""


def in_key_order(entries: Map[K, V]) -> Iterator[tuple[K, V]]:
    """The entries of a map in ascending key order."""
    return iter(sorted(entries.items(), key=_KEY))


def in_key_order_by_runs(entries: Map[K, V]) -> Iterator[tuple[K, V] | None]:
    """The entries of a map in ascending key order; None after each `RUN` sorted entries, where work may pause.

    Sorting a million entries at once would take a second.
    """
    if len(entries) <= RUN:
        yield from in_key_order(entries)
        return
    unsorted = iter(entries.items())
    runs = []
    while run := list(islice(unsorted, RUN)):
        run.sort(key=_KEY)
        runs.append(run)
        yield None
    yield from merge(*runs, key=_KEY)


def keys_in_order_by_runs(entries: Mapping[Any, Any]) -> Iterator[Any | None]:
    """As `in_key_order_by_runs`, but only the keys. The map itself is not kept: to free a large one takes long."""
    runs = []
    unsorted = iter(entries)
    while run := list(islice(unsorted, RUN)):
        run.sort()
        runs.append(run)
        if len(run) == RUN:
            yield None
    del entries, unsorted
    yield from merge(*runs)
