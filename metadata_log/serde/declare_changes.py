"""Developer tool: lists the changes of a new Kafka release in the schema facts."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from metadata_log.serde.declare_tables import Fact, Facts

_OF_MESSAGES: Final = ("type", "apiKey", "validVersions", "flexibleVersions")
_OF_FIELDS: Final = (
    "type",
    "versions",
    "nullableVersions",
    "taggedVersions",
    "tag",
    "default",
    "ignorable",
    "flexibleVersions",
    "mapKey",
)
TABLES: Final = {
    "apis.json": "api_key",
    "errors.json": "code",
    "metadata_versions.json": "version",
    "features.json": "feature",
    "record_types.json": "api_key",
    "control_record_types.json": "type",
}
"""File -> the column that names a row; the last four are compared where both sides have them."""


def changes(old: Facts, new: Facts) -> list[str]:
    """One line for each differing fact: messages, then their fields by path, then the tables."""
    return list(_messages(old, new)) + [line for table in TABLES for line in _table(table, old, new)]


def _messages(old: Facts, new: Facts) -> Iterator[str]:
    for file in sorted((old.keys() | new.keys()) - TABLES.keys()):
        before, after = old.get(file), new.get(file)
        if not (is_message(before) or is_message(after)):
            continue
        name = file.removesuffix(".json")
        if before is None or after is None:
            found: Fact = after or before or {}
            yield f"{name}: {'new' if after else 'gone'}: {_words(found, _OF_MESSAGES)}"
            continue
        yield from _differences(name, before, after, _OF_MESSAGES)
        yield from _fields(name, _fields_of(before), _fields_of(after))


def is_message(fact: Any) -> bool:
    """Whether a fact is the schema of a message."""
    return isinstance(fact, dict) and "validVersions" in fact


def _fields_of(message: Fact) -> list[Fact]:
    """The fields of a message; a shared structure counts as a field of its own."""
    return [*message["fields"], *(shared | {"type": "structure"} for shared in message.get("commonStructs", []))]


def _fields(path: str, old: list[Fact], new: list[Fact]) -> Iterator[str]:
    before = {field["name"]: field for field in old}
    after = {field["name"]: field for field in new}
    for name in [*after, *(name for name in before if name not in after)]:
        place = f"{path}.{name}"
        if name not in before:
            yield f"{place}: new: {_words(after[name], _OF_FIELDS)}"
        elif name not in after:
            yield f"{place}: gone: {_words(before[name], _OF_FIELDS)}"
        else:
            yield from _differences(place, before[name], after[name], _OF_FIELDS)
            yield from _fields(place, before[name].get("fields", []), after[name].get("fields", []))
    if list(before) != [name for name in after if name in before] and before.keys() <= after.keys():
        yield f"{path}: fields in another order"


def _table(table: str, old: Facts, new: Facts) -> Iterator[str]:
    key = TABLES[table]
    if table not in old or table not in new:
        if table in old or table in new:
            yield f"{table}: not compared, as one of the releases comes without it"
        return
    before = {row[key]: row for row in old[table]}
    after = {row[key]: row for row in new[table]}
    for number in sorted(before.keys() | after.keys()):
        place = f"{table} {number}"
        if number not in before:
            yield f"{place}: new: {_words(after[number], tuple(one for one in after[number] if one != key))}"
        elif number not in after:
            yield f"{place}: gone"
        else:
            yield from _differences(place, before[number], after[number], tuple(after[number]))


def _differences(
    place: str, before: Mapping[str, Any], after: Mapping[str, Any], keys: tuple[str, ...]
) -> Iterator[str]:
    for key in keys:
        if before.get(key) != after.get(key):
            yield f"{place}: {key} {_word(before.get(key))} -> {_word(after.get(key))}"


def _words(fact: Fact, keys: tuple[str, ...]) -> str:
    return ", ".join(f"{key} {_word(fact[key])}" for key in keys if key in fact)


def _word(value: object) -> str:
    return "none" if value is None else str(value)


def text_diff(root: Path, generated: Mapping[str, str]) -> str:
    """The unified diff from the declarations below `root` to the generated ones; empty if they are the same."""
    parts: list[str] = []
    for path in sorted(generated):
        present = (root / path).read_text() if (root / path).exists() else ""
        parts += difflib.unified_diff(
            present.splitlines(keepends=True), generated[path].splitlines(keepends=True), f"a/{path}", f"b/{path}", n=2
        )
    return "".join(parts)
