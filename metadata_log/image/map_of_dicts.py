"""The persistent map as a `dict` that is copied with each change, where no library has a wheel (Pyodide).

A change of a large image takes long: the map is for simulated clusters and for images that are only read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

K = TypeVar("K")
V = TypeVar("V")

_MISSING: Final[Any] = object()

__all__ = ["Map", "with_changes", "with_entry", "without_key"]


class Map(dict[K, V]):
    """A `dict` that nobody changes."""

    __slots__ = ()


def with_entry(entries: Map[K, V], key: K, value: V) -> Map[K, V]:
    """The map with a value for one key."""
    if entries.get(key, _MISSING) is value:
        return entries
    changed = Map(entries)
    changed[key] = value
    return changed


def without_key(entries: Map[K, V], key: K) -> Map[K, V]:
    """The map without a key, which must exist."""
    changed = Map(entries)
    del changed[key]
    return changed


def with_changes(entries: Map[K, V], changes: Mapping[K, V | None]) -> Map[K, V]:
    """The map after many changes at once; None removes a key, which may be missing."""
    if not changes:
        return entries
    changed = Map(entries)
    for key, value in changes.items():
        if value is None:
            changed.pop(key, None)
        else:
            changed[key] = value
    return changed
