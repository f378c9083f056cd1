"""Records of `__remote_log_metadata`, against what Apache Kafka 4.4.0 wrote and read."""

from __future__ import annotations

from collections import Counter

import pytest

from kraft.cli.files.remote_lines import record_object, shown_pair, text_of
from metadata_log.errors import DecodeError, UnsupportedVersion
from metadata_log.records.record import Record
from metadata_log.records.remote_storage import RECORD_TYPES, decode_remote, encode_remote
from metadata_log.serde import to_json
from support.serde_golden import golden


def test_every_record_of_kafka_is_read_written_and_shown_the_same() -> None:
    found: Counter[str] = Counter()
    for line in golden("remote_records"):
        value = bytes.fromhex(line["frame"] + line["hex"])
        record = decode_remote(value)
        assert type(record).__name__ == line["name"]
        assert encode_remote(record) == value
        assert to_json(record, 0) == line["json"]
        assert text_of(record) == line["text"]
        found[line["name"]] += 1
    assert found.keys() == {cls.__name__ for cls in RECORD_TYPES.values()}
    assert min(found.values()) > 50


def test_damaged_records_are_refused_or_shown_as_by_kafka() -> None:
    refused = shown = 0
    for line in golden("invalid_remote_records"):
        value = bytes.fromhex(line["hex"])
        if line["text"] is None:
            with pytest.raises(DecodeError):
                decode_remote(value)
            refused += 1
        else:
            assert text_of(decode_remote(value)) == line["text"], line["hex"]
            shown += 1
    assert refused > 200
    assert shown > 200


def test_what_cannot_be_decoded_is_said() -> None:
    nothing = Record(7, 0, 0, None, None, ())
    key, value = shown_pair(nothing)
    assert key is None
    assert value is not None
    assert value.startswith("Error at offset 7, skipping. ")
    with pytest.raises(DecodeError):
        record_object(nothing)
    with pytest.raises(UnsupportedVersion, match="unknown record type 9"):
        decode_remote(b"\1\x09\0")
    line = next(line for line in golden("remote_records") if line["name"] == "RemotePartitionDeleteMetadataRecord")
    known = record_object(Record(0, 0, 0, None, bytes.fromhex(line["frame"] + line["hex"]), ()))
    assert known == {"type": 2, "name": line["name"], "value": line["json"]}
