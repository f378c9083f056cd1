"""The persistent map by `immutables`, which is smaller and faster, but has no wheels for Python 3.14 and later."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from immutables import Map

K = TypeVar("K")
V = TypeVar("V")

__all__ = ["Map", "with_changes", "with_entry", "without_key"]


def with_entry(entries: Map[K, V], key: K, value: V) -> Map[K, V]:
    """The map with a value for one key."""
    return entries.set(key, value)


def without_key(entries: Map[K, V], key: K) -> Map[K, V]:
    """The map without a key, which must exist."""
    return entries.delete(key)


def with_changes(entries: Map[K, V], changes: Mapping[K, V | None]) -> Map[K, V]:
    """The map after many changes at once; None removes a key, which may be missing."""
    if not changes:
        return entries
    mutation = entries.mutate()
    for key, value in changes.items():
        if value is not None:
            mutation[key] = value
        elif key in mutation:
            del mutation[key]
    return mutation.finish()
