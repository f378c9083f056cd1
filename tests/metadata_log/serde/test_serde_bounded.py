"""Messages of unknown senders are decoded as always within a budget, and refused before they cost memory or time."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable, Generator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from metadata_log.errors import DecodeError, LimitExceeded
from metadata_log.serde import codec, decode, decode_from, encode, primitives
from metadata_log.serde.codec import (
    EXPLAINED_VALUES,
    UNCOUNTED_BYTES,
    decode_from_within,
    decode_in_steps,
    decode_within,
    finished,
)
from metadata_log.serde.shape import MAX_SHAPE_VALUES
from metadata_log.types import Uuid
from support.serde_golden import FAMILIES, golden
from support.serde_values import CLASS_VERSIONS, CLASSES, damage, is_flexible, values
from transport.protocol.messages import (
    AlterPartitionRequest,
    ApiVersionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    ElectLeadersRequest,
    FetchRequest,
)
from transport.protocol.messages.alter_partition import (
    AlterPartitionRequestPartitionData as PartitionData,
)
from transport.protocol.messages.alter_partition import (
    AlterPartitionRequestTopicData as TopicData,
)
from transport.protocol.messages.alter_partition import (
    BrokerState,
)
from transport.protocol.messages.create_topics import CreatableTopic
from transport.protocol.messages.delete_topics import DeleteTopicState
from transport.protocol.messages.elect_leaders import TopicPartitions
from transport.protocol.messages.fetch import ForgottenTopic

ENOUGH = 1_000_000
relaxed = settings(
    deadline=None,
    max_examples=300,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
SAMPLES = [
    (CLASSES[line["name"]], line["version"], bytes.fromhex(line["hex"]))
    for family in FAMILIES
    for line in golden(family)
    if len(line["hex"]) < 1200
]


def in_steps(cls: Any, version: int, raw: bytes, position: int = 0, budget: int = ENOUGH) -> Any:
    return finished(decode_in_steps(cls, version, raw, position, budget))


def held_by(action: Callable[[], object]) -> int:
    """The bytes that are still held after an action, as tracemalloc sees them."""
    struct._clearcache()  # type: ignore[attr-defined]  # the module has no public way
    tracemalloc.start()
    action()
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return held


def peak_of(action: Callable[[], object]) -> int:
    tracemalloc.start()
    action()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def forgotten(count: int) -> bytes:
    """A Fetch with a long array of numbers."""
    topic = ForgottenTopic(topic_id=Uuid.METADATA_TOPIC, partitions=[7] * count)
    return encode(FetchRequest(forgotten_topics_data=[topic]), 18)


@pytest.mark.parametrize("read", [decode, in_steps])
def test_arrays_of_distinct_lengths_fill_no_struct_cache(read: Callable[..., object]) -> None:
    """The module `struct` keeps the last hundred formats; none of them may be as long as an array was."""
    frames = [forgotten(3000 + number) for number in range(40)]
    read(FetchRequest, 18, frames[0])

    def all_of_them() -> None:
        for frame in frames:
            read(FetchRequest, 18, frame)

    assert held_by(all_of_them) < 100_000


@relaxed
@given(st.data())
def test_a_message_within_its_budget_is_decoded(data: st.DataObject) -> None:
    cls, version = data.draw(st.sampled_from(CLASS_VERSIONS), label="class")
    message = data.draw(values(cls, version, flexible=is_flexible(cls, version)), label="message")
    raw = encode(message, version)
    assert in_steps(cls, version, raw) == (message, len(raw))
    assert in_steps(cls, version, b"before" + raw + b"behind", 6) == (message, 6 + len(raw))
    assert decode_within(cls, version, raw, 0, ENOUGH) == message
    assert decode_within(cls, version, raw + b"behind", 0, ENOUGH, whole=False) == message
    assert decode_from_within(cls, version, raw + b"behind", 0, ENOUGH) == (message, len(raw))


@settings(relaxed, max_examples=600)
@given(sample=st.sampled_from(SAMPLES), data=st.data())
def test_bounded_and_unbounded_decoding_agree_on_damage(sample: tuple[Any, int, bytes], data: st.DataObject) -> None:
    cls, version, raw = sample
    damaged_raw = data.draw(damage(raw))
    try:
        expected = decode_from(cls, version, damaged_raw)
    except DecodeError:
        with pytest.raises(DecodeError):
            in_steps(cls, version, damaged_raw)
        with pytest.raises(DecodeError):
            decode_within(cls, version, damaged_raw, 0, ENOUGH, whole=False)
        return
    assert in_steps(cls, version, damaged_raw) == expected
    assert decode_within(cls, version, damaged_raw, 0, ENOUGH, whole=False) == expected[0]


def elections(count: int) -> bytes:
    return encode(ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="t", partitions=[1])] * count), 2)


def deletions(count: int) -> bytes:
    return encode(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")] * count), 6)


def names(count: int) -> bytes:
    return encode(DeleteTopicsRequest(topic_names=["tt"] * count), 5)


def creations(count: int) -> bytes:
    return encode(CreateTopicsRequest(topics=[CreatableTopic(name="t")] * count), 7)


def unknown_tags(count: int) -> bytes:
    topic = DeleteTopicState(name="t", unknown_tagged=tuple((200 + number, b"") for number in range(100)))
    return encode(DeleteTopicsRequest(topics=[topic] * (count // 100)), 6)


@pytest.mark.parametrize(
    ("cls", "version", "made"),
    [
        (ElectLeadersRequest, 2, elections),
        (DeleteTopicsRequest, 6, deletions),
        (DeleteTopicsRequest, 5, names),
        (CreateTopicsRequest, 7, creations),
        (DeleteTopicsRequest, 6, unknown_tags),
        (FetchRequest, 18, lambda count: forgotten(9 * count)),
    ],
    ids=["ElectLeaders", "DeleteTopics", "names", "CreateTopics", "tags", "numbers"],
)
def test_a_message_with_too_many_values_is_refused_early(cls: Any, version: int, made: Callable[[int], bytes]) -> None:
    """A frame of a few megabytes must not become gigabytes of objects, nor seconds in the one task."""
    budget = 20_000
    few, many = made(1000), made(100_000)
    assert in_steps(cls, version, few, budget=budget) == (decode(cls, version, few), len(few))

    def refused() -> None:
        with pytest.raises(LimitExceeded, match="more than 20000 values"):
            decode_within(cls, version, many, 0, budget)

    assert peak_of(refused) < 1_500_000
    assert peak_of(lambda: decode(cls, version, many)) > 3_000_000


@pytest.mark.parametrize(
    ("cls", "version", "before", "count"),
    [
        (FetchRequest, 11, bytes(25), (10**6 + 1).to_bytes(4, "big")),
        (FetchRequest, 18, bytes(21), b"\xc2\x84\x3d"),
        (ApiVersionsRequest, 4, b"\x01\x01", b"\x91\x4e"),
        (ApiVersionsRequest, 4, b"\x01\x01", b"\xff\xff\xff\xff\x0f"),
    ],
    ids=["plain array", "compact array", "tags", "negative tags"],
)
def test_counts_beyond_kafkas_limits_are_refused(cls: Any, version: int, before: bytes, count: bytes) -> None:
    """One element more than Kafka 4.4 takes, with enough bytes after; the texts name the limit."""
    raw = before + count + bytes(3_000_000)
    for refuse in (decode, decode_from, in_steps):
        with pytest.raises(DecodeError, match=r"the limit is 10{4,6}\b|a negative number") as caught:
            refuse(cls, version, raw)
        assert not isinstance(caught.value, LimitExceeded)


def test_an_array_at_kafkas_limit_is_read() -> None:
    numbers = [7] * 10**6
    for version, topic in (
        (18, ForgottenTopic(topic_id=Uuid.METADATA_TOPIC, partitions=numbers)),
        (11, ForgottenTopic(topic="t", partitions=numbers)),
    ):
        message = FetchRequest(forgotten_topics_data=[topic])
        assert decode(FetchRequest, version, encode(message, version)) == message
    with pytest.raises(DecodeError):
        decode(FetchRequest, 18, forgotten(10**6 + 1))


def test_nested_arrays_are_counted_together() -> None:
    partitions = [PartitionData(new_isr_with_epochs=[BrokerState()] * 10)] * 100
    raw = encode(AlterPartitionRequest(topics=[TopicData(partitions=partitions)] * 10), 3)
    assert in_steps(AlterPartitionRequest, 3, raw, budget=50_000)
    with pytest.raises(LimitExceeded):
        in_steps(AlterPartitionRequest, 3, raw, budget=30_000)


def test_a_long_message_is_read_in_steps() -> None:
    """The reader can do other work between two steps; the message is the same."""
    isr = [BrokerState(broker_id=number, broker_epoch=7) for number in range(3)]
    partitions = [PartitionData(partition_index=number, new_isr_with_epochs=isr) for number in range(20_000)]
    message = AlterPartitionRequest(broker_id=1, topics=[TopicData(partitions=partitions)])
    raw = encode(message, 3)
    outcome: list[object] = []

    def steps() -> Generator[None, None, None]:
        outcome.append((yield from decode_in_steps(AlterPartitionRequest, 3, raw, 0, ENOUGH)))

    assert len(list(steps())) >= 20
    assert outcome == [(message, len(raw))]


def test_a_long_list_of_numberless_structures_is_read_in_steps_too() -> None:
    raw = elections(30_000)
    steps = list(decode_in_steps(ElectLeadersRequest, 2, raw, 0, ENOUGH))
    assert len(steps) >= 20


def counted_values(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts what the slow reader reads from now on."""
    seen = [0]
    general = primitives._read_typed

    def counting(*arguments: Any, **more: Any) -> object:
        seen[0] += 1
        return general(*arguments, **more)

    monkeypatch.setattr(primitives, "_read_typed", counting)
    return seen


@pytest.mark.parametrize("size", [UNCOUNTED_BYTES // 2, 10 * UNCOUNTED_BYTES])
def test_explaining_an_error_examines_few_values(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader that says what is wrong takes fifty times as long as the one that finds it."""
    raw = names(size // 3)[:-6]
    seen = counted_values(monkeypatch)
    with pytest.raises(DecodeError, match="DeleteTopicsRequest version 5"):
        decode_within(DeleteTopicsRequest, 5, raw, 0, ENOUGH)
    assert 0 < seen[0] <= EXPLAINED_VALUES + 1


def test_invalid_utf8_does_not_slow_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = names(5000).replace(b"\x03tt", b"\x03t\xff")
    expected = decode(DeleteTopicsRequest, 5, raw)
    seen = counted_values(monkeypatch)
    assert decode_within(DeleteTopicsRequest, 5, raw, 0, ENOUGH) == expected
    assert expected.topic_names[:2] == ["t\ufffd", "t\ufffd"]
    assert seen == [0]


def test_a_peer_cannot_cause_repeated_shape_surveys(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes again and again is looked at closely now and then, unless it is too long to have a shape."""
    codec._readers.pop(FetchRequest, None)
    seen = counted_values(monkeypatch)
    raw = encode(FetchRequest(forgotten_topics_data=[ForgottenTopic(partitions=[7] * 4000)]), 18)
    for _ in range(20):
        decode(FetchRequest, 18, raw)
    codec._readers.pop(FetchRequest, None)
    assert seen[0] <= MAX_SHAPE_VALUES + 1
