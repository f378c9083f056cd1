"""All persistent maps do the same, whichever of them this Python uses."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata_log.image import map_of_dicts, map_of_rpds, persistent_map
from metadata_log.image.persistent_map import in_key_order
from support import ROOT

LIBRARIES: list[ModuleType] = [map_of_rpds, map_of_dicts]
if sys.version_info < (3, 14):
    from metadata_log.image import map_of_immutables

    LIBRARIES.append(map_of_immutables)

EITHER = pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.__name__.rpartition("_")[2])
KEYS = st.text(max_size=2)
ENTRIES = st.dictionaries(KEYS, st.integers())


@EITHER
@given(entries=ENTRIES, changes=st.dictionaries(KEYS, st.integers() | st.none()))
def test_changes_do_not_modify_the_old_map(
    library: Any, entries: dict[str, int], changes: dict[str, int | None]
) -> None:
    before = library.Map(entries)
    at_once = library.with_changes(before, changes)
    one_by_one, expected = before, dict(entries)
    for key, value in changes.items():
        if value is not None:
            one_by_one, expected[key] = library.with_entry(one_by_one, key, value), value
        elif key in expected:
            one_by_one = library.without_key(one_by_one, key)
            del expected[key]
    assert dict(at_once.items()) == dict(one_by_one.items()) == expected
    assert at_once == one_by_one == library.Map(expected)
    assert len(at_once) == len(expected)
    assert before == library.Map(entries)


@EITHER
def test_a_map_without_a_change_is_the_same_object(library: Any) -> None:
    """Readers of an image compare its parts by identity, and look again at what is another object."""
    topic = object()
    entries = library.Map({"a": topic})
    assert library.with_changes(entries, {}) is entries
    assert library.with_entry(entries, "a", topic) is entries


@EITHER
def test_a_value_of_none_is_an_entry(library: Any) -> None:
    """The transactions that are to be ended are the keys of such a map."""
    entries = library.with_entry(library.Map(), "a", None)
    assert list(entries.items()) == [("a", None)]
    assert library.with_entry(entries, "a", None) == entries
    assert list(library.without_key(entries, "a").items()) == []


def test_no_map_is_subscripted_where_code_runs() -> None:
    """The map of `rpds` cannot be: `Map[str, int]` is for annotations, and for strings that name a type."""
    found = []
    for package in ("kraft", "metadata_log", "transport"):
        for path in sorted((ROOT / package).rglob("*.py")):
            text = path.read_text()
            if "Map[" not in text:
                continue
            tree = ast.parse(text)
            notes = [note for node in ast.walk(tree) for note in _annotations(node)]
            hidden = {id(part) for note in notes for part in ast.walk(note)}
            found += [
                f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}"
                for node in ast.walk(tree)
                if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == "Map"
                if id(node) not in hidden
            ]
    assert not found, "\n".join(found)


def _annotations(node: ast.AST) -> Iterator[ast.AST]:
    for name in ("annotation", "returns"):
        if note := getattr(node, name, None):
            yield note


@EITHER
@given(entries=ENTRIES)
def test_maps_are_walked_in_key_order(library: Any, entries: dict[str, int]) -> None:
    assert list(in_key_order(library.Map(entries))) == sorted(entries.items())


@EITHER
def test_deleting_a_missing_key_is_a_key_error(library: Any) -> None:
    with pytest.raises(KeyError):
        library.without_key(library.Map({"a": 1}), "b")


def test_persistent_map_uses_the_chosen_library() -> None:
    (chosen,) = (one for one in LIBRARIES if one.Map is persistent_map.Map)
    assert persistent_map.with_changes is chosen.with_changes
