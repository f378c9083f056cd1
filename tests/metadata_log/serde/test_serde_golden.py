"""Kafka's own encodings of random values, both ways, byte for byte."""

import re

import pytest
from google_crc32c import value as crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from metadata_log.errors import DecodeError
from metadata_log.serde import decode, decode_from, encode, from_json, to_json
from metadata_log.serde.primitives import Reader, Writer, read_struct, unsigned_varint, varint, varlong, write_struct
from metadata_log.types import Uuid
from schema_walk import Walk
from support.kafka_json import with_sizes
from support.serde_golden import FAMILIES, golden
from support.serde_values import CLASSES, is_flexible

GOLDEN = [line for family in FAMILIES for line in golden(family)]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_vector_of_kafka_is_read_and_written_the_same(family):
    """If this fails, a real controller reads something else than we wrote, or we misread it."""
    count = 0
    for line in golden(family):
        cls, version, raw = CLASSES[line["name"]], line["version"], bytes.fromhex(line["hex"])
        message = decode(cls, version, raw)
        assert encode(message, version) == raw, line["name"]
        assert to_json(message, version) == line["json"], line["name"]
        if "unknown_tagged" not in line:
            assert from_json(cls, version, line["json"]) == message, line["name"]
        count += 1
    assert count > 100


@pytest.mark.parametrize("family", FAMILIES)
def test_the_reference_reads_and_writes_every_vector(family):
    """The interpreting codec is the referee of the compiled one, so it must be right by itself."""
    for line in list(golden(family))[::3]:
        cls, version, raw = CLASSES[line["name"]], line["version"], bytes.fromhex(line["hex"])
        reader = Reader(raw)
        message = read_struct(reader, cls, version, flexible=is_flexible(cls, version))
        assert reader.remaining == 0
        writer = Writer()
        write_struct(writer, message, version, flexible=is_flexible(cls, version))
        assert b"".join(writer.parts) == raw, line["name"]


def test_damaged_messages_are_refused_or_read_as_kafka_does():
    """A cut or flipped message that we accept and Kafka refuses (or the reverse) makes the two disagree on history."""
    refused = accepted = reasons = 0
    for line in golden("invalid_messages"):
        cls, version, raw = CLASSES[line["name"]], line["version"], bytes.fromhex(line["hex"])
        place = (line["name"], version, line["damage"])
        if not line["ok"]:
            with pytest.raises(DecodeError) as caught:
                decode_from(cls, version, raw)
            assert (caught.value.field, caught.value.position) == Walk(line["name"], version, raw).finding(), place
            reasons += says_the_same(line["error"], caught.value, raw)
            refused += 1
            continue
        message, position = decode_from(cls, version, raw)
        assert len(raw) - position == line["bytes_left"], place
        assert Walk(line["name"], version, raw).finding() == (None, position), place
        assert with_sizes(to_json(message, version)) == line["json"], place
        accepted += 1
    assert refused > 800
    assert reasons > 400
    assert accepted > 1000


def says_the_same(error, found, raw):
    """Kafka says what it wanted and how much was left, or which field was null, and so do we; or it says nothing."""
    if found.what.split(": ")[-1].partition(" ")[2].startswith("tagged fields") and "tagged fields" not in error:
        return False  # Before 4.4 Kafka did not look at the number of tagged fields.
    if numbers := re.search(r"(?:(?:array|collection) of (?:size )?|to read )(\d+).* only (\d+)", error):
        wanted, left = map(int, numbers.groups())
        assert str(wanted) in found.what
        assert found.position == len(raw) - left
    elif null := re.search(r"non-nullable field (\w+) was serialized as null", error):
        assert found.field.rpartition(".")[2] == null[1]
        assert "null" in found.what
    return bool(numbers or null)


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_any_damage_is_named_as_a_walk_by_the_schema_finds_it(data):
    """Decoder and walk agree on what is wrong, where, and in which field; or that nothing is."""
    line = data.draw(st.sampled_from(GOLDEN), label="vector")
    changed = bytearray.fromhex(line["hex"])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, max(0, len(changed) - 1)), label="at")
        changed[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2), label="put there")
    if data.draw(st.booleans(), label="cut"):
        del changed[data.draw(st.integers(0, len(changed))) :]
    cls, version, raw = CLASSES[line["name"]], line["version"], bytes(changed)
    wrong = Walk(line["name"], version, raw).finding()
    try:
        _, end = decode_from(cls, version, raw)
    except DecodeError as bad:
        found = bad.field, bad.position
    else:
        found = None, end
    assert found == wrong


READERS = {"varint": Reader.varint, "unsigned_varint": Reader.unsigned_varint, "varlong": Reader.varlong}
WRITERS = {"varint": varint, "unsigned_varint": unsigned_varint, "varlong": varlong}


def test_variable_length_integers():
    for line in golden("primitives"):
        if line["type"] not in READERS:
            continue
        reader = Reader(bytes.fromhex(line["hex"]))
        if "error_class" in line:
            with pytest.raises(DecodeError):
                READERS[line["type"]](reader)
        else:
            assert READERS[line["type"]](reader) == line["value"], line
            shortest = WRITERS[line["type"]](line["value"])
            assert READERS[line["type"]](Reader(shortest)) == line["value"], line
            assert len(shortest) < len(line["hex"]) // 2 or shortest.hex() == line["hex"], line


def test_uuids():
    for line in golden("primitives"):
        if line["type"] == "uuid":
            assert Uuid.parse(line["value"]).hex() == line["hex"]
            assert str(Uuid(bytes.fromhex(line["hex"]))) == line["value"]


def test_checksums():
    lines = [line for line in golden("primitives") if line["type"] == "crc32c"]
    assert lines
    for line in lines:
        assert crc32c(bytes.fromhex(line["hex"])) == line["value"]
