"""`Key`: which setting of Kafka a field of a settings struct holds (Kafka: `ConfigDef`).

A part of a node has its settings in a struct of its own, which names the key and the default of each field:

    class SnapshotOptions(Struct, frozen=True, kw_only=True):
        max_bytes: Annotated[int, Key("metadata.log.max.record.bytes.between.snapshots")] = 20 << 20

`Config.of` makes such a struct from the file of a node, so that no field is copied by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from inspect import get_annotations
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_type_hints

from msgspec import Struct

if TYPE_CHECKING:
    from kraft.config.settings_reader import SettingsReader

S = TypeVar("S", bound=Struct)
_WITHOUT_KEYS: Final = ("bool", "bytes", "float", "int", "str")


class Key:
    """The key of a field. The field has the value that Kafka parses; with `read`, what that returns."""

    __slots__ = ("names", "read")

    def __init__(self, *names: str, read: Callable[[SettingsReader], Any] | None = None) -> None:
        self.names = names
        self.read = read


@cache
def keys_of(settings: type[Struct]) -> dict[str, Key | type[Struct]]:
    """The key of each field that has one, and the struct of each field that is a struct with keys."""
    found: dict[str, Key | type[Struct]] = {}
    for field, hint in _hints_of(settings).items():
        key = next((mark for mark in getattr(hint, "__metadata__", ()) if isinstance(mark, Key)), None)
        if key is not None:
            found[field] = key
        elif isinstance(hint, type) and issubclass(hint, Struct) and keys_of(hint):
            found[field] = hint
    return found


def _hints_of(settings: type[Struct]) -> dict[str, Any]:
    """The types of the fields that can have a key; a start does not compile the texts of the others."""
    found: dict[str, Any] = {}
    for cls in reversed(settings.__mro__):
        written = get_annotations(cls)
        told = {field: text for field, text in written.items() if text not in _WITHOUT_KEYS}
        if told:
            part = type(cls.__name__, (), {"__annotations__": told, "__module__": cls.__module__})
            hints = get_type_hints(part, include_extras=True)
        else:
            hints = {}
        found = {field: hint for field, hint in found.items() if field not in written} | hints
    return found


def build(settings: type[S], reader: SettingsReader, facts: dict[str, Any]) -> S:
    """A settings struct from a file and from facts, which a file does not say; raises `ConfigError`."""
    values = dict(facts)
    for field, key in keys_of(settings).items():
        if field in values:
            continue
        if not isinstance(key, Key):
            values[field] = build(key, reader, {})
        elif key.read is not None:
            values[field] = key.read(reader)
        elif key.names[0] in reader.settings:
            values[field] = reader.value(key.names[0])
    return settings(**values)
