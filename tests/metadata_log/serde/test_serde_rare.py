"""Small messages of a rare kind are read and written before code for the kind is compiled, to the same effect."""

from __future__ import annotations

from typing import Any

import pytest

from metadata_log.errors import DecodeError, EncodeError
from metadata_log.records.metadata import PartitionRecord, TopicRecord
from metadata_log.serde import codec, compiler, decode, encode
from metadata_log.types import Uuid
from transport.protocol.messages import FetchRequest, MetadataResponse
from transport.protocol.messages.metadata import MetadataResponseTopic

SMALL = TopicRecord(name="t", topic_id=Uuid(bytes(16)))
RAW = compiler.writer(TopicRecord, 0, True)(SMALL, b"")


@pytest.fixture(autouse=True)
def nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a new interpreter."""
    monkeypatch.setattr(codec, "INTERPRETED_USES", 2)
    for name in ("_read", "_written", "_readers", "_writers"):
        monkeypatch.setattr(codec, name, {})


def test_code_is_compiled_for_what_comes_often() -> None:
    """Readers of whole logs ask for the compiled function, and get none before."""
    for _ in range(2):
        assert decode(TopicRecord, 0, RAW) == SMALL
        assert encode(SMALL, 0, b"head") == b"head" + RAW
        assert codec.compiled_reader(TopicRecord, 0) is None
        assert not codec._writers
    assert decode(TopicRecord, 0, RAW) == SMALL
    assert encode(SMALL, 0, b"head") == b"head" + RAW
    assert codec.compiled_reader(TopicRecord, 0) is compiler.reader(TopicRecord, 0, True)
    assert codec._writers == {TopicRecord: {0: compiler.writer(TopicRecord, 0, True)}}


def test_code_is_compiled_at_once_for_what_is_long() -> None:
    long = PartitionRecord(replicas=tuple(range(1000)))
    raw = encode(long, 0)
    assert raw == compiler.writer(PartitionRecord, 0, True)(long, b"")
    assert PartitionRecord in codec._writers
    assert decode(PartitionRecord, 0, raw) == long
    assert PartitionRecord in codec._readers
    topics = MetadataResponse(topics=[MetadataResponseTopic(name=str(one)) for one in range(1000)])
    assert encode(topics, 12, b"head") == compiler.writer(MetadataResponse, 12, True)(topics, b"head")


def test_code_is_compiled_at_once_for_what_repeats() -> None:
    """A follower's Fetch must not wait for its shape."""
    encode(FetchRequest(), 17)
    assert FetchRequest in codec._writers


@pytest.mark.parametrize("raw", [RAW[:-1], RAW + b"\0", b"", b"\xff" * 20])
def test_damage_is_explained_alike(raw: bytes) -> None:
    def said() -> list[Any]:
        with pytest.raises(DecodeError) as found:
            decode(TopicRecord, 0, raw)
        return [str(found.value), found.value.position, found.value.field]

    first = said()
    assert TopicRecord not in codec._readers
    said()
    assert said() == first
    assert TopicRecord in codec._readers


def test_what_cannot_be_written_is_explained_alike() -> None:
    nothing: Any = None
    wrong = TopicRecord(name=nothing, topic_id=Uuid(bytes(16)))

    def said() -> str:
        with pytest.raises(EncodeError) as found:
            encode(wrong, 0)
        return str(found.value)

    first = said()
    assert not codec._writers
    said()
    assert said() == first
    assert codec._writers
