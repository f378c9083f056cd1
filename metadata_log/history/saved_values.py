"""The values of a saved pass as plain lists, and back.

A value becomes a list that begins with a number for its type. The parts that most rows have in common, such as shapes
and reasons, are written once and referred to by number. The list of classes is fixed, and reading calls nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from inspect import Parameter, signature
from typing import Any, Final

from msgspec import Raw, Struct
from msgspec.msgpack import decode
from msgspec.structs import astuple

from metadata_log.errors import MetadataLogError
from metadata_log.history import causes, engine, events, incidents, open_rows
from metadata_log.history.causes import Reason
from metadata_log.history.changes import Changes, Template
from metadata_log.history.open_rows import When
from metadata_log.history.partition_rows import Shape
from metadata_log.history.partitions import Topic
from metadata_log.image import acls as image_acls
from metadata_log.image import brokers as image_brokers
from metadata_log.image import configs as image_configs
from metadata_log.image import controllers, features, image, producer_ids, quotas, scram, tokens, topics
from metadata_log.image.persistent_map import Map
from metadata_log.image.topics import Partition
from metadata_log.records import control
from metadata_log.records import metadata as records
from metadata_log.types import OffsetAndEpoch, Uuid

_TUPLE, _LIST, _DICT, _MAP, _SET, _FROZEN, _UUID, _STRUCT, _LARGE, _TEMPLATE, _CHANGES, _TOPIC, _SHAPE, _SHARED = range(
    14
)
_INT64: Final = 1 << 63
_HOMES: Final = (
    *(causes, engine, events, incidents, open_rows, records, control),
    *(image, image_acls, image_brokers, image_configs, controllers, features, producer_ids, quotas, scram, tokens),
    topics,
)


def _structs() -> Iterator[tuple[str, type[Struct]]]:
    for home in _HOMES:
        for cls in vars(home).values():
            if isinstance(cls, type) and issubclass(cls, Struct) and cls.__module__ == home.__name__:
                yield f"{cls.__module__}:{cls.__qualname__}", cls
    yield f"{OffsetAndEpoch.__module__}:{OffsetAndEpoch.__qualname__}", OffsetAndEpoch


_CLASSES: Final = dict(_structs())
"""The classes of values that a pass may keep. Bytes that name another class are refused."""


class SavedPassError(MetadataLogError):
    """The bytes are not those of a pass with these views and options, or are of another version."""


class Writer:
    """Values as lists that begin with a number for their type; plain values as they are."""

    def __init__(self) -> None:
        self.classes: list[tuple[str, list[str]]] = []
        """The names of the classes, each with its fields."""
        self.shared: list[Any] = []
        """The shared values, by number."""
        self._numbers: dict[type, tuple[int, tuple[str, ...]]] = {}
        self._known: dict[Any, int] = {}

    def value(self, value: Any) -> Any:
        """A value in its written form."""
        kind = type(value)
        if value is None or kind in (str, bool, float, bytes):
            return value
        if isinstance(value, int):
            return int(value) if -_INT64 <= value < _INT64 else [_LARGE, hex(value)]
        if kind is tuple:
            return [_TUPLE, *map(self.value, value)]
        if kind is Uuid:
            return [_UUID, bytes(value)]
        if kind in (Reason, When, Shape, Template):
            return [_SHARED, self.number(value)]
        if isinstance(value, Struct):
            return self._struct(value)
        if kind is dict:
            return [_DICT, *self._pairs(value.items())]
        if kind is Map:
            return [_MAP, *self._pairs(value.items())]
        if kind is list:
            return [_LIST, *map(self.value, value)]
        if kind in (set, frozenset):
            return [_SET if kind is set else _FROZEN, *map(self.value, sorted(value))]
        match value:
            case Changes():
                saved = value.to_save()
                return [_CHANGES, self.value(saved.all), self.value(saved.others), saved.has_noop]
            case Topic():
                return [_TOPIC, value.name, value.id_text, *value.keys]
        raise TypeError(f"a pass keeps no {kind.__qualname__}")

    def number(self, value: Reason | When | Shape | Template) -> int:
        """The number of a shared value. Templates are keys and compare by identity; the others compare by value."""
        match value:
            case Shape():
                key: tuple[type, Any] = (Shape, value.partition)
            case Reason():
                key = (Reason, astuple(value))
            case _:
                key = (type(value), value)
        known = self._known.get(key)
        if known is None:
            match value:
                case Shape():
                    written = [_SHAPE, self.value(value.partition)]
                case Template():
                    written = [_TEMPLATE, self.value(value.record)]
                case _:
                    written = self._struct(value)
            known = self._known[key] = len(self.shared)
            self.shared.append(written)
        return known

    def _struct(self, value: Struct) -> Any:
        number, names = self._class(type(value))
        return [_STRUCT, number, *(self.value(getattr(value, name)) for name in names)]

    def _pairs(self, items: Iterable[tuple[Any, Any]]) -> Iterator[Any]:
        for key, value in items:
            yield self.value(key)
            yield self.value(value)

    def _class(self, kind: type[Struct]) -> tuple[int, tuple[str, ...]]:
        known = self._numbers.get(kind)
        if known is None:
            known = self._numbers[kind] = (len(self.classes), kind.__struct_fields__)
            self.classes.append((f"{kind.__module__}:{kind.__qualname__}", list(kind.__struct_fields__)))
        return known


class Reader:
    """The values of a `Writer`. Equal texts become one object, as most were in the pass that was saved.

    Args:
        classes: The names of the classes, each with its fields.
        shared: The shared values in their written form, not yet decoded.
        shape: The function that makes the shape of a partition.
        cluster: The cluster of the pass.
    """

    def __init__(
        self,
        classes: Iterable[tuple[str, list[str]]],
        shared: list[Raw],
        shape: Callable[[Partition], Shape],
        cluster: str,
    ) -> None:
        self._classes = [_class_of(name, tuple(given)) for name, given in classes]
        self._written = shared
        self._shared: list[Any] = [None] * len(shared)
        self._cluster = cluster
        self._texts: dict[str, str] = {}
        self._makers: tuple[Callable[[list[Any]], Any], ...] = (
            lambda given: tuple(self._behind(given)),
            self._behind,
            lambda given: dict(self._pairs(given)),
            lambda given: Map(self._pairs(given)),
            lambda given: set(self._behind(given)),
            lambda given: frozenset(self._behind(given)),
            lambda given: Uuid(given[1]),
            self._struct,
            lambda given: int(given[1], 16),
            lambda given: Template(self.value(given[1])),
            self._changes,
            self._topic,
            lambda given: shape(self.value(given[1])),
            lambda given: self.shared(given[1]),
        )

    def value(self, value: Any) -> Any:
        """The value of a written form."""
        kind = type(value)
        if kind is list:
            return self._makers[value[0]](value)
        return self._texts.setdefault(value, value) if kind is str else value

    def shared(self, number: int) -> Any:
        """The shared value of a number."""
        value = self._shared[number]
        if value is None:
            value = self._shared[number] = self.value(decode(self._written[number]))
        return value

    def text(self, value: str | None) -> str | None:
        """A text, the same object for equal texts."""
        return None if value is None else self._texts.setdefault(value, value)

    def _behind(self, given: list[Any]) -> list[Any]:
        """The values after the number of a type."""
        makers, texts = self._makers, self._texts
        values = []
        for value in given[1:]:
            kind = type(value)
            if kind is list:
                values.append(makers[value[0]](value))
            else:
                values.append(texts.setdefault(value, value) if kind is str else value)
        return values

    def _pairs(self, given: list[Any]) -> Iterator[tuple[Any, Any]]:
        values = iter(self._behind(given))
        return zip(values, values, strict=True)

    def _struct(self, given: list[Any]) -> Any:
        return self._classes[given[1]](self._behind(given[1:]))

    def _changes(self, given: list[Any]) -> Changes:
        changes = Changes()
        changes.all, changes.others, changes.has_noop = self.value(given[1]), self.value(given[2]), given[3]
        return changes

    def _topic(self, given: list[Any]) -> Topic:
        _, name, id_text, *keys = given
        topic = Topic(self._cluster, self.value(name), id_text)
        topic.keys = dict.fromkeys(keys)
        return topic


@cache
def _class_of(name: str, given: tuple[str, ...]) -> Callable[[list[Any]], Any]:
    """The maker of a Struct of ours from the values of the given fields, in their order."""
    cls = _CLASSES.get(name)
    if cls is None:
        raise SavedPassError(f"a pass keeps no {name}")
    if unknown := set(given) - set(cls.__struct_fields__):
        raise SavedPassError(f"{name} has no field {', '.join(sorted(unknown))}")
    by_place = all(one.kind is Parameter.POSITIONAL_OR_KEYWORD for one in signature(cls).parameters.values())
    if by_place and given == cls.__struct_fields__:
        return lambda values: cls(*values)
    return lambda values: cls(**dict(zip(given, values, strict=True)))
