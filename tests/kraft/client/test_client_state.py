"""The decisions of a producer and a consumer, without a network: order, sequence numbers, repetition, positions."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from kraft.client import (
    AtOffset,
    Beginning,
    ClientError,
    Compression,
    ConsumerSettings,
    Delivered,
    Isolation,
    ProducerSettings,
)
from kraft.client.groups import EARLIEST, LATEST
from kraft.client.state.batches import BATCH_BYTES, Batch, NewRecord, Numbered
from kraft.client.state.consuming import LEADERLESS_MS, ConsumerState
from kraft.client.state.positions import Start
from kraft.client.state.producing import ProducerState, Undelivered, murmur2
from kraft.client.state.reading import read_answer
from kraft.client.state.requests import Ask
from metadata_log.records.batch import RecordBatch, read_batch
from metadata_log.records.batch_builder import write_batch
from metadata_log.records.record import Record, records
from metadata_log.serde import Message
from support.kraft.client_wires import TOPIC_ID, Wire, metadata
from transport.protocol.errors import Error
from transport.protocol.inbound import Cause
from transport.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from transport.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from transport.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from transport.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponsePartition,
)
from transport.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

PRODUCER_ID = 4711


def produced(error: Error = Error.NONE, base_offset: int = 0, partition: int = 0) -> ProduceResponse:
    found = PartitionProduceResponse(index=partition, error_code=error, base_offset=base_offset)
    return ProduceResponse(responses=[TopicProduceResponse(partition_responses=[found])])


def sent_batch(ask: Ask) -> RecordBatch:
    """The batch of a Produce with one partition."""
    assert isinstance(ask.message, ProduceRequest)
    [topic] = ask.message.topic_data
    [partition] = topic.partition_data
    return read_batch(bytes(partition.records or b""))


def producer(settings: ProducerSettings = ProducerSettings(), leaders: Sequence[int] = (1,)) -> Wire:
    """A producer with an id and known leaders, and a first record on its way to partition 0."""
    state = ProducerState("t", [("h", 1)], settings, rng=Random(1))
    wire = Wire(state)
    state.add(NewRecord(value=b"0", partition=0), wire.now_ms)
    wire.answer(MetadataRequest, metadata(leaders))
    if settings.is_idempotent:
        identified = InitProducerIdResponse(producer_id=PRODUCER_ID, producer_epoch=0)
        wire.answer(InitProducerIdRequest, identified)
    return wire


def results(wire: Wire) -> list[tuple[int, int | str]]:
    """The number of each record with its offset, or with its error."""
    assert isinstance(wire.engine, ProducerState)
    return [
        (one.number, one.offset if isinstance(one, Delivered) else str(one.error)) for one in wire.engine.take_results()
    ]


# ------------------------------------------------------------------------------------------------------------ producer


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("21", -973932308),
        ("foobar", -790332482),
        ("a-little-bit-long-string", -985981536),
        ("a-little-bit-longer-string", -1486304829),
        ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        ("abc", 479470107),
    ],
)
def test_the_hash_of_a_key_is_kafkas(key: str, value: int):
    """The values of Kafka's `UtilsTest.testMurmur2`."""
    assert murmur2(key.encode()) == value & 0xFFFF_FFFF


def test_the_name_of_a_leader_may_be_gone_while_its_pod_restarts():
    wire = producer(leaders=(1,))
    for _ in range(5):
        wire.answer(ProduceRequest, Cause.UNKNOWN_HOST)
        wire.answer(MetadataRequest, metadata((1,)))
    wire.answer(ProduceRequest, Cause.UNKNOWN_HOST)
    wire.answer(MetadataRequest, metadata((2,), epoch=1))
    wire.answer(ProduceRequest, produced())
    assert results(wire) == [(0, 0)]


def test_the_name_of_a_leader_that_stays_gone_ends_the_work():
    wire = producer(leaders=(1,))
    begin_ms, known = wire.now_ms, metadata((1,))

    def produce_for_a_minute() -> None:
        while wire.now_ms < begin_ms + 60_000:
            is_produce = isinstance(wire.due().message, ProduceRequest)
            wire.answer(ProduceRequest if is_produce else MetadataRequest, Cause.UNKNOWN_HOST if is_produce else known)

    with pytest.raises(ClientError) as raised:
        produce_for_a_minute()
    assert raised.value.cause is Cause.UNKNOWN_HOST
    assert 20_000 <= wire.now_ms - begin_ms < 25_000


@pytest.mark.parametrize(
    "trouble", [Cause.RESET, Cause.TIMEOUT, Error.NOT_LEADER_OR_FOLLOWER, Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND]
)
def test_a_repetition_sends_the_same_bytes_to_the_new_leader(trouble: Cause | Error):
    wire = producer()
    outcome = trouble if isinstance(trouble, Cause) else produced(trouble)
    first = wire.answer(ProduceRequest, outcome)
    assert isinstance(wire.engine, ProducerState)
    wire.engine.add(NewRecord(value=b"1", partition=0), wire.now_ms)
    wire.answer(MetadataRequest, metadata([2], epoch=1))
    again = wire.answer(ProduceRequest, produced(base_offset=5))
    assert (first.to, again.to) == (("h", 1), ("h", 2))
    assert sent_batch(again).data == sent_batch(first).data
    assert sent_batch(again).base_sequence == 0
    following = wire.answer(ProduceRequest, produced(base_offset=6))
    assert (sent_batch(following).producer_id, sent_batch(following).base_sequence) == (PRODUCER_ID, 1)
    assert results(wire) == [(0, 5), (1, 6)]


def test_one_batch_of_a_partition_is_on_its_way_while_others_gather():
    wire = producer()
    first = wire.next(ProduceRequest)
    assert isinstance(wire.engine, ProducerState)
    for number in range(1, 4):
        wire.engine.add(NewRecord(value=b"%d" % number, partition=0), wire.now_ms)
    assert wire.engine.poll(wire.now_ms) == []
    wire.engine.on_outcome(first.token, produced(), wire.now_ms)
    batch = sent_batch(wire.next(ProduceRequest))
    assert [one.value for one in records(batch)] == [b"1", b"2", b"3"]


def test_a_batch_stays_within_its_bytes_and_a_larger_record_has_one_of_its_own():
    batch, half = Batch(0, Compression.NONE), Numbered(1, NewRecord(value=bytes(BATCH_BYTES // 2 - 1000)), 0, 0)
    for _ in range(2):
        assert batch.has_room_for(half)
        batch.add(half)
    assert not batch.has_room_for(half)
    assert Batch(0, Compression.NONE).has_room_for(Numbered(1, NewRecord(value=bytes(2 * BATCH_BYTES)), 0, 0))


def test_a_refused_batch_leaves_its_sequence_numbers_to_the_next():
    wire = producer()
    wire.answer(ProduceRequest, produced(Error.INVALID_RECORD))
    assert isinstance(wire.engine, ProducerState)
    wire.engine.add(NewRecord(value=b"1", partition=0), wire.now_ms)
    assert sent_batch(wire.answer(ProduceRequest, produced())).base_sequence == 0
    assert results(wire) == [(0, "partition t-0: INVALID_RECORD"), (1, 0)]


@pytest.mark.parametrize("error", [Error.OUT_OF_ORDER_SEQUENCE_NUMBER, Error.INVALID_PRODUCER_EPOCH])
def test_a_broken_sequence_fails_its_batch_and_needs_a_new_id(error: Error):
    wire = producer()
    wire.answer(ProduceRequest, produced(error))
    assert isinstance(wire.engine, ProducerState)
    wire.engine.add(NewRecord(value=b"1", partition=0), wire.now_ms)
    wire.answer(InitProducerIdRequest, InitProducerIdResponse(producer_id=PRODUCER_ID + 1))
    batch = sent_batch(wire.answer(ProduceRequest, produced()))
    assert (batch.producer_id, batch.base_sequence) == (PRODUCER_ID + 1, 0)
    assert results(wire) == [(0, f"partition t-0: {error.name}"), (1, 0)]


def test_sequence_numbers_begin_again_at_zero_behind_the_largest():
    wire = producer()
    wire.answer(ProduceRequest, produced())
    assert isinstance(wire.engine, ProducerState)
    assert wire.engine._identity is not None
    wire.engine._identity._next[0] = 2**31 - 1
    for value in (b"1", b"2"):
        wire.engine.add(NewRecord(value=value, partition=0), wire.now_ms)
    assert sent_batch(wire.answer(ProduceRequest, produced())).base_sequence == 2**31 - 1
    wire.engine.add(NewRecord(value=b"3", partition=0), wire.now_ms)
    assert sent_batch(wire.answer(ProduceRequest, produced())).base_sequence == 1


def test_a_record_that_no_leader_takes_fails_after_the_time_out():
    wire = producer(ProducerSettings(timeout_ms=3_000))
    began_ms = wire.now_ms
    while not (found := results(wire)):
        ask = wire.open.pop(0) if wire.open else None
        if ask is None:
            wire.now_ms = max(wire.now_ms, wire.engine.deadline_ms())
            wire.open += wire.engine.poll(wire.now_ms)
            continue
        if isinstance(ask.message, ProduceRequest):
            wire.engine.on_outcome(ask.token, produced(Error.NOT_LEADER_OR_FOLLOWER), wire.now_ms)
        else:
            assert isinstance(ask.message, MetadataRequest), ask
            wire.engine.on_outcome(ask.token, metadata([1]), wire.now_ms)
    assert found == [(0, "a record was not acknowledged within 3 s: partition t-0: NOT_LEADER_OR_FOLLOWER")]
    assert wire.now_ms == began_ms + 3_000


def test_without_idempotence_no_id_is_requested():
    wire = producer(ProducerSettings(is_idempotent=False, compression=Compression.GZIP))
    batch = sent_batch(wire.answer(ProduceRequest, produced()))
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)
    assert batch.codec == "gzip"


def test_an_older_answer_does_not_bring_back_an_older_leader():
    wire = producer(leaders=[1])
    wire.answer(ProduceRequest, produced(Error.NOT_LEADER_OR_FOLLOWER))
    wire.answer(MetadataRequest, metadata([2], epoch=3))
    wire.answer(ProduceRequest, Cause.RESET)
    wire.answer(MetadataRequest, metadata([1], epoch=2))
    assert wire.next(ProduceRequest).to == ("h", 2)


def test_a_topic_that_the_user_may_not_see_ends_the_work():
    state = ProducerState("t", [("h", 1)], rng=Random(1))
    wire = Wire(state)
    state.add(NewRecord(value=b""), wire.now_ms)
    with pytest.raises(ClientError, match="topic t: TOPIC_AUTHORIZATION_FAILED") as failed:
        wire.answer(MetadataRequest, metadata([], error=Error.TOPIC_AUTHORIZATION_FAILED))
    assert failed.value.hint is None


def test_an_undelivered_record_names_its_number():
    wire = producer()
    wire.answer(ProduceRequest, produced(Error.CLUSTER_AUTHORIZATION_FAILED))
    assert isinstance(wire.engine, ProducerState)
    [found] = wire.engine.take_results()
    assert isinstance(found, Undelivered)
    assert (found.number, found.error.error) == (0, Error.CLUSTER_AUTHORIZATION_FAILED)
    assert wire.engine.is_idle
    assert wire.engine.waiting_bytes == 0


# ------------------------------------------------------------------------------------------------------------ consumer


def batch(first: int, count: int, **more: Any) -> bytes:
    """A batch of records with values `vN`."""
    contents = [Record(first + index, 1, 0, None, b"v%d" % (first + index), ()) for index in range(count)]
    return write_batch(contents, epoch=0, **more)


def marker(offset: int, producer_id: int, *, is_abort: bool) -> bytes:
    """A control batch that ends a transaction."""
    key = b"\x00\x00\x00\x00" if is_abort else b"\x00\x00\x00\x01"
    record = Record(offset, 1, 0, key, bytes(6), ())
    return write_batch([record], epoch=0, transactional=True, control=True, producer_id=producer_id, producer_epoch=0)


def consumer(start: Start = Beginning(), *, follows: bool = False, leaders: Sequence[int] = (1,)) -> Wire:
    """A consumer that knows the leaders of its partitions."""
    wire = Wire(ConsumerState("t", [("h", 1)], ConsumerSettings(start=start, follows=follows)))
    wire.answer(MetadataRequest, metadata(leaders))
    return wire


def offset(found: int, error: Error = Error.NONE) -> ListOffsetsResponse:
    partition = ListOffsetsPartitionResponse(partition_index=0, error_code=error, offset=found)
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[partition])])


def fetched(data: bytes, error: Error = Error.NONE) -> FetchResponse:
    found = PartitionData(partition_index=0, error_code=error, records=data)
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", topic_id=TOPIC_ID, partitions=[found])])


def time_asked(ask: Ask) -> int:
    assert isinstance(ask.message, ListOffsetsRequest)
    return ask.message.topics[0].partitions[0].timestamp


def offset_fetched(ask: Ask) -> int:
    assert isinstance(ask.message, FetchRequest)
    return ask.message.topics[0].partitions[0].fetch_offset


def taken(wire: Wire) -> list[int]:
    assert isinstance(wire.engine, ConsumerState)
    return [one.offset for one in wire.engine.take_records()]


def test_a_consumer_reads_from_the_beginning_to_the_end_that_the_partition_had():
    wire = consumer()
    assert time_asked(wire.answer(ListOffsetsRequest, offset(5))) == LATEST
    assert time_asked(wire.answer(ListOffsetsRequest, offset(2))) == EARLIEST
    assert offset_fetched(wire.answer(FetchRequest, fetched(batch(2, 2)))) == 2
    assert offset_fetched(wire.answer(FetchRequest, fetched(batch(4, 3)))) == 4
    assert taken(wire) == [2, 3, 4]
    assert isinstance(wire.engine, ConsumerState)
    assert wire.engine.is_done
    assert wire.engine.poll(wire.now_ms) == []


def test_an_empty_partition_is_read_at_once():
    wire = consumer()
    wire.answer(ListOffsetsRequest, offset(0))
    wire.answer(ListOffsetsRequest, offset(0))
    assert isinstance(wire.engine, ConsumerState)
    assert wire.engine.is_done


def test_a_fetch_from_the_middle_of_a_batch_delivers_the_rest_of_the_batch():
    wire = consumer(AtOffset(3))
    wire.answer(ListOffsetsRequest, offset(5))
    assert time_asked(wire.answer(ListOffsetsRequest, offset(0))) == EARLIEST
    cut = batch(0, 5) + batch(5, 5)[:-7]
    wire.answer(FetchRequest, fetched(cut))
    assert taken(wire) == [3, 4]


def test_a_consumer_goes_on_with_the_next_leader_where_it_was():
    wire = consumer(follows=True)
    wire.answer(ListOffsetsRequest, offset(0))
    wire.answer(FetchRequest, fetched(batch(0, 2)))
    wire.answer(FetchRequest, Cause.RESET)
    wire.answer(MetadataRequest, metadata([2], epoch=1))
    wire.answer(FetchRequest, fetched(b"", Error.NOT_LEADER_OR_FOLLOWER))
    wire.answer(MetadataRequest, metadata([1], epoch=2))
    ask = wire.answer(FetchRequest, fetched(batch(2, 1)))
    assert (ask.to, offset_fetched(ask)) == (("h", 1), 2)
    assert taken(wire) == [0, 1, 2]


def test_partitions_with_one_leader_and_other_epochs_are_in_one_request():
    """After a fail-over one broker leads partitions of different epochs: none of them may wait for ever."""
    wire = consumer(leaders=(1, 1), follows=True)
    ask = wire.next(ListOffsetsRequest)
    assert isinstance(ask.message, ListOffsetsRequest)
    found = [ListOffsetsPartitionResponse(partition_index=number, offset=0) for number in (0, 1)]
    begun = ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=found)])
    wire.engine.on_outcome(ask.token, begun, wire.now_ms)
    wire.answer(FetchRequest, Cause.RESET)
    view = metadata([2, 2], epoch=0)
    view.topics[0].partitions[1] = MetadataResponsePartition(partition_index=1, leader_id=2, leader_epoch=5)
    wire.answer(MetadataRequest, view)
    ask = wire.next(FetchRequest)
    assert isinstance(ask.message, FetchRequest)
    epochs = {one.partition: one.current_leader_epoch for one in ask.message.topics[0].partitions}
    assert epochs == {0: 0, 1: 5}


def test_records_that_were_deleted_unread_are_a_notice_and_the_reading_goes_on():
    wire = consumer(AtOffset(3), follows=True)
    wire.answer(ListOffsetsRequest, offset(0))
    wire.answer(FetchRequest, fetched(b"", Error.OFFSET_OUT_OF_RANGE))
    while isinstance((ask := wire.next(Message)).message, MetadataRequest):
        wire.engine.on_outcome(ask.token, metadata([1]), wire.now_ms)
    assert time_asked(ask) == LATEST
    wire.engine.on_outcome(ask.token, offset(20), wire.now_ms)
    assert time_asked(wire.answer(ListOffsetsRequest, offset(10))) == EARLIEST
    assert offset_fetched(wire.answer(FetchRequest, fetched(batch(10, 1)))) == 10
    assert isinstance(wire.engine, ConsumerState)
    assert list(wire.engine.notices) == [
        "t-0 begins at offset 10 by now: the records from 3 on were deleted",
    ]
    assert taken(wire) == [10]


def test_an_offset_behind_the_end_is_an_error():
    wire = consumer(AtOffset(9))
    with pytest.raises(ClientError, match="offset 9 is beyond the end of t-0, which is 5"):
        wire.answer(ListOffsetsRequest, offset(5))


def test_a_partition_that_no_broker_serves_is_an_error_after_the_time_out():
    wire = consumer(follows=True)
    began_ms = wire.now_ms

    def go_on() -> None:
        while True:
            ask = wire.next(Message)
            is_view = isinstance(ask.message, MetadataRequest)
            outcome = metadata([-1], epoch=1) if is_view else offset(0, Error.NOT_LEADER_OR_FOLLOWER)
            wire.engine.on_outcome(ask.token, outcome, wire.now_ms)

    with pytest.raises(ClientError, match="partition t-0: no answer within 30 s: partition t-0 has no leader"):
        go_on()
    assert began_ms + 30_000 <= wire.now_ms <= began_ms + 31_000


def test_partitions_without_a_leader_are_named_once_the_others_are_read():
    """Not for a whole time-out: the cluster has no leader for them, as no replica in sync runs."""
    wire = consumer(leaders=(1, -1, -1))
    began_ms = wire.now_ms

    def go_on() -> None:
        answers = {LATEST: offset(1), EARLIEST: offset(0)}
        while True:
            ask = wire.next(Message)
            match ask.message:
                case MetadataRequest():
                    outcome: Message = metadata([1, -1, -1])
                case FetchRequest():
                    outcome = fetched(batch(0, 1))
                case _:
                    outcome = answers[time_asked(ask)]
            wire.engine.on_outcome(ask.token, outcome, wire.now_ms)

    with pytest.raises(ClientError, match="no leader for t-1, t-2: no replica in sync runs"):
        go_on()
    assert taken(wire) == [0]
    assert LEADERLESS_MS <= wire.now_ms - began_ms <= LEADERLESS_MS + 1_000


def test_nothing_is_fetched_while_the_user_takes_no_records():
    wire = consumer(follows=True)
    wire.answer(ListOffsetsRequest, offset(0))
    wire.answer(FetchRequest, fetched(batch(0, 10_000)))
    assert wire.engine.poll(wire.now_ms) == []
    assert len(taken(wire)) == 10_000
    assert offset_fetched(wire.next(FetchRequest)) == 10_000


def test_aborted_records_and_markers_are_left_out_and_the_position_moves_over_them():
    data = b"".join(
        (
            batch(0, 2, transactional=True, producer_id=7, producer_epoch=0, base_sequence=0),
            batch(2, 2, transactional=True, producer_id=8, producer_epoch=0, base_sequence=0),
            marker(4, 7, is_abort=True),
            batch(5, 1, transactional=True, producer_id=7, producer_epoch=0, base_sequence=2),
            marker(6, 8, is_abort=False),
            marker(7, 7, is_abort=False),
            batch(8, 1),
            batch(9, 1, transactional=True, producer_id=8, producer_epoch=0, base_sequence=2),
            marker(10, 8, is_abort=True),
        )
    )
    aborted = [AbortedTransaction(producer_id=7, first_offset=0), AbortedTransaction(producer_id=8, first_offset=9)]
    found = read_answer(data, 0, 0, aborted, where="t-0")
    assert ([one.offset for one in found.records], found.following) == ([2, 3, 5, 8], 11)
    found = read_answer(data, 0, 0, [], where="t-0")
    assert ([one.offset for one in found.records], found.following) == ([0, 1, 2, 3, 5, 8, 9], 11)


def test_a_damaged_batch_names_the_partition_and_the_broker():
    wire = consumer(follows=True)
    wire.answer(ListOffsetsRequest, offset(0))
    damaged = bytearray(batch(0, 2))
    damaged[-1] ^= 1
    with pytest.raises(ClientError, match=r"CRC.*t-0 of broker 1"):
        wire.answer(FetchRequest, fetched(bytes(damaged)))


def test_the_isolation_of_the_reader_is_in_each_request():
    settings = ConsumerSettings(isolation=Isolation.READ_COMMITTED, follows=True)
    wire = Wire(ConsumerState("t", [("h", 1)], settings))
    wire.answer(MetadataRequest, metadata([1]))
    asks = [wire.answer(ListOffsetsRequest, offset(0)), wire.next(FetchRequest)]
    assert [getattr(ask.message, "isolation_level", None) for ask in asks] == [1, 1]
