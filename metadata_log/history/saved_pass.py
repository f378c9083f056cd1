"""A history pass as bytes: everything that the engine knows between two batches, so that a later pass continues there.

A snapshot of Kafka holds the state of a cluster. A pass also knows since when and why each open row holds, what led to
it, and what waits for an explanation. So the bytes hold the attributes of the engine's families, each as a value, and a
restored pass writes the same rows as one that was never interrupted (decision 0065). The bytes name classes and fields;
reading makes values and calls nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import fields

from metadata_log.errors import MetadataLogError
from metadata_log.history import causes, engine, events, incidents, open_rows
from metadata_log.history.acls import Acls
from metadata_log.history.brokers import Brokers, Fencing
from metadata_log.history.changes import Changes, Template
from metadata_log.history.churn import Churn
from metadata_log.history.cluster import Cluster
from metadata_log.history.configs import Configs, Drift
from metadata_log.history.engine import HistoryPass, Options
from metadata_log.history.families import Families
from metadata_log.history.incidents import Incidents
from metadata_log.history.leaders import (
    IsrFlaps,
    IsrHistory,
    LeaderHistory,
    Reassignments,
    Unavailability,
    UncleanElections,
)
from metadata_log.history.open_rows import OpenRows
from metadata_log.history.partitions import Partitions, Shape, Topic
from metadata_log.history.quorum import Quorum
from metadata_log.history.retention import Retention
from metadata_log.history.topics import Topics
from metadata_log.image import acls as image_acls
from metadata_log.image import brokers as image_brokers
from metadata_log.image import configs as image_configs
from metadata_log.image import controllers, features, image, producer_ids, quotas, scram, tokens, topics
from metadata_log.image.persistent_map import Map
from metadata_log.image.topics import Partition
from metadata_log.records import control
from metadata_log.records import metadata as records
from metadata_log.types import OffsetAndEpoch, Uuid

FORMAT: Final = 2
"""Raised whenever a family keeps something else, or in another meaning: an older pass is then read from its log."""

STATE: Final[dict[type, tuple[str, ...]]] = {
    HistoryPass: ("_cluster", "_retention", "_image", "_last", "_held", "_transaction"),
    Cluster: (
        *("quorum", "_configs", "_partitions", "_brokers", "_topics", "_acls", "_families", "_churn", "_kept"),
        *("_kraft_version", "_born", "_min_isr_set"),
    ),
    Quorum: ("_epochs", "_voters", "_known_voters", "_last", "_leader", "_has_clock"),
    Configs: ("image", "_rows", "_drift"),
    Drift: ("rows",),
    Partitions: ("_topics", "_ids", "_cells"),
    Brokers: ("image", "last_seen_ms", "_rows", "fencing"),
    Fencing: ("rows", "_moved", "_left"),
    Topics: ("_rows", "_shape", "_changed"),
    Acls: ("_image", "_rows", "_audit", "_denied_by"),
    Families: (
        *("_features", "_quotas", "_scram", "_tokens", "_producer_ids", "_controllers"),
        *("_levels", "_controllers_image"),
    ),
    Churn: ("_hour", "_counters"),
    LeaderHistory: ("rows",),
    IsrHistory: ("rows",),
    IsrFlaps: ("rows", "_out"),
    UncleanElections: ("rows",),
    Reassignments: ("rows",),
    Unavailability: ("rows", "incidents", "_topics"),
    Incidents: ("_groups",),
    Retention: ("_first", "_last", "_path", "_records", "_unknown", "is_lost", "ignored"),
    OpenRows: ("_rows",),
}
"""The attributes of each family that change with the records."""

WIRING: Final[dict[type, tuple[str, ...]]] = {
    HistoryPass: ("sink", "_options", "_templates", "_states"),
    Cluster: ("_sink", "_session_timeout_ms", "_table", "_incidents"),
    Quorum: ("_sink", "_tolerance_ms"),
    Configs: ("listeners", "_show_secrets", "_wanted"),
    Drift: ("_wanted", "_show_secrets"),
    Partitions: ("listeners", "_shapes", "_steps", "_sink", "_wanted", "_unclean_allowed"),
    Acls: ("_audited",),
    Families: ("_all",),
    Churn: ("_sink",),
    LeaderHistory: ("_sink",),
    Unavailability: ("_configs",),
    Incidents: ("_sink", "_wanted"),
    Retention: ("_sink",),
    OpenRows: ("_sink", "_seconds_at", "_wanted", "view"),
}
"""The attributes that follow from the options, and those that only save work (templates, shapes, steps)."""

_TUPLE, _LIST, _DICT, _MAP, _SET, _FROZEN, _UUID, _STRUCT, _LARGE, _TEMPLATE, _CHANGES, _TOPIC, _SHAPE = range(13)
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


class _Saved(Struct, frozen=True):
    format: int
    cluster: str
    views: list[str]
    options: Any
    classes: list[tuple[str, list[str]]]
    values: list[Any]


def save_pass(story: HistoryPass, *, cluster: str, views: Collection[str], options: Options) -> bytes:
    """The state of a pass between two items, as bytes.

    Args:
        story: The pass; its sink must be empty.
        cluster: The cluster of the pass.
        views: The views of the pass.
        options: The options of the pass.

    Returns:
        The bytes. They hold secrets if the log does: of SCRAM, tokens and configurations.
    """
    writer = _Writer()
    values = [writer.value(getattr(part, name)) for part, name in _values_of(story)]
    saved = _Saved(FORMAT, cluster, sorted(views), _told(options), writer.classes, values)
    return msgspec.msgpack.encode(saved)


def restore_pass(data: bytes, *, cluster: str, views: Collection[str], options: Options) -> HistoryPass:
    """The pass that `save_pass` has saved.

    Args:
        data: The bytes.
        cluster: The cluster, as it was saved.
        views: The views, as they were saved.
        options: The options, as they were saved.

    Returns:
        A pass that continues with the next item.

    Raises:
        SavedPassError: The bytes do not fit the arguments or this version.
    """
    try:
        saved = msgspec.msgpack.decode(data, type=_Saved)
    except msgspec.DecodeError as bad:
        raise SavedPassError(f"this is no saved pass: {bad}") from bad
    known = (FORMAT, cluster, sorted(views), _told(options))
    if (saved.format, saved.cluster, saved.views, saved.options) != known:
        raise SavedPassError("the pass was saved by another version, or with another cluster, views or options")
    story = HistoryPass(cluster, frozenset(views), options)
    parts = list(_parts_of(story))
    shape = next(part._shape for part in parts if isinstance(part, Partitions))
    reader = _Reader([_class_of(name, given) for name, given in saved.classes], shape)
    places = list(_values_of(story))
    if len(places) != len(saved.values):
        raise SavedPassError(f"the pass has {len(saved.values)} values where {len(places)} are expected")
    for (part, name), value in zip(places, saved.values, strict=True):
        setattr(part, name, reader.value(value))
    return story


def _told(options: Options) -> Any:
    """The options that shape the rows. A pass may meet damage in one mode and continue in another."""
    return {name: value for name, value in msgspec.to_builtins(options).items() if name != "on_damage"}


def _parts_of(part: Any, seen: list[Any] | None = None) -> Iterator[Any]:
    """A family and the families inside, each once, in the order of `STATE`."""
    seen = [] if seen is None else seen
    if any(one is part for one in seen):
        return
    seen.append(part)
    yield part
    for name in STATE[type(part)]:
        value = getattr(part, name)
        for inner in value if isinstance(value, list) else [value]:
            if type(inner) in STATE:
                yield from _parts_of(inner, seen)


def _values_of(story: HistoryPass) -> Iterator[tuple[Any, str]]:
    """Each attribute of each family that is a value."""
    for part in _parts_of(story):
        for name in STATE[type(part)]:
            value = getattr(part, name)
            is_family = type(value) in STATE or name == "_kept" or (name == "_churn" and value is None)
            if not is_family:
                yield part, name


class _Writer:
    """Values as lists that begin with a number for their type; plain values as they are."""

    def __init__(self) -> None:
        self.classes: list[tuple[str, list[str]]] = []
        self._numbers: dict[type, tuple[int, tuple[str, ...]]] = {}

    def value(self, value: Any) -> Any:
        kind = type(value)
        if value is None or kind in (str, bool, float, bytes):
            return value
        if isinstance(value, int):
            return int(value) if -_INT64 <= value < _INT64 else [_LARGE, hex(value)]
        if kind is tuple:
            return [_TUPLE, *map(self.value, value)]
        if kind is Uuid:
            return [_UUID, bytes(value)]
        if isinstance(value, Struct):
            number, names = self._number(kind)
            return [_STRUCT, number, *(self.value(getattr(value, name)) for name in names)]
        if kind is dict:
            return [_DICT, *self._pairs(value.items())]
        if kind is Map:
            return [_MAP, *self._pairs(value.items())]
        if kind is list:
            return [_LIST, *map(self.value, value)]
        if kind in (set, frozenset):
            return [_SET if kind is set else _FROZEN, *map(self.value, sorted(value))]
        match value:
            case Template():
                return [_TEMPLATE, self.value(value.record)]
            case Changes():
                return [_CHANGES, self.value(value.all), self.value(value.others), value.has_noop]
            case Topic():
                return [_TOPIC, value.name, value.id_text, *value.keys]
            case Shape():
                return [_SHAPE, self.value(value.partition)]
        raise TypeError(f"a pass keeps no {kind.__qualname__}")

    def _pairs(self, items: Any) -> Iterator[Any]:
        for key, value in items:
            yield self.value(key)
            yield self.value(value)

    def _number(self, kind: type[Struct]) -> tuple[int, tuple[str, ...]]:
        known = self._numbers.get(kind)
        if known is None:
            known = self._numbers[kind] = (len(self.classes), kind.__struct_fields__)
            self.classes.append((f"{kind.__module__}:{kind.__qualname__}", list(kind.__struct_fields__)))
        return known


class _Reader:
    """The values of a `_Writer`. Equal texts become one object, as most were in the pass that was saved."""

    def __init__(self, classes: list[Callable[..., Any]], shape: Callable[[Partition], Shape]) -> None:
        self._classes = classes
        self._shape = shape
        self._texts: dict[str, str] = {}

    def value(self, value: Any) -> Any:
        if type(value) is str:
            return self._texts.setdefault(value, value)
        if type(value) is not list:
            return value
        return self._made(value[0], value[1:])

    def _made(self, kind: int, rest: list[Any]) -> Any:
        match kind:
            case 0:
                return tuple(map(self.value, rest))
            case 1:
                return list(map(self.value, rest))
            case 2:
                return dict(self._pairs(rest))
            case 3:
                return Map(self._pairs(rest))
            case 4:
                return set(map(self.value, rest))
            case 5:
                return frozenset(map(self.value, rest))
            case 6:
                return Uuid(rest[0])
            case 7:
                return self._classes[rest[0]](*map(self.value, rest[1:]))
            case 8:
                return int(rest[0], 16)
            case 9:
                return Template(self.value(rest[0]))
            case 10:
                return self._changes(rest)
            case 11:
                return self._topic(rest)
            case 12:
                return self._shape(self.value(rest[0]))
        raise SavedPassError(f"there is no value of kind {kind}")

    def _pairs(self, rest: list[Any]) -> Iterator[tuple[Any, Any]]:
        values = map(self.value, rest)
        return zip(values, values, strict=True)

    def _changes(self, rest: list[Any]) -> Changes:
        found = Changes()
        found.all, found.others, found.has_noop = self.value(rest[0]), self.value(rest[1]), rest[2]
        return found

    def _topic(self, rest: list[Any]) -> Topic:
        name, id_text, *keys = rest
        topic = Topic(self.value(name), Uuid.parse(id_text))
        topic.keys = dict.fromkeys(keys)
        return topic


def _class_of(name: str, given: list[str]) -> Callable[..., Any]:
    """The maker of a Struct of ours from the values of the given fields, in their order."""
    cls = _CLASSES.get(name)
    if cls is None:
        raise SavedPassError(f"a pass keeps no {name}")
    if unknown := set(given) - {field.name for field in fields(cls)}:
        raise SavedPassError(f"{name} has no field {', '.join(sorted(unknown))}")
    return lambda *values: cls(**dict(zip(given, values, strict=True)))
