"""A JSON schema with all that it refers to: where references lead, what a schema says, and what says the same."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote, urldefrag, urljoin

from jsonschema.validators import (
    Draft3Validator,
    Draft4Validator,
    Draft7Validator,
    Draft201909Validator,
    Draft202012Validator,
    validator_for,
)

from kraft.registry.json_texts import json_tree
from kraft.registry.schemas import Imported

ONE: Final = frozenset(
    {
        *("additionalProperties", "additionalItems", "contains", "not", "if", "then", "else", "propertyNames"),
        *("unevaluatedProperties", "unevaluatedItems", "items"),
    }
)
"""Words whose value is a schema; `items` may also be a list of schemas."""
MANY: Final = frozenset(("allOf", "anyOf", "oneOf", "prefixItems", "items"))
NAMED: Final = frozenset(("properties", "patternProperties", "dependentSchemas", "dependencies"))
_KEPT: Final = ("definitions", "$defs")
"""Schemas that count only where something refers to them."""
_BESIDE: Final = {
    "if": ("then", "else"),
    "contains": ("minContains", "maxContains"),
    "minimum": ("exclusiveMinimum",),
    "maximum": ("exclusiveMaximum",),
}
"""Words that the library reads with another one."""
_UNORDERED: Final = ("required", "type", "enum")
_IN_PLACE: Final = ("allOf", "anyOf", "oneOf", "not", "if", "$ref", "$dynamicRef", "$recursiveRef", "dependentSchemas")
"""Words that look at the same document again, so that what they have looked at counts for `unevaluated…`."""
REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")


class Meanings:
    """Numbers for what schemas say: two schemas that say the same in the same words have one number."""

    def __init__(self) -> None:
        self._numbers: dict[object, int] = {}

    def number(self, key: object) -> int:
        """The number of a key; equal keys have one."""
        return self._numbers.setdefault(key, len(self._numbers))


class Document:
    """A schema and all that it imports.

    Args:
        tree: The schema.
        imports: What it imports, by the names that it uses.
        meanings: The numbers of what both documents of a comparison say.
    """

    def __init__(self, tree: Any, imports: Sequence[Imported], meanings: Meanings) -> None:
        self.tree = tree
        self.kind = validator_for(tree, default=Draft7Validator)
        self.is_modern = self.kind in (Draft201909Validator, Draft202012Validator)
        """Whether words beside `$ref` count."""
        self.is_known = self.kind is not Draft3Validator
        self.words = frozenset(self.kind.VALIDATORS) | {
            beside for word, more in _BESIDE.items() if word in self.kind.VALIDATORS for beside in more
        }
        if not self.is_modern:
            self.words -= {"minContains", "maxContains"}
        self._meanings = meanings
        self._numbered: dict[int, tuple[int, bool]] = {}
        self._views: dict[int, Mapping[str, Any]] = {}
        self._kept: list[Any] = []
        """Schemas that are made here, whose identity must stay theirs."""
        self._places: dict[str, Any] = {}
        self._targets: dict[int, Any] = {}
        self.by_text: dict[str, list[Any]] = {}
        """Where the references of each text lead."""
        self.resources = [("", tree), *((one.name, json_tree(one.text)) for one in imports)]
        self._index()

    # References

    def target(self, schema: Mapping[str, Any]) -> Any:
        """The schema that the `$ref` of another leads to; None if that is not known."""
        return self._targets.get(id(schema))

    def _index(self) -> None:
        references: list[tuple[Any, str]] = []
        for name, tree in reversed(self.resources):
            for place in (name, f"./{name}"):
                self._places[place] = tree
            waiting = [(tree, name)]
            while waiting:
                schema, base = waiting.pop()
                if not isinstance(schema, dict):
                    continue
                base = self._named(schema, base)
                if any(word in schema for word in REFERENCES):
                    references.append((schema, base))
                waiting += [(one, base) for one in _schemas_in(schema)]
        for schema, base in references:
            for word in REFERENCES:
                if isinstance(text := schema.get(word), str):
                    target = self._found(text, base)
                    self.by_text.setdefault(text, []).append(target)
                    if word == "$ref":
                        self._targets[id(schema)] = target

    def _named(self, schema: Mapping[str, Any], base: str) -> str:
        """Note the names of a schema; the base of the references within it."""
        own = schema.get("id" if self.kind is Draft4Validator else "$id")
        if isinstance(own, str) and (self.is_modern or "$ref" not in schema):
            if own.startswith("#"):
                self._places.setdefault(f"{base}{own}", schema)
            else:
                base = urldefrag(_joined(base, own))[0]
                self._places.setdefault(base, schema)
        for word in ("$anchor", "$dynamicAnchor"):
            if isinstance(anchor := schema.get(word), str):
                self._places.setdefault(f"{base}#{anchor}", schema)
        return base

    def _found(self, text: str, base: str) -> Any:
        for whole in dict.fromkeys((_joined(base, text), text)):
            place, _, fragment = whole.partition("#")
            if fragment and not fragment.startswith("/"):
                if whole in self._places:
                    return self._places[whole]
                continue
            if place in self._places:
                return _pointed(self._places[place], fragment)
        return None

    # What a schema says

    def kept(self, schema: Any) -> Any:
        """A schema that is made here, and stays."""
        self._kept.append(schema)
        return schema

    def view(self, schema: Any) -> Mapping[str, Any]:
        """The words of a schema that forbid something, in the form of the newest draft.

        `prefix` has the schemas of the first items, and `rest` that of the others.
        """
        if isinstance(schema, bool):
            return {} if schema else {"not": True}
        known = self._views.get(id(schema))
        if known is None:
            known = self._views[id(schema)] = self._seen_anew(schema)
        return known

    def _seen_anew(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        if "$ref" in schema and not self.is_modern:
            return {"$ref": schema["$ref"]}
        view = {word: one for word, one in schema.items() if word in self.words or word in REFERENCES}
        if self.kind is Draft4Validator:
            for word in ("Minimum", "Maximum"):
                is_strict = view.pop(f"exclusive{word}", False)
                if is_strict is True and word.lower() in view:
                    view[f"exclusive{word}"] = view.pop(word.lower())
        for name, one in view.pop("dependencies", {}).items():
            word = "dependentRequired" if isinstance(one, list) else "dependentSchemas"
            view[word] = {**view.get(word, {}), name: one}
        if not any(word in view for word in _IN_PLACE):
            # Where nothing else looks at the document, all is unevaluated that is additional.
            for word, other in (("unevaluatedProperties", "additionalProperties"), ("unevaluatedItems", "rest")):
                if word in view:
                    view.setdefault(other, view.pop(word))
        items = view.pop("items", None)
        if isinstance(items, list):
            view["prefix"] = items
            items = view.get("additionalItems")
        elif "prefixItems" in view:
            view["prefix"] = view["prefixItems"]
        if items is not None:
            view["rest"] = items
        for word in ("prefixItems", "additionalItems"):
            view.pop(word, None)
        return view

    def meaning(self, schema: Any) -> tuple[int, bool]:
        """The number of what a schema says, and whether it refers to others."""
        if isinstance(schema, bool):
            return self._meanings.number(schema), False
        known = self._numbered.get(id(schema))
        if known is None:
            known = self._numbered[id(schema)] = self._numbered_anew(schema)
        return known

    def _numbered_anew(self, schema: Any) -> tuple[int, bool]:
        only_reference = "$ref" in schema and not self.is_modern
        refers = False
        key: list[object] = [self.kind.META_SCHEMA.get("$id", self.kind.META_SCHEMA.get("id"))]
        for word in sorted(schema):
            one = schema[word]
            if word in REFERENCES:
                refers = True
            elif only_reference or word not in self.words:
                continue
            inner = list(_schemas_of(word, one))
            if not inner:
                key.append((word, _plain(word, one)))
                continue
            numbers: list[tuple[str, int | str]] = []
            for name, part in inner:
                if isinstance(part, dict | bool):
                    number, more = self.meaning(part)
                    refers |= more
                    numbers.append((name, number))
                else:
                    numbers.append((name, _plain(word, part)))
            key.append((word, tuple(sorted(numbers, key=repr))))
        if len(key) == 1:
            return self._meanings.number(True), False
        return self._meanings.number(tuple(key)), refers


def _schemas_of(word: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The schemas in the value of a word, each with its name there."""
    if word in NAMED and isinstance(value, dict):
        for name in sorted(value):
            yield name, value[name]
    elif word in MANY and isinstance(value, list):
        for at, one in enumerate(value):
            yield "" if word.endswith("Of") else f"{at:06}", one
    elif word in ONE and isinstance(value, dict | bool):
        yield "", value


def _schemas_in(schema: Mapping[str, Any]) -> Iterator[Any]:
    for word, value in schema.items():
        if word in _KEPT and isinstance(value, dict):
            yield from value.values()
        else:
            for _, one in _schemas_of(word, value):
                yield one


def _plain(word: str, value: Any) -> str:
    if word in _UNORDERED and isinstance(value, list):
        return ",".join(sorted({json.dumps(one, sort_keys=True) for one in value}))
    return json.dumps(value, sort_keys=True)


def _joined(base: str, reference: str) -> str:
    if reference.startswith("#"):
        return base + reference
    try:
        return urljoin(base, reference)
    except ValueError:
        return reference


def _pointed(tree: Any, pointer: str) -> Any:
    """The schema at a pointer within a tree; None if there is none."""
    for part in pointer.split("/")[1:]:
        key = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(tree, dict) and key in tree:
            tree = tree[key]
        elif isinstance(tree, list) and key.isascii() and key.isdigit() and len(key) < 7 and int(key) < len(tree):
            tree = tree[int(key)]
        else:
            return None
    return tree if isinstance(tree, dict | bool) else None
