"""The envelope of metadata records, and control records."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metadata_log.errors import DecodeError, EncodeError
from metadata_log.records import (
    CONTROL_RECORDS,
    RECORD_TYPES,
    ControlRecordType,
    decode_control,
    decode_record,
    encode_control,
    encode_control_key,
    encode_record,
    peek_type,
)
from metadata_log.records.control import KRaftVersionRecord, LeaderChangeMessage, QuorumStateData, SnapshotHeaderRecord
from metadata_log.records.metadata import TopicRecord
from metadata_log.serde import decode, encode, schema_of
from metadata_log.types import Uuid
from support.serde_golden import golden
from support.serde_values import CLASSES


def test_framed_records_of_kafka():
    for line in golden("records"):
        value = bytes.fromhex(line["frame"] + line["hex"])
        framed = decode_record(value)
        cls = CLASSES[line["name"]]
        assert framed.name == line["name"]
        assert peek_type(value) == (framed.type, framed.version) == (schema_of(cls).api_key, line["version"])
        assert framed.record == decode(cls, line["version"], bytes.fromhex(line["hex"]))
        assert encode_record(framed.record, framed.version) == value == framed.value


def is_beyond_us(line):
    """Kafka stops at a type or version beyond it; we keep the bytes, because a reader of history must go on."""
    value = bytes.fromhex(line["hex"])
    try:
        record_type, version = peek_type(value)
    except DecodeError:
        return False
    cls = RECORD_TYPES.get(record_type)
    return cls is None or version > schema_of(cls).versions.highest


def test_damaged_frames_are_refused_as_by_kafka():
    beyond = 0
    for line in golden("record_frames"):
        value = bytes.fromhex(line["hex"])
        if line["ok"]:
            assert decode_record(value).record is not None
        elif is_beyond_us(line):
            assert decode_record(value).record is None
            assert decode_record(value).value == value
            beyond += 1
        else:
            with pytest.raises(DecodeError) as caught:
                decode_record(value, where="a segment")
            assert caught.value.where == "a segment"
    assert beyond > 5


@settings(deadline=None, max_examples=300, print_blob=True)
@given(st.binary(max_size=40), st.sampled_from([b"", b"\x01", b"\x01\x02\x00", b"\x01\x03\x02", b"\x01\x05\x02"]))
def test_any_bytes_are_a_record_or_a_decode_error(tail, head):
    try:
        framed = decode_record(head + tail)
    except DecodeError:
        return
    assert framed.value == head + tail
    assert peek_type(head + tail) == (framed.type, framed.version)


def test_a_newer_version_is_read_as_far_as_known():
    body = encode(TopicRecord(name="t", topic_id=Uuid.METADATA_TOPIC), 0)
    framed = decode_record(b"\x01\x02\x07" + body)
    assert (framed.version, framed.record) == (7, TopicRecord(name="t", topic_id=Uuid.METADATA_TOPIC))
    longer = decode_record(b"\x01\x02\x07" + body + b"new")
    assert (longer.record, longer.value) == (None, b"\x01\x02\x07" + body + b"new")


def test_an_unknown_type_keeps_its_bytes():
    framed = decode_record(b"\x01\xe8\x07\x03abc")
    assert (framed.type, framed.version, framed.record, framed.value) == (1000, 3, None, b"\x01\xe8\x07\x03abc")
    assert framed.name == "record type 1000"
    assert peek_type(framed.value) == (1000, 3)


def test_record_types_rise_and_name_their_classes():
    assert list(RECORD_TYPES) == sorted(RECORD_TYPES)
    assert len(RECORD_TYPES) == 27
    assert RECORD_TYPES[2] is TopicRecord


def test_control_records():
    """A real log's first batch is a LeaderChange; its key is version 0, type 2."""
    record = LeaderChangeMessage(version=0, leader_id=3)
    record_type, key, value = encode_control(record)
    assert (record_type, key.hex()) == (ControlRecordType.LEADER_CHANGE, "00000002")
    assert decode_control(key, value) == (record_type, record)
    assert encode_control_key(ControlRecordType.KRAFT_VOTERS).hex() == "00000006"


def test_control_records_are_read_in_the_version_they_name():
    record = LeaderChangeMessage(version=1, leader_id=3)
    assert decode_control(b"\0\0\0\2", encode(record, 1)) == (2, record)
    newer = b"\0\2" + encode(KRaftVersionRecord(kraft_version=1), 0)[2:]
    assert decode_control(b"\0\0\0\5", newer) == (5, KRaftVersionRecord(version=2, kraft_version=1))


def test_transaction_markers_have_no_body_here():
    assert decode_control(b"\0\0\0\1", b"\0\0\0\0\0\1") == (ControlRecordType.COMMIT, None)
    assert decode_control(b"\0\0\0\x63", b"") == (99, None)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"\0\0\0", b""),
        (b"\xff\xff\0\2", b"\0\0"),
        (b"\0\0\0\2", b"\0"),
        (b"\0\0\0\2", b"\0\0"),
        (b"\0\0\0\2", b"\xff\xff\0\0"),
    ],
)
def test_damaged_control_records(key, value):
    with pytest.raises(DecodeError) as caught:
        decode_control(key, value, where="a segment")
    assert caught.value.where == "a segment"


def test_every_control_record_of_kafka():
    names = {cls.__name__: record_type for record_type, cls in CONTROL_RECORDS.items()}
    count = 0
    for line in golden("data"):
        if line["name"] in names and line["json"]["version"] == line["version"]:
            key = encode_control_key(ControlRecordType(names[line["name"]]))
            value = bytes.fromhex(line["hex"])
            assert decode_control(key, value) == (
                names[line["name"]],
                decode(CLASSES[line["name"]], line["version"], value),
            )
            count += 1
    assert count > 5


def test_not_every_message_is_a_control_record():
    with pytest.raises(EncodeError, match="not a control record"):
        encode_control(QuorumStateData())
    assert encode_control(SnapshotHeaderRecord(last_contained_log_timestamp=5))[0] == ControlRecordType.SNAPSHOT_HEADER
