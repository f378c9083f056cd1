"""Requests to a schema registry that are small on the wire, and large inside or in work; registries that are full."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from kraft.registry.records import ConfigKey, ConfigValue, SchemaKey, SchemaReference, SchemaValue, encoded
from kraft.registry.requests import MAX_IMPORTS, MAX_VERSIONS, ROUTES, Route
from kraft.registry.schemas import Imported, Source
from kraft.registry.service import LIMITS
from kraft.registry.state import State

TEXT: Final = "a" * 2000


class Request(NamedTuple):
    """A request, and what it is."""

    about: str
    method: str
    path: str
    body: bytes
    query: dict[str, str] = {}


def _put(state: State, subject: str, version: int, number: int, schema: str, **more: Any) -> None:
    value = SchemaValue(subject=subject, version=version, id=number, schema=schema, **{"deleted": False, **more})
    state.apply(*encoded(SchemaKey(subject, version), value))


def many_subjects() -> State:
    state = State()
    for at in range(MAX_VERSIONS):
        _put(state, f"{'x' * 200}{at}", 1, at + 1, f'"{TEXT}{at}"')
    return state


def many_versions() -> State:
    state = State()
    for at in range(MAX_VERSIONS):
        _put(state, "s", at + 1, at + 1, f'"{TEXT}{at}"')
    return state


def many_deleted_versions() -> State:
    state = State()
    for at in range(MAX_VERSIONS):
        _put(state, "s", at + 1, at + 1, f'"{TEXT}{at}"', deleted=True)
    return state


def one_id_everywhere() -> State:
    state = State()
    for at in range(MAX_VERSIONS):
        _put(state, "s" * 1000, at + 1, 1, '"int"')
    return state


def everything_imports_everything() -> State:
    state = State()
    references: tuple[SchemaReference, ...] = ()
    for at in range(MAX_IMPORTS):
        _put(state, f"i{at}", 1, at + 1, '"int"', references=references)
        references += (SchemaReference(f"n{at}", f"i{at}", 1),)
    for at in range(1000):
        _put(state, "s", at + 1, at + 1 + MAX_IMPORTS, f'"{at}"', references=references)
    return state


FULL: Final = (many_subjects, many_versions, many_deleted_versions, one_id_everywhere, everything_imports_everything)
QUERIES: Final[tuple[dict[str, str], ...]] = (
    *({}, {"deleted": "true"}, {"deletedOnly": "true"}, {"deletedAsNegative": "true"}, {"latestOnly": "true"}),
    *({"offset": "15000"}, {"includeSubjects": "true"}),
)


def requests_for(state: State) -> Iterator[Request]:
    """Every route with every query, and bodies that are large inside; what deletes comes last."""
    subject = next(iter(state.subjects))

    def path(route: Route, version: str) -> str:
        _, (_, guid) = next(iter(state.ids))
        names = {"{subject}": subject, "{version}": version, "{id}": "1", "{guid}": guid}
        return "/".join(names.get(part, part) for part in route.path.split("/"))

    small = json.dumps({"schema": '"int"', "compatibility": "NONE", "mode": "READWRITE"}).encode()
    for route in ROUTES:
        if route.method != "DELETE":
            for version in ("1", "latest"):
                for query in QUERIES if route.method == "GET" else ({},):
                    yield Request(route.about, route.method, path(route, version), small, query)
    for level in ("NONE", "FULL_TRANSITIVE"):
        state.apply(*encoded(ConfigKey(), ConfigValue(compatibility_level=level)))
        for about, body in _bodies(state, subject):
            for where in (f"/subjects/{subject}", f"/subjects/{subject}/versions", "/subjects/q/versions"):
                yield Request(f"{about}, {level}", "POST", where, body)
    for query in ({}, {"permanent": "true"}):
        yield Request("delete", "DELETE", f"/subjects/{subject}/versions/1", b"", query)
        yield Request("delete", "DELETE", f"/subjects/{subject}", b"", query)
    yield Request("import", "PUT", "/mode", b'{"mode": "IMPORT"}', {"force": "true"})
    yield Request("import", "PUT", "/mode", b'{"mode": "IMPORT"}')


def _bodies(state: State, subject: str) -> Iterator[tuple[str, bytes]]:
    def body(**fields: Any) -> bytes:
        return json.dumps({"schema": '"long"', **fields}).encode()

    def references(count: int, subjects: list[str]) -> list[dict[str, object]]:
        return [{"name": f"n{at}", "subject": subjects[at % len(subjects)], "version": -1} for at in range(count)]

    yield "a long schema", body(schema=f'"{"a" * 900_000}"')
    yield "references to one subject", body(references=references(MAX_IMPORTS, [subject]))
    yield "references to many subjects", body(references=references(MAX_IMPORTS, list(state.subjects)[-MAX_IMPORTS:]))
    yield "too many references", body(references=references(LIMITS.body_bytes // (len(subject) + 60), [subject]))
    yield "metadata of many lists", b'{"schema": "1", "metadata": {"a": [' + b"[]," * 340_000 + b"1]}}"
    yield "rules with many keys", body(ruleSet={str(at): 1 for at in range(80_000)})
    yield "nested metadata", b'{"schema": "1", "metadata": ' + b'{"a":' * 10_000 + b"1" + b"}" * 10_001
    yield "what nobody knows", body(more=[[]] * 200_000)


# Schemas that are hard to read or to compare


def _avro(size: int) -> Iterator[tuple[str, str]]:
    def record(fields: list[dict[str, Any]], **more: Any) -> str:
        return json.dumps({"type": "record", "name": "R", "fields": fields, **more})

    yield "fields", record([{"name": f"f{at}", "type": "int"} for at in range(size // 30)])
    yield "aliases", record([{"name": "f", "type": "int", "aliases": [f"a{at}" for at in range(size // 10)]}])
    yield "union", json.dumps([{"type": "record", "name": f"R{at}", "fields": []} for at in range(size // 46)])
    yield "symbols", json.dumps({"type": "enum", "name": "E", "symbols": [f"S{at}" for at in range(size // 10)]})
    deep = min(size // 30, 300)
    yield "nested", '{"type":"array","items":' * deep + '"int"' + "}" * deep
    yield "itself", record([{"name": f"f{at}", "type": ["null", "R"]} for at in range(size // 45)])
    yield "default", record([{"name": "f", "type": {"type": "array", "items": "int"}, "default": [1] * (size // 3)}])
    yield "properties", json.dumps({"type": "int", **{f"p{at}": at for at in range(size // 14)}})
    yield "namespace", record([], namespace=".".join("a" for _ in range(size // 2)))
    yield "escapes", json.dumps({"type": "int", "doc": "\u20ac" * (size // 6)})


def _json(size: int) -> Iterator[tuple[str, str]]:
    old = {"$schema": "http://json-schema.org/draft-04/schema#"}
    yield "enum of objects", json.dumps({**old, "enum": [{"a": at} for at in range(size // 12)]})
    yield "enum of lists", json.dumps({"enum": [[at] for at in range(size // 8)]})
    yield "required", json.dumps({**old, "required": [f"r{at}" for at in range(size // 10)]})
    yield "properties", json.dumps({"properties": {f"p{at}": {"type": "string"} for at in range(size // 30)}})
    chain = {f"d{at}": {"$ref": f"#/definitions/d{at + 1}"} for at in range(size // 40)}
    yield "chain of references", json.dumps({"$ref": "#/definitions/d0", "definitions": chain})
    fork = {
        f"d{at}": {"allOf": [{"$ref": f"#/definitions/d{at + 1}"}, {"$ref": f"#/definitions/d{at + 1}"}]}
        for at in range(min(size // 100, 30))
    }
    yield "doubling references", json.dumps({"$ref": "#/definitions/d0", "definitions": fork})
    yield "any of", json.dumps({"anyOf": [{"type": "object", "required": [f"r{at}"]} for at in range(size // 40)]})
    two: dict[str, object] = {"oneOf": [{"minLength": at} for at in range(20)]}
    for _ in range(min(size // 400, 6)):
        two = {"oneOf": [{"items": two}, {"items": {"type": "string"}}]}
    yield "nested one of", json.dumps(two)
    yield "pattern", json.dumps({"type": "string", "pattern": "(a+)+$", "enum": ["a" * 40 + "b"]})
    yield "patterns", json.dumps({"patternProperties": {f"(x{at}+)+$": {"type": "string"} for at in range(size // 40)}})
    yield "long pattern", json.dumps({"pattern": "(?:.?){999}" * min(size // 11, 50)})
    yield (
        "large numbers",
        json.dumps({"multipleOf": 1e-300, "enum": [10**300] * 3, "maximum": 10 ** min(size // 2, 4000)}),
    )
    deep = min(size // 10, 400)
    yield "nested", '{"items":' * deep + "true" + "}" * deep


def _protobuf(size: int) -> Iterator[tuple[str, str]]:
    head = 'syntax = "proto3"; '

    def fields(kind: str) -> str:
        count = min(size // (len(kind) + 14), 18_000)
        return f"{head}message A {{ {' '.join(f'{kind} f{at} = {at + 1};' for at in range(count))} }}"

    yield "fields", fields("int32")
    yield "itself", fields("A")
    yield "maps", fields("map<int32, A>")
    yield "messages", head + " ".join(f"message M{at} {{}}" for at in range(size // 14))
    deep = min(size // 14, 30)
    yield "nested", head + "message A {" * deep + "}" * deep
    yield "values", f"{head}enum E {{ {' '.join(f'V{at} = {at};' for at in range(size // 12))} }}"
    yield "ranges", f"{head}message A {{ reserved {', '.join(str(2 * at + 1) for at in range(size // 8))}; }}"
    yield "comments", head + "/* */" * (size // 5)
    default = r"\377" * (size // 4)
    yield "default", f'syntax = "proto2"; message A {{ optional bytes b = 1 [default = "{default}"]; }}'


SHAPES: Final[dict[str, Callable[[int], Iterator[tuple[str, str]]]]] = {
    "AVRO": _avro,
    "JSON": _json,
    "PROTOBUF": _protobuf,
}


def hard_schemas(size: int) -> Iterator[tuple[str, Source]]:
    """Schemas of about so many characters, and what they are."""
    for kind, shapes in SHAPES.items():
        for about, text in shapes(size):
            yield f"{kind} {about}", Source(kind, text)
    imports = tuple(Imported(f"i{at}.proto", 'syntax = "proto3";') for at in range(min(size // 40, MAX_IMPORTS)))
    uses = 'syntax = "proto3"; ' + " ".join(f'import "{one.name}";' for one in imports)
    yield "PROTOBUF imports", Source("PROTOBUF", uses, imports)
