"""Offsets that a client may see, and how partitions share the size of an answer."""

from __future__ import annotations

from typing import Any

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
