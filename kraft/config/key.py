"""`Key`: which setting of Kafka a field of a settings struct holds (Kafka: `ConfigDef`).

A part of a node has its settings in a struct of its own, which names the key and the default of each field:

    class SnapshotOptions(Struct, frozen=True, kw_only=True):
        max_bytes: Annotated[int, Key("metadata.log.max.record.bytes.between.snapshots")] = 20 << 20

`Config.of` makes such a struct from the file of a node, so that no field is copied by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from msgspec import Struct

if TYPE_CHECKING:
    from kraft.config.settings_reader import SettingsReader

S = TypeVar("S", bound=Struct)


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
    for field, hint in get_type_hints(settings, include_extras=True).items():
        key = next((mark for mark in getattr(hint, "__metadata__", ()) if isinstance(mark, Key)), None)
        if key is not None:
            found[field] = key
        elif isinstance(hint, type) and issubclass(hint, Struct) and keys_of(hint):
            found[field] = hint
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
