"""The shape matcher reads the same as the compiled reader; templates write the same as the writer."""

from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from metadata_log.errors import DecodeError, EncodeError
from metadata_log.serde import codec, compiler, decode, encode
from metadata_log.serde.compiler import READ_FAILURES
from metadata_log.serde.fields import Kind
from metadata_log.serde.shape import (
    FIRST_PATIENCE,
    Example,
    ShapeReader,
    ShapeWriter,
    Template,
    matcher,
    rewriter,
    survey,
)
from metadata_log.types import Uuid
from support.serde_values import CLASS_VERSIONS, is_flexible, values
from transport.protocol.messages import FetchRequest, FetchResponse
from transport.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchTopic,
    LeaderIdAndEpoch,
    PartitionData,
    ReplicaState,
)

relaxed = settings(
    deadline=None,
    max_examples=80,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


class Otherwise(Exception):
    """The matcher left it to the general reader."""


def not_of_this_shape(data, position):
    raise Otherwise


def fetch(offset=1234, **more):
    partition = FetchPartition(fetch_offset=offset, current_leader_epoch=3, **more)
    state = ReplicaState(replica_id=2)
    topics = [FetchTopic(topic_id=Uuid.METADATA_TOPIC, partitions=[partition])]
    return FetchRequest(cluster_id="abc", replica_state=state, max_wait_ms=500, topics=topics)


def answer(records, high_watermark=7, *partitions, epoch=3):
    partition = PartitionData(
        high_watermark=high_watermark,
        last_stable_offset=high_watermark,
        log_start_offset=0,
        current_leader=LeaderIdAndEpoch(leader_id=1, leader_epoch=epoch),
        aborted_transactions=None,
        records=records,
    )
    topic = FetchableTopicResponse(topic_id=Uuid.METADATA_TOPIC, partitions=[partition, *partitions])
    return FetchResponse(responses=[topic])


def counted(general):
    """The same function, and what it has been called with."""
    calls = []

    def counting(*arguments):
        calls.append(arguments)
        return general(*arguments)

    return counting, calls


@relaxed
@given(st.data())
def test_shape_reader_and_general_reader_agree(data):
    cls, version = data.draw(st.sampled_from(CLASS_VERSIONS), label="class")
    example = encode(data.draw(values(cls, version, flexible=is_flexible(cls, version)), label="example"), version)
    message, spans, _ = survey(cls, version, example)
    assert message == decode(cls, version, example)
    assume(spans and len({span.path for span in spans}) == len(spans))
    holes = data.draw(st.lists(st.sampled_from(spans), min_size=1, unique=True), label="holes")
    read = matcher(Example(message, example, holes), not_of_this_shape)
    general = compiler.reader(cls, version, is_flexible(cls, version))

    other = bytearray(example)
    for hole in holes:
        other[hole.start : hole.end] = data.draw(
            st.binary(min_size=hole.end - hole.start, max_size=hole.end - hole.start)
        )
    changed = bytes(other)
    expected = general(changed, 0)
    assert same(read(changed, 0), expected)
    assert same(read(b"in front" + changed, 8), expected)


def same(one, other):
    """Equal, or printed alike: NaN is not itself, and equal values may print differently."""
    return one == other or repr(one) == repr(other)


@relaxed
@given(st.data())
def test_messages_of_another_shape_are_left_to_the_general_reader(data):
    """A byte that is compared with nothing would be a field that keeps its old value for ever."""
    cls, version = data.draw(st.sampled_from(CLASS_VERSIONS), label="class")
    example = encode(data.draw(values(cls, version, flexible=is_flexible(cls, version)), label="example"), version)
    message, spans, _ = survey(cls, version, example)
    assume(spans and len({span.path for span in spans}) == len(spans))
    hole = data.draw(st.sampled_from(spans), label="hole")
    read = matcher(Example(message, example, [hole]), not_of_this_shape)
    fixed = [at for at in range(len(example)) if not hole.start <= at < hole.end]
    assume(fixed)
    at = data.draw(st.sampled_from(fixed), label="at")
    other = bytearray(example)
    other[at] ^= data.draw(st.integers(1, 255), label="flip")
    for strange in (bytes(other), example[:-1], example + b"\0"):
        with pytest.raises(Otherwise):
            read(strange, 0)


def test_nothing_mutable_is_shared():
    """A caller that changes a list of a decoded message must not change the next message."""
    raw = encode(fetch(), 17)
    message, spans, _ = survey(FetchRequest, 17, raw)
    holes = [span for span in spans if span.path.endswith("fetchOffset")]
    read = matcher(Example(message, raw, holes), not_of_this_shape)
    first, second = read(raw, 0), read(raw, 0)
    assert first == second == message
    assert first.topics is not second.topics
    assert first.topics[0].partitions is not second.topics[0].partitions
    assert first.forgotten_topics_data is not second.forgotten_topics_data
    assert first.replica_state is second.replica_state


def test_requests_of_a_busy_follower_are_read_by_shape():
    counting, calls = counted(compiler.reader(FetchRequest, 17, True))
    made: list[Any] = []
    reader = ShapeReader(FetchRequest, 17, counting, made.append)
    read = reader.read
    for offset in range(1000):
        raw = encode(fetch(offset), 17)
        assert read(raw, 0) == fetch(offset)
        read = made[-1] if made else reader.read
    assert len(calls) == 3 * FIRST_PATIENCE
    assert len(made) == 1


def test_a_peer_cannot_cause_repeated_shape_compilation():
    general, made = compiler.reader(FetchRequest, 17, True), list[Any]()
    reader, rng = ShapeReader(FetchRequest, 17, general, made.append), Random(5)
    for _ in range(5000):
        message = replace(
            fetch(rng.randrange(1 << 40)), max_wait_ms=rng.randrange(1000), rack_id="x" * rng.randrange(3)
        )
        raw = encode(message, 17)
        assert (made[-1] if made else reader.read)(raw, 0) == message
    assert len(made) < 12


def check_damaged(cls, version, raw, rng):
    """With one bit flipped, a message is read as the compiled reader reads it, or named as wrong."""
    bad = bytearray(raw)
    bad[rng.randrange(len(bad))] ^= 1 << rng.randrange(8)
    try:
        expected = compiler.reader(cls, version, True)(bytes(bad), 0)
    except UnicodeDecodeError:  # read after all, as Kafka does
        return
    except READ_FAILURES:
        with pytest.raises(DecodeError):
            decode(cls, version, bytes(bad))
    else:
        assert decode(cls, version, bytes(bad)) == expected


@relaxed
@given(st.data())
def test_shape_writer_and_general_writer_agree(data):
    """Whatever the numbers are, and whatever else is different: it is written as it is, or left to the writer."""
    cls, version = data.draw(st.sampled_from(CLASS_VERSIONS), label="class")
    some = values(cls, version, flexible=is_flexible(cls, version))
    general = compiler.writer(cls, version, is_flexible(cls, version))
    written = data.draw(some, label="example")
    example = general(written, b"")
    message, spans, _ = survey(cls, version, example)
    assume(len({span.path for span in spans}) == len(spans))
    floats = [span for span in spans if span.kind is Kind.FLOAT64]
    chosen = data.draw(st.lists(st.sampled_from(spans), unique=True), label="holes") if spans else []
    holes = list({span.path: span for span in [*chosen, *floats]}.values())
    write = rewriter(Example(written, example, holes), version, general)
    other = bytearray(example)
    for hole in chosen:
        other[hole.start : hole.end] = data.draw(
            st.binary(min_size=hole.end - hole.start, max_size=hole.end - hole.start)
        )
    similar = decode(cls, version, bytes(other))
    for each in (written, message, similar, data.draw(some, label="another")):
        assert write(each, b"in front") == general(each, b"in front")


def test_a_message_of_this_shape_is_not_written_field_by_field():
    raw = encode(fetch(), 17)
    message, spans, _ = survey(FetchRequest, 17, raw)
    holes = [span for span in spans if span.path.endswith("fetchOffset")]
    write = rewriter(Example(message, raw, holes), 17, not_of_this_shape)
    assert write(fetch(77), b"") == compiler.writer(FetchRequest, 17, True)(fetch(77), b"")
    for strange in (replace(fetch(), rack_id="r"), replace(fetch(), topics=[]), fetch(1 << 63), fetch(None)):
        with pytest.raises(Otherwise):
            write(strange, b"")


def test_fields_absent_from_a_version_do_not_change_the_shape():
    """The high watermark of a follower, which grows all the time, is not in version 17."""
    raw = encode(fetch(), 17)
    _, spans, _ = survey(FetchRequest, 17, raw)
    write = rewriter(Example(fetch(high_watermark=5), raw, spans[:1]), 17, not_of_this_shape)
    assert write(fetch(high_watermark=6), b"") == raw
    with pytest.raises(Otherwise):
        write(replace(fetch(), replica_id=3), b"")


def test_a_tagged_field_at_its_default_is_another_shape():
    raw = encode(fetch(high_watermark=3), 18)
    message, spans, _ = survey(FetchRequest, 18, raw)
    holes = [span for span in spans if span.path.endswith("highWatermark")]
    write = rewriter(Example(message, raw, holes), 18, not_of_this_shape)
    assert decode(FetchRequest, 18, write(fetch(high_watermark=4), b"")) == fetch(high_watermark=4)
    with pytest.raises(Otherwise):
        write(fetch(), b"")


def test_requests_of_a_busy_follower_are_written_by_shape():
    counting, calls = counted(compiler.writer(FetchRequest, 17, True))
    made: list[Any] = []
    writer = ShapeWriter(FetchRequest, 17, counting, made.append)
    for offset in range(1000):
        write = made[-1] if made else writer.write
        assert decode(FetchRequest, 17, write(fetch(offset), b"head"), position=4) == fetch(offset)
    assert len(calls) == 3 * FIRST_PATIENCE
    assert len(made) == 1


def test_a_list_that_is_changed_later_does_not_change_the_shape():
    made, message = list[Any](), fetch()
    writer = ShapeWriter(FetchRequest, 17, compiler.writer(FetchRequest, 17, True), made.append)
    for _ in range(100):
        (made[-1] if made else writer.write)(message, b"")
    message.topics.clear()
    assert decode(FetchRequest, 17, made[-1](message, b"")) == message


RECORDS = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([126, 127, 128, 129, 1000, (1 << 14) - 2, (1 << 14) - 1, 1 << 14]).map(bytes),
)


@relaxed
@given(RECORDS, RECORDS, st.integers(0, 1 << 62), st.data())
def test_shape_reader_reads_records_of_any_size(records, others, high_watermark, data):
    """And nothing else: what the matcher takes, the general reader reads the same."""
    example = encode(answer(records), 18)
    message, spans, place = survey(FetchResponse, 18, example)
    assert place is not None
    assert place.path == "responses[0].partitions[0].records"
    holes = [span for span in spans if span.path.endswith(("highWatermark", "lastStableOffset"))]
    parts = example[: place.start], holes, place.path, example[place.end :]
    read = matcher(Example(message, *parts), not_of_this_shape)
    other = encode(answer(others, high_watermark), 18)
    if len(others) < (1 << 14) - 1:
        assert read(other, 0) == read(b"in front" + other, 8) == answer(others, high_watermark)
    bad = bytearray(other)
    at = data.draw(st.integers(0, len(bad) - 1), label="at")
    match data.draw(st.sampled_from(["flip", "cut", "add", "remove"]), label="damage"):
        case "flip":
            bad[at] ^= data.draw(st.integers(1, 255), label="flip")
        case "cut":
            del bad[at:]
        case "add":
            bad.insert(at, data.draw(st.integers(0, 255), label="byte"))
        case "remove":
            del bad[at]
    try:
        found = read(bytes(bad), 0)
    except Otherwise:
        return
    assert found == compiler.reader(FetchResponse, 18, True)(bytes(bad), 0)


@relaxed
@given(RECORDS, RECORDS, st.integers(0, 1 << 62), st.sampled_from([bytes, bytearray, memoryview]))
def test_shape_writer_writes_records_of_any_size(records, others, high_watermark, kind):
    general = compiler.writer(FetchResponse, 18, True)
    message = answer(records)
    raw = general(message, b"")
    _, spans, place = survey(FetchResponse, 18, raw)
    assert place is not None
    holes = [span for span in spans if span.path.endswith(("highWatermark", "lastStableOffset"))]
    example = Example(message, raw[: place.start], holes, place.path, raw[place.end :])
    write = rewriter(example, 18, not_of_this_shape)
    other = answer(others, high_watermark)
    assert write(other, b"in front") == general(other, b"in front")
    for strange in (answer(kind(others)) if kind is not bytes else answer(None), answer(others, epoch=4)):
        with pytest.raises(Otherwise):
            write(strange, b"")


def test_answers_with_records_of_all_sizes_have_one_shape():
    rng = Random(3)
    reading, general_reads = counted(compiler.reader(FetchResponse, 18, True))
    writing, general_writes = counted(compiler.writer(FetchResponse, 18, True))
    reads, writes = list[Any](), list[Any]()
    reader = ShapeReader(FetchResponse, 18, reading, reads.append)
    writer = ShapeWriter(FetchResponse, 18, writing, writes.append)
    for high_watermark in range(1000):
        message = answer(rng.randbytes(rng.randrange(2000)), high_watermark)
        raw = (writes[-1] if writes else writer.write)(message, b"")
        assert (reads[-1] if reads else reader.read)(raw, 0) == message
    assert (len(general_reads), len(reads)) == (3 * FIRST_PATIENCE, 1)
    assert (len(general_writes), len(writes)) == (3 * FIRST_PATIENCE, 1)


ANSWERS = st.tuples(RECORDS | st.none(), st.integers(0, 1 << 62), st.sampled_from([3, 4]), st.booleans())


@given(st.lists(ANSWERS, max_size=60), st.randoms())
@settings(relaxed, max_examples=50)
def test_any_mixture_of_responses_survives_encoding(wanted, rng):
    """With records and without, of one partition and two, of two leaders, and damaged, through the readers and writers
    of the process.
    """
    codec._readers.pop(FetchResponse, None)
    codec._writers.pop(FetchResponse, None)
    for records, high_watermark, epoch, has_second in wanted:
        second = [PartitionData(partition_index=1, records=b"more")] if has_second else []
        message = answer(records, high_watermark, *second, epoch=epoch)
        raw = encode(message, 18)
        assert raw == compiler.writer(FetchResponse, 18, True)(message, b"")
        assert decode(FetchResponse, 18, raw) == message
        check_damaged(FetchResponse, 18, raw, rng)


@relaxed
@given(st.data())
def test_templates_write_what_the_writer_writes(data):
    cls, version = data.draw(st.sampled_from(CLASS_VERSIONS), label="class")
    message = data.draw(values(cls, version, flexible=is_flexible(cls, version)), label="message")
    raw = encode(message, version)
    _, spans, _ = survey(cls, version, raw)
    assume(spans and len({span.path for span in spans}) == len(spans))
    holes = data.draw(st.lists(st.sampled_from(spans), unique=True, max_size=4), label="holes")
    template = Template(message, version, tuple(span.path for span in holes))
    numbers = [data.draw(st.integers(0, 100)) if span.kind not in {Kind.UUID, Kind.BOOL} else None for span in holes]
    assume(None not in numbers)
    expected = bytearray(raw)
    for hole, number in zip(holes, numbers, strict=True):
        one = Template(message, version, (hole.path,)).encode(number)
        expected[hole.start : hole.end] = one[hole.start : hole.end]
    assert template.encode(*numbers) == bytes(expected)
    assert Template(message, version, ()).encode() == raw


def test_a_template_of_a_fetch():
    template = Template(fetch(1), 17, ("topics[0].partitions[0].fetchOffset", "maxWaitMs"))
    assert template.encode(77, 3) == encode(replace(fetch(77), max_wait_ms=3), 17)


@pytest.mark.parametrize("path", ["rackId", "nothing", "topics[1].partitions[0].fetchOffset", "replicaId"])
def test_a_template_needs_numbers(path):
    with pytest.raises(EncodeError, match="no number there") as caught:
        Template(fetch(), 17, (path,))
    assert caught.value.field == path
