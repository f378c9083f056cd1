"""One schema has one id, in whatever words its senders put it."""

from __future__ import annotations

import gzip
import json
from base64 import b64encode
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from kraft.registry import protoc
from kraft.registry.json_texts import java_double, json_text, json_tree
from kraft.registry.protobuf_texts import ordered, printed
from kraft.registry.schemas import (
    Earlier,
    Imported,
    InvalidSchema,
    Source,
    canonical,
    incompatibilities,
    matching,
    rendered,
)

pytestmark = pytest.mark.filterwarnings("ignore::avro.errors.AvroWarning")
GOLDEN = Path(__file__).parents[2] / "data" / "avro_texts.jsonl.gz"
"""Schemas, and what `Schema.toString` of Java's Avro 1.12.1 says of them (`tests/interop/AvroOracle.java`)."""
VERDICTS = GOLDEN.with_name("avro_verdicts.jsonl.gz")
"""Readers and writers, and what Java's `SchemaCompatibility` says of them; a field that may be two is incompatible."""
ROWS = [json.loads(line) for line in gzip.decompress(GOLDEN.read_bytes()).splitlines()]


def avro(row: dict[str, Any]) -> Source:
    imports = tuple(Imported(str(at), text) for at, text in enumerate(row.get("imports", ())))
    return Source("AVRO", row["schema"], imports)


def test_avro_schemas_are_written_as_java_writes_them() -> None:
    assert len(ROWS) > 300
    differing = [(row, got) for row in ROWS if (got := canonical(avro(row))) != row["java"]]
    assert not differing, f"{len(differing)} differ: {differing[:3]}"


def test_avro_schemas_are_compatible_where_java_says_so() -> None:
    verdicts = [json.loads(line) for line in gzip.decompress(VERDICTS.read_bytes()).splitlines()]
    for row in verdicts:
        reader, writer = Source("AVRO", row["reader"]), Source("AVRO", row["writer"])
        if row["java"] == "refused":
            with pytest.raises(InvalidSchema, match="Duplicate in union"):
                [canonical(one) for one in (reader, writer)]
            continue
        found = incompatibilities(reader, [Earlier(1, writer)], "BACKWARD")
        assert ("incompatible" if found else "compatible") == row["java"], row


def test_what_java_wrote_stays_the_same_normalized_or_not() -> None:
    for row in ROWS:
        source = avro(row)
        written = Source("AVRO", row["java"], source.imports)
        assert canonical(written) == row["java"]
        normal = canonical(source, True)
        assert canonical(written, True) == normal
        assert canonical(Source("AVRO", normal, source.imports), True) == normal
        assert matching(Source("AVRO", normal, source.imports), [written], False) == 0


def test_properties_in_another_order_are_the_same_schema_and_others_are_not() -> None:
    def source(first: str, second: str) -> Source:
        return Source("AVRO", f'{{"type":"string",{first},{second}}}')

    one, other = source('"p":1', '"q":{"a":1,"b":2}'), source('"q":{"b":2,"a":1}', '"p":1')
    assert canonical(one) != canonical(other)
    assert matching(other, [source('"p":1', '"q":3'), one], False) == 1
    assert matching(other, [Source("AVRO", '"string"'), Source("AVRO", "{")], True) is None


def test_what_an_avro_schema_imports_can_be_asked_for() -> None:
    item = Imported("i", '{"type":"record","name":"n.Item","fields":[{"name":"x","type":["null","Item"]}]}')
    source = Source("AVRO", '{"type":"record","name":"o.Order","fields":[{"name":"i","type":"n.Item"}]}', (item,))
    inlined = '{"type":"record","name":"Item","namespace":"n","fields":[{"name":"x","type":["null","Item"]}]}'
    assert json.loads(rendered(source, "resolved"))["fields"][0]["type"] == json.loads(inlined)
    assert rendered(source, "no-such-form") == source.text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        *((0.0, "0.0"), (-0.0, "-0.0"), (1.0, "1.0"), (0.001, "0.001"), (0.0001, "1.0E-4"), (1e7, "1.0E7")),
        *((9999999.5, "9999999.5"), (-1.5e300, "-1.5E300"), (1e22, "1.0E22"), (123456789.125, "1.23456789125E8")),
    ],
)
def test_numbers_are_written_as_java_writes_them(number: float, text: str) -> None:
    assert java_double(number) == text


def test_json_schemas_keep_the_digits_of_their_numbers() -> None:
    text = '{ "minimum" : 1.10, "maximum": 1e3, "multipleOf":0.0000001,"default":-0.0, "x":"\\u00e9\\u001f/" }'
    written = '{"minimum":1.10,"maximum":1E+3,"multipleOf":1E-7,"default":0.0,"x":"é\\u001F/"}'
    assert canonical(Source("JSON", text)) == written
    assert canonical(Source("JSON", written)) == written


def test_normalized_json_schemas_are_found_among_those_that_are_not() -> None:
    one, other = Source("JSON", '{"type":"object","title":"t"}'), Source("JSON", '{"title":"t","type":"object"}')
    assert matching(other, [one], False) is None
    assert matching(other, [one], True) == 0


@pytest.mark.parametrize(
    "text",
    [
        *('"\\ud800"', '{"doc":"\\udc00","type":"int"}', '"\ud800"', "1e400", "NaN", "[" * 300 + "]" * 300),
        *('{"a":' * 250 + "1" + "}" * 250, "1" * 1001, "1e99999999999", '{"\\ud800":1}'),
    ],
)
@pytest.mark.parametrize("kind", ["AVRO", "JSON"])
def test_json_that_others_cannot_read_is_refused(kind: str, text: str) -> None:
    with pytest.raises(InvalidSchema):
        canonical(Source(kind, text))
    with pytest.raises(InvalidSchema):
        canonical(Source(kind, f'{{"type":"string","x":{text}}}'))


def test_large_trees_are_written_in_one_go() -> None:
    tree = {"a": [{"b": [None, True, 1, "c"]}] * 2_000}
    assert json_text(tree) == json.dumps(tree, separators=(",", ":"))
    assert json_tree(json_text(tree)) == tree


# Protobuf

HARD = r"""
// Everything that a file can have.
syntax = "proto2"; package a.b;
import "google/protobuf/descriptor.proto"; import public "google/protobuf/any.proto";
option (my_file) = {x: 1 y: "q\"\n\x01" z: [1,2]}; option (my_rep) = "a"; option (my_rep) = "b";
option java_package = "x.é";
message Opt {
  optional int32 x=1; optional string y=2; repeated int32 z=3;
  extensions 10 to 20, 30, 100 to max; reserved 5, 7 to 9; reserved "foo", "bar";
  extend google.protobuf.FieldOptions { optional Opt nested_opt = 50003; }
}
extend Opt { optional Opt in = 10; repeated group Gx = 11 { optional int32 q = 1; } }
extend google.protobuf.FileOptions { optional Opt my_file = 50001; repeated string my_rep = 50002; }
extend google.protobuf.OneofOptions { optional int32 my_o = 50001; }
extend google.protobuf.EnumValueOptions { optional double dd = 50001; optional bytes bb = 50002;
  optional E ee = 50005; }
enum E {
  option allow_alias = true; A = 0 [(dd)=1e100, (bb)="\xff\x00z", (ee)=B]; B = 1; C = 1; D = -5;
  reserved 7 to max; reserved -10 to -8; reserved "Z";
}
message M {
  option deprecated = true;
  required int32 i = 1 [default = -3, deprecated=true, (Opt.nested_opt).x = 5, (Opt.nested_opt).y = "s"];
  optional string s = 2 [default = "a\"b\n\té\\", json_name="S"]; optional bytes by = 3 [default="\xff\"\0x"];
  optional double inf = 4 [default=inf]; optional double nan = 5 [default=nan]; optional double nf = 6 [default=-inf];
  optional float f = 7 [default=1.5e-10]; optional bool b = 8 [default=true]; optional E e = 9 [default=D];
  optional group Grp = 10 { optional int32 in = 1; message Deep { optional Grp g = 1; } }
  oneof o { option (my_o) = 3; int32 x = 11; group Og = 12 { optional string t = 1; } string y = 13 [ctype=CORD]; }
  map<string, M.Inner> m = 14; map<int32, E> m2 = 15;
  message Inner {
    optional b.M2 m = 1; message b { message M2 {} }
    optional .a.b.M2 far = 2; optional a.b.M2 z = 3;
  }
  optional Inner inner = 16; repeated int32 p = 17 [packed=true]; optional int32 last = 18;
  enum Inn { Q = 0; } optional Inn inn = 20; optional int32 foo_bar_baz = 21; optional int32 Foo_ = 22;
}
message M2 {}
service S {
  option deprecated = true; rpc X (M) returns (stream M.Inner) { option idempotency_level = IDEMPOTENT; }
  rpc Y(stream google.protobuf.Any) returns (M2);
}
"""
SHADOWED = """
syntax = "proto3"; package foo.google; import "google/protobuf/timestamp.proto";
message A { .google.protobuf.Timestamp t = 1; optional int32 o = 2; oneof z { string b = 3; } int32 c = 4; }
"""
EDITION = """
edition = "2023"; package e; option features.field_presence = IMPLICIT;
message A {
  int32 a = 1 [features.field_presence = EXPLICIT]; int32 r = 2 [features.field_presence=LEGACY_REQUIRED];
  reserved foo, bar; A d = 3 [features.message_encoding=DELIMITED];
}
enum X { option features.enum_type = CLOSED; Q = 1; }
"""


def compiled(text: str) -> list[FileDescriptorProto]:
    return list(FileDescriptorSet.FromString(protoc.compiled(((protoc.MAIN, text),), b"")).file)


def same(file: FileDescriptorProto) -> bytes:
    """What a file means: the order of nested types and of fields does not matter, nor an empty list of options."""
    copy = ordered(file)
    waiting = list(copy.message_type)
    while waiting:
        message = waiting.pop()
        nested = sorted(message.nested_type, key=lambda one: one.name)
        del message.nested_type[:]
        message.nested_type.extend(nested)
        waiting += message.nested_type
        for extensions in message.extension_range:
            if not extensions.options.ByteSize():
                extensions.ClearField("options")
    top = sorted(copy.message_type, key=lambda one: one.name)
    del copy.message_type[:]
    copy.message_type.extend(top)
    return bytes(copy.SerializeToString(deterministic=True))


BUILT_IN = [*protoc.BUILT_IN.values()]
BUILT_IN += [one.read_text("utf-8") for one in files("google.type").iterdir() if one.name.endswith(".proto")]
BUILT_IN += [one.read_text("utf-8") for one in (files("grpc_tools") / "_proto" / "google" / "protobuf").iterdir()
             if one.name.endswith(".proto")]  # fmt: skip


@pytest.mark.parametrize("text", [HARD, SHADOWED, EDITION, *BUILT_IN])
def test_a_printed_file_means_what_the_file_meant(text: str) -> None:
    *imports, main = compiled(text)
    again = printed(main, imports)
    *_, back = compiled(again)
    assert same(back) == same(main), again
    source = Source("PROTOBUF", text)
    assert canonical(source) == again
    for other in (again, rendered(source, "serialized"), f"  {again}\n\n", text + "\n// a comment"):
        assert canonical(Source("PROTOBUF", other)) == again
    assert canonical(Source("PROTOBUF", canonical(source, True))) == canonical(source, True)


def test_a_descriptor_that_means_nothing_is_refused() -> None:
    described = FileDescriptorProto(name="x.proto", syntax="proto3")
    described.message_type.add(name="A").field.add(name="a", number=1, type=11, label=1, type_name=".Missing")
    with pytest.raises(InvalidSchema, match="Missing"):
        canonical(Source("PROTOBUF", b64encode(described.SerializeToString()).decode()))


def test_what_every_client_knows_is_imported() -> None:
    names = [
        "confluent/meta.proto",
        "confluent/type/decimal.proto",
        "google/type/date.proto",
        "google/type/money.proto",
    ]
    names += ["google/protobuf/timestamp.proto", "google/protobuf/any.proto"]
    text = 'syntax = "proto3"; ' + "".join(f'import "{one}"; ' for one in names)
    text += "message A { confluent.type.Decimal d = 1 [(confluent.field_meta) = {doc: 'x', tags: ['PII']}];"
    text += "google.type.Date day = 2; google.type.Money m = 3; google.protobuf.Timestamp t = 4; }"
    written = canonical(Source("PROTOBUF", text))
    assert '[(confluent.field_meta) = { doc: "x" tags: "PII" }]' in written
    own = Imported("google/type/date.proto", 'syntax = "proto3"; package google.type; message Date { int32 x = 9; }')
    assert canonical(Source("PROTOBUF", text, (own,))) == written, "what is given comes first"


# What serializers send: Java's the text of their library, Python's and Go's what the user gave or made of a class.

RECORD = {
    "type": "record", "name": "Order", "namespace": "shop",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "lines", "type": {"type": "array", "items": "int"}, "default": []},
    ],
}  # fmt: skip
JAVA_RECORD = (
    '{"type":"record","name":"Order","namespace":"shop","fields":[{"name":"id","type":"string"},'
    '{"name":"lines","type":{"type":"array","items":"int"},"default":[]}]}'
)
JSON_TEXT = '{"type":"object","properties":{"id":{"type":"string"},"n":{"type":"integer"}},"required":["id"]}'
PROTO = """
syntax = "proto3";
package shop;

message Order {
  string id = 1;
  repeated Line lines = 2;
}

message Line {
  int32 count = 1;
}
"""


def java_protobuf(descriptor: FileDescriptorProto) -> str:
    """As Wire writes it, with its header."""
    body = printed(descriptor, []).replace("repeated Line", "repeated .shop.Line").replace("{\n", "{\n\n")
    return f"// Proto schema formatted by Wire, do not edit.\n// Source: \n\n{body}"


@pytest.mark.parametrize(
    ("kind", "spellings"),
    [
        (
            "AVRO",
            lambda: [
                JAVA_RECORD,
                json.dumps(RECORD),
                json.dumps(RECORD, indent=2),
                json.dumps({**RECORD, "name": "shop.Order", "namespace": "other"}),
                json.dumps(dict(reversed(RECORD.items()))),
                json.dumps({**RECORD, "fields": [{"type": {"type": "string"}, "name": "id"}, RECORD["fields"][1]]}),
            ],
        ),
        ("JSON", lambda: [JSON_TEXT, json.dumps(json.loads(JSON_TEXT)), json.dumps(json.loads(JSON_TEXT), indent=4)]),
        (
            "PROTOBUF",
            lambda: [
                PROTO,
                java_protobuf(compiled(PROTO)[-1]),
                PROTO.replace("\n", "\r\n").replace("Line lines", "shop.Line lines"),
                rendered(Source("PROTOBUF", PROTO), "serialized"),
                # a class of Python has no names for JSON, and the name of its file
                b64encode(python_descriptor(compiled(PROTO)[-1])).decode(),
                "/* Go's protoprint */ " + PROTO.replace("  ", "\t"),
            ],
        ),
    ],
)
def test_the_serializers_of_java_python_and_go_send_one_schema(kind: str, spellings: Callable[[], list[str]]) -> None:
    texts = spellings()
    assert len({canonical(Source(kind, one)) for one in texts}) == 1, texts
    assert len({canonical(Source(kind, one), True) for one in texts}) == 1


def python_descriptor(file: FileDescriptorProto) -> bytes:
    copy = FileDescriptorProto()
    copy.CopyFrom(file)
    copy.name = "shop/order.proto"
    for message in copy.message_type:
        for field in message.field:
            field.ClearField("json_name")
    return bytes(copy.SerializeToString())


JAVA_MAP = """syntax = "proto3";
package example;

import "google/protobuf/timestamp.proto";

message Person {
  string name = 1 [json_name = "name"];
  repeated .example.Person.BestMarksEntry best_marks = 4 [json_name = "bestMarks"];
  optional .google.protobuf.Timestamp born = 5 [json_name = "born"];

  oneof contact {
    string phone = 6 [json_name = "phone"];
  }

  message BestMarksEntry {
    option map_entry = true;

    string key = 1 [json_name = "key"];
    .example.Person.Mark value = 2 [json_name = "value"];
  }
  message Mark {
    string map_entry = 1 [json_name = "mapEntry"];
  }
}
"""
"""As `kafka-protobuf-serializer` sent it, which writes a map as what it is made of."""
OUR_MAP = """syntax = "proto3";
package example;

import "google/protobuf/timestamp.proto";

message Person {
  string name = 1;
  map<string, Mark> best_marks = 4;
  optional google.protobuf.Timestamp born = 5;
  oneof contact {
    string phone = 6;
  }
  message Mark {
    string map_entry = 1;
  }
}
"""


@pytest.mark.parametrize("normalize", [False, True])
def test_a_map_that_is_written_as_its_entries_is_a_map(normalize: bool) -> None:
    java = Source("PROTOBUF", JAVA_MAP)
    assert canonical(java, normalize) == canonical(Source("PROTOBUF", OUR_MAP), normalize) == OUR_MAP
    assert incompatibilities(java, [Earlier(1, Source("PROTOBUF", OUR_MAP))], "FULL") == []
    user = Source("PROTOBUF", 'syntax = "proto3"; import "p.proto"; message A { example.Person p = 1; }')
    both = [canonical(Source("PROTOBUF", user.text, (Imported("p.proto", one),))) for one in (JAVA_MAP, OUR_MAP)]
    assert both[0] == both[1]


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("repeated .example", ".example"),
        ("best_marks", "worst_marks"),
        ("string key = 1", "float key = 1"),
        ("string key = 1", "repeated string key = 1"),
        ("string key = 1", "string name = 1"),
        ("  message Mark {", "  message Mark { option map_entry = true;"),
        ("string name = 1", "BestMarksEntry name = 1"),
    ],
)
def test_what_is_said_to_be_a_map_and_is_none_is_refused(was: str, now: str) -> None:
    assert was in JAVA_MAP
    with pytest.raises(InvalidSchema, match="map_entry is set where there is no map"):
        canonical(Source("PROTOBUF", JAVA_MAP.replace(was, now)))


def test_an_option_in_a_text_or_a_comment_is_none() -> None:
    text = 'syntax = "proto2"; message A { /* option map_entry = true; */ optional string a = 1 [default = "} { '
    text += 'option map_entry = true;"]; } // option map_entry = true;'
    assert 'default = "} { option map_entry = true;"' in canonical(Source("PROTOBUF", text))
