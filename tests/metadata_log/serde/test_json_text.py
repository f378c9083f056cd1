"""The compiled JSON text equals the reference's, for every message, record and version."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metadata_log.errors import EncodeError
from metadata_log.memory_disk import MemoryDisk
from metadata_log.reading.damage import Damage
from metadata_log.reading.entries import Entry, read_entries
from metadata_log.reading.reader import read_file
from metadata_log.records.metadata import PartitionRecord, TopicRecord
from metadata_log.serde import Message, decode, encode, to_json
from metadata_log.serde.compiler import READ_FAILURES
from metadata_log.serde.fields import fields_at
from metadata_log.serde.json_form import value_to_json
from metadata_log.serde.json_from_bytes import text_reader
from metadata_log.serde.json_text import json_text, text_function
from support.real_data import real_files
from support.serde_values import CLASS_VERSIONS, is_flexible, values
from transport.protocol.messages.produce import (
    LeaderIdAndEpoch,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)


@settings(max_examples=400)
@given(st.data())
def test_any_message(data: st.DataObject) -> None:
    cls, version = data.draw(st.sampled_from(CLASS_VERSIONS))
    message = data.draw(values(cls, version, flexible=is_flexible(cls, version)))
    assert text_function(cls, version)(message) == json_text(message, version) == json.dumps(to_json(message, version))


@settings(max_examples=400)
@given(st.data())
def test_any_message_straight_from_its_bytes(data: st.DataObject) -> None:
    cls, version = data.draw(st.sampled_from(CLASS_VERSIONS))
    message = data.draw(values(cls, version, flexible=is_flexible(cls, version)))
    raw, form = b"front" + encode(message, version), to_json(message, version)
    if _stands_for_unknown_tags(message, version):
        with pytest.raises(READ_FAILURES):
            text_reader(cls, version)(raw, 5)
        return
    assert text_reader(cls, version)(raw, 5) == json.dumps(form)
    assert text_reader(cls, version, ascii_only=False)(raw, 5) == json.dumps(form, ensure_ascii=False)
    with pytest.raises(READ_FAILURES):
        text_reader(cls, version)(raw + b"\0", 5)


def _stands_for_unknown_tags(value: object, version: int) -> bool:
    """Whether a tagged structure has nothing but its defaults and unknown tags: then its text is the decoder's."""
    if isinstance(value, list | tuple):
        return any(_stands_for_unknown_tags(one, version) for one in value)
    if not isinstance(value, Message):
        return False
    for field in fields_at(type(value), version).in_order:
        found = getattr(value, field.name)
        if _stands_for_unknown_tags(found, version):
            return True
        if field.tag is not None and isinstance(found, Message) and found != field.default:
            known, default = (value_to_json(field.type, one, version) for one in (found, field.default))
            if known == default:
                return True
    return False


def test_a_structure_of_unknown_tags_is_left_to_the_general_reader() -> None:
    leader = LeaderIdAndEpoch(unknown_tagged=((7, b"later"),))
    partition = PartitionProduceResponse(current_leader=leader)
    message = ProduceResponse([TopicProduceResponse(partition_responses=[partition])])
    raw = encode(message, 12)
    assert _stands_for_unknown_tags(message, 12)
    with pytest.raises(READ_FAILURES):
        text_reader(ProduceResponse, 12)(raw, 0)
    assert decode(ProduceResponse, 12, raw) == message


@settings(max_examples=400)
@given(st.data())
def test_damaged_bytes_give_the_text_of_the_decoded_message_or_none(data: st.DataObject) -> None:
    cls, version = data.draw(st.sampled_from(CLASS_VERSIONS))
    raw = bytearray(encode(data.draw(values(cls, version, flexible=is_flexible(cls, version))), version))
    for at in data.draw(st.lists(st.integers(0, max(0, len(raw) - 1)), min_size=1, max_size=3)):
        raw[at : at + 1] = data.draw(st.binary(max_size=2))
    try:
        text = text_reader(cls, version)(bytes(raw), 0)
    except READ_FAILURES:
        return
    assert text == json.dumps(to_json(decode(cls, version, bytes(raw)), version))


def test_every_class_in_every_version() -> None:
    """The empty message of each, so that none is left to chance."""
    for cls, version in CLASS_VERSIONS:
        text = json.dumps(to_json(cls(), version))
        assert json_text(cls(), version) == text
        raw = encode(cls(), version)
        assert text_reader(cls, version)(raw, 0) == text


def test_records_of_real_clusters() -> None:
    count = 0
    for path, content, _ in real_files():
        disk = MemoryDisk()
        disk.mkdir("d")
        disk.open("d/a.log", create=True).append(content)
        for batch in read_file(disk, "d/a.log"):
            assert not isinstance(batch, Damage)
            for entry in read_entries(batch, path):
                assert isinstance(entry, Entry)
                assert entry.record is not None
                version = 0 if entry.is_control else entry.version
                assert json_text(entry.record, version) == json.dumps(to_json(entry.record, version))
                count += 1
    assert count > 29_000


def wrong(value: object) -> Any:
    """A value of another type than a field has."""
    return value


@pytest.mark.parametrize(
    ("message", "version"),
    [
        (TopicRecord(), 9),
        (PartitionRecord(directories=wrong(("x",))), 0),
        (PartitionRecord(replicas=wrong(None)), 2),
        (TopicRecord(name=wrong(None)), 0),
    ],
)
def test_json_text_refuses_values_that_a_version_lacks(message: Message, version: int) -> None:
    """The same named error as from the reference, never text that Kafka would not write."""
    with pytest.raises(EncodeError):
        to_json(message, version)
    with pytest.raises(EncodeError):
        json_text(message, version)
