"""The answers of a leader to a follower with another history, and which fetches count as progress."""

from __future__ import annotations

from kraft.wire import Answer
from metadata_log.records import metadata as records
from support.broker.request_brokers import Brokers, NewTopic, batch, epoch_of, only_partition, produce, topic_id
from transport.protocol.errors import Error
from transport.protocol.messages.fetch import EpochEndOffset, FetchPartition, FetchRequest, FetchTopic, ReplicaState

KEY = (topic_id(1), 0)


def brokers_with_two_epochs() -> Brokers:
    """101 leads in epoch 1: offsets 0 to 2 are of epoch 0, and 3 of epoch 1. The follower 102 has everything."""
    brokers = Brokers([NewTopic("t", KEY[0], ((101, 102),))])
    brokers.ask(101, produce(KEY, batch(b"a", b"b", b"c"), acks=1))
    brokers.replicate(KEY)
    brokers.change(records.PartitionChangeRecord(partition_id=0, topic_id=KEY[0], leader=101))
    brokers.ask(101, produce(KEY, batch(b"d"), acks=1))
    brokers.replicate(KEY)
    return brokers


def fetch_as_102(
    offset: int,
    last_epoch: int,
    *,
    wait_ms: int = 0,
    leader_epoch: int = 1,
    session_id: int = 0,
    session_epoch: int = -1,
) -> FetchRequest:
    wanted = FetchPartition(
        partition=0,
        current_leader_epoch=leader_epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        log_start_offset=0,
        partition_max_bytes=1 << 20,
    )
    return FetchRequest(
        replica_state=ReplicaState(102, epoch_of(102)),
        max_wait_ms=wait_ms,
        min_bytes=1,
        topics=[FetchTopic(topic_id=KEY[0], partitions=[wanted])],
        session_id=session_id,
        session_epoch=session_epoch,
    )


def test_a_follower_that_has_truncated_its_log_is_told_the_watermark_again() -> None:
    brokers = brokers_with_two_epochs()
    apart = brokers.ask(101, fetch_as_102(6, 1, session_epoch=0))
    assert only_partition(apart).diverging_epoch == EpochEndOffset(1, 4)
    told = only_partition(brokers.ask(101, fetch_as_102(4, 1, session_id=apart.session_id, session_epoch=1)))
    assert (told.high_watermark, told.records, told.diverging_epoch) == (4, b"", EpochEndOffset())
    known = brokers.ask(101, fetch_as_102(4, 1, session_id=apart.session_id, session_epoch=2))
    assert known.responses == []


def test_a_follower_of_an_older_epoch_reads_on_from_the_start_of_the_log() -> None:
    found = only_partition(brokers_with_two_epochs().ask(101, fetch_as_102(0, 0)))
    assert (found.error_code, found.diverging_epoch, found.records != b"") == (Error.NONE, EpochEndOffset(), True)


def test_a_truncation_of_the_leader_ends_the_wait_of_a_follower() -> None:
    """An unclean leader elsewhere and back again: the log of 101 is shorter than what 102 has."""
    brokers = brokers_with_two_epochs()
    _, outcome = brokers.send(101, fetch_as_102(4, 1, wait_ms=5000))
    assert (outcome, brokers.poll(101)) == (None, [])
    brokers.change(records.PartitionChangeRecord(partition_id=0, topic_id=KEY[0], leader=102))
    [answer] = brokers.poll(101)
    assert isinstance(answer, Answer)
    assert only_partition(answer.message).error_code == Error.FENCED_LEADER_EPOCH
