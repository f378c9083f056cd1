"""JSON and Protobuf schemas: what is compatible, what is not, and what nobody here knows."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema.validators import Draft7Validator

from kraft.registry.schemas import (
    Earlier,
    Imported,
    InvalidSchema,
    Source,
    canonical,
    incompatibilities,
    rendered,
)


def kinds(new: Source, old: Source, level: str = "BACKWARD") -> set[str]:
    """The kinds of differences, if the new schema cannot follow the old one."""
    found = incompatibilities(new, [Earlier(1, old)], level)
    return {one.partition("errorType:'")[2].partition("'")[0] for one in found if one.startswith("{errorType")}


# JSON


def as_json(tree: Any) -> Source:
    return Source("JSON", json.dumps(tree))


def record(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, **more}


INT, NUMBER, STRING = {"type": "integer"}, {"type": "number"}, {"type": "string"}
OPEN, CLOSED = record({"a": INT}), record({"a": INT}, additionalProperties=False)
JSON_CASES: list[tuple[Any, Any, set[str]]] = [
    # old, new, what keeps the new one from reading documents of the old one
    (INT, NUMBER, set()),
    (NUMBER, INT, {"TYPE_NARROWED"}),
    (INT, {"type": ["integer", "null"]}, set()),
    (INT, {"oneOf": [{"type": "null"}, INT]}, set()),
    ({"anyOf": [INT, STRING]}, INT, {"TYPE_NARROWED"}),
    (INT, {"anyOf": [STRING, {"type": "boolean"}]}, {"SUM_TYPE_NARROWED"}),
    (OPEN, record({"a": INT, "b": INT}), {"PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"}),
    (CLOSED, record({"a": INT, "b": INT}, additionalProperties=False), set()),
    (OPEN, record({}), set()),
    (CLOSED, record({}, additionalProperties=False), {"PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"}),
    (CLOSED, OPEN, set()),
    (OPEN, CLOSED, {"NOTHING_IS_ALLOWED"}),
    (OPEN, record({"a": INT}, required=["a"]), {"REQUIRED_ATTRIBUTE_ADDED"}),
    (CLOSED, record({"a": {**INT, "default": 0}}, required=["a"], additionalProperties=False), set()),
    (record({"a": INT}, required=["a"]), OPEN, set()),
    ({"enum": ["a", "b"]}, {"enum": ["a", "b", "c"]}, set()),
    ({"enum": ["a", "b"]}, {"enum": ["a"]}, {"ENUM_ARRAY_NARROWED"}),
    ({"enum": [1]}, {"enum": [True]}, {"ENUM_ARRAY_NARROWED"}),
    ({"enum": ["a"]}, STRING, set()),
    (STRING, {"enum": ["a"]}, {"ENUM_ARRAY_CHANGED"}),
    ({"type": "string", "maxLength": 3}, {"type": "string", "maxLength": 4}, set()),
    ({"type": "string", "maxLength": 4}, {"type": "string", "maxLength": 3}, {"MAX_LENGTH_CHANGED"}),
    (INT, {"type": "integer", "minimum": 0}, {"MINIMUM_CHANGED"}),
    ({"type": "array", "items": INT}, {"type": "array", "items": NUMBER}, set()),
    ({"type": "array", "items": INT}, {"type": "array", "items": STRING}, {"TYPE_NARROWED"}),
    ({"type": "array"}, {"type": "array", "items": INT}, {"TYPE_NARROWED"}),
    ({**INT, "title": "x"}, {**INT, "description": "y", "connect.type": "int8"}, set()),
    (True, INT, {"TYPE_NARROWED"}),
    ({"allOf": [INT, {"minimum": 3}]}, INT, set()),
    (INT, {"allOf": [INT, {"minimum": 3}]}, {"MINIMUM_CHANGED"}),
]


@pytest.mark.parametrize(("old", "new", "wanted"), JSON_CASES)
def test_json_compatibility(old: Any, new: Any, wanted: set[str]) -> None:
    assert kinds(as_json(new), as_json(old)) == wanted
    assert kinds(as_json(old), as_json(new), "FORWARD") == wanted


def test_a_json_schema_that_names_itself_is_compared() -> None:
    def tree(value: Any) -> Source:
        node = record({"value": value, "next": {"$ref": "#/definitions/node"}}, additionalProperties=False)
        return as_json({"$ref": "#/definitions/node", "definitions": {"node": node}})

    assert kinds(tree(NUMBER), tree(INT)) == set()
    assert kinds(tree(INT), tree(NUMBER)) == {"TYPE_NARROWED"}


TUPLE = {"type": "array", "items": [INT, STRING]}
NEWEST = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
PATTERNED = record({"a": INT}, patternProperties={"^I_": INT}, additionalProperties=False)
MORE_JSON_CASES: list[tuple[Any, Any, set[str]]] = [
    # what is said to people only never counts, wherever it stands
    (PATTERNED, {**PATTERNED, "description": "d"}, set()),
    (PATTERNED, {**PATTERNED, "properties": {"a": {**INT, "title": "t"}}}, set()),
    ({"oneOf": [INT, NUMBER]}, {"oneOf": [{**INT, "description": "d"}, NUMBER]}, set()),
    ({"not": INT}, {"not": {**INT, "title": "t"}}, set()),
    # patterns of names
    (PATTERNED, {**PATTERNED, "patternProperties": {"^I_": NUMBER}}, set()),
    (PATTERNED, {**PATTERNED, "patternProperties": {"^I_": STRING}}, {"TYPE_NARROWED"}),
    (PATTERNED, {**PATTERNED, "patternProperties": {"^I": INT}}, {"NOTHING_IS_ALLOWED"}),
    (PATTERNED, {**PATTERNED, "properties": {"a": INT, "I_1": NUMBER}}, set()),
    (PATTERNED, {**PATTERNED, "properties": {"a": INT, "I_1": STRING}}, {"PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"}),
    (PATTERNED, {**PATTERNED, "properties": {"a": INT, "b": STRING}}, set()),
    (CLOSED, PATTERNED, set()),
    (OPEN, record({}, patternProperties={"x": INT}), {"TYPE_NARROWED"}),
    (OPEN, record({}, patternProperties={"(?=x)": INT}), {"TYPE_NARROWED"}),
    (CLOSED, {**CLOSED, "propertyNames": {"maxLength": 1}}, set()),
    (CLOSED, {**CLOSED, "propertyNames": {"minLength": 2}}, {"MIN_LENGTH_CHANGED"}),
    # patterns of values are compared by their text, or run on values by RE2
    (STRING, {"type": "string", "pattern": "^(a+)+$"}, {"PATTERN_ADDED"}),
    ({"type": "string", "pattern": "a"}, {"type": "string", "pattern": "b"}, {"PATTERN_CHANGED"}),
    ({"type": "string", "pattern": "a", "maxLength": 3}, {"type": "string", "pattern": "a"}, set()),
    ({"enum": ["a" * 40]}, {"type": "string", "pattern": "^(a+)+$"}, set()),
    ({"enum": ["a" * 40 + "b"]}, {"type": "string", "pattern": "^(a+)+$"}, {"ENUM_ARRAY_NARROWED"}),
    ({"const": "a"}, {"type": "string", "pattern": "(?=a)"}, {"ENUM_ARRAY_NARROWED"}),
    (STRING, {"type": "string", "format": "date"}, {"FORMAT_ADDED"}),
    # items by their places
    (TUPLE, {"type": "array", "items": [NUMBER, STRING]}, set()),
    (TUPLE, {"type": "array", "items": [STRING, STRING]}, {"TYPE_NARROWED"}),
    (TUPLE, {"type": "array", "items": [INT]}, set()),
    ({**TUPLE, "additionalItems": False}, {"type": "array", "items": [INT, STRING, INT]}, set()),
    ({**TUPLE, "additionalItems": INT}, {**TUPLE, "additionalItems": STRING}, {"TYPE_NARROWED"}),
    ({"type": "array", "items": INT}, {"type": "array", "items": [INT]}, set()),
    ({**NEWEST, "prefixItems": [INT], "items": False}, {**NEWEST, "prefixItems": [INT, STRING]}, set()),
    ({"prefixItems": [INT]}, {"prefixItems": [STRING]}, set()),
    ({**NEWEST, "contains": INT, "minContains": 2}, {**NEWEST, "contains": NUMBER}, set()),
    ({**NEWEST, "contains": INT}, {**NEWEST, "contains": INT, "minContains": 2}, {"MIN_CONTAINS_CHANGED"}),
    ({**NEWEST, "contains": INT}, {**NEWEST, "contains": INT, "maxContains": 2}, {"MAX_CONTAINS_CHANGED"}),
    # what one property asks of others
    ({"dependencies": {"a": ["b"]}}, {"dependencies": {"a": ["b", "c"]}}, {"DEPENDENCY_ARRAY_CHANGED"}),
    ({"dependencies": {"a": ["b", "c"]}}, {"dependencies": {"a": ["b"]}}, set()),
    (CLOSED, {**CLOSED, "dependencies": {"b": ["c"]}}, set()),
    ({"dependencies": {"a": CLOSED}}, {"dependencies": {"a": OPEN}}, set()),
    ({"dependencies": {"a": OPEN}}, {"dependencies": {"a": CLOSED}}, {"NOTHING_IS_ALLOWED"}),
    # parts, alternatives, exclusions, conditions
    ({"allOf": [{"minimum": 1}, {"maximum": 9}]}, {"minimum": 0, "maximum": 10}, set()),
    ({"allOf": [OPEN, record({"b": INT})]}, record({"a": INT, "b": INT}), set()),
    ({"allOf": [{"minimum": 1}]}, {"allOf": [{"minimum": 1}, {"maximum": 9}]}, {"MAXIMUM_CHANGED"}),
    (INT, {"oneOf": [INT, NUMBER]}, {"ONE_OF_OVERLAPS"}),
    (
        {"type": "object", "properties": {"kind": {"const": "a"}}, "required": ["kind"]},
        {"oneOf": [record({"kind": {"const": one}}, required=["kind"]) for one in "ab"]},
        set(),
    ),
    ({"oneOf": [INT, STRING]}, {"oneOf": [STRING, {"type": "null"}, INT]}, set()),
    (OPEN, {"not": INT}, set()),
    ({"not": NUMBER}, {"not": INT}, set()),
    ({"not": INT}, {"not": NUMBER}, {"NOT_TYPE_EXTENDED"}),
    ({}, {"if": INT, "then": {"minimum": 0}}, {"CONDITION_CHANGED"}),
    ({"minimum": 1}, {"if": INT, "then": {"minimum": 0}}, set()),
    # references
    ({"definitions": {"a": INT}, "$ref": "#/definitions/a"}, NUMBER, set()),
    (INT, {"definitions": {"a": NUMBER}, "allOf": [{"$ref": "#/definitions/a"}]}, set()),
    (OPEN, {"$ref": "http://elsewhere/schema"}, {"REFERENCE_UNKNOWN"}),
    (OPEN, {"$ref": "#/nowhere"}, {"REFERENCE_UNKNOWN"}),
    (STRING, {"anyOf": [{"$ref": "#"}, INT]}, {"SUM_TYPE_NARROWED"}),
    ({"definitions": {"a": {"$id": "#x", "type": "integer"}}, "$ref": "#x"}, INT, set()),
    # words of other drafts, and others that nobody knows, say nothing
    ({"$schema": "http://json-schema.org/draft-04/schema#", "const": 3}, INT, {"TYPE_NARROWED"}),
    (INT, {**INT, "tags": ["a"]}, set()),
    (
        {"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 1, "exclusiveMinimum": True},
        {"exclusiveMinimum": 1},
        set(),
    ),
    ({**NEWEST, **OPEN, "unevaluatedProperties": False}, CLOSED, set()),
    (
        {**NEWEST, "allOf": [OPEN]},
        {**NEWEST, "allOf": [OPEN], "unevaluatedProperties": False},
        {"UNEVALUATED_PROPERTIES_CHANGED"},
    ),
    ({"multipleOf": 0.3}, {"multipleOf": 0.1}, set()),
    ({"multipleOf": 0.1}, {"multipleOf": 0.3}, {"MULTIPLE_OF_CHANGED"}),
]


@pytest.mark.parametrize(("old", "new", "wanted"), MORE_JSON_CASES)
def test_each_pair_of_json_schemas_is_decided(old: Any, new: Any, wanted: set[str]) -> None:
    assert kinds(as_json(new), as_json(old)) == wanted
    assert kinds(as_json(new), as_json(new)) == set(), "a schema can follow itself"


def test_json_schemas_that_refer_to_others_are_compared() -> None:
    def order(item: Any, name: str = "item.json") -> Source:
        return Source("JSON", json.dumps(record({"item": {"$ref": name}})), (Imported("item.json", json.dumps(item)),))

    def inner(item: Any) -> Source:
        text = json.dumps({"$id": "http://x/o.json", "properties": {"item": {"$ref": "item.json#/definitions/i"}}})
        imported = {"$id": "http://x/item.json", "definitions": {"i": item}}
        return Source("JSON", text, (Imported("other.json", json.dumps(imported)),))

    assert kinds(order(NUMBER), order(INT)) == set()
    assert kinds(order(INT, "./item.json"), order(NUMBER)) == {"TYPE_NARROWED"}
    assert kinds(inner(NUMBER), inner(INT)) == set()
    assert kinds(inner(INT), inner(NUMBER)) == {"TYPE_NARROWED"}


KINDS = [record({"kind": {"const": at}}, required=["kind"]) for at in range(100)]
NAMES = {f"p{at}": INT for at in range(5000)}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"oneOf": KINDS}, {"oneOf": [*KINDS, record({"kind": {"const": 100}}, required=["kind"])]}),
        ({"oneOf": KINDS[:40]}, {"oneOf": [{**one, "minProperties": 1} for one in reversed(KINDS[:40])]}),
        (
            {"anyOf": [{"const": at} for at in range(200)]},
            {"anyOf": [{"const": at, "minimum": 0} for at in range(200)]},
        ),
        ({"enum": [{"a": at} for at in range(10_000)]}, {"enum": [{"a": at} for at in range(10_001)]}),
        (record(NAMES), record(dict.fromkeys(NAMES, NUMBER))),
        (record(NAMES, patternProperties={"^q": INT}), record(NAMES, patternProperties={"^q": NUMBER})),
    ],
    ids=["branches", "branches otherwise", "constants", "values", "properties", "patterns"],
)
def test_large_json_schemas_are_decided(old: Any, new: Any) -> None:
    assert kinds(as_json(new), as_json(old)) == set()


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "a", "ab", 0.5]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)
LEAVES = st.one_of(
    st.booleans(),
    st.fixed_dictionaries({"type": st.sampled_from(["null", "boolean", "integer", "number", "string", "object"])}),
    st.builds(lambda low: {"type": "integer", "minimum": low}, st.integers(-2, 2)),
    st.builds(lambda most: {"type": "string", "maxLength": most}, st.integers(0, 2)),
    st.sampled_from([{"pattern": "a"}, {"pattern": "^a"}, {"multipleOf": 2}, {"exclusiveMaximum": 1}]),
    st.builds(
        lambda values: {"enum": values}, st.lists(st.sampled_from([1, True, "a", None]), min_size=1, unique_by=repr)
    ),
)


def grown(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.builds(
            lambda properties, required, more: record(properties, required=required, additionalProperties=more),
            st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
            st.lists(st.sampled_from("ab"), unique=True),
            inner,
        ),
        st.builds(lambda items: {"type": "array", "items": items}, inner),
        st.builds(
            lambda first, rest, contains: {"items": first, "additionalItems": rest, **contains},
            st.lists(inner, min_size=1, max_size=2),
            inner,
            st.one_of(st.just({}), st.builds(lambda one: {"contains": one}, inner)),
        ),
        st.builds(
            lambda patterns, names, needs: {
                "patternProperties": patterns,
                "propertyNames": names,
                "dependencies": needs,
            },
            st.dictionaries(st.sampled_from(["a", "^b", "."]), inner, max_size=2),
            inner,
            st.dictionaries(st.sampled_from("ab"), st.just(["b"]) | inner, max_size=1),
        ),
        st.builds(lambda one: {"not": one}, inner),
        st.builds(lambda one, then, other: {"if": one, "then": then, "else": other}, inner, inner, inner),
        st.builds(
            lambda word, branches: {word: branches},
            st.sampled_from(["anyOf", "oneOf", "allOf"]),
            st.lists(inner, min_size=1, max_size=2),
        ),
    )


SCHEMAS = st.recursive(LEAVES, grown, max_leaves=5)


@settings(max_examples=60, deadline=None)
@given(SCHEMAS, SCHEMAS, st.lists(VALUES, min_size=3, max_size=12))
def test_what_is_called_compatible_is(old: Any, new: Any, values: list[Any]) -> None:
    found = kinds(as_json(new), as_json(old))
    for value in [] if found else values:
        if Draft7Validator(old).is_valid(value):
            assert Draft7Validator(new).is_valid(value), value


@pytest.mark.parametrize("text", ['{"type": 3}', "[]", "3", "{", '{"$schema": {}}', "[" * 3000, '{"a":' * 3000])
def test_what_is_no_json_schema_is_refused(text: str) -> None:
    with pytest.raises(InvalidSchema):
        canonical(Source("JSON", text))


def test_json_schemas_are_normalized_by_their_keys() -> None:
    source = Source("JSON", '{"type": "object", "properties": {"b": {}, "a": {}}}')
    assert canonical(source) == '{"type":"object","properties":{"b":{},"a":{}}}'
    assert canonical(source, normalize=True) == '{"properties":{"a":{},"b":{}},"type":"object"}'


# Protobuf

UNTYPED = DescriptorProto(name="A", field=[FieldDescriptorProto(name="a", number=1)])


def proto(body: str, package: str = "p") -> Source:
    return Source("PROTOBUF", f'syntax = "proto3"; package {package}; {body}')


A = "message A { int32 x = 1; string y = 2; oneof o { int32 l = 3; int32 r = 4; } repeated int32 s = 5; B b = 6; }"
B = "message B { int32 z = 1; } enum E { NONE = 0; }"
PROTO_CASES = [
    (A + B, A + B, set()),
    (A.replace("int32 x", "uint64 renamed"), A, set()),
    (A.replace("int32 x", "E x"), A, set()),
    (A.replace("int32 x", "sint32 x"), A, {"FIELD_SCALAR_KIND_CHANGED"}),
    (A.replace("int32 x", "B x"), A, {"FIELD_KIND_CHANGED"}),
    (A.replace("string y = 2;", ""), A, set()),
    (A.replace("string y = 2;", "bytes y = 2;"), A, set()),
    (A.replace("repeated int32", "int32"), A, {"FIELD_NUMERIC_LABEL_CHANGED"}),
    (A.replace("int32 r = 4;", ""), A, {"ONEOF_FIELD_REMOVED"}),
    (A.replace("oneof o { int32 l = 3; int32 r = 4; }", ""), A, set()),
    (A.replace("oneof o { int32 l = 3; int32 r = 4; }", "int32 l = 3; int32 r = 4;"), A, set()),
    (
        A,
        A.replace("oneof o { int32 l = 3; int32 r = 4; }", "int32 l = 3; int32 r = 4;"),
        {"MULTIPLE_FIELDS_MOVED_TO_ONEOF"},
    ),
    (A.replace("B b = 6;", "map<string, int32> b = 6;"), A, {"FIELD_KIND_CHANGED"}),
    (A.replace("B b = 6;", "C b = 6;") + "message C {}", A, {"FIELD_NAMED_TYPE_CHANGED"}),
    (A, A + "message C {}", {"MESSAGE_REMOVED"}),
    (A + "message C {}", A, set()),
    (A.replace("int32 x", "optional int32 x"), A, set()),
]


@pytest.mark.parametrize(("new", "old", "wanted"), PROTO_CASES)
def test_protobuf_compatibility(new: str, old: str, wanted: set[str]) -> None:
    new, old = (one if "message B" in one else one + B for one in (new, old))
    assert kinds(proto(new), proto(old)) == wanted


def test_protobuf_knows_packages_and_required_fields() -> None:
    assert kinds(proto(B, "q"), proto(B)) == {"PACKAGE_CHANGED"}
    old, new = (
        Source("PROTOBUF", f'syntax = "proto2"; message A {{ {one} int32 x = 1; }}') for one in ("optional", "required")
    )
    assert kinds(new, old) == {"REQUIRED_FIELD_ADDED"}
    assert kinds(old, new) == set()


def test_a_descriptor_and_its_text_are_compatible_and_imports_are_followed() -> None:
    date = 'syntax = "proto3"; message Day { int32 day = 1; }'
    text = 'syntax = "proto3"; import "x/day.proto"; import "google/protobuf/timestamp.proto";'
    text += "message A { Day day = 1; google.protobuf.Timestamp at = 2; }"
    source = Source("PROTOBUF", text, (Imported("x/day.proto", date),))
    as_descriptor = Source("PROTOBUF", rendered(source, "serialized"), source.imports)
    assert canonical(as_descriptor) == canonical(source)
    assert kinds(as_descriptor, source, "FULL") == set()
    other = Imported("x/day.proto", date.replace("int32", "string"))
    assert kinds(Source("PROTOBUF", text, (other,)), source) == {"FIELD_SCALAR_KIND_CHANGED"}
    described = Imported("x/day.proto", rendered(Source("PROTOBUF", date), "serialized"))
    assert kinds(Source("PROTOBUF", text, (described,)), source) == set()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("mesage A {}", "x.proto"),
        ('syntax = "proto3"; ' + "message A {" * 5000, "x.proto"),
        ('syntax = "proto3"; import "missing.proto";', "x.proto"),
        ('syntax = "proto3"; import "../x.proto";', "../x.proto"),
        ('syntax = "proto3";', "/x.proto"),
        ('syntax = "proto3";', "a\0b"),
        ("@" * 100, "x.proto"),
        (b64encode(FileDescriptorProto(message_type=[UNTYPED]).SerializeToString()).decode(), "x.proto"),
    ],
)
def test_what_is_no_protobuf_is_refused(text: str, name: str) -> None:
    with pytest.raises(InvalidSchema) as refused:
        print(canonical(Source("PROTOBUF", text, (Imported(name, 'syntax = "proto3";'),))))
    assert "trio-kraft-" not in str(refused.value), "no path of this machine is told"
    assert len(str(refused.value)) < 3000
