"""The lines that are made straight from bytes are those that are made from decoded records."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metadata_log.reading.damage import Damage
from metadata_log.reading.dump_records import Range, RecordLines, RecordsWanted
from metadata_log.reading.entries import read_entries
from metadata_log.records import encode_record
from metadata_log.records.batch import RecordBatch, read_batch, scan
from metadata_log.records.batch_builder import build_batch, rebuild_batch
from metadata_log.records.metadata import ConfigRecord, NoOpRecord, PartitionChangeRecord, TopicRecord
from metadata_log.records.record import records
from metadata_log.serde import Message
from metadata_log.types import Uuid
from support.real_data import real_files


def wanted(**more: Any) -> RecordsWanted:
    plain: dict[str, Any] = {"types": frozenset(), "span": Range(), "as_json": True, "noop": False}
    return RecordsWanted(**(plain | {"show_secrets": False} | more))


def slowly(lines: RecordLines, what: RecordsWanted, batch: RecordBatch) -> list[str]:
    read = list(read_entries(batch, "some/path"))
    entries = [entry for entry in read if not isinstance(entry, Damage)]
    assert entries == read
    return [lines.line(batch, entry, "some/path") for entry in what.of(batch, entries)]


def batch_of(*messages: tuple[Message, int], offset: int = 0) -> RecordBatch:
    return read_batch(build_batch(offset, 1, 1000, [encode_record(message, version) for message, version in messages]))


@pytest.mark.parametrize(
    "what",
    [
        wanted(),
        wanted(noop=True, show_secrets=True),
        wanted(as_json=False),
        wanted(types=frozenset({"partitionchangerecord", "configrecord"})),
    ],
)
def test_real_files(what: RecordsWanted) -> None:
    lines, quick = RecordLines(what), 0
    for _, content, _ in real_files():
        for batch in scan(content):
            found = lines.quickly(batch, "some/path")
            if not batch.is_control:
                assert found == slowly(lines, what, batch)
                quick += 1
    assert quick > 2700


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_the_quick_encoder_refuses_a_batch_with_a_damaged_record(data: st.DataObject) -> None:
    """Whatever is wrong in a record, the quick way does not hide it."""
    what = wanted()
    batch = batch_of(
        (TopicRecord(name="a", topic_id=Uuid.METADATA_TOPIC), 0),
        (PartitionChangeRecord(topic_id=Uuid.METADATA_TOPIC, isr=(1, 2), leader=1), 2),
        (NoOpRecord(), 0),
    )
    contents = list(records(batch))
    at = data.draw(st.integers(0, 2))
    value = bytearray(contents[at].value or b"")
    place = data.draw(st.integers(0, len(value) - 1))
    value[place : place + 1] = data.draw(st.binary(max_size=2))
    contents[at] = type(contents[at])(contents[at].offset, 1000, 0, None, bytes(value))
    damaged = read_batch(rebuild_batch(batch, contents))
    lines = RecordLines(what)
    found, entries = lines.quickly(damaged, "some/path"), list(read_entries(damaged, "some/path"))
    if found is not None:
        assert not any(isinstance(entry, Damage) for entry in entries)
        assert found == slowly(lines, what, damaged)


def test_the_quick_encoder_hides_the_same_secrets() -> None:
    for as_json in (True, False):
        what = wanted(as_json=as_json)
        lines = RecordLines(what)
        batch = batch_of(
            (ConfigRecord(name="ssl.key.password", value="sésame"), 0),
            (ConfigRecord(resource_type=2, name="cleanup.policy", value="sésame"), 0),
        )
        found = lines.quickly(batch, "some/path")
        assert found == slowly(lines, what, batch)
        assert found is not None
        assert "same" not in found[0]
        assert "same" in found[1]


def test_unknown_records_are_left_to_the_general_encoder() -> None:
    lines = RecordLines(wanted())
    for value in (b"\x01\x7f\x00", b"\x01\x02\x09" + bytes(30), b"\x02\x02\x00", b"\x01\x82\x00\x00", b"", b"\x01"):
        assert lines.quickly(read_batch(build_batch(0, 1, 1000, [value])), "some/path") is None


def test_a_partly_shown_batch_is_left_to_the_general_encoder() -> None:
    batch = batch_of((TopicRecord(name="a"), 0), (TopicRecord(name="b"), 0), offset=10)
    for first, last, is_whole in ((11, None, False), (0, 10, False), (10, 11, True)):
        lines = RecordLines(wanted(span=Range(first_offset=first, last_offset=last)))
        assert (lines.quickly(batch, "p") is not None) == is_whole
