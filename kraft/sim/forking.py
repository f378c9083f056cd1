"""Copies of worlds, so that one can see what follows from each of the things that could happen next."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, Final, TypeVar

from msgspec import Struct
from msgspec.structs import fields

T = TypeVar("T")
_Copy = Callable[[Any], Any]


def forked(value: T) -> T:
    """A copy that can go its own way. What cannot change is shared; what has a method `fork` is asked for its own.

    It must be a tree: what two parts have in common, and can change, is no longer common to their copies.
    """
    copy: T = _copier_of(type(value))(value)
    return copy


def _copier_of(kind: type) -> _Copy:
    copier = _COPIERS.get(kind)
    if copier is None:
        copier = _COPIERS[kind] = _choose(kind)
        if copier is _share:
            _SHARED.add(kind)
    return copier


def _choose(kind: type) -> _Copy:
    if hasattr(kind, "fork"):
        return lambda value: value.fork()
    if issubclass(kind, Struct):
        return _share if kind.__struct_config__.frozen else _struct_copier(tuple(one.name for one in fields(kind)))
    if issubclass(kind, (Enum, type)) or kind.__dictoffset__ == 0:
        return _share
    return _copy_object


def _share(value: Any) -> Any:
    return value


def _struct_copier(names: tuple[str, ...]) -> _Copy:
    def copy_struct(value: Any) -> Any:
        return type(value)(*_copy_items([getattr(value, name) for name in names]))

    return copy_struct


def _copy_object(value: Any) -> Any:
    copy = object.__new__(type(value))
    copy.__dict__.update(_copy_dict(vars(value)))
    return copy


def _copy_dict(value: dict[Any, Any]) -> dict[Any, Any]:
    return {key: item if type(item) in _SHARED else forked(item) for key, item in value.items()}


def _copy_items(value: Iterable[Any]) -> list[Any]:
    return [item if type(item) in _SHARED else forked(item) for item in value]


_SHARED: Final[set[type]] = {int, str, bytes, bool, float, frozenset, type(None)}
"""The types of what cannot change, as far as they were met."""
_COPIERS: Final[dict[type, _Copy]] = {
    dict: _copy_dict,
    list: _copy_items,
    tuple: lambda value: tuple(_copy_items(value)),
    deque: lambda value: deque(_copy_items(value), value.maxlen),
    set: set,
    **dict.fromkeys(_SHARED, _share),
}
