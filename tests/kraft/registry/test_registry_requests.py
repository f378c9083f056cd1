"""The registry's requests on a state in memory: codes and messages of the common registry, records byte for byte."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kraft.registry import requests, schemas
from kraft.registry.records import NoopKey, Record, SchemaKey, SchemaValue, encoded
from kraft.registry.schemas import TooCostly
from kraft.registry.state import State
from registry_core import Core

A = '{"type":"record","name":"A","fields":[{"name":"a","type":"int"}]}'
A_AND_B = '{"type":"record","name":"A","fields":[{"name":"a","type":"int"},{"name":"b","type":"int","default":0}]}'
WITHOUT_DEFAULT = '{"type":"record","name":"A","fields":[{"name":"a","type":"int"},{"name":"b","type":"int"}]}'


@pytest.fixture
def core() -> Core:
    return Core()


def schema_record(value: SchemaValue) -> Record:
    return encoded(SchemaKey(value.subject, value.version), value)


def code(answer: tuple[int, Any]) -> tuple[int, int]:
    return answer[0], answer[1]["error_code"]


def test_equal_schemas_have_one_id_and_versions_count_up(core: Core) -> None:
    assert core.id_of("s", A) == 1
    assert core.id_of("s", A.replace(":", " : ")) == 1, "spaces are no difference"
    assert core.id_of("t", A) == 1
    assert core.id_of("s", A_AND_B) == 2
    assert core.ask("GET", "/subjects") == (200, ["s", "t"])
    assert core.ask("GET", "/subjects/s/versions") == (200, [1, 2])
    assert core.ask("GET", "/subjects/s/versions/latest/schema") == (200, A_AND_B)
    status, found = core.ask("GET", "/subjects/s/versions/1")
    assert status == 200
    assert {key: found[key] for key in ("subject", "version", "id", "schema")} == {
        "subject": "s",
        "version": 1,
        "id": 1,
        "schema": A,
    }
    assert core.ask("GET", "/schemas/ids/1")[1]["schema"] == A
    assert core.ask("GET", "/schemas/ids/1/subjects") == (200, ["s", "t"])
    assert core.ask("GET", "/schemas/ids/1/versions")[1] == [
        {"subject": "s", "version": 1},
        {"subject": "t", "version": 1},
    ]
    assert core.ask("POST", "/subjects/s", {"schema": A})[1]["version"] == 1
    guid = core.ask("GET", "/schemas/ids/2")[1]["guid"]
    assert core.ask("GET", f"/schemas/guids/{guid}")[1]["id"] == 2
    assert core.ask("GET", f"/schemas/guids/{guid}/ids")[1] == [{"context": ".", "id": 2}]


def test_a_list_of_schemas_is_cut(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "MAX_LISTED", 2)
    for subject in ("a", "b", "c"):
        core.register(subject, A)
    core.register("a", A_AND_B)

    def listed(**query: str) -> list[tuple[str, int]]:
        return [(one["subject"], one["version"]) for one in core.ask("GET", "/schemas", **query)[1]]

    assert listed() == [("a", 1), ("a", 2)]
    assert listed(offset="2") == [("b", 1), ("c", 1)]
    assert listed(latestOnly="true") == [("a", 2), ("b", 1)]
    assert listed(subjectPrefix="c") == [("c", 1)]
    assert core.ask("GET", "/subjects", offset="1", limit="1") == (200, ["b"])


def test_the_records_are_those_of_the_common_registry(core: Core) -> None:
    core.register("s", '{"type": "int"}')
    core.ask("PUT", "/config", {"compatibility": "full"})
    core.ask("PUT", "/config/s", {"compatibility": "NONE"})
    core.ask("PUT", "/mode/s", {"mode": "READWRITE"})
    core.ask("DELETE", "/subjects/s")
    core.ask("DELETE", "/subjects/s", permanent="true")
    core.log.append(encoded(NoopKey(), None))
    assert core.log == [
        (
            b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}',
            b'{"subject":"s","version":1,"id":1,"schema":"\\"int\\"","deleted":false}',
        ),
        (b'{"keytype":"CONFIG","magic":0}', b'{"compatibilityLevel":"FULL"}'),
        (b'{"keytype":"CONFIG","subject":"s","magic":0}', b'{"subject":"s","compatibilityLevel":"NONE"}'),
        (b'{"keytype":"MODE","subject":"s","magic":0}', b'{"subject":"s","mode":"READWRITE"}'),
        (b'{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}', b'{"subject":"s","version":1}'),
        (b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', None),
        (b'{"keytype":"MODE","subject":"s","magic":0}', None),
        (b'{"keytype":"CONFIG","subject":"s","magic":0}', None),
        (b'{"keytype":"NOOP","magic":0}', None),
    ]


LEVELS = {
    # level: what may follow A, then what may follow A_AND_B
    "NONE": (True, True, True),
    "BACKWARD": (True, False, True),
    "FORWARD": (True, True, False),
    "FULL": (True, False, False),
}


@pytest.mark.parametrize("level", LEVELS)
def test_each_level_refuses_what_its_readers_cannot_read(core: Core, level: str) -> None:
    core.ask("PUT", "/config", {"compatibility": level})
    gains_default, gains_field, changes_type = LEVELS[level]
    core.register("s", A)
    wanted = {
        A_AND_B: gains_default,
        WITHOUT_DEFAULT: gains_field,
        A.replace("int", "long"): changes_type,
    }
    for schema, fits in wanted.items():
        answer = core.ask("POST", "/compatibility/subjects/s/versions/latest", {"schema": schema})
        assert answer == (200, {"is_compatible": fits}), schema
        if not fits:
            status, refusal = core.register("s", schema)
            assert (status, refusal["error_code"]) == (409, 40901)
            assert refusal["message"].startswith(
                'Schema being registered is incompatible with an earlier schema for subject "s", details: ['
            )
            assert f"{{compatibility: '{level}'}}" in refusal["message"]


def test_a_transitive_level_looks_at_all_versions(core: Core) -> None:
    core.register("s", A)
    core.register("s", '{"type":"record","name":"A","fields":[]}')
    back = A.replace('"int"', '"string","default":""')
    assert core.ask("POST", "/compatibility/subjects/s/versions", {"schema": back})[1] == {"is_compatible": True}
    core.ask("PUT", "/config/s", {"compatibility": "BACKWARD_TRANSITIVE"})
    status, found = core.ask("POST", "/compatibility/subjects/s/versions", {"schema": back}, verbose="true")
    assert status == 200
    assert not found["is_compatible"]
    assert "{oldSchemaVersion: 1}" in found["messages"]
    assert code(core.register("s", back)) == (409, 40901)


def test_soft_and_hard_deletion(core: Core) -> None:
    core.register("s", A)
    core.register("s", A_AND_B)
    assert code(core.ask("DELETE", "/subjects/s", permanent="true")) == (404, 40405)
    assert code(core.ask("DELETE", "/subjects/s/versions/1", permanent="true")) == (404, 40407)
    assert core.ask("DELETE", "/subjects/s/versions/1") == (200, 1)
    assert code(core.ask("DELETE", "/subjects/s/versions/1")) == (404, 40406)
    assert core.ask("GET", "/subjects/s/versions") == (200, [2])
    assert core.ask("GET", "/subjects/s/versions", deleted="true") == (200, [1, 2])
    assert core.ask("GET", "/subjects/s/versions", deletedOnly="true") == (200, [1])
    assert code(core.ask("GET", "/subjects/s/versions/1")) == (404, 40402)
    assert core.ask("GET", "/subjects/s/versions/1", deleted="true")[0] == 200
    assert core.ask("GET", "/schemas/ids/1")[0] == 200, "what was written with the schema stays readable"
    assert core.ask("DELETE", "/subjects/s") == (200, [2])
    assert code(core.ask("DELETE", "/subjects/s")) == (404, 40404)
    assert core.ask("GET", "/subjects") == (200, [])
    assert core.ask("GET", "/subjects", deleted="true") == (200, ["s"])
    assert core.ask("DELETE", "/subjects/s", permanent="true") == (200, [1, 2])
    assert code(core.ask("GET", "/schemas/ids/1")) == (404, 40403)
    assert code(core.ask("DELETE", "/subjects/s")) == (404, 40401)
    assert core.id_of("s", A) == 3, "an id is never used again"
    assert core.ask("GET", "/subjects/s/versions") == (200, [1])


def test_a_deleted_schema_that_comes_back_keeps_its_id(core: Core) -> None:
    core.register("s", A)
    core.register("s", A_AND_B)
    core.ask("DELETE", "/subjects/s")
    assert core.id_of("s", A) == 1
    assert core.ask("GET", "/subjects/s/versions") == (200, [3])
    assert core.ask("GET", "/subjects/s/versions", deleted="true") == (200, [2, 3])


def test_of_two_versions_with_one_schema_the_newer_one_is_found(core: Core) -> None:
    """Another program wrote both."""
    for version in (1, 2):
        core.write(schema_record(SchemaValue(subject="s", version=version, id=1, schema=A, deleted=False)))
    assert core.ask("POST", "/subjects/s", {"schema": A})[1]["version"] == 2


def test_references_are_found_and_protected(core: Core) -> None:
    core.register("address", '{"type":"record","name":"Address","namespace":"x","fields":[]}')
    uses = '{"type":"record","name":"User","fields":[{"name":"home","type":"x.Address"}]}'
    assert code(core.register("user", uses)) == (422, 42201)
    reference = {"name": "x.Address", "subject": "address", "version": -1}
    assert core.id_of("user", uses, references=[reference]) == 2
    stored = core.ask("GET", "/subjects/user/versions/1")[1]["references"]
    assert stored == [{**reference, "version": 1}], "the latest version has a number from then on"
    assert core.ask("GET", "/subjects/address/versions/1/referencedby") == (200, [2])
    assert code(core.ask("DELETE", "/subjects/address")) == (422, 42206)
    assert code(core.ask("DELETE", "/subjects/address/versions/1")) == (422, 42206)
    assert code(core.register("t", uses, references=[{**reference, "version": 7}])) == (422, 42201)
    core.ask("DELETE", "/subjects/user")
    assert core.ask("DELETE", "/subjects/address") == (200, [1])


def test_settings_and_modes_are_inherited(core: Core) -> None:
    assert core.ask("GET", "/config") == (200, {"compatibilityLevel": "BACKWARD"})
    assert code(core.ask("GET", "/config/s")) == (404, 40408)
    assert core.ask("GET", "/config/s", defaultToGlobal="true") == (200, {"compatibilityLevel": "BACKWARD"})
    assert core.ask("PUT", "/config/s", {"compatibility": "full"}) == (200, {"compatibility": "FULL"})
    assert core.ask("GET", "/config/s") == (200, {"compatibilityLevel": "FULL"})
    assert core.ask("DELETE", "/config/s") == (200, {"compatibilityLevel": "FULL"})
    assert code(core.ask("DELETE", "/config/s")) == (404, 40401)
    assert code(core.ask("PUT", "/config", {"compatibility": "SOME"})) == (422, 42203)
    assert code(core.ask("PUT", "/config", {"compatibility": "FULL", "alias": "t"})) == (422, 422)
    assert core.ask("GET", "/mode") == (200, {"mode": "READWRITE"})
    assert code(core.ask("GET", "/mode/s")) == (404, 40409)
    assert code(core.ask("PUT", "/mode", {"mode": "X"})) == (422, 42204)
    core.ask("PUT", "/mode", {"mode": "readonly"})
    for method, path, body in (
        ("POST", "/subjects/s/versions", {"schema": A}),
        ("PUT", "/config/s", {"compatibility": "NONE"}),
    ):
        assert code(core.ask(method, path, body)) == (422, 42205)
    assert core.ask("PUT", "/mode/s", {"mode": "READWRITE"}) == (200, {"mode": "READWRITE"})
    assert core.id_of("s", A) == 1
    assert core.ask("DELETE", "/mode/s") == (200, {"mode": "READWRITE"})
    assert code(core.ask("DELETE", "/subjects/s")) == (422, 42205)


def test_import_mode_takes_ids_and_versions(core: Core) -> None:
    assert code(core.register("s", A, id=40, version=4)) == (422, 42205)
    assert core.ask("PUT", "/mode", {"mode": "IMPORT"})[0] == 200
    assert code(core.register("s", A)) == (422, 42205)
    assert core.id_of("s", A, id=40, version=4) == 40
    assert core.ask("GET", "/subjects/s/versions") == (200, [4])
    assert code(core.register("t", A_AND_B, id=40, version=1)) == (422, 42207)
    core.ask("PUT", "/mode", {"mode": "READWRITE"})
    assert core.id_of("t", A_AND_B) == 41
    assert code(core.ask("PUT", "/mode", {"mode": "IMPORT"})) == (422, 42205)
    core.ask("DELETE", "/subjects/s")
    core.ask("DELETE", "/subjects/t")
    assert core.ask("PUT", "/mode", {"mode": "IMPORT"})[0] == 200
    assert core.ask("GET", "/subjects", deleted="true") == (200, [])


def test_normalization_makes_equal_what_means_the_same(core: Core) -> None:
    one = '{"type":"record","name":"A","namespace":"n","fields":[{"type":"int","name":"a"},{"name":"b","type":"A"}]}'
    two = '{"name":"n.A","fields":[{"name":"a","type":{"type":"int"}},{"name":"b","type":"n.A"}],"type":"record"}'
    assert core.id_of("s", one) == core.id_of("t", two)
    first = core.ask("POST", "/subjects/u/versions", {"schema": one}, normalize="true")[1]["id"]
    assert core.ask("POST", "/subjects/u/versions", {"schema": two}, normalize="True")[1]["id"] == first
    core.ask("PUT", "/config/v", {"normalize": True})
    assert core.id_of("v", two) == first


def test_what_another_program_has_stored_is_found_in_its_words(core: Core) -> None:
    text = '{"fields": [{"type": "int", "name": "a"}], "type": "record", "name": "n.A"}'
    core.write(schema_record(SchemaValue(subject="s", version=1, id=7, schema=text, deleted=False)))
    same = '{"type":"record","name":"A","namespace":"n","fields":[{"name":"a","type":"int"}]}'
    assert core.id_of("s", same) == 7
    assert core.ask("POST", "/subjects/s", {"schema": same})[1]["schema"] == text
    assert core.id_of("s", same.replace('"int"', '"long"')) == 8


def test_a_protobuf_schema_is_the_same_as_text_and_as_descriptor(core: Core) -> None:
    text = 'syntax = "proto3"; message A { int32 x = 1; }'
    first = core.register("s", text, schemaType="PROTOBUF")[1]
    assert first["schema"] == 'syntax = "proto3";\n\nmessage A {\n  int32 x = 1;\n}\n'
    serialized = core.ask("GET", "/schemas/ids/1", format="serialized")[1]["schema"]
    for one in (text.replace(" ", "\n\t"), f"// why\n{text}", serialized, first["schema"]):
        again = core.register("s", one, schemaType="PROTOBUF")[1]
        assert (again["id"], again["version"]) == (1, 1)
        assert core.ask("POST", "/subjects/s", {"schema": one, "schemaType": "PROTOBUF"})[1]["id"] == 1
    assert core.register("t", serialized, schemaType="PROTOBUF")[1]["schema"] == serialized, "as its sender knows it"
    assert core.ask("GET", "/schemas/ids/1")[1]["schema"] == first["schema"]
    # A registry that stored it as it came.
    old = SchemaValue(subject="u", version=1, id=9, schema_type="PROTOBUF", schema=serialized, deleted=False)
    core.write(schema_record(old))
    assert core.register("u", text, schemaType="PROTOBUF")[1]["version"] == 1


def test_a_json_schema_with_patterns_of_names_evolves(core: Core) -> None:
    schema = {"type": "object", "patternProperties": {"^I_": {"type": "integer"}}, "additionalProperties": False}
    assert core.register("s", json.dumps(schema), schemaType="JSON")[0] == 200
    described = {**schema, "description": "d"}
    assert core.register("s", json.dumps(described), schemaType="JSON")[1]["version"] == 2
    narrower = {**schema, "patternProperties": {"^I_": {"type": "integer", "minimum": 0}}}
    assert code(core.register("s", json.dumps(narrower), schemaType="JSON")) == (409, 40901)


@pytest.mark.parametrize(
    ("method", "path", "body", "wanted"),
    [
        ("GET", "/nothing", None, (404, 404)),
        ("PATCH", "/subjects", None, (405, 405)),
        ("POST", "/subjects/s/versions", b"{", (400, 400)),
        ("POST", "/subjects/s/versions", b"[" * 100_000, (422, 422)),
        ("POST", "/subjects/s/versions", {"schema": 3}, (422, 422)),
        ("POST", "/subjects/s/versions", {"schema": ""}, (422, 42201)),
        ("POST", "/subjects/s/versions", {"schema": "int"}, (422, 42201)),
        ("POST", "/subjects/s/versions", {"schema": "NaN"}, (422, 42201)),
        ("POST", "/subjects/s/versions", {"schema": '{"type":"record"}'}, (422, 42201)),
        ("POST", "/subjects/s/versions", {"schema": '["int","int"]'}, (422, 42201)),
        ("POST", "/subjects/s/versions", {"schema": "[" * 5000}, (422, 42201)),
        (
            "POST",
            "/subjects/s/versions",
            {"schema": '{"type":"array","items":' * 2000 + '"int"' + "}" * 2000},
            (422, 42201),
        ),
        ("POST", "/subjects/s/versions", {"schema": "{}", "schemaType": "XML"}, (422, 42201)),
        ("POST", "/subjects//versions", {"schema": '"int"'}, (422, 42208)),
        ("POST", "/subjects/:.other:/versions", {"schema": '"int"'}, (422, 42208)),
        ("POST", "/subjects/:.__GLOBAL:s/versions", {"schema": '"int"'}, (422, 42208)),
        ("GET", "/contexts/a:b/subjects", None, (400, 400)),
        ("POST", "/subjects/%00/versions", {"schema": '"int"'}, (422, 42208)),
        ("POST", "/subjects/%C2%85/versions", {"schema": '"int"'}, (422, 42208)),
        ("POST", "/subjects/__GLOBAL/versions", {"schema": '"int"'}, (422, 42208)),
        ("POST", "/subjects/%ED%A0%80/versions", {"schema": '"int"'}, (400, 400)),
        ("POST", "/subjects/%FF/versions", {"schema": '"int"'}, (400, 400)),
        ("GET", "/schemas/guids/%C0%80", None, (400, 400)),
        ("POST", "/subjects/s/versions", rb'{"schema": "\ud800"}', (400, 400)),
        ("POST", "/subjects/s/versions", b'{"schema": "\xed\xa0\x80"}', (400, 400)),
        ("PUT", "/config/s", b'{"compatibility": "\xff"}', (400, 400)),
        *(
            ("POST", f"/subjects/s{path}", {"schemaType": kind, "schema": schema}, (422, 42201))
            for path in ("", "/versions")
            for kind, schema in (
                ("AVRO", r'{"type": "int", "doc": "\ud800"}'),
                ("AVRO", r'{"type": "record", "name": "A", "fields": [], "\udc00": 1}'),
                ("AVRO", r'{"type": "enum", "name": "A", "symbols": ["\ud83d"]}'),
                ("JSON", r'{"description": "\ud800"}'),
                ("JSON", r'{"properties": {"\ude00": {}}}'),
            )
        ),
        ("POST", f"/subjects/{'s' * 2000}/versions", {"schema": '"int"'}, (422, 42208)),
        ("POST", "/subjects/s", {"schema": '"int"'}, (404, 40401)),
        ("GET", "/subjects/s/versions", None, (404, 40401)),
        ("GET", "/subjects/s/versions/1", None, (404, 40401)),
        ("GET", "/subjects/s/versions/0", None, (422, 42202)),
        ("GET", "/subjects/s/versions/2147483648", None, (422, 42202)),
        ("GET", "/subjects/s/versions/one", None, (422, 42202)),
        ("GET", "/schemas/ids/7", None, (404, 40403)),
        ("GET", "/schemas/ids/x", None, (404, 404)),
        ("GET", "/schemas/guids/x", None, (404, 40403)),
        ("DELETE", "/subjects/s", None, (404, 40401)),
        ("POST", "/compatibility/subjects/s/versions/3", {"schema": '"int"'}, (404, 40402)),
    ],
)
def test_what_is_wrong_has_the_code_of_the_common_registry(
    core: Core, method: str, path: str, body: Any, wanted: tuple[int, int]
) -> None:
    assert code(core.ask(method, path, body)) == wanted
    assert not core.log


def test_a_schema_that_is_too_large_for_a_record_or_a_full_registry_is_refused(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert code(core.register("s", json.dumps({"type": "string", "x": "x" * 1_000_000}))) == (422, 42209)
    monkeypatch.setattr(requests, "MAX_VERSIONS", 1)
    core.register("s", A)
    assert code(core.register("s", A_AND_B)) == (422, 42209)


def test_a_comparison_that_takes_long_is_refused_with_the_cure(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(*_: object) -> list[str]:
        raise TooCostly("it takes more than 5 s of CPU time")

    core.register("s", A)
    monkeypatch.setattr(schemas, "incompatibilities", ended)
    status, refusal = core.register("s", A_AND_B)
    assert (status, refusal["error_code"]) == (422, 42203)
    assert "5 s" in refusal["message"]
    assert "NONE" in refusal["message"]
    core.ask("PUT", "/config/s", {"compatibility": "NONE"})
    assert core.register("s", A_AND_B)[0] == 200


def spelled(key: bytes, how: str) -> bytes:
    """A key as another program writes it."""
    fields = json.loads(key)
    match how:
        case "spaces":
            return json.dumps(fields).encode()
        case "order":
            return json.dumps(dict(reversed(fields.items())), separators=(",", ":")).encode()
        case _:
            return json.dumps({**fields, "magic": 1 - fields["magic"]}, separators=(",", ":")).encode()


def compacted(log: list[Record]) -> list[Record]:
    last: dict[bytes, bytes | None] = {}
    for key, value in log:
        last.pop(key, None)  # what stays is the last record of a key, in its place
        last[key] = value
    return list(last.items())


@pytest.mark.parametrize("how", ["spaces", "order", "magic"])
@pytest.mark.parametrize("both", [False, True])
def test_what_another_program_wrote_is_replaced_and_deleted_under_its_own_key(core: Core, how: str, both: bool) -> None:
    ours = Core()
    ours.register("s", '"int"')
    ours.ask("PUT", "/config/s", {"compatibility": "NONE"})
    ours.ask("PUT", "/mode/s", {"mode": "READWRITE"})
    ours.ask("PUT", "/config", {"compatibility": "FULL"})
    for key, value in ours.log:
        core.write((spelled(key, how), value))
        if both:
            core.write((key, value))
    theirs = {key for key, _ in core.log}
    core.ask("PUT", "/config", {"compatibility": "BACKWARD"})
    core.ask("PUT", "/config/s", {"compatibility": "FORWARD"})
    assert core.ask("DELETE", "/subjects/s/versions/1") == (200, 1)
    assert {key for key, _ in core.log} == theirs, "nothing is written beside what is replaced"
    again = State()
    for record in compacted(core.log):
        again.apply(*record)
    assert (again.level("t"), again.level("s"), again.versions("s")) == ("BACKWARD", "FORWARD", [])
    assert core.ask("DELETE", "/subjects/s", permanent="true") == (200, [1])
    core.ask("DELETE", "/config")
    assert {key for key, _ in core.log} == theirs
    assert [value for _, value in compacted(core.log) if value is not None] == []


def test_names_that_no_new_schema_may_have_do_not_hold_up_a_subject(core: Core) -> None:
    older = A.replace('"name":"A"', '"name":"A","namespace":"of-long-ago"')
    value = {"subject": "s", "version": 1, "id": 1, "schema": older, "deleted": False}
    core.write((b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', json.dumps(value).encode()))
    assert code(core.register("t", older)) == (422, 42201)
    assert core.register("s", A_AND_B)[0] == 200
    assert code(core.register("s", WITHOUT_DEFAULT.replace('"a"', '"c"'))) == (409, 40901)


SUBJECTS = st.sampled_from(["a", "b"])
SCHEMAS = st.sampled_from(['"int"', '"string"', A, A_AND_B])
ACTIONS = st.one_of(
    st.tuples(st.just("POST"), SUBJECTS, SCHEMAS),
    st.tuples(st.just("DELETE"), SUBJECTS, st.sampled_from(["", "/versions/latest", "/versions/1", "/versions/2"])),
    st.tuples(st.just("HARD"), SUBJECTS, st.sampled_from(["", "/versions/1", "/versions/2"])),
    st.tuples(st.just("SPELL"), SUBJECTS, st.sampled_from(["spaces", "order", "magic"])),
)


@settings(max_examples=60, deadline=None)
@example([("POST", "a", '"int"'), ("DELETE", "a", ""), ("POST", "a", '"int"'), ("DELETE", "a", "")])
@example([("POST", "a", '"int"'), ("SPELL", "a", "order"), ("DELETE", "a", ""), ("HARD", "a", "")])
@given(st.lists(ACTIONS, max_size=12))
def test_the_topic_says_everything(actions: list[tuple[str, str, str]]) -> None:
    core = Core()
    core.ask("PUT", "/config", {"compatibility": "NONE"})
    ids: dict[str, int] = {}
    known: dict[int, str] = {}
    for kind, subject, what in actions:
        if kind == "POST":
            ids[what] = core.id_of(subject, what)
            assert known.setdefault(ids[what], what) == what, "an id means one schema for ever"
        elif kind == "SPELL":
            for key, value in [one for one in core.log if f'"{subject}"'.encode() in one[0]]:
                core.write((spelled(key, what), value))
        else:
            core.ask("DELETE", f"/subjects/{subject}{what}", permanent=str(kind == "HARD").lower())
    for log in (core.log, compacted(core.log)):
        again = State()
        for record in log:
            again.apply(*record)
        if log is core.log:
            assert vars(again) == vars(core.state)
        else:
            assert again.subjects == core.state.subjects, "as after compaction"


@given(st.binary(max_size=40) | st.none(), st.binary(max_size=40) | st.none())
def test_a_record_of_anybody_changes_nothing(key: bytes | None, value: bytes | None) -> None:
    state = State()
    state.apply(key, value)
    for of in ("SCHEMA", "CONFIG", "MODE", "DELETE_SUBJECT", "CLEAR_SUBJECT", "CONTEXT"):
        key = json.dumps({"keytype": of, "subject": "s", "version": 1, "magic": 0}).encode()
        state.apply(key, value)
        state.apply(key.replace(b'"s"', b'"\xed\xa0\x80"'), value)
        state.apply(key, b'{"subject":"\xed\xa0\x80","version":1,"id":1,"schema":"\xff","deleted":false,"mode":"\xff"}')
    assert not state.subjects or value is not None


def test_contexts_have_ids_of_their_own(core: Core) -> None:
    assert (core.id_of(":.test:s", A), core.id_of("s", '"int"'), core.id_of(":.test:t", '"int"')) == (1, 1, 2)
    assert core.log[0] == (
        b'{"keytype":"CONTEXT","tenant":"default","context":".test","magic":0}',
        b'{"tenant":"default","context":".test"}',
    ), "as the common registry writes it"
    assert core.ask("GET", "/contexts") == (200, [".", ".test"])
    assert core.ask("GET", "/contexts", contextPrefix=".t") == (200, [".test"])
    assert core.ask("GET", "/subjects") == (200, [":.test:s", ":.test:t", "s"])
    assert core.ask("GET", "/subjects", subjectPrefix="") == (200, ["s"])
    assert core.ask("GET", "/subjects", subjectPrefix=":.:") == (200, ["s"])
    assert core.ask("GET", "/subjects", subjectPrefix=":*:s") == (200, [":.test:s", "s"])
    assert [one["subject"] for one in core.ask("GET", "/schemas")[1]] == ["s"]
    for guid in (core.ask("GET", "/schemas/ids/1")[1]["guid"],):
        both = [{"context": ".", "id": 1}, {"context": ".test", "id": 2}]
        assert core.ask("GET", f"/schemas/guids/{guid}/ids") == (200, both)
        assert core.ask("GET", f"/schemas/guids/{guid}")[1]["id"] == 1


@pytest.mark.parametrize("context", [".test", "test", ":.test:"])
def test_a_path_may_begin_with_a_context(core: Core, context: str) -> None:
    core.id_of("s", '"int"')
    assert core.ask("POST", f"/contexts/{context}/subjects/s/versions", {"schema": A})[1]["id"] == 1
    assert core.ask("GET", f"/contexts/{context}/subjects") == (200, [":.test:s"])
    assert core.ask("GET", f"/contexts/{context}/subjects/s/versions/1")[1]["subject"] == ":.test:s"
    assert (
        core.ask("GET", f"/contexts/{context}/schemas/ids/1")[1]["schema"]
        == core.ask("GET", "/schemas/ids/1", subject=":.test:")[1]["schema"]
    )
    assert core.ask("PUT", f"/contexts/{context}/config", {"compatibility": "NONE"})[0] == 200
    assert core.ask("GET", "/config/:.test:") == (200, {"compatibilityLevel": "NONE"})
    assert core.ask("GET", "/config") == (200, {"compatibilityLevel": "BACKWARD"})
    assert core.ask("GET", f"/contexts/{context}/subjects/:.:s/versions/1")[1]["schema"] == '"int"'


def test_a_name_without_a_context_is_looked_for_in_all(core: Core) -> None:
    core.id_of("s", '"int"')
    core.id_of(":.test:t", A)
    core.id_of(":.test:u", '"long"')
    assert core.ask("GET", "/subjects/t/versions/latest")[1]["subject"] == ":.test:t"
    assert core.ask("POST", "/subjects/t", {"schema": A})[1]["id"] == 1
    assert core.ask("GET", "/schemas/ids/1")[1]["schema"] == '"int"'
    assert code(core.ask("GET", "/schemas/ids/2")) == (404, 40403)
    assert core.ask("GET", "/schemas/ids/2", subject="u")[1]["schema"] == '"long"'
    assert core.ask("GET", "/schemas/ids/1", subject="nobody")[1]["schema"] == '"int"'
    assert code(core.ask("GET", "/schemas/ids/1", subject=":.test:s")) == (404, 40403)
    assert core.ask("GET", "/schemas/ids/2/versions", subject="u") == (200, [{"subject": ":.test:u", "version": 1}])
    assert code(core.ask("GET", "/subjects/t/versions")) == (404, 40401)
    assert core.register("t", '"string"')[1]["version"] == 1, "to register is another matter"


def test_settings_are_those_of_a_subject_its_context_or_all(core: Core) -> None:
    def levels() -> list[str]:
        asked = [core.ask("GET", f"/config/{one}", defaultToGlobal="true") for one in ("s", ":.test:s", ":.test:")]
        return [answer["compatibilityLevel"] for _, answer in asked]

    def put(scope: str, level: str) -> None:
        assert core.ask("PUT", f"/config{scope}", {"compatibility": level})[0] == 200

    assert levels() == ["BACKWARD"] * 3
    put("", "FULL")
    assert levels() == ["FULL", "BACKWARD", "BACKWARD"], "what holds for the default context holds for no other"
    put("/:.__GLOBAL:", "FORWARD")
    assert levels() == ["FULL", "FORWARD", "FORWARD"]
    put("/:.test:", "NONE")
    assert levels() == ["FULL", "NONE", "NONE"]
    put("/:.test:s", "FULL_TRANSITIVE")
    assert levels() == ["FULL", "FULL_TRANSITIVE", "NONE"]
    assert core.ask("PUT", "/mode/:.test:", {"mode": "READONLY"})[0] == 200
    assert code(core.register(":.test:s", A)) == (422, 42205)
    assert core.register("s", A)[0] == 200
    assert core.ask("DELETE", "/mode/:.test:")[0] == 200
    assert core.register(":.test:s", A)[0] == 200
    assert core.ask("PUT", "/mode/:.test:", {"mode": "IMPORT"})[1]["error_code"] == 42205, "there are subjects"
    assert core.ask("PUT", "/mode/:.other:", {"mode": "IMPORT"})[0] == 200
    assert core.register(":.other:s", A, id=77, version=3)[1]["id"] == 77


def test_references_without_a_context_stay_in_that_of_their_schema(core: Core) -> None:
    inner = '{"type":"record","name":"Inner","fields":[]}'
    outer = '{"type":"record","name":"Outer","fields":[{"name":"i","type":"Inner"}]}'
    core.id_of(":.test:inner", inner)
    refers = [{"name": "Inner", "subject": "inner", "version": -1}]
    assert code(core.register("outer", outer, references=refers)) == (422, 42201)
    schema_id = core.id_of(":.test:outer", outer, references=refers)
    assert core.ask("GET", "/subjects/:.test:inner/versions/1/referencedby") == (200, [schema_id])
    assert code(core.ask("DELETE", "/subjects/:.test:inner")) == (422, 42206)
    elsewhere = [{"name": "Inner", "subject": ":.test:inner", "version": 1}]
    assert core.register("outer", outer, references=elsewhere)[0] == 200


def test_a_context_without_subjects_can_be_forgotten(core: Core) -> None:
    core.id_of(":.test:s", A)
    assert code(core.ask("DELETE", "/contexts/.test")) == (422, 42211)
    core.ask("DELETE", "/subjects/:.test:s")
    assert code(core.ask("DELETE", "/contexts/.test")) == (422, 42211), "softly is not gone"
    core.ask("DELETE", "/subjects/:.test:s", permanent="true")
    memory = core.state.memory
    assert core.ask("DELETE", "/contexts/test") == (204, "")
    assert core.ask("GET", "/contexts") == (200, ["."])
    assert core.state.memory < memory
    assert core.ask("DELETE", "/contexts/.never") == (204, "")
    assert core.id_of(":.test:s", A) == 1
