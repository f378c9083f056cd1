"""The compiled JSON text equals the reference's, for every message, record and version."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from real_data import real_files
from serde_values import CLASS_VERSIONS, is_flexible, values

from metadata_log.errors import EncodeError
from metadata_log.memory_disk import MemoryDisk
from metadata_log.reader import Entry, read_entries, read_file
from metadata_log.records.metadata import PartitionRecord, TopicRecord
from metadata_log.serde import Message, to_json
from metadata_log.serde.json_text import json_text, text_function


@settings(max_examples=400)
@given(st.data())
def test_any_message(data: st.DataObject) -> None:
    cls, version = data.draw(st.sampled_from(CLASS_VERSIONS))
    message = data.draw(values(cls, version, flexible=is_flexible(cls, version)))
    assert text_function(cls, version)(message) == json_text(message, version) == json.dumps(to_json(message, version))


def test_every_class_in_every_version() -> None:
    """The empty message of each, so that none is left to chance."""
    for cls, version in CLASS_VERSIONS:
        assert json_text(cls(), version) == json.dumps(to_json(cls(), version))


def test_records_of_real_clusters() -> None:
    count = 0
    for path, content, _ in real_files():
        disk = MemoryDisk()
        disk.mkdir("d")
        disk.open("d/a.log", create=True).append(content)
        for batch in read_file(disk, "d/a.log"):
            for entry in read_entries(batch, path):
                assert isinstance(entry, Entry)
                assert entry.record is not None
                version = 0 if entry.is_control else entry.version
                assert json_text(entry.record, version) == json.dumps(to_json(entry.record, version))
                count += 1
    assert count > 29_000


@pytest.mark.parametrize(
    ("message", "version"),
    [
        (TopicRecord(), 9),
        (PartitionRecord(directories=("x",)), 0),
        (PartitionRecord(replicas=None), 2),
        (TopicRecord(name=None), 0),
    ],
)
def test_what_a_version_cannot_carry(message: Message, version: int) -> None:
    """The same named error as from the reference, never text that Kafka would not write."""
    with pytest.raises(EncodeError):
        to_json(message, version)
    with pytest.raises(EncodeError):
        json_text(message, version)
