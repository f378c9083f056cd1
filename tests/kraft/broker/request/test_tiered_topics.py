"""Requests about topics with tiered storage, at a broker that copies nothing to it and reads nothing there.

The answers are those of Kafka's leader that has heard of no copied segment (`UnifiedLog.fetchOffsetByTimestamp`), and
whose remote store fails (`ReplicaManager.handleOffsetOutOfRangeError`).
"""

from __future__ import annotations

from typing import Any

import pytest

from kraft.partitions.log.partition_log import PartitionLog
from kraft.partitions.replicas.topic_settings import may_be_tiered
from kraft.wire import Answer
from metadata_log.records import metadata as records
from metadata_log.records.batch import scan
from metadata_log.serde import Message
from support.broker.request_brokers import (
    START_MS,
    Brokers,
    NewTopic,
    batch,
    directory_of,
    epoch_of,
    fetch,
    only_partition,
    produce,
    topic_id,
)
from transport.protocol.errors import Error
from transport.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from transport.protocol.messages.fetch import ReplicaState
from transport.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

TOPIC = topic_id(1)
KEY = (TOPIC, 0)
LEADER, FOLLOWER, NEW = 101, 102, 103
LATEST, EARLIEST, LARGEST_TIME, EARLIEST_LOCAL, LATEST_TIERED, PENDING = -1, -2, -3, -4, -5, -6


def tiered(value: str = "true", **settings: str) -> Brokers:
    """A leader with the offsets 0 to 5, each in a segment, of a topic with tiered storage."""
    brokers = Brokers([NewTopic("t", TOPIC, ((LEADER, FOLLOWER),))])
    named = {"remote.storage.enable": value, "segment.bytes": "300", **settings}
    for key, text in named.items():
        brokers.change(records.ConfigRecord(resource_type=2, resource_name="t", name=key, value=text))
    for at in range(6):
        brokers.ask(LEADER, produce(KEY, batch(bytes(200), timestamp_ms=START_MS + at), acks=1))
    brokers.replicate(KEY)
    return brokers


def moved(*, local_start: int = 3) -> Brokers:
    """The same with the first segments in tiered storage alone, as in a directory that Kafka's broker wrote."""
    brokers = tiered()
    log = brokers.part(LEADER, KEY).log
    epochs = log.epochs
    log.delete_segments(local_start, now_ms=START_MS)
    log.start_offset, log.epochs = 0, epochs
    return brokers


def with_a_new_follower() -> Brokers:
    """The same in three leader epochs, by two producers, with a third replica that has nothing yet."""
    brokers = tiered()
    for at in range(6, 12):
        if at in (7, 9):
            brokers.change(records.PartitionChangeRecord(partition_id=0, topic_id=TOPIC, leader=LEADER))
        sent = batch(bytes(200), timestamp_ms=START_MS + at, producer_id=70 + at % 2, sequence=(at - 6) // 2)
        brokers.ask(LEADER, produce(KEY, sent, acks=1))
    brokers.replicate(KEY)
    log = brokers.part(LEADER, KEY).log
    epochs = log.epochs
    log.delete_segments(11, now_ms=START_MS)
    log.start_offset, log.epochs = 0, epochs
    replicas = (LEADER, FOLLOWER, NEW)
    directories = tuple(directory_of(one) for one in replicas)
    changed = records.PartitionChangeRecord(partition_id=0, topic_id=TOPIC, replicas=replicas, directories=directories)
    brokers.change(changed)
    return brokers


def followed(brokers: Brokers) -> list[Message]:
    """Have the new follower ask its leader until it waits for what comes; returns the requests."""
    manager = brokers.managers[NEW]
    asked: list[Message] = []
    while True:
        request = manager.followers.request(LEADER, epoch_of(NEW), brokers.now_ms)
        assert request is not None
        asked.append(request)
        _, outcome = brokers.send(LEADER, request)
        if not isinstance(outcome, Answer):
            return asked
        manager.followers.on_answer(LEADER, outcome.message, brokers.now_ms)


def offset_of(brokers: Brokers, timestamp: int, *, replica_id: int = -1) -> tuple[int, int, int]:
    wanted = ListOffsetsTopic("t", [ListOffsetsPartition(timestamp=timestamp)])
    part = brokers.ask(LEADER, ListOffsetsRequest(replica_id=replica_id, topics=[wanted]), 11).topics[0].partitions[0]
    return part.error_code, part.offset, part.leader_epoch


def fetched(brokers: Brokers, offset: int, **fields: Any) -> Any:
    return only_partition(brokers.ask(LEADER, fetch((KEY, offset), **fields)))


def of_a_follower() -> dict[str, Any]:
    return {"replica_state": ReplicaState(replica_id=FOLLOWER, replica_epoch=-1)}


def test_a_whole_log_is_local_and_waits_to_be_copied() -> None:
    brokers = tiered()
    epoch = brokers.part(LEADER, KEY).leader_epoch
    times = (LATEST, EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, PENDING, LARGEST_TIME, START_MS + 2)
    answers = [offset_of(brokers, time) for time in times]
    assert [(error, offset) for error, offset, _ in answers] == [
        (0, 6), (0, 0), (0, 0), (0, -1), (0, 0), (0, 5), (0, 2),
    ]  # fmt: skip
    assert [answers[at][2] for at in (1, 2, 3, 4)] == [epoch, epoch, -1, epoch]
    assert fetched(brokers, 0).error_code == 0


@pytest.mark.parametrize(
    "settings", [{"value": "false"}, {"value": "true", "cleanup.policy": "compact"}, {"value": "perhaps"}]
)
def test_other_topics_have_nothing_to_copy(settings: dict[str, str]) -> None:
    brokers = tiered(**settings)
    assert [offset_of(brokers, time)[:2] for time in (EARLIEST_LOCAL, LATEST_TIERED, PENDING)] == [
        (0, 0), (0, -1), (0, -1),
    ]  # fmt: skip


def test_what_is_in_tiered_storage_alone_is_not_claimed() -> None:
    brokers = moved()
    times = (LATEST, EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, PENDING, LARGEST_TIME)
    assert [offset_of(brokers, time)[:2] for time in times] == [
        (0, 6), (0, 0), (0, 3), (0, -1), (0, -1), (0, 5),
    ]  # fmt: skip
    for time in (0, START_MS + 2, START_MS + 5, START_MS + 9):
        assert offset_of(brokers, time)[:2] == (Error.UNKNOWN_SERVER_ERROR, -1), time


@pytest.mark.parametrize("wait_ms", [0, 500])
@pytest.mark.parametrize("offset", [0, 2])
def test_a_fetch_behind_the_local_start_is_not_out_of_range(offset: int, wait_ms: int) -> None:
    """OFFSET_OUT_OF_RANGE would have a consumer skip records that exist, and a follower remove its log."""
    brokers = moved()
    consumer = fetched(brokers, offset, wait_ms=wait_ms)
    assert (consumer.error_code, consumer.records) == (Error.UNKNOWN_SERVER_ERROR, b"")
    follower = fetched(brokers, offset, wait_ms=wait_ms, **of_a_follower())
    assert (follower.error_code, follower.records) == (Error.OFFSET_MOVED_TO_TIERED_STORAGE, b"")
    assert (follower.high_watermark, follower.log_start_offset, follower.last_stable_offset) == (6, 0, -1)
    assert not brokers.part(LEADER, KEY).log.start_offset


def test_a_new_follower_begins_at_the_local_start_with_all_epochs_and_producers() -> None:
    brokers = with_a_new_follower()
    leader = brokers.part(LEADER, KEY).log
    kinds = [type(one).__name__.removesuffix("Request") for one in followed(brokers)]
    assert kinds == ["Fetch", "ListOffsets", *["OffsetForLeaderEpoch"] * 2, "DescribeProducers", "Fetch", "Fetch"]
    log = brokers.part(NEW, KEY).log
    assert (log.start_offset, log.local_start, log.end_offset, log.high_watermark) == (0, 11, 12, 12)
    assert log.epochs == leader.epochs
    assert [entry.offset for entry in log.epochs.entries] == [0, 7, 9]
    # The batch of one producer is in the log, that of the other is in tiered storage.
    states, wanted = log.producers.states.producers, leader.producers.states.producers
    assert {one: states[one].last_sequence for one in states} == {70: 2, 71: 2}
    assert {one: (states[one].epoch, states[one].timestamp) for one in states} == {
        one: (wanted[one].epoch, wanted[one].timestamp) for one in wanted
    }
    again, further = (next(scan(batch(b"", producer_id=70, sequence=sequence))) for sequence in (1, 3))
    assert log.producers.states.check(again) is not None
    assert log.producers.states.check(further) is None
    # A start after a crash finds both again.
    log.flush()
    log.abandon()
    options, kept = log.options, log.epochs
    log = PartitionLog.open(log._disk, log.directory, options, now_ms=START_MS, start_checkpoint=0, high_watermark=12)
    assert (log.start_offset, log.local_start, log.end_offset, log.epochs) == (0, 11, 12, kept)
    assert {one: log.producers.states.producers[one].last_sequence for one in (70, 71)} == {70: 2, 71: 2}


def test_other_offsets_are_answered_as_ever() -> None:
    brokers = moved()
    assert fetched(brokers, 3).error_code == fetched(brokers, 6).error_code == 0
    assert fetched(brokers, 3).log_start_offset == 0
    assert fetched(brokers, 7).error_code == fetched(brokers, -1).error_code == Error.OFFSET_OUT_OF_RANGE


def test_records_can_be_deleted_up_to_an_offset_in_tiered_storage() -> None:
    brokers = moved()
    asked = DeleteRecordsTopic("t", [DeleteRecordsPartition(offset=2)])
    brokers.send(LEADER, DeleteRecordsRequest(topics=[asked], timeout_ms=1000))
    log = brokers.part(LEADER, KEY).log
    assert (log.start_offset, log.local_start) == (2, 3)
    assert fetched(brokers, 1).error_code == Error.OFFSET_OUT_OF_RANGE
    assert fetched(brokers, 2).error_code == Error.UNKNOWN_SERVER_ERROR


def test_an_internal_topic_is_not_tiered_whatever_its_settings_say() -> None:
    assert [may_be_tiered(name) for name in ("__consumer_offsets", "__remote_log_metadata", "t")] == [
        False,
        False,
        True,
    ]
