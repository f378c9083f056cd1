"""The compiled codecs, those of rare kinds and those that write in steps do the same as the reference."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from metadata_log.errors import DecodeError, EncodeError, UnsupportedVersion
from metadata_log.records.metadata import PartitionRecord, RegisterBrokerRecord, TopicRecord
from metadata_log.serde import decode, decode_from, encode, from_json, schema_of, to_json
from metadata_log.serde.codec import encode_in_steps, finished
from metadata_log.serde.fields import ArrayOf, fields_at
from metadata_log.serde.primitives import Reader, Writer, read_struct, write_struct
from metadata_log.types import Uuid
from support.serde_golden import FAMILIES, golden
from support.serde_values import CLASS_VERSIONS, CLASSES, damage, is_flexible, values
from transport.protocol.messages import (
    ApiVersionsRequest,
    CreateTopicsRequest,
    ElectLeadersResponse,
    FetchRequest,
    RequestHeader,
    VoteRequest,
)
from transport.protocol.messages.create_topics import CreatableTopic
from transport.protocol.messages.elect_leaders import PartitionResult, ReplicaElectionResult
from transport.protocol.messages.fetch import FetchTopic, ReplicaState

relaxed = settings(
    deadline=None,
    max_examples=300,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def reference_encode(message, version):
    writer = Writer()
    write_struct(writer, message, version, flexible=is_flexible(type(message), version))
    return b"".join(writer.parts)


def reference_decode(cls, version, raw):
    reader = Reader(raw)
    return read_struct(reader, cls, version, flexible=is_flexible(cls, version)), reader.position


@relaxed
@given(st.data())
def test_compiled_and_reference_agree_and_lose_nothing(data):
    cls, version = data.draw(st.sampled_from(CLASS_VERSIONS), label="class")
    message = data.draw(values(cls, version, flexible=is_flexible(cls, version)), label="message")
    raw = encode(message, version)
    assert raw == reference_encode(message, version)
    assert decode(cls, version, raw) == message
    assert reference_decode(cls, version, raw) == (message, len(raw))
    assert decode_from(cls, version, b"before" + raw + b"behind", 6) == (message, 6 + len(raw))
    assert decode(cls, version, memoryview(raw)) == message


@relaxed
@given(st.data())
def test_json_keeps_all_but_unknown_tagged_fields(data):
    """`dump --json` must show a record such that it can be read back. Kafka's JSON leaves out unknown tagged fields."""
    cls, version = data.draw(st.sampled_from(CLASS_VERSIONS), label="class")
    message = data.draw(values(cls, version, flexible=False), label="message")
    assert from_json(cls, version, to_json(message, version)) == message


SAMPLES = [
    (CLASSES[line["name"]], line["version"], bytes.fromhex(line["hex"]))
    for family in FAMILIES
    for line in golden(family)
    if len(line["hex"]) < 1200
]


@settings(relaxed, max_examples=600)
@given(sample=st.sampled_from(SAMPLES), data=st.data())
def test_both_codecs_agree_on_damage(sample, data):
    """Flipped, cut and lengthened bytes: never another exception than DecodeError, and never two opinions."""
    cls, version, raw = sample
    damaged = data.draw(damage(raw))
    try:
        expected = reference_decode(cls, version, damaged)
    except DecodeError:
        with pytest.raises(DecodeError):
            decode_from(cls, version, damaged)
        return
    assert decode_from(cls, version, damaged) == expected


def wrong(value: object) -> Any:
    """A value of another type than a field has."""
    return value


@pytest.mark.parametrize(
    "count", [b"\xff\xff\xff\xff\x07", b"\x80\x80\x80\x80\x08", b"\xff\xff\xff\xff\x0f", b"\xe8\x07"]
)
def test_an_excessive_length_allocates_nothing(count):
    """A peer that announces two billion elements must not make us allocate them."""
    raw = bytes(20) + count
    assert decode(PartitionRecord, 2, encode(PartitionRecord(), 2)) == PartitionRecord()  # compiles before we measure
    tracemalloc.start()
    with pytest.raises(DecodeError):
        decode(PartitionRecord, 2, raw)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200_000


@pytest.mark.parametrize(("cls", "version"), [(CreateTopicsRequest, 4), (CreateTopicsRequest, 7)])
def test_a_string_is_measured_by_its_bytes(cls, version):
    """Kafka's limit is 32,767 bytes of UTF-8, in both forms of a string."""
    longest = cls(topics=[CreatableTopic(name="\u00e9" * 16_383 + "e")])
    assert decode(cls, version, encode(longest, version)) == longest
    with pytest.raises(EncodeError, match="32768 bytes"):
        encode(cls(topics=[CreatableTopic(name="\u00e9" * 16_384)]), version)


def structures_in_arrays(cls, version):
    for field in fields_at(cls, version).in_order:
        match field.type:
            case ArrayOf(element) if isinstance(element, type):
                yield element
                yield from structures_in_arrays(element, version)
            case type():
                yield from structures_in_arrays(field.type, version)


def test_no_array_element_is_empty():
    """An array may announce one element for each byte left: a bound only if no element takes less than a byte."""
    for cls, version in CLASS_VERSIONS:
        for element in structures_in_arrays(cls, version):
            assert is_flexible(cls, version) or fields_at(element, version).plain, (cls, version, element)


def test_errors_name_source_and_field():
    raw = encode(VoteRequest(cluster_id="abc"), 2)
    with pytest.raises(DecodeError) as caught:
        decode(VoteRequest, 2, raw[:2], where="peer 3")
    assert caught.value.where == "peer 3"
    assert caught.value.field == "clusterId"
    assert caught.value.position == 1
    assert "VoteRequest version 2" in str(caught.value)
    assert "peer 3" in str(caught.value)


def test_the_field_path_leads_into_arrays():
    message = FetchRequest(topics=[FetchTopic(topic="a"), FetchTopic(topic="b")])
    raw = encode(message, 4)
    with pytest.raises(DecodeError) as caught:
        decode(FetchRequest, 4, raw[:-2])
    assert caught.value.field == "topics[1].partitions"


def test_trailing_bytes_are_refused():
    raw = encode(TopicRecord(name="t"), 0)
    with pytest.raises(DecodeError, match="trailing bytes behind TopicRecord version 0: 1"):
        decode(TopicRecord, 0, raw + b"\0")


def test_unknown_versions():
    with pytest.raises(UnsupportedVersion, match="versions 0-2 are known"):
        decode(VoteRequest, 3, b"", where="peer 1")
    with pytest.raises(EncodeError, match="versions 0-2 are known"):
        encode(VoteRequest(), 3)


@pytest.mark.parametrize(
    ("message", "version", "field"),
    [
        (FetchRequest(replica_state=ReplicaState(replica_id=1)), 14, "replicaState"),
        (FetchRequest(replica_id=1), 15, "replicaId"),
        (FetchRequest(max_wait_ms=1 << 31), 15, "maxWaitMs"),
        (FetchRequest(max_wait_ms=wrong(None)), 15, "maxWaitMs"),
        (FetchRequest(max_wait_ms=wrong("1")), 15, "maxWaitMs"),
        (FetchRequest(topics=wrong(None)), 15, "topics"),
        (FetchRequest(topics=[wrong(None)]), 15, "topics[0]"),
        (FetchRequest(topics=[FetchTopic(partitions=[wrong(7)])]), 15, "topics[0].partitions[0]"),
        (FetchRequest(rack_id="x" * 32768), 11, "rackId"),
        (FetchRequest(rack_id="x" * 32768), 12, "rackId"),
        (FetchRequest(rack_id="\ud800"), 12, "rackId"),
        (FetchRequest(rack_id=wrong(None)), 12, "rackId"),
        (FetchRequest(rack_id=wrong(b"bytes")), 12, "rackId"),
        (FetchRequest(unknown_tagged=((77, b""),)), 11, None),
        (FetchRequest(unknown_tagged=((1, b""),)), 15, None),
        (FetchRequest(unknown_tagged=((9, b""), (8, b""))), 15, None),
        (FetchRequest(topics=[FetchTopic(unknown_tagged=((9, b""), (9, b"")))]), 15, "topics[0]"),
        (PartitionRecord(replicas=(1, 2, 1 << 31)), 0, "replicas[2]"),
        (PartitionRecord(replicas=(*range(100), 1 << 31)), 0, "replicas[100]"),
        (PartitionRecord(directories=(Uuid.ZERO,)), 0, "directories"),
        (PartitionRecord(eligible_leader_replicas=(1 << 31,)), 2, "eligibleLeaderReplicas[0]"),
        (RegisterBrokerRecord(log_dirs=(Uuid.ZERO,)), 2, "logDirs"),
        (ApiVersionsRequest(client_software_name=wrong(3)), 3, "clientSoftwareName"),
    ],
)
def test_encoding_refuses_values_that_a_version_lacks(message, version, field):
    with pytest.raises(EncodeError) as caught:
        encode(message, version)
    assert caught.value.field == field
    with pytest.raises(EncodeError):
        reference_encode(message, version)


def test_ignorable_fields_are_dropped_silently():
    message = FetchRequest(cluster_id="a", rack_id="r", max_bytes=5)
    assert decode(FetchRequest, 4, encode(message, 4)) == FetchRequest(max_bytes=5)


def test_unknown_tagged_fields_survive_everywhere():
    topic = FetchTopic(topic_id=Uuid.METADATA_TOPIC, unknown_tagged=((5, b"new"),))
    message = FetchRequest(topics=[topic], unknown_tagged=((2, b""), (1 << 20, b"\1")))
    assert decode(FetchRequest, 17, encode(message, 17)) == message


def test_text_that_is_not_utf8_is_read_as_kafka_reads_it():
    """Java replaces what it cannot decode; refusing it would stop us at a record that Kafka's own nodes accept."""
    raw = encode(TopicRecord(name="axb"), 0).replace(b"axb", b"a\xffb")
    assert decode(TopicRecord, 0, raw).name == "a�b"


def test_client_id_keeps_its_fixed_length_in_flexible_headers():
    assert encode(RequestHeader(1, 2, 3, "id"), 2).hex() == "0001000200000003" + "00026964" + "00"
    assert encode(RequestHeader(1, 2, 3, None), 2).hex() == "0001000200000003" + "ffff" + "00"


def test_equal_defaults_are_not_shared():
    first, second = FetchRequest(), FetchRequest()
    assert first.topics is not second.topics
    assert decode(FetchRequest, 15, encode(first, 15)).topics is not decode(FetchRequest, 15, encode(first, 15)).topics


def test_every_class_has_defaults_for_everything():
    for cls, version in CLASS_VERSIONS:
        assert decode(cls, version, encode(cls(), version)) == cls(), (cls, version)
        assert schema_of(cls).name == cls.__name__


def test_nested_structures_have_no_versions():
    with pytest.raises(TypeError, match="nested structure"):
        schema_of(FetchTopic)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"partitionId": "3"}, "expected a value of type int32"),
        ({"partitionId": True}, "expected a value of type int32"),
        ({"partitionId": 1 << 31}, "out of range"),
        ({"topicId": "short"}, "not a Kafka uuid"),
        ({"replicas": None}, "null is not allowed"),
        ({"replicas": {}}, "expected a value of type array"),
        ({"replicas": [1, "x"]}, r"replicas\[1\]"),
        ({"isr": ...}, "mandatory in version 0"),
    ],
)
def test_json_of_the_wrong_shape_is_refused(change, what):
    json = to_json(PartitionRecord(replicas=(1, 2)), 0) | change
    json = {key: value for key, value in json.items() if value is not ...}
    with pytest.raises(DecodeError, match=what) as caught:
        from_json(PartitionRecord, 0, json, where="a file")
    assert caught.value.where == "a file"


def test_unknown_json_names_are_ignored():
    json = to_json(PartitionRecord(), 0) | {"later": 1}
    assert from_json(PartitionRecord, 0, json) == PartitionRecord()


@pytest.mark.soak
@pytest.mark.parametrize(("cls", "version"), CLASS_VERSIONS, ids=lambda value: getattr(value, "__name__", value))
def test_every_class_and_version_thoroughly(cls, version):
    @settings(relaxed, max_examples=100)
    @given(values(cls, version, flexible=is_flexible(cls, version)))
    def check(message):
        raw = encode(message, version)
        assert raw == reference_encode(message, version)
        assert decode(cls, version, raw) == message
        assert reference_decode(cls, version, raw) == (message, len(raw))

    check()


# A long message is written in steps.


def elections(topics: int, partitions: int) -> ElectLeadersResponse:
    outcomes = [PartitionResult(partition_id=at, error_code=84, error_message="not needed") for at in range(partitions)]
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(topic=f"topic-{number}", partition_result=outcomes) for number in range(topics)
        ]
    )


@relaxed
@given(st.data(), st.integers(1, 5), st.integers(1, 5))
def test_encoding_in_steps_gives_the_bytes_of_one_step(data: st.DataObject, first: int, following: int) -> None:
    cls, version = data.draw(st.sampled_from(CLASS_VERSIONS), label="class")
    message = data.draw(values(cls, version, flexible=is_flexible(cls, version)), label="message")
    assert b"".join(finished(encode_in_steps(message, version, first, following))) == encode(message, version)


def test_each_step_encodes_a_bounded_number_of_elements() -> None:
    message = elections(topics=30, partitions=100)
    steps = encode_in_steps(message, 2, 10, 100)
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as done:
            pieces = done.value
            break
        count += 1
    assert count == 1 + (30 * 101 - 10) // 100
    size = max(len(piece) for piece in pieces)
    assert size < 100 * len(encode(elections(1, 100), 2)) // 90
    assert b"".join(pieces) == encode(message, 2)


def test_encoding_in_steps_raises_the_usual_errors() -> None:
    message = elections(topics=1, partitions=1)
    with pytest.raises(EncodeError, match="no version 77"):
        finished(encode_in_steps(message, 77, 1, 1))
    outcome = PartitionResult(partition_id=1 << 40)
    bad = ElectLeadersResponse(replica_election_results=[ReplicaElectionResult(topic="t", partition_result=[outcome])])
    with pytest.raises(EncodeError, match="partitionId"):
        finished(encode_in_steps(bad, 2, 1, 1))
