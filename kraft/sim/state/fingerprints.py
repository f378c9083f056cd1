"""Fingerprints of replicas: the values of all fields that can influence the future behaviour.

One generic walk collects them. A field counts unless `kraft.sim.state.irrelevant` declares that it does not, and why.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import partial
from hashlib import blake2b
from random import Random
from types import BuiltinMethodType, FunctionType, MethodType, UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from msgspec import Struct

from kraft.process.process import Process
from kraft.sim.state.copier import field_names, meet
from kraft.sim.state.irrelevant import IRRELEVANT
from metadata_log.image import MetadataImage
from metadata_log.memory_disk import MemoryDisk, MemoryFile, MemoryLock
from metadata_log.serde import Message

Fact = object
Summary = Callable[[Any], Fact]
"""Returns the relevant parts of an object."""
_PLAIN: Final = (int, float, str, bytes, bytearray, Enum, type(None), Message)
"""The types with a `repr` that contains their whole value."""


def fingerprint(process: Process) -> bytes:
    """A digest of 16 bytes. Replicas that can behave differently have different digests, apart from random numbers.

    The digest does not depend on hash seeds. The disk counts only if it is a `MemoryDisk`. `TypeError` if the replica
    refers to an object that no rule covers.
    """
    facts = FactsOf()(process)
    return blake2b(repr(facts).encode(), digest_size=16).digest()


class FactsOf:
    """Walks an object, and returns nested tuples of plain values. The type alone stands for a repeated object.

    `summaries` has functions for types with other relevant parts than their relevant fields.
    """

    def __init__(self, summaries: Mapping[type, Summary] | None = None) -> None:
        self._summaries: Mapping[type, Summary] = SUMMARIES if summaries is None else {**SUMMARIES, **summaries}
        self._ways: dict[type, Callable[[Any, set[int]], Fact]] = {}
        """The function that walks objects of a type."""

    def __call__(self, value: Any) -> Fact:
        """The facts of a value."""
        return self._walk(value, set())

    def _walk(self, value: Any, seen: set[int]) -> Fact:
        kind = type(value)
        if kind in _LEAVES:
            return value
        way = self._ways.get(kind)
        if way is None:
            way = self._ways[kind] = self._choose(kind)
        return way(value, seen)

    def _choose(self, kind: type) -> Callable[[Any, set[int]], Fact]:
        summary = next((self._summaries[base] for base in kind.__mro__ if base in self._summaries), None)
        if summary is not None:
            return partial(self._summarised, summary)
        if issubclass(kind, (list, deque, tuple, array)):
            return self._items
        if issubclass(kind, dict):
            return self._pairs
        if issubclass(kind, (set, frozenset)):
            return self._sorted
        if issubclass(kind, _PLAIN) or (issubclass(kind, Struct) and is_plain(kind)):
            return _itself
        for base, way in _CALLABLES.items():
            if issubclass(kind, base):
                return partial(self._callable, way)
        return self._fields

    def _items(self, value: Iterable[Any], seen: set[int]) -> Fact:
        return tuple([item if type(item) in _LEAVES else self._walk(item, seen) for item in value])

    def _pairs(self, value: dict[Any, Any], seen: set[int]) -> Fact:
        return tuple([(self._walk(key, seen), self._walk(item, seen)) for key, item in value.items()])

    def _sorted(self, value: Iterable[Any], seen: set[int]) -> Fact:
        return tuple(sorted([self._walk(item, seen) for item in value], key=repr))

    def _summarised(self, summary: Summary, value: Any, seen: set[int]) -> Fact:
        return self._walk(summary(value), seen) if meet(value, seen) else type(value).__name__

    def _callable(self, parts: Summary, value: Any, seen: set[int]) -> Fact:
        return self._walk(parts(value), seen)

    def _fields(self, value: Any, seen: set[int]) -> Fact:
        kind = type(value)
        if not meet(value, seen):
            return kind.__name__
        facts: list[Fact] = [kind.__name__]
        for name in relevant_names(value):
            item = getattr(value, name)
            try:
                facts.append(item if type(item) in _LEAVES else self._walk(item, seen))
            except TypeError as unknown:
                unknown.add_note(f"in {kind.__name__}.{name}")
                raise
        return tuple(facts)


def _itself(value: Fact, _: set[int]) -> Fact:
    return value


def relevant_names(value: Any) -> tuple[str, ...]:
    """The names of the fields of an object that count. Raises `TypeError` for an object without fields."""
    attributes = getattr(value, "__dict__", None)
    key = type(value), None if attributes is None else tuple(attributes)
    names = _RELEVANT.get(key)
    if names is None:
        names = _RELEVANT[key] = _relevant_names(*key)
    return names


def _relevant_names(kind: type[Any], attributes: tuple[str, ...] | None) -> tuple[str, ...]:
    slots, irrelevant = field_names(kind), irrelevant_of(kind)
    if attributes is None and not slots:
        raise TypeError(f"no rule names the relevant parts of a {kind.__qualname__}")
    return tuple(name for name in (*slots, *sorted(attributes or ())) if name not in irrelevant)


def irrelevant_of(kind: type[Any]) -> Mapping[str, str]:
    """The irrelevant fields of a class, each with its reason."""
    return {name: why for base in kind.__mro__ for name, why in IRRELEVANT.get(base, {}).items()}


def is_plain(kind: type[Any]) -> bool:
    """Whether a struct is immutable and has only plain fields, so that its `repr` contains its whole value."""
    if issubclass(kind, Message):
        return True
    if not kind.__struct_config__.frozen or kind in IRRELEVANT:
        return False
    return all(_is_plain_hint(hint) for name, hint in get_type_hints(kind).items() if name in field_names(kind))


def _is_plain_hint(hint: Any) -> bool:
    origin = get_origin(hint)
    if origin in (Union, UnionType) or origin is tuple:
        return all(one is Ellipsis or _is_plain_hint(one) for one in get_args(hint))
    kind = hint if origin is None else origin
    if not isinstance(kind, type):
        return False
    return is_plain(kind) if issubclass(kind, Struct) else issubclass(kind, _PLAIN)


_LEAVES: Final = frozenset((int, float, str, bytes, bool, type(None)))
SUMMARIES: Final[Mapping[type, Summary]] = {
    # The contents of the files, now and after a crash, but not the number of crashes.
    MemoryDisk: lambda disk: disk.fingerprint(),
    MemoryFile: lambda file: (file._path, file._writable, file._life == file._disk._life),
    MemoryLock: lambda lock: (lock._name, lock._life == lock._disk._life),
    # The image follows from the log and this offset.
    MetadataImage: lambda image: image.end,
    # Future random numbers do not count.
    Random: lambda _: None,
    BaseException: repr,
}
_RELEVANT: Final[dict[tuple[type[Any], tuple[str, ...] | None], tuple[str, ...]]] = {}
_CALLABLES: Final[Mapping[type, Summary]] = {
    type: lambda kind: kind.__qualname__,
    MethodType: lambda method: (method.__name__, method.__self__),
    BuiltinMethodType: lambda method: (method.__name__, method.__self__),
    FunctionType: lambda one: (one.__qualname__, *(cell.cell_contents for cell in one.__closure__ or ())),
    partial: lambda one: (one.func, one.args, one.keywords),
}
