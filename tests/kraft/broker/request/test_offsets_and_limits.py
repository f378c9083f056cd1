"""Offsets that a client may see, and how partitions share the size of an answer."""

from __future__ import annotations

from typing import Any

import pytest

from kraft.wire import Answer
from metadata_log.compression import Compression
from metadata_log.records import metadata as records
from metadata_log.records.batch_builder import write_batch
from metadata_log.records.record import Record
from support.broker.request_brokers import START_MS, Brokers, NewTopic, batch, fetch, produce, topic_id
from transport.protocol.errors import Error
from transport.protocol.messages.fetch import FetchResponse
from transport.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

TOPIC = topic_id(1)
KEY = (TOPIC, 0)
LATEST, EARLIEST, LARGEST_TIME = -1, -2, -3


def offset_of(brokers: Brokers, broker_id: int, timestamp: int, version: int = 11, *, replica_id: int = -1) -> Any:
    """The answer for one time: error and offset."""
    wanted = ListOffsetsTopic("t", [ListOffsetsPartition(timestamp=timestamp)])
    response = brokers.ask(broker_id, ListOffsetsRequest(replica_id=replica_id, topics=[wanted]), version)
    part = response.topics[0].partitions[0]
    return part.error_code, part.offset


def test_no_offset_above_the_high_watermark_is_told_to_a_consumer() -> None:
    brokers = Brokers([NewTopic("t", TOPIC, ((101, 102),))])
    brokers.ask(101, produce(KEY, batch(b"a"), acks=1))
    brokers.replicate(KEY)
    brokers.ask(101, produce(KEY, batch(b"b", timestamp_ms=START_MS + 5), acks=1))
    assert offset_of(brokers, 101, LATEST) == (0, 1)
    assert offset_of(brokers, 101, LATEST, replica_id=102) == (0, 2)
    assert offset_of(brokers, 101, START_MS + 1) == (0, -1)
    assert offset_of(brokers, 101, LARGEST_TIME) == (0, -1)
    assert offset_of(brokers, 101, START_MS + 1, replica_id=-2) == (0, 1)
    brokers.replicate(KEY)
    assert [offset_of(brokers, 101, time) for time in (LATEST, START_MS + 1, LARGEST_TIME)] == [(0, 2), (0, 1), (0, 1)]


@pytest.mark.parametrize(("version", "error"), [(11, Error.OFFSET_NOT_AVAILABLE), (4, Error.LEADER_NOT_AVAILABLE)])
def test_a_new_leader_tells_no_latest_offset_until_it_knows_what_is_committed(version: int, error: Error) -> None:
    brokers = Brokers([NewTopic("t", TOPIC, ((101, 102, 103),))])
    brokers.ask(101, produce(KEY, batch(b"a"), acks=1))
    brokers.replicate(KEY, by=(102,))
    brokers.change(records.PartitionChangeRecord(partition_id=0, topic_id=TOPIC, leader=102))
    assert brokers.part(102, KEY).log.high_watermark == 0
    assert offset_of(brokers, 102, LATEST, version) == (error, -1)
    assert offset_of(brokers, 102, START_MS, version) == (error, -1)
    assert offset_of(brokers, 102, EARLIEST, version) == (0, 0)
    brokers.replicate(KEY)
    assert offset_of(brokers, 102, LATEST, version) == (0, 1)
    assert offset_of(brokers, 102, START_MS, version) == (0, 0)


def test_a_search_that_meets_a_record_above_a_lowered_limit_is_answered_with_kafkas_error() -> None:
    brokers = Brokers([NewTopic("t", TOPIC, ((101,),))])
    contents = [Record(at, START_MS + at, 0, b"k", bytes(size)) for at, size in enumerate((5, 990))]
    brokers.ask(101, produce(KEY, write_batch(contents, epoch=-1, compression=Compression.GZIP)))
    limit = "max.decompressed.message.bytes"
    brokers.change(records.ConfigRecord(resource_type=2, resource_name="t", name=limit, value="900"))
    wanted = START_MS, START_MS + 1, LARGEST_TIME, LATEST
    found = [offset_of(brokers, 101, time) for time in wanted]
    assert found == [(0, 0), (Error.INVALID_RECORD, -1), (Error.INVALID_RECORD, -1), (0, 2)]


def sizes(response: Any) -> list[int]:
    return [len(part.records) for topic in response.responses for part in topic.partitions]


def test_partitions_share_the_size_of_an_answer_in_the_order_of_the_request() -> None:
    brokers = Brokers([NewTopic("t", TOPIC, ((101,),) * 3)])
    one = batch(b"x" * 100)
    for number in range(3):
        for _ in range(3):
            brokers.ask(101, produce((TOPIC, number), one))
    size = len(one)
    wanted = [((TOPIC, number), 0) for number in range(3)]
    shared = {
        most: sizes(brokers.ask(101, fetch(*wanted, max_bytes=most))) for most in (1, 3 * size, 4 * size, 7 * size + 1)
    }
    assert shared == {
        1: [size, 0, 0],
        3 * size: [3 * size, 0, 0],
        4 * size: [3 * size, size, 0],
        7 * size + 1: [3 * size, 3 * size, size],
    }


def test_the_limit_of_the_broker_counts_if_a_client_asks_for_more() -> None:
    one = batch(b"x" * 100)
    brokers = Brokers([NewTopic("t", TOPIC, ((101,),))], fetch_max_bytes=2 * len(one))
    for _ in range(3):
        brokers.ask(101, produce(KEY, one))
    assert sizes(brokers.ask(101, fetch((KEY, 0)))) == [2 * len(one)]
    # The least size is cut to the limit, too: otherwise the request would wait although the answer is full.
    assert sizes(brokers.ask(101, fetch((KEY, 0), min_bytes=1 << 20, wait_ms=1000))) == [2 * len(one)]


def test_a_fetch_keeps_to_the_room_that_other_answers_leave() -> None:
    """Peers that read slowly hold memory: a consumer gets a batch at least, and still waits when there is none."""
    brokers = Brokers([NewTopic("t", TOPIC, ((101,),))])
    for _ in range(4):
        brokers.ask(101, produce(KEY, batch(b"x" * 1000)))
    size = len(batch(b"x" * 1000))

    def found(room: int) -> int:
        _, outcome = brokers.send(101, fetch((KEY, 0)), room=room)
        assert isinstance(outcome, Answer), outcome
        assert isinstance(outcome.message, FetchResponse)
        records = outcome.message.responses[0].partitions[0].records
        assert records is not None
        return len(records)

    assert [found(room) // size for room in (4 * size, 2 * size, 0)] == [4, 2, 1]
    _, outcome = brokers.send(101, fetch((KEY, 4), wait_ms=500), room=0)
    assert outcome is None
