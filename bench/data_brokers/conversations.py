"""Clients of one broker that go on side by side, each with one request under way: members of groups, and producers."""

from __future__ import annotations

import selectors
import time
from collections.abc import Generator, Iterable, Sequence
from contextlib import ExitStack
from typing import Final, TypeVar
from uuid import uuid4

from data_brokers.wire import ACKS_ALL, TIMEOUT_MS, answered, fetch_frame, frame_of
from load import Address, connect

from metadata_log.records.batch_builder import write_batch
from metadata_log.records.record import Record
from metadata_log.serde import Message, encode
from transport.protocol.errors import Error
from transport.protocol.frames import FrameReader
from transport.protocol.messages import fetch, produce
from transport.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)
from transport.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from transport.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from transport.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from transport.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from transport.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from transport.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from transport.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from transport.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from transport.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from transport.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from transport.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

M = TypeVar("M", bound=Message)
Talk = Generator[bytes, bytes, None]
"""Yields requests, length included, and is sent their answers."""

SESSION_MS: Final = 300_000
EARLIEST: Final = -2
GROUP: Final = 0
TRANSACTION: Final = 1
"""The key types of FindCoordinator."""
SOON: Final = (Error.COORDINATOR_NOT_AVAILABLE, Error.COORDINATOR_LOAD_IN_PROGRESS, Error.NOT_COORDINATOR)
AGAIN: Final = (Error.REBALANCE_IN_PROGRESS, Error.ILLEGAL_GENERATION)
SUBSCRIPTION_VERSION: Final = 0
ASSIGNMENT: Final = b"\x00\x00" + bytes(4) + b"\xff\xff\xff\xff"


def converse(address: Address, lanes: Sequence[Iterable[Talk]], pause_s: float = 0.0) -> list[float]:
    """Hold the conversations of each lane one after the other over a connection of its own, all lanes side by side;
    returns the seconds of each conversation. The pause is before each one, and is for a single lane.
    """
    took: list[float] = []
    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        left = 0
        for lane in lanes:
            connection = stack.enter_context(connect(address))
            selector.register(
                connection, selectors.EVENT_READ, (connection, FrameReader(), _steps(iter(lane), pause_s, took))
            )
        for key in list(selector.get_map().values()):
            left += _go_on(selector, key, None)
        while left:
            for key, _ in selector.select():
                connection, reader, _ = key.data
                data = connection.recv(1 << 16)
                if not data:
                    raise ConnectionResetError("the broker has closed a connection")
                for answer in reader.feed(data):
                    left -= not _go_on(selector, key, answer)
    return took


def _go_on(selector: selectors.BaseSelector, key: selectors.SelectorKey, answer: bytes | None) -> bool:
    """Send the next request of a lane; whether there is one."""
    connection, _, steps = key.data
    try:
        frame = next(steps) if answer is None else steps.send(answer)
    except StopIteration:
        selector.unregister(key.fileobj)
        return False
    connection.sendall(frame)
    return True


def _steps(talks: Iterable[Talk], pause_s: float, took: list[float]) -> Talk:
    for talk in talks:
        if pause_s:
            time.sleep(pause_s)
        began = time.perf_counter()
        yield from talk
        took.append(time.perf_counter() - began)


def asking(message: Message, version: int, answer: type[M]) -> Generator[bytes, bytes, M]:
    """One request and its answer."""
    content = yield frame_of(message, version)
    return answered(content, version, answer)


def repeating(frame: bytes, answer: bytes, count: int) -> Iterable[Talk]:
    """The same request so many times, which has the same answer each time."""

    def once() -> Talk:
        content = yield frame
        assert content == answer, content

    return (once() for _ in range(count))


def finding(key: str, kind: int) -> Generator[bytes, bytes, None]:
    """FindCoordinator, until there is one: the first one makes the internal topic."""
    while True:
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        answer = yield from asking(request, 6, FindCoordinatorResponse)
        error = Error.of(answer.coordinators[0].error_code)
        if error is Error.NONE:
            return
        assert error in SOON, error


class ClassicMember:
    """A member of a classic group."""

    def __init__(self, group: str, topic: str) -> None:
        self.group = group
        self.topic = topic
        self.id = ""
        self.generation = -1
        self.size = 0
        """Of how many members a leader has made the last generation; 0 for a follower."""

    def joining(self, round_number: int = 0) -> Talk:
        """Join and sync until both succeed. Another number asks for a rebalance, as another subscription does."""
        subscription = ConsumerProtocolSubscription(topics=[self.topic], user_data=b"%d" % round_number)
        metadata = SUBSCRIPTION_VERSION.to_bytes(2, "big") + encode(subscription, SUBSCRIPTION_VERSION)
        while True:
            request = JoinGroupRequest(
                group_id=self.group,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=SESSION_MS,
                member_id=self.id,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol("range", metadata)],
            )
            joined = yield from asking(request, 9, JoinGroupResponse)
            error = Error.of(joined.error_code)
            if error is Error.MEMBER_ID_REQUIRED:
                self.id = joined.member_id
                continue
            if error in SOON:
                continue
            assert error is Error.NONE, error
            self.id, self.generation, self.size = joined.member_id, joined.generation_id, len(joined.members)
            sync = SyncGroupRequest(
                group_id=self.group,
                generation_id=self.generation,
                member_id=self.id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=[SyncGroupRequestAssignment(member.member_id, ASSIGNMENT) for member in joined.members],
            )
            synced = yield from asking(sync, 5, SyncGroupResponse)
            error = Error.of(synced.error_code)
            if error is Error.NONE:
                return
            assert error in AGAIN, error

    def heartbeat(self) -> bytes:
        """A Heartbeat."""
        request = HeartbeatRequest(group_id=self.group, generation_id=self.generation, member_id=self.id)
        return frame_of(request, 4)

    def must_rejoin(self, answer: bytes) -> bool:
        """Whether the answer to a heartbeat asks the member to join again."""
        error = Error.of(answered(answer, 4, HeartbeatResponse).error_code)
        assert error in {Error.NONE, *AGAIN}, error
        return error is not Error.NONE

    def commit(self) -> bytes:
        """An OffsetCommit for one partition."""
        part = OffsetCommitRequestPartition(partition_index=0, committed_offset=42, committed_leader_epoch=0)
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.generation,
            member_id=self.id,
            topics=[OffsetCommitRequestTopic(name=self.topic, partitions=[part])],
        )
        return frame_of(request, 9)

    def reading(self) -> Talk:
        """From nothing to the first record of the topic."""
        yield from finding(self.group, GROUP)
        yield from self.joining()
        yield from first_record(self.group, self.topic, None, -1)


class ConsumerMember:
    """A member of a group of KIP-848."""

    def __init__(self, group: str, topic: str) -> None:
        self.group = group
        self.topic = topic
        self.id = str(uuid4())
        self.epoch = 0
        self.owned: list[ConsumerGroupHeartbeatRequestTopicPartitions] = []
        self._is_reported = False

    @property
    def partitions(self) -> int:
        """How many partitions the member has, and has told so."""
        return sum(len(each.partitions) for each in self.owned) if self._is_reported else 0

    def beat(self) -> Talk:
        """A heartbeat with all fields that are new."""
        is_first = not self.epoch
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.id,
            member_epoch=self.epoch,
            rebalance_timeout_ms=SESSION_MS if is_first else -1,
            subscribed_topic_names=[self.topic] if is_first else None,
            topic_partitions=None if self._is_reported else self.owned,
        )
        answer = yield from asking(request, 1, ConsumerGroupHeartbeatResponse)
        error = Error.of(answer.error_code)
        if error in SOON:
            return
        assert error is Error.NONE, answer
        self.epoch, self._is_reported = answer.member_epoch, True
        if answer.assignment is not None:
            self.owned = [
                ConsumerGroupHeartbeatRequestTopicPartitions(each.topic_id, each.partitions)
                for each in answer.assignment.topic_partitions
            ]
            self._is_reported = False

    def joining(self) -> Talk:
        """Heartbeats until the member has partitions."""
        while not self.owned:
            yield from self.beat()

    def heartbeat(self) -> bytes:
        """A heartbeat without news."""
        request = ConsumerGroupHeartbeatRequest(group_id=self.group, member_id=self.id, member_epoch=self.epoch)
        return frame_of(request, 1)

    def reading(self) -> Talk:
        """From nothing to the first record of the topic."""
        yield from finding(self.group, GROUP)
        yield from self.joining()
        yield from first_record(self.group, self.topic, self.id, self.epoch)


def first_record(group: str, topic: str, member: str | None, epoch: int) -> Talk:
    """The requests of a consumer that has the first partition of a topic, until it has a record."""
    wanted = [OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
    asked = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group, member_id=member, member_epoch=epoch, topics=wanted)],
        require_stable=True,
    )
    committed = yield from asking(asked, 9, OffsetFetchResponse)
    assert not committed.groups[0].error_code, committed
    part = ListOffsetsPartition(partition_index=0, timestamp=EARLIEST)
    begins = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[part])])
    offsets = yield from asking(begins, 8, ListOffsetsResponse)
    [found] = offsets.topics[0].partitions
    answer = yield fetch_frame(topic, 0, found.offset, 1 << 16)
    records = answered(answer, 12, fetch.FetchResponse)
    assert records.responses[0].partitions[0].records, records


class TransactionalProducer:
    """A producer whose every transaction has one record for one partition (transaction version 2)."""

    def __init__(self, name: str, topic: str, partition: int) -> None:
        self._name = name
        self._topic = topic
        self._partition = partition
        self._id = self._epoch = -1

    def starting(self) -> Talk:
        """InitProducerId, once there is a coordinator."""
        yield from finding(self._name, TRANSACTION)
        request = InitProducerIdRequest(transactional_id=self._name, transaction_timeout_ms=SESSION_MS)
        while True:
            answer = yield from asking(request, 5, InitProducerIdResponse)
            error = Error.of(answer.error_code)
            if error is Error.NONE:
                break
            assert error in {*SOON, Error.CONCURRENT_TRANSACTIONS}, error
        self._id, self._epoch = answer.producer_id, answer.producer_epoch

    def transactions(self, count: int) -> Iterable[Talk]:
        """So many, one after the other."""
        return (self._transaction() for _ in range(count))

    def _transaction(self) -> Talk:
        """Produce with acks=all, and commit."""
        batch = write_batch(
            [Record(0, int(1000 * time.time()), 0, None, b"x" * 100, ())],
            epoch=-1,
            transactional=True,
            producer_id=self._id,
            producer_epoch=self._epoch,
            base_sequence=0,
        )
        part = produce.PartitionProduceData(index=self._partition, records=batch)
        request = produce.ProduceRequest(
            transactional_id=self._name,
            acks=ACKS_ALL,
            timeout_ms=TIMEOUT_MS,
            topic_data=[produce.TopicProduceData(name=self._topic, partition_data=[part])],
        )
        while True:
            answer = yield from asking(request, 12, produce.ProduceResponse)
            error = Error.of(answer.responses[0].partition_responses[0].error_code)
            if error is Error.NONE:
                break
            # The markers of the transaction before are on their way.
            assert error is Error.CONCURRENT_TRANSACTIONS, error
        yield from self._ending()

    def consuming(self, member: ClassicMember) -> Talk:
        """A transaction that has an offset of a member's group, and nothing else."""
        part = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=42, committed_leader_epoch=0)
        request = TxnOffsetCommitRequest(
            transactional_id=self._name,
            group_id=member.group,
            producer_id=self._id,
            producer_epoch=self._epoch,
            generation_id_or_member_epoch=member.generation,
            member_id=member.id,
            topics=[TxnOffsetCommitRequestTopic(name=member.topic, partitions=[part])],
        )
        while True:
            answer = yield from asking(request, 5, TxnOffsetCommitResponse)
            error = Error.of(answer.topics[0].partitions[0].error_code)
            if error is Error.NONE:
                break
            assert error is Error.CONCURRENT_TRANSACTIONS, error
        yield from self._ending()

    def _ending(self) -> Talk:
        """Commit."""
        end = EndTxnRequest(
            transactional_id=self._name, producer_id=self._id, producer_epoch=self._epoch, committed=True
        )
        ended = yield from asking(end, 5, EndTxnResponse)
        assert not ended.error_code, Error.of(ended.error_code)
        self._id, self._epoch = ended.producer_id, ended.producer_epoch
