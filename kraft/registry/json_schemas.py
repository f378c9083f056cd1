"""JSON schemas: the library `jsonschema` says whether a text is one, and two are compared here.

A reader can read what a writer writes if each document of the writer is one of the reader. That is decided for the
words that schemas of records are made of. Where others differ, the answer is not known, and the caller is told so. No
pattern of a stranger is ever run: Python's `re` may take for ever, and nothing can stop it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from jsonschema.exceptions import SchemaError
from jsonschema.validators import Draft7Validator, validator_for

from kraft.registry.schemas import Budget, CannotCheck, Difference, InvalidSchema, Source, json_text, json_tree

_NOT_COMPARED: Final = ("patternProperties", "unevaluatedProperties", "unevaluatedItems", "if", "prefixItems")
"""Words that change what others mean."""
_TYPES: Final = ("null", "boolean", "object", "array", "number", "string", "integer")
_SAYS_NOTHING: Final = frozenset(
    {
        *("$schema", "$id", "id", "$comment", "$anchor", "title", "description", "default", "examples", "deprecated"),
        *("readOnly", "writeOnly", "definitions", "$defs", "contentEncoding", "contentMediaType"),
    }
)
_LEAST: Final = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_MOST: Final = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_COMPARED: Final = frozenset(
    {
        *_LEAST,
        *_MOST,
        *("type", "enum", "const", "properties", "required", "additionalProperties", "items", "$ref"),
        *("anyOf", "oneOf", "allOf", "uniqueItems", "multipleOf"),
    }
)
_MEANT_FOR: Final = {
    "object": ("properties", "required", "additionalProperties", "minProperties", "maxProperties"),
    "array": ("items", "minItems", "maxItems", "uniqueItems"),
    "string": ("minLength", "maxLength"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
"""The words that say something of documents of one type alone."""


def canonical(source: Source, normalize: bool) -> str:
    """Without spaces; normalized with the keys in order."""
    tree = json_tree(source.text)
    if not isinstance(tree, dict | bool):
        raise InvalidSchema("a JSON schema is an object or a boolean")
    try:
        kind = validator_for(tree, default=Draft7Validator)
        kind.check_schema(tree)
    except SchemaError as bad:
        raise InvalidSchema(f"the schema is no JSON schema: {bad.message[:500]}") from bad
    except (TypeError, ValueError, KeyError, AttributeError) as bad:
        raise InvalidSchema(f"the schema is no JSON schema: {bad}") from bad
    return json_text(tree, sort=normalize)


def rendered(source: Source, form: str) -> str:
    """There is no other form."""
    raise InvalidSchema(f"JSON schemas have no format {form}")


def differences(reader: Source, writer: Source, budget: Budget) -> Iterator[Difference]:
    """Why a document of the writer may be none of the reader."""
    if reader == writer:
        return iter(())
    if reader.imports or writer.imports:
        raise CannotCheck("JSON schemas with references to others are not compared here")
    if any(one.text.count('"$id":') > 1 for one in (reader, writer)):
        raise CannotCheck("JSON schemas with several $id are not compared here")
    return _Comparison(json_tree(reader.text), json_tree(writer.text), budget).run()


class _Comparison:
    """Of two documents of schemas. A pair that is being compared is taken as compatible: schemas may be recursive."""

    def __init__(self, reader: Any, writer: Any, budget: Budget) -> None:
        self._reader = reader
        self._writer = writer
        self._budget = budget
        self._seen: set[tuple[str, str]] = set()
        shared = [json_text([_given(one, "definitions"), _given(one, "$defs")]) for one in (reader, writer)]
        self._share_definitions = shared[0] == shared[1]

    def run(self) -> Iterator[Difference]:
        """Every difference that matters."""
        yield from self._compare(self._reader, self._writer, "#")

    def _compare(self, reader: Any, writer: Any, where: str) -> Iterator[Difference]:
        self._budget.spend()
        names = _says(reader) | _says(writer)
        reader, writer = _resolved(reader, self._reader), _resolved(writer, self._writer)
        if writer is False or not _says(reader) or self._is_same(reader, writer):
            return
        if "$ref" in names:
            pair = json_text(reader), json_text(writer)
            if pair in self._seen:
                return
            self._seen.add(pair)
        if reader is False:
            yield Difference("NOTHING_IS_ALLOWED", "the reader takes no document here", where)
            return
        writer = {} if writer is True else writer
        for word in sorted((_says(reader) | _says(writer)) - _COMPARED):
            if word in _NOT_COMPARED:
                raise CannotCheck(f"schemas with {word} at {where} are not compared here")
            if word in reader and not (word in writer and self._is_same(reader[word], writer[word])):
                raise CannotCheck(f"{word} at {where} differs")
        if "anyOf" in writer or "oneOf" in writer:
            for at, one in enumerate(_branches(writer)):
                yield from self._compare(reader, one, f"{where}/{at}")
            return
        if "allOf" in writer or "allOf" in reader:
            yield from self._all(reader, writer, where)
            return
        if "anyOf" in reader or "oneOf" in reader:
            yield from self._any(reader, writer, where)
            return
        yield from self._plain(reader, writer, where)

    def _is_same(self, reader: Any, writer: Any) -> bool:
        """Whether both are written in the same way, and mean the same by it."""
        text = json_text(reader)
        if text != json_text(writer):
            return False
        if '"$ref":' not in text:
            return True
        return self._share_definitions and text.count('"$ref":') == sum(
            text.count(f'"$ref":"#/{one}/') for one in ("definitions", "$defs")
        )

    def _all(self, reader: Mapping[str, Any], writer: Mapping[str, Any], where: str) -> Iterator[Difference]:
        """Each part of the reader must hold; of the writer, one part or the rest is enough to make it hold."""
        mine = {key: one for key, one in reader.items() if key != "allOf"}
        for part in (*reader.get("allOf", ()), mine):
            problems: list[Difference] = []
            rest = {key: one for key, one in writer.items() if key != "allOf"}
            for given in (*writer.get("allOf", ()), rest):
                problems = self._tried(part, given, where)
                if not problems:
                    break
            if problems and "allOf" in writer:
                raise CannotCheck(f"allOf at {where} differs")
            yield from problems

    def _any(self, reader: Mapping[str, Any], writer: Mapping[str, Any], where: str) -> Iterator[Difference]:
        if rest := _says(reader) - {"anyOf", "oneOf", "type"} or {"anyOf", "oneOf"} <= _says(reader):
            raise CannotCheck(f"anyOf or oneOf beside other words at {where} is not compared here: {rest}")
        if (values := _values(writer)) is not None:
            yield from self._takes_all(reader, values, where)
            return
        types = _types(writer)
        if len(types) > 1:
            for one in sorted(types):
                yield from self._compare(reader, {**writer, "type": one}, where)
            return
        if lost := types - _widened(_types(reader)):
            yield Difference("TYPE_NARROWED", f"the reader does not take {', '.join(sorted(lost))}", where)
            return
        branches = [_resolved(one, self._reader) for one in reader.get("anyOf", reader.get("oneOf", ()))]
        if not (taking := [one for one in branches if not self._tried(one, writer, where)]):
            what = f"no branch of the reader takes what the writer writes ({', '.join(sorted(types))})"
            yield Difference("SUM_TYPE_NARROWED", what, where)
        elif "oneOf" in reader and any(_may_take(one, types) for one in branches if one is not taking[0]):
            raise CannotCheck(f"several branches of oneOf at {where} may take the same document")

    def _tried(self, reader: Any, writer: Any, where: str) -> list[Difference]:
        """The differences of an attempt, which is forgotten unless there are none."""
        before = set(self._seen)
        problems = list(self._compare(reader, writer, where))
        if problems:
            self._seen = before
        return problems

    def _plain(self, reader: Mapping[str, Any], writer: Mapping[str, Any], where: str) -> Iterator[Difference]:
        if (values := _values(writer)) is not None:
            yield from self._takes_all(reader, values, where)
            return
        if _values(reader) is not None:
            yield Difference("ENUM_ARRAY_CHANGED", "the reader takes some values alone", where)
            return
        types, wanted = _types(writer), _types(reader)
        if lost := types - _widened(wanted):
            yield Difference("TYPE_NARROWED", f"the reader does not take {', '.join(sorted(lost))}", where)
            return
        for kind, words in _MEANT_FOR.items():
            if kind in types or (kind == "number" and "integer" in types):
                yield from self._ranges(reader, writer, words, where)
        if "object" in types:
            yield from self._objects(reader, writer, where)
        if "array" in types and "items" in reader:
            yield from self._items(reader["items"], writer.get("items", True), where)

    def _takes_all(self, reader: Mapping[str, Any], values: list[Any], where: str) -> Iterator[Difference]:
        text = json_text(reader)
        if any(word in text for word in ('"$ref":', '"pattern', '"format":')):
            raise CannotCheck(f"whether the reader takes the values at {where} is not looked at here")
        takes = Draft7Validator(reader).is_valid
        for one in values:
            self._budget.spend()
            if not takes(one):
                yield Difference("ENUM_ARRAY_NARROWED", f"{json_text(one)[:100]} is no value of the reader", where)

    def _ranges(
        self, reader: Mapping[str, Any], writer: Mapping[str, Any], words: tuple[str, ...], where: str
    ) -> Iterator[Difference]:
        for word in words:
            if word not in reader:
                continue
            mine, theirs = reader[word], writer.get(word)
            if word in (*_LEAST, *_MOST):
                if isinstance(mine, bool) or isinstance(theirs, bool):
                    raise CannotCheck(f"{word} at {where} is not a number")
                fits = theirs is not None and (mine <= theirs if word in _LEAST else mine >= theirs)
                fits = fits or (word in ("minLength", "minItems", "minProperties") and mine == 0)
                if not fits:
                    yield Difference(f"{word.upper()}_CHANGED", f"{word} is {mine}, and was {theirs}", where)
            elif word == "uniqueItems":
                if mine and not theirs:
                    yield Difference("UNIQUE_ITEMS_ADDED", "the items have to differ", where)
            elif word == "multipleOf" and mine != theirs:
                whole = isinstance(theirs, int) and isinstance(mine, int) and not math.fmod(theirs, mine)
                if not whole:
                    yield Difference("MULTIPLE_OF_CHANGED", f"multipleOf is {mine}, and was {theirs}", where)

    def _objects(self, reader: Mapping[str, Any], writer: Mapping[str, Any], where: str) -> Iterator[Difference]:
        mine, theirs = reader.get("properties", {}), writer.get("properties", {})
        more, others = reader.get("additionalProperties", True), writer.get("additionalProperties", True)
        for name in sorted(mine.keys() | theirs.keys()):
            place = f"{where}/properties/{name}"
            problems = list(self._compare(mine.get(name, more), theirs.get(name, others), place))
            if problems and name not in theirs:
                yield Difference(
                    "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL",
                    f"the writer may have written {name} as anything, as it forbids no other properties",
                    place,
                )
            elif problems and name not in mine:
                what = f"the reader does not take {name}, as it forbids other properties"
                yield Difference("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", what, place)
            else:
                yield from problems
        yield from self._compare(more, others, f"{where}/additionalProperties")
        for name in sorted(set(reader.get("required", ())) - set(writer.get("required", ()))):
            declared = mine.get(name)
            # As in the common registry: whoever reads knows what to take instead.
            if not (isinstance(declared, dict) and "default" in declared):
                what = f"{name} is required, and may be missing in what was written"
                yield Difference("REQUIRED_ATTRIBUTE_ADDED", what, f"{where}/properties/{name}")

    def _items(self, reader: Any, writer: Any, where: str) -> Iterator[Difference]:
        if isinstance(reader, list) or isinstance(writer, list):
            raise CannotCheck(f"items of different kinds at {where} are not compared here")
        yield from self._compare(reader, writer, f"{where}/items")


def _says(schema: Any) -> set[str]:
    """The words that forbid something."""
    if isinstance(schema, bool):
        return set() if schema else {"not"}
    return {key for key in schema if key not in _SAYS_NOTHING and not key.startswith(("x-", "connect.", "javaType"))}


def _branches(schema: Mapping[str, Any]) -> Iterator[Any]:
    """The branches of anyOf or oneOf, each with what stands beside them."""
    word = "anyOf" if "anyOf" in schema else "oneOf"
    beside = {key: one for key, one in schema.items() if key != word}
    for one in schema[word]:
        yield {**beside, "allOf": [*beside.get("allOf", ()), one]} if _says(beside) else one


def _resolved(schema: Any, root: Any) -> Any:
    """Follow a `$ref` within the document to its target."""
    for _ in range(20):
        if not isinstance(schema, dict) or "$ref" not in schema:
            return schema
        reference = schema["$ref"]
        if not isinstance(reference, str) or not reference.startswith("#") or _says(schema) - {"$ref"}:
            raise CannotCheck(f"$ref {str(reference)[:100]} is not followed here")
        schema = root
        for part in reference[1:].split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(schema, dict) or key not in schema:
                raise CannotCheck(f"$ref {reference[:100]} leads nowhere")
            schema = schema[key]
        if not isinstance(schema, dict | bool):
            raise CannotCheck(f"$ref {reference[:100]} leads to no schema")
    raise CannotCheck("$ref leads in a circle")


def _types(schema: Mapping[str, Any]) -> set[str]:
    given = schema.get("type")
    kinds = set(_TYPES) - {"integer"} if given is None else {given} if isinstance(given, str) else set(given)
    return kinds - {"integer"} if "number" in kinds else kinds


def _values(schema: Mapping[str, Any]) -> list[Any] | None:
    """The values of `enum` and `const`; None if there are none of these."""
    if "const" in schema:
        return [schema["const"]]
    return list(schema["enum"]) if "enum" in schema else None


def _given(schema: Any, word: str) -> Any:
    return schema.get(word) if isinstance(schema, dict) else None


def _widened(types: set[str]) -> set[str]:
    return types | {"integer"} if "number" in types else types


def _may_take(schema: Any, types: set[str]) -> bool:
    """Whether a document of one of these types may be one of a schema."""
    if isinstance(schema, bool):
        return schema
    mine = _types(schema)
    return bool(_widened(mine) & _widened(types))
