"""Records of `__consumer_offsets` and `__transaction_state`, against what Apache Kafka 4.3.1 wrote."""

from __future__ import annotations

from collections import Counter

import pytest

from metadata_log.errors import DecodeError, EncodeError, UnsupportedVersion
from metadata_log.records.consumer_offsets import (
    ConsumerGroupMemberMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from metadata_log.records.coordinator import (
    CONSUMER_OFFSETS,
    RETENTION_VERSION,
    SHARE_GROUP_STATE,
    TOPICS,
    TRANSACTION_STATE,
    decode_pair,
    encode_key,
    encode_value,
)
from metadata_log.records.metadata import TopicRecord
from metadata_log.records.transaction_state import TransactionLogKey, TransactionLogValue
from metadata_log.serde import schema_of, to_json
from support.real_data import archive, json_lines
from support.serde_golden import golden

LOGS = sorted(path for path in archive("coordinators") if path.startswith("expected/__") and path.endswith(".jsonl"))


def test_the_tables_name_every_kind():
    assert sorted(CONSUMER_OFFSETS) == [*range(9), *range(10, 18), *range(19, 24)]
    assert sorted(TRANSACTION_STATE) == [0]
    assert sorted(SHARE_GROUP_STATE) == [0, 1]
    for kinds in TOPICS.values():
        for number, kind in kinds.items():
            assert kind.type == number == schema_of(kind.key).api_key == schema_of(kind.value).api_key
            assert (kind.key.__name__, kind.value.__name__) == (f"{kind.name}Key", f"{kind.name}Value")


@pytest.mark.parametrize("path", LOGS)
def test_every_record_of_kafkas_logs_is_read_and_written_the_same(path):
    """A JVM that takes a partition over reads what we wrote, and the other way round."""
    topic = path.removeprefix("expected/").partition("-")[0]
    found: Counter[str] = Counter()
    for batch in json_lines("coordinators", path):
        for line in batch["records"]:
            if batch["is_control"]:
                continue
            key = bytes.fromhex(line["key_hex"])
            value = bytes.fromhex(line["value_hex"]) if line["value_hex"] is not None else None
            record = decode_pair(TOPICS[topic], key, value)
            assert record is not None
            assert (record.kind.type, record.kind.name) == (line["type"], line["name"])
            assert to_json(record.key, 0) == line["key"]
            assert encode_key(record.key) == key
            found[record.kind.name] += 1
            if record.value is not None and record.version is not None:
                assert record.version == line["value_version"]
                assert to_json(record.value, record.version) == line["value"]
                assert encode_value(record.value, record.version) == value
                if record.kind.name != "OffsetCommit" or record.version != RETENTION_VERSION:
                    assert encode_value(record.value) == value, "not the version that Kafka writes"
    assert found.total() > 50


def test_kafkas_vectors_have_the_head_that_we_write():
    classes = {
        cls.__name__: cls for kinds in TOPICS.values() for kind in kinds.values() for cls in (kind.key, kind.value)
    }
    for line in golden("coordinator_records"):
        head, schema = bytes.fromhex(line["frame"]), schema_of(classes[line["name"]])
        number = int(schema.api_key or 0) if line["name"].endswith("Key") else int(line["version"])
        assert head == number.to_bytes(2, "big")


def test_a_member_of_the_consumer_protocol_says_that_it_is_not_a_classic_one():
    """Without the explicit null, a JVM takes the member for a classic one with a session time-out of 0."""
    assert encode_value(ConsumerGroupMemberMetadataValue(classic_member_metadata=None)).endswith(bytes([1, 0, 1, 0]))
    assert encode_value(ConsumerGroupMemberMetadataValue()).endswith(bytes([0]))


def test_tags_are_in_order_of_their_numbers():
    value = TransactionLogValue(previous_producer_id=7, client_transaction_version=2, transaction_partitions=None)
    encoded = encode_value(value)
    assert encoded[:2] == bytes([0, 1])
    assert encoded.endswith(bytes([2, 0, 8, *bytes(7), 7, 2, 2, 0, 2]))
    record = decode_pair(TRANSACTION_STATE, encode_key(TransactionLogKey(transactional_id="t")), encoded)
    assert record is not None
    assert record.value == value


def test_the_versions_that_kafka_writes():
    assert encode_value(OffsetCommitValue())[:2] == bytes([0, 4])
    assert encode_value(OffsetCommitValue(expire_timestamp=5), RETENTION_VERSION)[:2] == bytes([0, 1])
    assert encode_value(GroupMetadataValue())[:2] == bytes([0, 3])


def test_an_unknown_type_is_no_error_and_an_unknown_version_is_one():
    """A coordinator skips the one and must not load over the other."""
    assert decode_pair(CONSUMER_OFFSETS, bytes([0, 9, 1]), b"\x00\x00") is None
    assert decode_pair(CONSUMER_OFFSETS, bytes([0, 99]), None) is None
    key = encode_key(GroupMetadataKey(group="g"))
    with pytest.raises(UnsupportedVersion, match="GroupMetadataValue has no version 5"):
        decode_pair(CONSUMER_OFFSETS, key, bytes([0, 5, 0]), where="here")
    assert decode_pair(CONSUMER_OFFSETS, key, None) is not None


@pytest.mark.parametrize(
    ("key", "value"),
    [(b"", None), (b"\x00", None), (b"\x00\x02\x00", None), (bytes([0, 2, 0, 1, 103]), b"\x00")],
)
def test_damaged_pairs_are_refused(key, value):
    with pytest.raises(DecodeError):
        decode_pair(CONSUMER_OFFSETS, key, value, where="here")


def test_only_keys_and_values_of_coordinators_are_written():
    with pytest.raises(EncodeError, match="not the key"):
        encode_key(OffsetCommitValue())
    with pytest.raises(EncodeError, match="not the value"):
        encode_value(OffsetCommitKey())
    with pytest.raises(EncodeError, match="not the key"):
        encode_key(TopicRecord())
