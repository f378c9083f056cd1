"""Avro schemas, by Apache Avro's own library."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import Any, Final

from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityResult, SchemaCompatibilityType
from avro.constants import PRIMITIVE_TYPES
from avro.errors import AvroException, AvroWarning
from avro.name import Names
from avro.schema import Schema, make_avsc_object

from kraft.registry.schemas import Budget, Difference, InvalidSchema, Source, json_text, json_tree

warnings.filterwarnings("ignore", category=AvroWarning)  # a logical type that nobody knows is no mistake
_ORDER: Final = ("name", "type", "doc", "aliases", "fields", "symbols", "items", "values", "size", "order", "default")
_NAMED: Final = ("record", "error", "enum", "fixed")


def canonical(source: Source, normalize: bool) -> str:
    """Without spaces, and primitive types as plain names; normalized with full names and attributes in order."""
    _parsed(source)
    tree = _plain(json_tree(source.text))
    return json_text(_normal(tree, "") if normalize else tree)


def rendered(source: Source, form: str) -> str:
    """There is no other form."""
    raise InvalidSchema(f"Avro schemas have no format {form}")


def differences(reader: Source, writer: Source, budget: Budget) -> Iterator[Difference]:
    """Why the reader cannot read what the writer writes, by the rules of schema resolution."""
    compatibility = _Checker(budget).get_compatibility(_parsed(reader), _parsed(writer))
    if compatibility.compatibility is SchemaCompatibilityType.compatible:
        return
    kinds = dict.fromkeys(one.value.upper() for one in compatibility.incompatibilities)
    yield Difference(
        ", ".join(kinds), "; ".join(sorted(compatibility.messages)), ", ".join(sorted(compatibility.locations))
    )


def _parsed(source: Source) -> Schema:
    """The schema; what it imports is known by its names."""
    names = Names()
    try:
        for one in source.imports:
            make_avsc_object(json_tree(one.text), names)
        return make_avsc_object(json_tree(source.text), names)
    except (AvroException, TypeError, ValueError, AttributeError, KeyError) as bad:
        raise InvalidSchema(f"the schema is no Avro schema: {bad}") from bad


class _Checker(ReaderWriterCompatibilityChecker):
    """The library's checker, with bounded work."""

    def __init__(self, budget: Budget) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # avro has no types here
        self._budget = budget

    def get_compatibility(self, *args: Any, **kwargs: Any) -> SchemaCompatibilityResult:
        self._budget.spend()
        return super().get_compatibility(*args, **kwargs)


def _plain(schema: Any) -> Any:
    """`{"type": "int"}` as `"int"`, wherever a schema stands."""
    if isinstance(schema, list):
        return [_plain(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.keys() == {"type"}:
        return _plain(schema["type"])
    plain = {key: _plain(one) if key in ("type", "items", "values") else one for key, one in schema.items()}
    if isinstance(fields := plain.get("fields"), list):
        plain["fields"] = [{**one, "type": _plain(one["type"])} for one in fields]
    return plain


def _normal(schema: Any, namespace: str) -> Any:
    """A valid schema with full names, and with attributes in one order."""
    if isinstance(schema, list):
        return [_normal(one, namespace) for one in schema]
    if isinstance(schema, str):
        return schema if schema in PRIMITIVE_TYPES else _full(schema, namespace)
    normal = dict(schema)
    if normal["type"] in _NAMED:
        normal["name"] = _full(normal["name"], normal.pop("namespace", namespace) or "")
        namespace = normal["name"].rpartition(".")[0]
    elif not isinstance(normal["type"], str) or normal["type"] not in ("array", "map"):
        normal["type"] = _normal(normal["type"], namespace)
    for key in ("items", "values"):
        if key in normal:
            normal[key] = _normal(normal[key], namespace)
    if "fields" in normal:
        normal["fields"] = [_ordered({**one, "type": _normal(one["type"], namespace)}) for one in normal["fields"]]
    return _ordered(normal)


def _full(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _ordered(given: Mapping[str, Any]) -> dict[str, Any]:
    known = [key for key in _ORDER if key in given]
    return {key: given[key] for key in (*known, *sorted(given.keys() - set(_ORDER)))}
