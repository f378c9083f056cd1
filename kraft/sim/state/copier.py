"""Copies objects field by field. `kraft.sim.state.forking` has rules for the classes that cannot be copied this way."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterator
from copy import copy
from enum import Enum
from functools import partial
from operator import attrgetter
from random import Random
from types import BuiltinMethodType, FunctionType, MethodType
from typing import Any, Final, TypeVar

from msgspec import Struct

T = TypeVar("T")
Memo = dict[int, Any]
"""The copies by the id of the original, so that an object shared by two originals is shared by their copies."""
Copier = Callable[[Any, Memo], Any]


def field_names(kind: type[Any]) -> tuple[str, ...]:
    """The names of the declared fields of a struct, or of a class with slots."""
    if issubclass(kind, Struct):
        return kind.__struct_fields__
    return tuple(name for base in reversed(kind.__mro__) for name in _slots(base))


def _slots(kind: type) -> tuple[str, ...]:
    slots = kind.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(name for name in slots if name != "__dict__")


def fields_of(value: Any) -> Iterator[tuple[str, Any]]:
    """The fields of an object and their values, in the order of their declaration or assignment."""
    for name in field_names(type(value)):
        if hasattr(value, name):
            yield name, getattr(value, name)
    yield from getattr(value, "__dict__", {}).items()


def fork_fields(value: T, memo: Memo, **given: Any) -> T:
    """A copy field by field; the fields in `given` get these values."""
    made: T = object.__new__(type(value))
    memo[id(value)] = made
    for name, item in fields_of(value):
        setattr(made, name, given[name] if name in given else COPIERS[type(item)](item, memo))
    return made


class _Copiers(dict[type, Copier]):
    """The copier of each type, chosen at its first occurrence."""

    def __missing__(self, kind: type) -> Copier:
        copier = self[kind] = _choose(kind)
        if copier is share:
            SHARED.add(kind)
        return copier


def _choose(kind: type) -> Copier:
    for base in kind.__mro__:
        if base in _BY_BASE:
            return _BY_BASE[base]
    if issubclass(kind, Struct):
        return share if kind.__struct_config__.frozen else _struct_copier(field_names(kind))
    if kind.__dictoffset__ != 0:
        return _copy_object if not field_names(kind) else _copy_fields
    return _copy_fields if field_names(kind) else _refuse


def known_copy(value: T, memo: Memo) -> T | None:
    """The copy of an object; None if there is no copy yet."""
    return memo.get(id(value))


def note_copy(value: T, made: T, memo: Memo) -> T:
    """Note the copy of an object, and return the copy."""
    memo[id(value)] = made
    return made


def meet(value: object, met: set[int]) -> bool:
    """Note an object; returns whether the object is new."""
    is_new = id(value) not in met
    met.add(id(value))
    return is_new


def share(value: Any, memo: Memo) -> Any:
    """The original, which is immutable."""
    return value


def _refuse(value: Any, memo: Memo) -> Any:
    raise TypeError(f"no rule says how to copy a {type(value).__qualname__}")


def _struct_copier(names: tuple[str, ...]) -> Copier:
    # With a name before those of the fields, `attrgetter` gives a tuple for a struct with one field, too.
    values_of = attrgetter("__class__", *names)

    def copy_struct(value: Any, memo: Memo) -> Any:
        place = id(value)
        known = memo.get(place)
        if known is not None:
            return known
        made = memo[place] = value.__copy__()
        for name, item in zip(names, values_of(value)[1:], strict=True):
            if type(item) not in SHARED:
                setattr(made, name, COPIERS[type(item)](item, memo))
        return made

    return copy_struct


def _copy_object(value: Any, memo: Memo) -> Any:
    place = id(value)
    known = memo.get(place)
    if known is not None:
        return known
    made = memo[place] = object.__new__(type(value))
    made.__dict__.update(
        {
            name: item if type(item) in SHARED else COPIERS[type(item)](item, memo)
            for name, item in value.__dict__.items()
        }
    )
    return made


def _copy_fields(value: Any, memo: Memo) -> Any:
    known = memo.get(id(value))
    return fork_fields(value, memo) if known is None else known


def _copy_dict(value: dict[Any, Any], memo: Memo) -> dict[Any, Any]:
    place = id(value)
    copied: dict[Any, Any] | None = memo.get(place)
    if copied is None:
        copied = memo[place] = {}
        for key, item in value.items():
            copied[key] = item if type(item) in SHARED else COPIERS[type(item)](item, memo)
    return copied


def _copy_list(value: Any, memo: Memo) -> Any:
    place = id(value)
    copied = memo.get(place)
    if copied is None:
        copied = memo[place] = value.copy()
        for at, item in enumerate(value):
            if type(item) not in SHARED:
                copied[at] = COPIERS[type(item)](item, memo)
    return copied


def _copy_tuple(value: tuple[Any, ...], memo: Memo) -> tuple[Any, ...]:
    for item in value:
        if type(item) not in SHARED:
            return tuple([COPIERS[type(item)](item, memo) for item in value])
    return value


def _copy_shallow(value: Any, memo: Memo) -> Any:
    copied = memo.get(id(value))
    if copied is None:
        copied = memo[id(value)] = copy(value)
    return copied


def _copy_method(value: Any, memo: Memo) -> Any:
    """The same method of the copy of its object."""
    owner = value.__self__
    return getattr(COPIERS[type(owner)](owner, memo), value.__name__)


def _copy_partial(value: partial[Any], memo: Memo) -> partial[Any]:
    return partial(
        COPIERS[type(value.func)](value.func, memo), *_copy_tuple(value.args, memo), **_copy_dict(value.keywords, memo)
    )


SHARED: Final[set[type]] = {int, str, bytes, bool, float, frozenset, type(None)}
"""The immutable types known so far."""
_BY_BASE: Final[dict[type, Copier]] = {
    **dict.fromkeys((*SHARED, Enum, type, FunctionType, BaseException), share),
    dict: _copy_dict,
    list: _copy_list,
    deque: _copy_list,
    tuple: _copy_tuple,
    set: _copy_shallow,
    bytearray: _copy_shallow,
    array: _copy_shallow,
    Random: _copy_shallow,
    MethodType: _copy_method,
    BuiltinMethodType: _copy_method,
    partial: _copy_partial,
}
"""The copier of each type and its subclasses."""
COPIERS: Final = _Copiers()


def declare(copiers: dict[type, Copier]) -> None:
    """Declare the copiers of these types and their subclasses."""
    _BY_BASE.update(copiers)
