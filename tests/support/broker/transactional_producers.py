"""Transactional producers at brokers that coordinate, in virtual time, and what is to be seen of their transactions."""

from __future__ import annotations

from typing import Any

from kraft.partitions.log.producers import marker_of
from kraft.partitions.replicas.key import PartitionKey
from metadata_log.records.batch import scan
from metadata_log.records.batch_builder import write_batch
from metadata_log.records.metadata import PartitionChangeRecord
from metadata_log.records.record import Record, records
from support.broker.coordinated_brokers import GROUPS, IN, OUT, START_MS, STATE, Coordinated
from support.broker.request_brokers import fetch, only_partition
from transport.protocol.errors import Error
from transport.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from transport.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from transport.protocol.messages.describe_transactions import DescribeTransactionsRequest
from transport.protocol.messages.end_txn import EndTxnRequest
from transport.protocol.messages.init_producer_id import InitProducerIdRequest
from transport.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from transport.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from transport.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

NAME = "mover"
READ_COMMITTED = 1
FIRST, NEXT = 101, 102
"""The coordinator, and the one after it."""


class Producer:
    """A producer of version 2, at brokers in virtual time."""

    produce_version, commit_version, end_version = 13, 5, 5

    def __init__(self, cluster: Coordinated, coordinator: int = FIRST, timeout_ms: int = 60_000) -> None:
        self.cluster = cluster
        self.coordinator = coordinator
        self.timeout_ms = timeout_ms
        self.sequences: dict[int, int] = {}
        for _ in range(2):
            found = self.initialize()
        assert found.error_code == Error.NONE, found
        self.id, self.epoch = found.producer_id, found.producer_epoch

    def initialize(self, producer_id: int = -1, epoch: int = -1) -> Any:
        request = InitProducerIdRequest(NAME, self.timeout_ms, producer_id, epoch)
        return self.cluster.ask(self.coordinator, request, 5)

    def produce(self, number: int, value: bytes) -> Error:
        sequence = self.sequences.get(number, 0)
        data = write_batch(
            [Record(0, START_MS, 0, None, value)],
            epoch=-1,
            transactional=True,
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
        )
        topic = TopicProduceData(name="out", topic_id=OUT, partition_data=[PartitionProduceData(number, data)])
        request = ProduceRequest(transactional_id=NAME, acks=-1, timeout_ms=5000, topic_data=[topic])
        leader = self.cluster.brokers.image.topics.by_id[OUT].partitions[number].leader
        error = Error(only_partition(self.cluster.ask(leader, request, self.produce_version)).error_code)
        if error is Error.NONE:
            self.sequences[number] = sequence + 1
        return error

    def commit_offset(self, offset: int) -> Error:
        topic = TxnOffsetCommitRequestTopic("in", partitions=[TxnOffsetCommitRequestPartition(0, offset)])
        request = TxnOffsetCommitRequest(NAME, "g", self.id, self.epoch, topics=[topic])
        answer = self.cluster.ask(group_coordinator(self.cluster), request, self.commit_version)
        return Error(answer.topics[0].partitions[0].error_code)

    def end(self, *, commit: bool, markers: bool = True) -> Error:
        request = EndTxnRequest(NAME, self.id, self.epoch, commit)
        answer = self.cluster.ask(self.coordinator, request, self.end_version, markers=markers)
        if answer.error_code == Error.NONE:
            self._keep(answer)
        return Error(answer.error_code)

    def _keep(self, answer: Any) -> None:
        self.id, self.epoch, self.sequences = answer.producer_id, answer.producer_epoch, {}


class OlderProducer(Producer):
    """A producer below version 2: it names its partitions and groups first, and keeps its epoch."""

    produce_version, commit_version, end_version = 11, 4, 4

    def produce(self, number: int, value: bytes) -> Error:
        topic = AddPartitionsToTxnTopic("out", [number])
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=NAME,
            v3_and_below_producer_id=self.id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[topic],
        )
        answer = self.cluster.ask(self.coordinator, request, 3)
        error = Error(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)
        return error if error is not Error.NONE else super().produce(number, value)

    def commit_offset(self, offset: int) -> Error:
        request = AddOffsetsToTxnRequest(NAME, self.id, self.epoch, "g")
        error = Error(self.cluster.ask(self.coordinator, request, 3).error_code)
        return error if error is not Error.NONE else super().commit_offset(offset)

    def _keep(self, answer: Any) -> None:
        """The epoch stays, and the sequences go on."""


def group_coordinator(cluster: Coordinated) -> int:
    runtime = cluster.brokers.requests[101].groups
    leader: int = cluster.brokers.image.topics.by_id[GROUPS].partitions[runtime.number_of("g")].leader
    return leader


def committed(cluster: Coordinated, number: int) -> list[bytes]:
    """The committed records of a partition of `out`, as a reader gets them."""
    leader = cluster.brokers.image.topics.by_id[OUT].partitions[number].leader
    key: PartitionKey = OUT, number
    data = only_partition(cluster.brokers.ask(leader, fetch((key, 0), isolation_level=READ_COMMITTED)))
    aborted = sorted((one.first_offset, one.producer_id) for one in data.aborted_transactions or ())
    found, ignored = list[bytes](), set[int]()
    for batch in scan(data.records or b""):
        while aborted and aborted[0][0] <= batch.base_offset:
            ignored.add(aborted.pop(0)[1])
        if batch.is_control:
            ignored.discard(batch.producer_id)
        elif batch.producer_id not in ignored:
            found += [one.value or b"" for one in records(batch)]
    return found


def markers(cluster: Coordinated, number: int) -> list[tuple[int, int, bool]]:
    """The markers in a partition: the epochs of producer and coordinator, and whether the transaction is aborted."""
    part = cluster.brokers.part(cluster.brokers.image.topics.by_id[OUT].partitions[number].leader, (OUT, number))
    data = part.log.read(0, 1 << 20)
    assert isinstance(data, bytes), data
    found = []
    for batch in scan(data):
        marker = marker_of(batch) if batch.is_control else None
        if marker is not None:
            found.append((batch.producer_epoch, marker.coordinator_epoch, marker.is_abort))
    return found


def state_of(cluster: Coordinated, coordinator: int) -> Any:
    answer = cluster.ask(coordinator, DescribeTransactionsRequest([NAME]), 0, markers=False)
    return answer.transaction_states[0]


def offset_of(cluster: Coordinated) -> tuple[Error, int]:
    """The offset of the group, as a consumer asks that waits for transactions."""
    topic = OffsetFetchRequestTopics("in", partition_indexes=[0])
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=[topic])], require_stable=True)
    answer = cluster.ask(group_coordinator(cluster), request, 9)
    part = answer.groups[0].topics[0].partitions[0]
    return Error(part.error_code), part.committed_offset


def fail_over(cluster: Coordinated) -> None:
    """The coordinator dies; the other replica leads in the next epoch."""
    cluster.dead.add(FIRST)
    moved = [PartitionChangeRecord(partition_id=0, topic_id=STATE, isr=(NEXT,), leader=NEXT)]
    topics = cluster.brokers.image.topics
    for topic_id in (GROUPS, OUT, IN):
        for number, part in enumerate(topics.by_id[topic_id].partitions):
            rest = tuple(one for one in part.isr if one != FIRST)
            if FIRST in part.isr and rest:
                moved.append(PartitionChangeRecord(partition_id=number, topic_id=topic_id, isr=rest, leader=rest[0]))
    cluster.brokers.change(*moved)
    cluster.settle()
