"""The runtime of a coordinator, with offsets on it: answers at the high watermark, failures, loads, moves, expiry."""

from __future__ import annotations

import pytest

from kraft.config.group_settings import GroupConfig
from kraft.coordinators.groups.offsets import Commit, Committer, commit
from kraft.coordinators.runtime.shard import Context, CoordinatorResult
from kraft.coordinators.runtime.shard import Record as OfCoordinator
from kraft.partitions.log.transaction_markers import TransactionMarker
from kraft.partitions.replicas.leading import Leading
from metadata_log.records.batch import scan
from metadata_log.records.batch_builder import write_batch
from metadata_log.records.consumer_offsets import OffsetCommitKey, OffsetCommitValue
from metadata_log.records.coordinator import encode_key, encode_value
from metadata_log.records.metadata import PartitionChangeRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from metadata_log.records.record import Record, records
from support.broker.group_clients import (
    GROUPS,
    GROUPS_KEY,
    ORDERS,
    REPLICATED,
    SESSION_MS,
    GroupBrokers,
    committing,
    joining,
)
from support.broker.operations import Doing
from support.broker.request_brokers import NewTopic, directory_of, replayed, topic_id
from transport.protocol.errors import Error
from transport.protocol.messages.heartbeat import HeartbeatRequest
from transport.protocol.messages.list_groups import ListGroupsRequest
from transport.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)

MINUTE_MS = 60_000


def lead(brokers: GroupBrokers, broker_id: int) -> None:
    """Give the partition of the groups another leader."""
    brokers.brokers.change(PartitionChangeRecord(partition_id=0, topic_id=GROUPS.id, leader=broker_id))
    brokers.brokers.now_ms += 10
    for one in (101, 102, 103):
        brokers.wait(20, one)


def groups_of(brokers: GroupBrokers, broker_id: int = 101) -> list[str]:
    answer = brokers.ask(ListGroupsRequest(), broker_id=broker_id)
    assert answer.error_code == 0
    return [one.group_id for one in answer.groups]


def test_a_commit_is_answered_when_the_replicas_have_it() -> None:
    brokers = GroupBrokers(REPLICATED, ORDERS)
    number = brokers.send(committing(7))
    assert number not in brokers.answers
    assert brokers.committed() == (-1, 0)
    brokers.brokers.replicate(GROUPS_KEY)
    brokers.wait(0)
    assert brokers.answers.pop(number).topics[0].partitions[0].error_code == 0
    assert brokers.committed() == (7, 0)


@pytest.mark.parametrize("settings", [{"message.timestamp.type": "LogAppendTime"}, {"compression.type": "gzip"}])
def test_what_a_topic_wants_otherwise_is_written_as_it_wants(settings: dict[str, str]) -> None:
    """These batches go the way of a producer's: with the first alone it would not show."""
    topic = NewTopic("__consumer_offsets", GROUPS.id, ((101,),), {"cleanup.policy": "compact", **settings})
    brokers = GroupBrokers(topic, ORDERS)
    for offset in (7, 8, 9):
        assert brokers.commit(offset) == Error.NONE
        assert brokers.committed() == (offset, 0)
    data = brokers.brokers.part(101, GROUPS_KEY).log.read(0, 1 << 20)
    assert isinstance(data, bytes)
    written = list(scan(data))
    assert [batch.base_offset for batch in written] == [0, 1, 2]
    assert all(batch.is_log_append_time == ("message.timestamp.type" in settings) for batch in written)
    assert all(batch.is_compressed == ("compression.type" in settings) for batch in written)


def test_a_read_of_stable_offsets_waits_for_what_it_has_seen() -> None:
    brokers = GroupBrokers(REPLICATED, ORDERS)
    brokers.send(committing(7))
    topics = [OffsetFetchRequestTopics(name="orders", partition_indexes=[0])]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=topics)], require_stable=True)
    number = brokers.send(request)
    assert number not in brokers.answers
    brokers.brokers.replicate(GROUPS_KEY)
    brokers.wait(0)
    assert brokers.answers.pop(number).groups[0].topics[0].partitions[0].committed_offset == 7


def test_an_answer_does_not_wait_for_ever_and_the_record_stays() -> None:
    brokers = GroupBrokers(REPLICATED, ORDERS)
    number = brokers.send(committing(7))
    brokers.wait(4999)
    assert number not in brokers.answers
    brokers.wait(1)
    assert brokers.answers.pop(number).topics[0].partitions[0].error_code == Error.COORDINATOR_NOT_AVAILABLE
    brokers.brokers.replicate(GROUPS_KEY)
    brokers.wait(0)
    assert brokers.committed() == (7, 0)


def test_what_cannot_be_appended_never_was() -> None:
    """Below `min.insync.replicas` the state goes back, and a group that was made by the request is no more."""
    brokers = GroupBrokers(REPLICATED, ORDERS)
    leading = brokers.brokers.part(101, GROUPS_KEY).leading
    assert isinstance(leading, Leading)
    leading.accept((101,), leading.partition_epoch)
    assert brokers.commit(7) == Error.COORDINATOR_NOT_AVAILABLE
    assert brokers.ask(joining("new")).error_code == Error.COORDINATOR_NOT_AVAILABLE
    assert groups_of(brokers) == []
    leading.accept((101, 102, 103), leading.partition_epoch)
    number = brokers.send(joining("new"))
    brokers.brokers.replicate(GROUPS_KEY)
    brokers.wait(0)
    assert brokers.answers.pop(number).error_code == Error.MEMBER_ID_REQUIRED
    assert brokers.brokers.part(101, GROUPS_KEY).log.end_offset == 1


def test_another_leader_goes_on_with_the_same_generation() -> None:
    brokers = GroupBrokers(REPLICATED, ORDERS)
    member_id, number = replicated_member(brokers)
    brokers.wait(3000)
    assert brokers.answers.pop(number).generation_id == 1
    sync = brokers.sync(member_id, 1, "g", (member_id, b"a"))
    brokers.brokers.replicate(GROUPS_KEY)
    brokers.wait(0)
    assert brokers.answers.pop(sync).assignment == b"a"
    waiting = brokers.join(member_id=member_id, protocols=(("range", b"other"),))
    brokers.brokers.replicate(GROUPS_KEY)
    brokers.wait(0)
    assert brokers.answers.pop(waiting).generation_id == 2, "nobody else is waited for"
    held = brokers.sync(member_id, 2, "g", (member_id, b"b"))
    assert held not in brokers.answers
    lead(brokers, 102)
    assert brokers.answers.pop(held).error_code == Error.NOT_COORDINATOR
    assert brokers.beat(member_id, 1) == Error.NOT_COORDINATOR

    def beat(generation: int) -> int:
        answer = brokers.ask(HeartbeatRequest("g", generation, member_id), broker_id=102)
        code: int = answer.error_code
        return code

    assert beat(2) == Error.ILLEGAL_GENERATION, "the second generation was never written"
    assert beat(1) == 0
    brokers.wait(SESSION_MS - 1, 102)
    assert beat(1) == 0
    brokers.wait(SESSION_MS, 102)
    assert beat(1) == Error.UNKNOWN_MEMBER_ID


def replicated_member(brokers: GroupBrokers) -> tuple[str, int]:
    """A member of a group that the followers know."""
    number = brokers.send(joining())
    brokers.brokers.replicate(GROUPS_KEY)
    brokers.wait(0)
    told = brokers.answers.pop(number)
    assert told.error_code == Error.MEMBER_ID_REQUIRED
    return told.member_id, brokers.join(member_id=told.member_id)


def test_what_somebody_else_writes_is_loaded() -> None:
    brokers = GroupBrokers()
    assert brokers.commit(1) == 0
    part = brokers.brokers.part(101, GROUPS_KEY)
    key = encode_key(OffsetCommitKey(group="g", topic="orders", partition=0))
    value = encode_value(OffsetCommitValue(offset=5, commit_timestamp=brokers.brokers.now_ms))
    now_ms = brokers.brokers.now_ms
    data = write_batch([Record(0, now_ms, 0, key, value)], epoch=-1)
    brokers.brokers.managers[101].leaders.append(part, data, now_ms, is_client=False)
    assert brokers.commit(6, "other") == Error.NOT_COORDINATOR
    brokers.wait(50)
    assert brokers.committed() == (5, 0)
    assert brokers.commit(6, "other") == 0


@pytest.mark.parametrize("is_commit", [True, False])
def test_offsets_of_a_transaction_are_pending_until_its_marker(*, is_commit: bool) -> None:
    brokers = GroupBrokers()
    assert brokers.commit(1) == 0
    runtime = brokers.brokers.requests[101].groups
    done: list[object] = []
    committer = Committer("g", -1, "", None, 3, producer=(77, 0))
    one = Commit("orders", ORDERS.id, 0, 9, -1, "")
    committing_one = Doing(lambda shard, context: commit(committer, [one], shard.classic, GroupConfig(), context), done)
    runtime.write(0, committing_one, brokers.brokers.now_ms)
    brokers.wait(0)
    assert done == [{("orders", 0): Error.NONE}]
    assert brokers.committed() == (1, 0)
    assert brokers.committed(is_stable=True) == (-1, Error.UNSTABLE_OFFSET_COMMIT)
    marker = TransactionMarker(producer_id=77, producer_epoch=0, is_commit=is_commit, coordinator_epoch=0)
    runtime.append_marker(brokers.brokers.part(101, GROUPS_KEY), marker, brokers.brokers.now_ms)
    expected = (9 if is_commit else 1, 0)
    assert brokers.committed(is_stable=True) == expected
    lead_again = PartitionChangeRecord(partition_id=0, topic_id=GROUPS.id, leader=101)
    brokers.brokers.change(lead_again)
    brokers.wait(50)
    assert brokers.committed(is_stable=True) == expected, "as the log says"


def test_old_offsets_are_forgotten_and_then_their_group() -> None:
    brokers = GroupBrokers(retention_minutes=1, retention_check_ms=MINUTE_MS)
    assert brokers.commit(1, "simple") == 0
    (member_id,) = brokers.stable(group_id="active")
    assert brokers.commit(2, "active", generation=1, member_id=member_id) == 0
    for _ in range(30):
        brokers.wait(SESSION_MS // 2)
        assert brokers.beat(member_id, 1, "active") == 0
    assert brokers.committed("simple") == (-1, 0)
    assert groups_of(brokers) == ["active"]
    assert brokers.committed("active") == (2, 0), "nobody knows to what its member is subscribed"
    brokers.leave((member_id, None), group_id="active")
    brokers.wait(2 * MINUTE_MS)
    assert groups_of(brokers) == []


def test_offsets_of_a_deleted_topic_are_forgotten() -> None:
    brokers = GroupBrokers()
    assert brokers.commit(1) == 0
    image = brokers.brokers.image
    part = PartitionRecord(
        partition_id=0,
        topic_id=topic_id(9),
        replicas=(101,),
        isr=(101,),
        leader=101,
        leader_epoch=0,
        partition_epoch=0,
        directories=(directory_of(101),),
    )
    again = TopicRecord(name="orders", topic_id=topic_id(9))
    brokers.brokers.publish(replayed(image, RemoveTopicRecord(topic_id=ORDERS.id), again, part))
    brokers.wait(50)
    assert brokers.committed() == (-1, 0)
    assert brokers.commit(1) == 0
    brokers.wait(50)
    assert brokers.committed() == (1, 0)


def test_a_new_leader_tells_what_is_committed_once_its_followers_have_fetched() -> None:
    brokers = GroupBrokers(REPLICATED, ORDERS)
    number = brokers.send(committing(7))
    brokers.brokers.replicate(GROUPS_KEY)
    brokers.wait(0)
    assert brokers.answers.pop(number).topics[0].partitions[0].error_code == 0
    brokers.brokers.part(102, GROUPS_KEY).log.high_watermark = 0
    lead(brokers, 102)
    assert brokers.committed(broker_id=102) == (-1, Error.COORDINATOR_LOAD_IN_PROGRESS)
    brokers.brokers.replicate(GROUPS_KEY)
    brokers.wait(0, 102)
    assert brokers.committed(broker_id=102) == (7, 0)


def offset_of(value: int) -> OfCoordinator:
    """A record of a committed offset."""
    return OfCoordinator(OffsetCommitKey("g", "orders", value), OffsetCommitValue(offset=value))


def test_what_was_decided_on_a_batch_fails_with_the_batch() -> None:
    """A transactional commit is written alone: the open batch goes first, and cannot be appended."""
    brokers = GroupBrokers(REPLICATED, ORDERS)
    one = brokers.brokers.requests[101].groups.partitions[0]
    leading = brokers.brokers.part(101, GROUPS_KEY).leading
    assert isinstance(leading, Leading)
    results: list[object] = []
    before = one.state

    def returned(error: Error, _: Context) -> None:
        results.append(error)
        leading.accept((101, 102, 103), leading.partition_epoch)

    leading.accept((101,), leading.partition_epoch)
    one.run(Doing(lambda *_: CoordinatorResult([offset_of(1)], on_end=returned)), 0)
    one.run(Doing(lambda *_: CoordinatorResult([offset_of(2)], "second", producer=(7, 0)), results), 0)
    assert results == [Error.NOT_ENOUGH_REPLICAS, Error.COORDINATOR_NOT_AVAILABLE]
    assert one.state is before
    assert one.part.log.end_offset == 0


def test_what_follows_an_operation_joins_no_transactional_batch() -> None:
    """With one replica a batch is committed at once, and an operation may be followed by another one then."""
    brokers = GroupBrokers()
    runtime = brokers.brokers.requests[101].groups
    one = runtime.partitions[0]
    one.run(Doing(lambda *_: CoordinatorResult([offset_of(1)], on_end=lambda *_: CoordinatorResult([offset_of(2)]))), 0)
    one.run(Doing(lambda *_: CoordinatorResult([offset_of(3)], producer=(7, 0))), 0)
    one.flush(0)
    data = brokers.brokers.managers[101].hosting.read(one.part, 0, 1 << 20)
    assert isinstance(data, bytes)
    found = [(batch.is_transactional, len(list(records(batch, where="here")))) for batch in scan(data, where="here")]
    assert found == [(False, 1), (True, 1), (False, 1)]


def test_no_answer_of_one_term_comes_from_the_watermark_of_another() -> None:
    """Another broker led in between, so that what a request has waited for may be gone although offsets went on."""
    brokers = GroupBrokers(REPLICATED, ORDERS)
    number = brokers.send(committing(7))
    assert number not in brokers.answers
    for leader in (102, 101):
        brokers.brokers.change(PartitionChangeRecord(partition_id=0, topic_id=GROUPS.id, leader=leader))
    brokers.brokers.replicate(GROUPS_KEY)
    brokers.wait(0)
    assert brokers.answers.pop(number).topics[0].partitions[0].error_code == Error.NOT_COORDINATOR
