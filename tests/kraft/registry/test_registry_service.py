"""The registry over HTTP and a real topic: serializers of confluent-kafka, restarts, strangers."""

from __future__ import annotations

import json
import select
import socket
import urllib.request
from base64 import b64decode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from typing import Any
from urllib.error import HTTPError

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient, SchemaRegistryError
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from kraft.registry.requests import MEDIA_TYPES
from kraft.registry.schemas import Earlier, Source, incompatibilities
from kraft.testing.kafka import Kafka
from metadata_log.software import SOFTWARE_VERSION

PERSON = '{"type":"record","name":"Person","fields":[{"name":"name","type":"string"}]}'
OLDER = PERSON.replace("]}", ',{"name":"age","type":"int","default":-1}]}')


@pytest.fixture(scope="module")
def running() -> Iterator[Kafka]:
    with Kafka() as kafka:
        yield kafka


@pytest.fixture
def kafka(running: Kafka) -> Kafka:
    running.reset()
    return running


@pytest.fixture
def registry(kafka: Kafka) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": kafka.schema_registry_url})


def through_a_topic(kafka: Kafka, value: bytes | None, topic: str = "people") -> bytes:
    """A value after a producer and a consumer of librdkafka."""
    producer = Producer(kafka.client_config("confluent-kafka"))
    producer.produce(topic, value)
    producer.flush(20)
    settings = kafka.client_config("confluent-kafka") | {"group.id": "readers", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    try:
        message = consumer.poll(20)
        assert message is not None
        assert message.error() is None
        found = message.value()
        assert found is not None
        return found
    finally:
        consumer.close()


def test_avro_serializers_round_trip(kafka: Kafka, registry: SchemaRegistryClient) -> None:
    here = SerializationContext("people", MessageField.VALUE)
    written = AvroSerializer(registry, PERSON)({"name": "Ada"}, here)
    found = through_a_topic(kafka, written)
    assert found[:5] == b"\x00\x00\x00\x00\x01"
    assert AvroDeserializer(registry)(found, here) == {"name": "Ada"}
    assert AvroDeserializer(registry, OLDER)(found, here) == {"name": "Ada", "age": -1}, "read by a later schema"
    with pytest.raises(SchemaRegistryError, match="incompatible with an earlier schema") as refused:
        AvroSerializer(registry, PERSON.replace('"name":"name"', '"name":"id"'))({"id": "1"}, here)
    assert (refused.value.http_status_code, refused.value.error_code) == (409, 40901)


def test_json_serializers_round_trip(kafka: Kafka, registry: SchemaRegistryClient) -> None:
    here = SerializationContext("people", MessageField.VALUE)
    closed = json.dumps({"type": "object", "properties": {"name": {"type": "string"}}, "additionalProperties": False})
    written = JSONSerializer(closed, registry)({"name": "Ada"}, here)
    found = through_a_topic(kafka, written)
    assert JSONDeserializer(None, schema_registry_client=registry)(found, here) == {"name": "Ada"}
    assert registry.get_latest_version("people-value").schema.schema_type == "JSON"
    wider = closed.replace('"name":', '"age": {"type": "integer"}, "name":')
    JSONSerializer(wider, registry)({"name": "Ada", "age": 36}, here)
    with pytest.raises(SchemaRegistryError, match="PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"):
        JSONSerializer(closed.replace("name", "id"), registry)({"id": "1"}, here)


def test_protobuf_serializers_round_trip(kafka: Kafka, registry: SchemaRegistryClient) -> None:
    here = SerializationContext("people", MessageField.VALUE)
    person = message_class("person.proto", "Person", {"name": 1, "mail": 2})
    written = ProtobufSerializer(person, registry)(person(name="Ada", mail="a@b"), here)
    found = through_a_topic(kafka, written)
    again = ProtobufDeserializer(person, schema_registry_client=registry)(found, here)
    assert (again.name, again.mail) == ("Ada", "a@b")
    assert registry.get_latest_version("people-value").schema.schema_type == "PROTOBUF"
    # Who does not have the classes asks for the descriptor, also of a schema that came as text.
    text = 'syntax = "proto3"; message Person { string name = 1; string mail = 2; string phone = 3; }'
    registry.register_schema("people-value", Schema(text, "PROTOBUF"))
    serialized = registry.get_version("people-value", 2, fmt="serialized").schema.schema_str
    assert serialized is not None
    names = [one.name for one in FileDescriptorProto.FromString(b64decode(serialized)).message_type[0].field]
    assert names == ["name", "mail", "phone"]
    with pytest.raises(SchemaRegistryError, match="FIELD_SCALAR_KIND_CHANGED"):
        registry.register_schema("people-value", Schema(text.replace("string name", "int32 name"), "PROTOBUF"))


def message_class(file: str, name: str, fields: dict[str, int]) -> Any:
    """The class of a message with fields of type string, as the compiler would make it."""
    described = FileDescriptorProto(name=file, syntax="proto3")
    message = described.message_type.add(name=name)
    for field, number in fields.items():
        message.field.add(name=field, number=number, type=9, label=1)
    pool = DescriptorPool()
    pool.AddSerializedFile(described.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName(name))


def test_the_client_of_confluent_finds_what_it_asks_for(registry: SchemaRegistryClient) -> None:
    first = registry.register_schema("a/b", Schema(PERSON, "AVRO"))
    second = registry.register_schema("a/b", Schema(OLDER, "AVRO"))
    assert registry.get_subjects() == ["a/b"]
    assert registry.get_versions("a/b") == [1, 2]
    assert registry.get_latest_version("a/b").schema_id == second
    assert registry.get_version("a/b", 1).schema.schema_str == PERSON
    assert registry.lookup_schema("a/b", Schema(OLDER, "AVRO")).version == 2
    assert registry.get_schema(first).schema_str == PERSON
    guid = registry.get_version("a/b", 2).guid
    assert guid is not None
    assert registry.get_schema_by_guid(guid).schema_str == OLDER
    assert registry.get_subjects_by_schema_id(first) == ["a/b"]
    assert [(one.subject, one.version) for one in registry.get_schema_versions(second)] == [("a/b", 2)]
    assert registry.test_compatibility("a/b", Schema('"int"', "AVRO")) is False
    assert registry.test_compatibility_all_versions("a/b", Schema(PERSON, "AVRO")) is True
    registry.set_compatibility("a/b", "FULL")
    assert registry.get_compatibility("a/b") == "FULL"
    assert registry.get_config("a/b").compatibility_level == "FULL"
    reference = SchemaReference("Person", "a/b", 2)
    user = registry.register_schema("user", Schema('{"type":"array","items":"Person"}', "AVRO", [reference]))
    assert registry.get_referenced_by("a/b", 2) == [user]
    assert registry.delete_version("a/b", 1) == 1
    assert registry.delete_version("a/b", 1, permanent=True) == 1
    registry.update_global_mode("READONLY")
    assert registry.get_global_mode() == "READONLY"
    assert registry.get_contexts() == ["."]


def test_a_client_works_in_a_context_by_its_address(kafka: Kafka, registry: SchemaRegistryClient) -> None:
    inside = SchemaRegistryClient({"url": f"{kafka.schema_registry_url}/contexts/:.test:"})
    here = SerializationContext("people", MessageField.VALUE)
    for client in (registry, inside):
        data = AvroSerializer(client, PERSON)({"name": "Ada"}, here)
        assert AvroDeserializer(client)(data, here) == {"name": "Ada"}
    assert registry.get_contexts() == [".", ".test"]
    assert registry.get_subjects() == [":.test:people-value", "people-value"]
    assert inside.get_subjects() == [":.test:people-value"]
    assert inside.get_latest_version("people-value").schema_id == 1
    connection = HTTPConnection(kafka.schema_registry_url.removeprefix("http://"), timeout=10)
    connection.request("DELETE", "/contexts/.nobody")
    answer = connection.getresponse()
    assert (answer.status, answer.read(), answer.getheader("content-length")) == (204, b"", None)
    connection.request("GET", "/contexts")
    assert connection.getresponse().read() == b'[".",".test"]', "the connection lives on"
    connection.close()


def test_what_was_registered_outlives_the_registry(kafka: Kafka, registry: SchemaRegistryClient) -> None:
    for at in range(5):
        registry.register_schema(f"s{at}", Schema(PERSON if at % 2 else OLDER, "AVRO"))
    registry.delete_subject("s3")
    url = kafka.schema_registry_url
    before = everything(url)
    kafka.stop_schema_registry()
    assert kafka.schema_registry_url == url
    assert everything(url) == before
    assert registry.register_schema("s9", Schema('"int"', "AVRO")) == 3


def everything(url: str) -> Any:
    return [get(f"{url}{path}") for path in ("/schemas?deleted=true", "/subjects?deleted=true", "/config", "/mode")]


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=60) as answer:
        assert answer.headers["content-type"] == "application/vnd.schemaregistry.v1+json"
        return json.load(answer)


def test_a_reset_forgets_what_was_registered(kafka: Kafka, registry: SchemaRegistryClient) -> None:
    registry.register_schema("s", Schema(PERSON, "AVRO"))
    url = kafka.schema_registry_url
    kafka.reset()
    assert kafka.schema_registry_url == url
    assert get(f"{url}/subjects") == []


def test_a_topic_that_loses_records_is_no_registry(kafka: Kafka) -> None:
    kafka.stop_schema_registry()
    kafka.delete_topic("_schemas")
    kafka.create_topic("_schemas", config={"cleanup.policy": "delete"})
    with pytest.raises(Exception, match=r"cleanup.policy=delete, so that it would lose schemas"):
        kafka.schema_registry_url.encode()
    kafka.delete_topic("_schemas")
    assert get(f"{kafka.schema_registry_url}/subjects") == []


def test_strangers_get_errors_and_nobody_else_does(kafka: Kafka) -> None:
    url = kafka.schema_registry_url
    host, port = url.removeprefix("http://").split(":")
    for method, path, body, status in (
        ("POST", "/subjects/s/versions", b"x" * (1 << 20) + b"x", 413),
        ("POST", "/subjects/s/versions", b"\xff", 400),
        ("POST", "/subjects/s/versions", json.dumps({"schema": "{" * 200_000}).encode(), 422),
        ("PATCH", "/subjects", b"", 405),
        ("GET", "/subjects/" + "a" * 30_000, b"", 431),
        ("GET", "/subjects?a=1&b=2&c=3&d=4&e=5&f=6&g=7&h=8&i=9", b"", 400),
        ("GET", "/subjects?offset=x", b"", 400),
    ):
        connection = HTTPConnection(host, int(port), timeout=60)
        connection.request(method, path, body)
        answer = connection.getresponse()
        assert answer.status == status, (method, path[:60], answer.read()[:200])
        connection.close()
    for junk in (
        b"\x00" * 100,
        b"POST /subjects/s/versions HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n{",
    ):
        with socket.create_connection((host, int(port))) as stream:
            stream.sendall(junk)
    assert get(f"{url}/subjects") == []


def test_answers_have_the_type_that_is_asked_for(kafka: Kafka) -> None:
    url = kafka.schema_registry_url
    for accept, wanted in (
        ("application/json", "application/json"),
        ("*/*", MEDIA_TYPES[0]),
        ("text/html, image/gif, *; q=.2, */*; q=.2", MEDIA_TYPES[0]),
        (", ".join(reversed(MEDIA_TYPES)), MEDIA_TYPES[0]),
        ("application/vnd.schemaregistry+json; q=0.9, application/json; q=0.8", MEDIA_TYPES[1]),
        ("application/*; q=0.5, application/json", MEDIA_TYPES[2]),
    ):
        with urllib.request.urlopen(urllib.request.Request(f"{url}/subjects", headers={"Accept": accept})) as answer:
            assert answer.headers["content-type"] == wanted, accept
    as_json = {"Content-Type": "application/json"}
    for headers, status in (
        ({"Accept": "text/*", **as_json}, 406),
        ({"Accept": "application/json; q=0", **as_json}, 406),
        ({"Accept": "application/json; q=x", **as_json}, 406),
        ({"Content-Type": "text/html"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
    ):
        body = b'{"compatibility": "NONE"}'
        with pytest.raises(HTTPError) as refused:
            urllib.request.urlopen(urllib.request.Request(f"{url}/config", body, headers, method="PUT"))
        assert (refused.value.code, json.load(refused.value)["error_code"]) == (status, status)
        assert refused.value.headers["content-type"] == MEDIA_TYPES[0]
    assert get(f"{url}/config") == {"compatibilityLevel": "BACKWARD"}
    for content_type, body in (
        ("application/octet-stream", b'{"compatibility": "FULL"}'),
        ("application/json; charset=utf-16", '{"compatibility": "FULL"}'.encode("utf-16")),
    ):
        request = urllib.request.Request(f"{url}/config", body, {"Content-Type": content_type}, method="PUT")
        assert json.load(urllib.request.urlopen(request)) == {"compatibility": "FULL"}
    assert get(f"{url}/v1/metadata/id")["scope"]["clusters"]["kafka-cluster"] == kafka.cluster_id
    assert get(f"{url}/v1/metadata/version")["version"] == SOFTWARE_VERSION


def test_a_body_may_wait_for_permission_and_connections_live_on(kafka: Kafka) -> None:
    host, port = kafka.schema_registry_url.removeprefix("http://").split(":")
    body = json.dumps({"schema": '"int"'}).encode()
    head = (
        f"POST /subjects/s/versions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection((host, int(port)), timeout=60) as stream:
        for _ in range(2):
            stream.sendall(head.encode())
            assert stream.recv(1000).startswith(b"HTTP/1.1 100 ")
            stream.sendall(body)
            assert stream.recv(1000).startswith(b"HTTP/1.1 200 ")


def test_without_a_cluster_requests_fail_by_name(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kraft.registry.service.WRITE_SECONDS", 0.3)
    url = kafka.schema_registry_url
    kafka.pause(1)
    try:
        data, headers = json.dumps({"compatibility": "FULL"}).encode(), {"content-type": "application/json"}
        request = urllib.request.Request(f"{url}/config", data, headers, method="PUT")
        with pytest.raises(HTTPError) as failed:
            urllib.request.urlopen(request, timeout=60)
        assert failed.value.code == 500
        assert json.load(failed.value)["error_code"] == 50002
    finally:
        kafka.heal()


def test_others_register_while_a_hostile_schema_is_checked(kafka: Kafka) -> None:
    url = kafka.schema_registry_url
    host, port = url.removeprefix("http://").split(":")
    quadratic = {"$schema": "http://json-schema.org/draft-04/schema#", "enum": [{"a": one} for one in range(45_000)]}
    body = json.dumps({"schemaType": "JSON", "schema": json.dumps(quadratic)})
    hostile = HTTPConnection(host, int(port), timeout=60)
    hostile.request("POST", "/subjects/hostile/versions", body)
    registry = SchemaRegistryClient({"url": url})
    for _ in range(3):
        assert registry.register_schema("s", Schema(PERSON, "AVRO")) == 1
    registry.register_schema("s", Schema(OLDER, "AVRO"))
    ready, _, _ = select.select([hostile.sock], [], [], 0)
    assert not ready, "the hostile schema was answered before: it held nobody up, and this shows nothing"
    kafka.stop_schema_registry()  # which ends the process
    hostile.close()


def test_rivals_for_one_subject_are_checked_against_each_other(kafka: Kafka) -> None:
    """Each adds another field without a default, so that one alone can follow the first version."""
    registry = SchemaRegistryClient({"url": kafka.schema_registry_url})
    registry.set_compatibility("s", "FULL_TRANSITIVE")
    registry.register_schema("s", Schema(PERSON, "AVRO"))
    rivals = [
        PERSON.replace("]}", f',{{"name":"b","type":"{kind}","default":{default}}}]}}')
        for kind, default in (("int", 0), ("string", '""'), ("boolean", "true"), ("bytes", '"a"'))
    ]

    def error_of(schema: str) -> int:
        try:
            SchemaRegistryClient({"url": kafka.schema_registry_url}).register_schema("s", Schema(schema, "AVRO"))
        except SchemaRegistryError as refused:
            return refused.error_code
        return 0

    with ThreadPoolExecutor(len(rivals)) as pool:
        errors = list(pool.map(error_of, rivals))
    assert set(errors) <= {0, 40901}
    versions = registry.get_versions("s")
    assert len(versions) == 1 + errors.count(0)
    texts = [str(registry.get_version("s", one).schema.schema_str) for one in versions]
    sources = [Source("AVRO", text) for text in texts]
    for at, one in enumerate(sources):
        earlier = [Earlier(number + 1, two) for number, two in enumerate(sources[:at])]
        assert not incompatibilities(one, earlier, "FULL_TRANSITIVE")
