"""Avro schemas, by Apache Avro's own library; written as Java's library writes them (`Schema.toString`)."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from math import isfinite
from typing import Any, Final

from avro.constants import PRIMITIVE_TYPES
from avro.errors import AvroException, AvroWarning
from avro.name import Names
from avro.schema import make_avsc_object

from kraft.registry.avro_resolution import NAMED, Resolution, Type, types_of
from kraft.registry.json_texts import json_text, json_tree
from kraft.registry.records import AVRO
from kraft.registry.schemas import Difference, InvalidSchema, Source

warnings.filterwarnings("ignore", category=AvroWarning)  # a logical type that nobody knows is no mistake
RESOLVED: Final = "resolved"
_NAMED: Final = (*NAMED, "error")
_RESERVED: Final = frozenset(
    ("doc", "fields", "items", "name", "namespace", "size", "symbols", "values", "type", "aliases")
)
"""The keys that are no properties of a schema; for an enum nor is `default`."""
_FIELD_RESERVED: Final = frozenset(("default", "doc", "name", "order", "type", "aliases"))
_TYPE_NAMES: Final = frozenset((*PRIMITIVE_TYPES, *_NAMED, "array", "map", "union")) - {"error"}
_ORDERS: Final = ("ascending", "descending", "ignore")


def canonical(source: Source, normalize: bool) -> str:
    """The text that `Schema.toString` of Java makes; normalized with full names, and with properties and aliases in
    order.
    """
    _check(source)
    return written(source, normalize)


def written(source: Source, normalize: bool) -> str:
    """The canonical form of a text that is known to be a schema."""
    return json_text(_Writer(source, normalize=normalize).tree())


def comparable(source: Source, normalize: bool) -> str:
    """The form that equal schemas have in common: the order of properties and of aliases never counts, as in Java."""
    return written(source, True)


def rendered(source: Source, form: str) -> str:
    """`resolved`: with all that it imports. Any other form, which a later registry may know, is the canonical one."""
    return json_text(_Writer(source, resolved=True).tree()) if form == RESOLVED else source.text


def differences(reader: Source, writer: Source) -> Iterator[Difference]:
    """Why the reader cannot read what the writer writes, by the rules of schema resolution."""
    return Resolution(_types(reader), _types(writer)).differences()


def _types(source: Source) -> Type:
    """The types of a schema that was registered, or taken as one, before.

    What a registry of long ago has let in may have names that no new schema may have: as in the common registry these
    are not looked at again.
    """
    try:
        return types_of(_Writer(source, normalize=True, resolved=True).tree())
    except (TypeError, ValueError, AttributeError, KeyError) as bad:
        raise InvalidSchema(f"the schema is no Avro schema: {str(bad)[:1000]}") from bad


def _check(source: Source) -> None:
    """Raise `InvalidSchema` if a new schema is none; what it imports, which is known, is defined by its names."""
    names = Names(validate_names=False)
    try:
        for one in source.imports:
            make_avsc_object(json_tree(one.text), names, validate_names=False)
        tree = _Writer(source).undefined() if source.imports else json_tree(source.text)
        names.validate_names = True
        make_avsc_object(tree, names, validate_names=True)
        _check_unions(_Writer(source, normalize=True, resolved=True).tree())
    except (AvroException, TypeError, ValueError, AttributeError, KeyError) as bad:
        raise InvalidSchema(f"the schema is no Avro schema: {str(bad)[:1000]}") from bad


def _check_unions(schema: Any) -> None:
    """Raise `InvalidSchema` if a union of a schema with full names has a type twice; the library sees some of these."""
    waiting = [schema]
    while waiting:
        one = waiting.pop()
        if isinstance(one, list):
            names = [_branch(each) for each in one]
            if len(names) > len(set(names)):
                twice = next(each for each in names if names.count(each) > 1)
                raise InvalidSchema(f"the schema is no Avro schema: Duplicate in union: {twice}")
            waiting += one
        elif isinstance(one, dict):
            waiting += [field["type"] for field in one.get("fields", ())]
            waiting += [one[word] for word in ("items", "values") if word in one]


def _branch(schema: Any) -> str:
    """The name by which a branch of a union is known."""
    if not isinstance(schema, dict):
        return str(schema)
    return str(schema["name"] if schema["type"] in _NAMED else schema["type"])


class _Writer:
    """Writes a schema anew from its JSON, as `toJson` of Java's `Schema` does.

    Args:
        source: A schema that the library has taken.
        normalize: Whether names are full, and properties and aliases in order.
        resolved: Whether what is imported is written, too, where it is named first.
    """

    def __init__(self, source: Source, *, normalize: bool = False, resolved: bool = False) -> None:
        self._normalize = normalize
        self._tree = json_tree(source.text)
        self._known: dict[str, tuple[Any, str]] = {}
        """The imported types by full name: each with the namespace around it."""
        self._written: set[str] = set()
        for one in source.imports:
            imported = json_tree(one.text)
            self._known |= _definitions(imported)
            if not resolved and isinstance(imported, dict) and imported.get("type") in _NAMED:
                self._written.add(_name(imported, "")[0])

    def tree(self) -> Any:
        """The schema as it is to be written."""
        return self.schema(self._tree, "")

    def undefined(self) -> Any:
        """The schema without what is imported.

        Java writes a type that an import defines within another one; where it says the same, the import defines it.
        """
        for full, (own, around) in _definitions(self._tree).items():
            if full in self._known:
                mine, theirs = (
                    _Writer(Source(AVRO, json_text({**one, "name": full, "namespace": space})), normalize=True).tree()
                    for one, space in ((own, _name(own, around)[1]), self._known[full])
                )
                if mine == theirs:
                    self._written.add(full)
        return self.tree() if self._written & _definitions(self._tree).keys() else self._tree

    def schema(self, schema: Any, namespace: str) -> Any:
        """A schema within a namespace."""
        if isinstance(schema, list):
            return [self.schema(one, namespace) for one in schema]
        if isinstance(schema, str):
            return self._named(schema, namespace)
        kind = schema["type"]
        if kind in _NAMED:
            return self.definition(schema, namespace)
        more = self._more(schema, _RESERVED)
        match kind:
            case "array":
                return {"type": kind, "items": self.schema(schema["items"], namespace), **more}
            case "map":
                return {"type": kind, "values": self.schema(schema["values"], namespace), **more}
            case str() if kind in PRIMITIVE_TYPES:
                return {"type": kind, **more} if more else kind
        raise InvalidSchema(f"the schema is no Avro schema: no type {str(kind)[:100]}")

    def definition(self, schema: Any, namespace: str) -> Any:
        """A record, an enum or a fixed."""
        full, space = _name(schema, namespace)
        if full in self._written:
            return self.reference(full, namespace)
        self._written.add(full)
        result: dict[str, Any] = {"type": schema["type"], "name": full if self._normalize else full.rpartition(".")[2]}
        if space != namespace and not (self._normalize and space):
            result["namespace"] = space
        if isinstance(doc := schema.get("doc"), str):
            result["doc"] = doc
        reserved = _RESERVED
        match schema["type"]:
            case "enum":
                result["symbols"] = schema["symbols"]
                if isinstance(schema.get("default"), str):
                    result["default"] = schema["default"]
                reserved |= {"default"}
            case "fixed":
                result["size"] = schema["size"]
            case _:
                result["fields"] = [self.field(one, space) for one in schema.get("fields", ())]
        result |= self._more(schema, reserved)
        if aliases := self._aliases(schema, space):
            result["aliases"] = [self.reference(one, space) for one in aliases]
        return result

    def field(self, field: Any, namespace: str) -> Any:
        """A field of a record."""
        kind = self.schema(field["type"], namespace)
        result = {"name": field["name"], "type": kind}
        if isinstance(doc := field.get("doc"), str):
            result["doc"] = doc
        if "default" in field:
            default = _default(field["default"], kind)
            result["default"] = _sorted(default) if self._normalize else default
        order = str(field.get("order", "ascending")).lower()
        if order != "ascending" and order in _ORDERS:
            result["order"] = order
        if aliases := self._aliases(field, ""):
            result["aliases"] = aliases
        return result | self._more(field, _FIELD_RESERVED)

    def reference(self, full: str, namespace: str) -> str:
        """A name within a namespace: without it, if it is the same and nothing else has that name."""
        space, _, name = full.rpartition(".")
        if self._normalize:
            return full
        return name if space and space == namespace and name not in _TYPE_NAMES else full

    def _named(self, name: str, namespace: str) -> Any:
        if name in PRIMITIVE_TYPES:
            return name
        full = _full(name, namespace)
        if full not in self._written and full not in self._known:
            full = name
        if full in self._written or full not in self._known:
            return self.reference(full, namespace)
        definition, around = self._known[full]
        # Where it is written, the namespace is another one; its own is said unless it is that.
        return self.definition({**definition, "name": full, "namespace": _name(definition, around)[1]}, namespace)

    def _more(self, schema: Any, reserved: frozenset[str]) -> dict[str, Any]:
        """The properties of a schema or a field."""
        more = {key: one for key, one in schema.items() if key not in reserved}
        result: dict[str, Any] = _sorted(more) if self._normalize else more
        return result

    def _aliases(self, schema: Any, namespace: str) -> list[str]:
        given = schema.get("aliases")
        names = [one for one in given if isinstance(one, str)] if isinstance(given, list) else []
        full = list(dict.fromkeys(_full(one, namespace) for one in names))
        return sorted(full) if self._normalize else full


def _definitions(schema: Any) -> dict[str, tuple[Any, str]]:
    """The types that a schema defines, by full name: each with the namespace around it."""
    found: dict[str, tuple[Any, str]] = {}
    waiting = [(schema, "")]
    while waiting:
        one, around = waiting.pop()
        if isinstance(one, list):
            waiting += [(inner, around) for inner in one]
        elif isinstance(one, dict):
            if one.get("type") in _NAMED:
                full, space = _name(one, around)
                found[full] = one, around
                waiting += [(field["type"], space) for field in one.get("fields", ())]
            waiting += [(one[word], around) for word in ("items", "values") if word in one]
    return found


def _name(schema: Any, namespace: str) -> tuple[str, str]:
    """The full name of a named type, and its namespace; of both in its name, that counts."""
    given = schema.get("namespace")
    full = _full(schema["name"], given if isinstance(given, str) else namespace)
    return full.removeprefix("."), full.rpartition(".")[0]


def _full(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _default(value: Any, kind: Any) -> Any:
    """The default of a field; a number may be given as a text."""
    kind = kind["type"] if isinstance(kind, dict) else kind
    if kind in ("float", "double") and isinstance(value, str):
        try:
            return number if isfinite(number := float(value)) else value
        except ValueError:
            return value
    return value


def _sorted(tree: Any) -> Any:
    """JSON with the keys of all objects in order."""
    if isinstance(tree, list):
        return [_sorted(one) for one in tree]
    return {key: _sorted(tree[key]) for key in sorted(tree)} if isinstance(tree, dict) else tree
