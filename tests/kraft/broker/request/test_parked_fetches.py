"""The cost of waiting fetches: an append wakes them, and they compare positions, as in Kafka, and read nothing."""

from __future__ import annotations

import gc
import sys
from types import FrameType

import pytest

from kraft.broker.request.fetch import FetchHandler, WaitingFetch
from kraft.partitions.replicas.key import ANY_CHANGE
from kraft.wire import Answer, Outcome
from metadata_log.image import MetadataImage
from metadata_log.memory_disk import MemoryFile
from support.broker.request_brokers import BROKERS, Brokers, NewTopic, batch, fetch, only_partition, produce, topic_id
from transport.protocol.errors import Error
from transport.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from transport.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic

ORDERS = (topic_id(1), 0)
MANY = 2**31 - 1
"""More bytes than there will ever be."""


class Reads:
    """Counts the reads of all files, and the bytes that were read."""

    def __init__(self, patched: pytest.MonkeyPatch) -> None:
        self.count = self.size = 0
        pread = MemoryFile.pread

        def counted(file: MemoryFile, size: int, position: int) -> bytes:
            found = pread(file, size, position)
            self.count += 1
            self.size += len(found)
            return found

        patched.setattr(MemoryFile, "pread", counted)


def with_log(replicas: tuple[int, ...], batches: int) -> Brokers:
    """A partition with this number of batches of a thousand bytes, all committed."""
    brokers = Brokers([NewTopic("orders", ORDERS[0], (replicas,))])
    for _ in range(batches):
        brokers.send(101, produce(ORDERS, batch(b"x" * 1000), acks=1))
    brokers.replicate(ORDERS)
    brokers.poll(101)
    return brokers


def park(brokers: Brokers, count: int, **wanted: int) -> None:
    """Let consumers at the first record wait for more bytes than there are."""
    for _ in range(count):
        assert brokers.send(101, fetch((ORDERS, 0), wait_ms=60_000, min_bytes=MANY, **wanted))[1] is None
    assert brokers.poll(101) == []


def append(brokers: Brokers) -> None:
    """One more record, committed, and the turn of the owner."""
    brokers.send(101, produce(ORDERS, batch(b"y"), acks=1))
    brokers.replicate(ORDERS)
    assert brokers.poll(101) == []


@pytest.mark.parametrize("isolation", [0, 1])
def test_an_append_reads_nothing_for_the_fetches_that_wait_for_many_bytes(
    isolation: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers = with_log((101,), 200)
    park(brokers, 20, isolation_level=isolation)
    append(brokers)
    reads = Reads(monkeypatch)
    for _ in range(50):
        append(brokers)
    assert reads.count == 0


def test_the_first_batch_is_answered_although_it_is_larger_than_the_partition_may_send() -> None:
    """The same answer as if the batch had been read first: it is as large as the least that the client waits for."""
    brokers = with_log((101,), 3)
    size = brokers.part(101, ORDERS).log.size_bytes // 3
    part = FetchPartition(0, partition_max_bytes=10)

    def sent(least: int) -> Outcome | None:
        topics = [FetchTopic(topic_id=ORDERS[0], partitions=[part])]
        return brokers.send(101, FetchRequest(max_wait_ms=60_000, min_bytes=least, topics=topics))[1]

    answer = sent(size)
    assert isinstance(answer, Answer)
    assert len(only_partition(answer.message).records) == size
    assert sent(size + 1) is None


def test_a_watermark_below_the_end_is_looked_up_once_for_all_fetches(monkeypatch: pytest.MonkeyPatch) -> None:
    def reads_of(parked: int) -> tuple[int, int]:
        brokers = with_log(BROKERS, 200)
        park(brokers, parked)
        with pytest.MonkeyPatch.context() as patched:
            for _ in range(3):
                # A record that no follower has yet stands after the watermark.
                brokers.send(101, produce(ORDERS, batch(b"y"), acks=1))
                brokers.replicate(ORDERS, by=(102,))
            brokers.poll(101)
            reads = Reads(patched)
            brokers.requests[101]._waiting.wake({ORDERS: ANY_CHANGE})
            assert brokers.poll(101) == []
            return reads.count, reads.size

    one, many = reads_of(1), reads_of(50)
    assert one == many
    assert many[0] <= 8


def test_the_work_of_an_append_does_not_grow_with_the_log() -> None:
    def calls_of(batches: int, parked: int) -> int:
        """The calls of Python functions in the turn after an append."""
        brokers = with_log((101,), batches)
        park(brokers, parked)
        append(brokers)
        brokers.send(101, produce(ORDERS, batch(b"y"), acks=1))
        calls = 0

        def count(frame: FrameType, event: str, _: object) -> None:
            nonlocal calls
            calls += event == "call"

        gc.disable()  # Hypothesis has a function that each collection calls at its begin and at its end.
        sys.setprofile(count)
        try:
            brokers.poll(101)
        finally:
            sys.setprofile(None)
            gc.enable()
        return calls

    few, many = calls_of(20, 20), calls_of(1000, 20)
    assert few == many
    assert (many - calls_of(1000, 0)) / 20 < 25


def test_an_append_wakes_only_the_fetches_of_its_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 1000
    looked = list[WaitingFetch]()
    is_complete = FetchHandler.is_complete

    def counted(handler: FetchHandler, waiting: WaitingFetch, image: MetadataImage) -> bool:
        looked.append(waiting)
        return is_complete(handler, waiting, image)

    monkeypatch.setattr(FetchHandler, "is_complete", counted)
    brokers = Brokers([NewTopic("orders", ORDERS[0], ((101,),) * count)])
    for number in range(count):
        wanted = fetch(((ORDERS[0], number), 0), wait_ms=60_000, min_bytes=MANY)
        assert brokers.send(101, wanted)[1] is None
    assert brokers.poll(101) == []
    while brokers.due_ms(101) == 0:
        assert brokers.poll(101) == []
    looked.clear()
    brokers.send(101, produce((ORDERS[0], 700), batch(b"y"), acks=1))
    assert brokers.poll(101) == []
    assert [one.keys for one in looked] == [{(ORDERS[0], 700)}]


def test_a_fetch_counts_the_bytes_of_all_its_partitions_and_of_each_no_more_than_it_takes() -> None:
    brokers = Brokers([NewTopic("orders", ORDERS[0], ((101,), (101,)))])
    one = batch(b"x" * 100)
    parts = [FetchPartition(0, partition_max_bytes=len(one)), FetchPartition(1, partition_max_bytes=1 << 20)]
    topics = [FetchTopic(topic_id=ORDERS[0], partitions=parts)]
    wanted = FetchRequest(max_wait_ms=60_000, min_bytes=3 * len(one), topics=topics)
    request_id, outcome = brokers.send(101, wanted)
    assert outcome is None
    for _ in range(4):
        brokers.send(101, produce(ORDERS, one, acks=1))
        assert brokers.poll(101) == []
    brokers.send(101, produce((ORDERS[0], 1), one, acks=1))
    assert brokers.poll(101) == []
    brokers.send(101, produce((ORDERS[0], 1), one, acks=1))
    [answer] = brokers.poll(101)
    assert isinstance(answer, Answer)
    assert answer.request_id == request_id


def test_a_reader_whose_records_are_deleted_waits_no_longer() -> None:
    brokers = with_log((101,), 10)
    park(brokers, 1)
    part = DeleteRecordsPartition(0, 5)
    brokers.ask(101, DeleteRecordsRequest(topics=[DeleteRecordsTopic("orders", [part])], timeout_ms=1000))
    [answer] = brokers.poll(101)
    assert isinstance(answer, Answer)
    assert only_partition(answer.message).error_code == Error.OFFSET_OUT_OF_RANGE


def test_a_log_that_is_cut_and_grows_again_is_measured_anew() -> None:
    """The place of a reader is remembered. After a truncation another batch is there."""
    brokers = with_log((101,), 10)
    log = brokers.part(101, ORDERS).log
    ends = [log.place_of(offset).position for offset in range(11)]
    assert ends[10] == log.size_bytes
    assert [log.place_of(offset).position for offset in (3, 3, 9)] == [ends[3], ends[3], ends[9]]
    log.truncate(3, now_ms=brokers.now_ms)
    for _ in range(7):
        brokers.send(101, produce(ORDERS, batch(b"short"), acks=1))
    assert log.end_offset == 10
    assert log.place_of(9).position < ends[9]
    assert log.place_of(9).position == log.size_bytes - len(batch(b"short"))
