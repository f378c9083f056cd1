"""The persistent map by `rpds`: an image takes 1.8 times the memory, but every Python has wheels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from rpds import HashTrieMap as Map

K = TypeVar("K")
V = TypeVar("V")

_MISSING: Final[Any] = object()

__all__ = ["Map", "with_changes", "with_entry", "without_key"]


def with_entry(entries: Map[K, V], key: K, value: V) -> Map[K, V]:
    """The map with a value for one key."""
    return entries if entries.get(key, _MISSING) is value else entries.insert(key, value)


def without_key(entries: Map[K, V], key: K) -> Map[K, V]:
    """The map without a key, which must exist."""
    return entries.remove(key)


def with_changes(entries: Map[K, V], changes: Mapping[K, V | None]) -> Map[K, V]:
    """The map after many changes at once; None removes a key, which may be missing."""
    if not changes:
        return entries
    result = entries.update({key: value for key, value in changes.items() if value is not None})
    for key, value in changes.items():
        if value is None:
            result = result.discard(key)
    return result
