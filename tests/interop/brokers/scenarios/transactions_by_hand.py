"""Producers of transactions by hand, and what readers of committed records see of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from metadata_log.records.record import records
from support.interop.real_kafka import eventually
from support.scenarios.coordinator_client import coordinate
from support.scenarios.scenario_client import batch
from support.scenarios.scenario_cluster import SECONDS, Cluster, Topic
from transport.protocol.errors import Error
from transport.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from transport.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from transport.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from transport.protocol.messages.fetch import PartitionData
from transport.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from transport.protocol.messages.produce import PartitionProduceResponse
from transport.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

COMMITTED: Final = 1
"""The isolation level of a reader of committed records."""
TV1, TV2 = 1, 2
PRODUCE_VERSION: Final = {TV1: 11, TV2: 13}
END_VERSION: Final = {TV1: 4, TV2: 5}
COMMIT_VERSION: Final = {TV1: 4, TV2: 5}
NOBODY: Final = (-1, -1)
AGAIN: Final = {
    Error.CONCURRENT_TRANSACTIONS,
    Error.NOT_ENOUGH_REPLICAS,
    Error.NOT_LEADER_OR_FOLLOWER,
    Error.COORDINATOR_LOAD_IN_PROGRESS,
    Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_COORDINATOR,
}
"""What a producer answers with the same request, sent again."""


class Producer:
    """A producer with a transactional id, in transactions of one version.

    Args:
        cluster: Where the producer is.
        name: The transactional id.
        version: The version of the transactions.
        timeout_ms: After this time the coordinator aborts a transaction.
    """

    def __init__(self, cluster: Cluster, name: str, version: int, timeout_ms: int = 600_000) -> None:
        self._cluster = cluster
        self.name = name
        self.version = version
        self.timeout_ms = timeout_ms
        self.sequences: dict[str, int] = {}
        self.identity = NOBODY
        self.init()

    def init(self, identity: tuple[int, int] = NOBODY) -> None:
        """Get a producer id with its epoch, as a client that begins, or as one that goes on after an error."""
        answers: list[InitProducerIdResponse] = []

        def is_given() -> bool:
            answers.append(self.init_once(identity))
            assert answers[-1].error_code in {Error.NONE, *AGAIN}, Error.of(answers[-1].error_code)
            return answers[-1].error_code == Error.NONE

        eventually(is_given, f"{self.name} has a producer id", SECONDS)
        self.identity = answers[-1].producer_id, answers[-1].producer_epoch
        self.sequences.clear()

    def init_once(self, identity: tuple[int, int] = NOBODY, version: int = 5) -> InitProducerIdResponse:
        """The answer of the coordinator to InitProducerId."""
        request = InitProducerIdRequest(
            transactional_id=self.name,
            transaction_timeout_ms=self.timeout_ms,
            producer_id=identity[0],
            producer_epoch=identity[1],
        )
        return coordinate(
            self._cluster, self.name, request, version, InitProducerIdResponse, lambda answer: [answer.error_code]
        )

    def add(self, topic: Topic) -> None:
        """Add a partition to the transaction, as producers of version 1 do."""
        _until_taken(lambda: self.add_once(topic), f"{topic.name} is in the transaction of {self.name}")

    def add_once(self, topic: Topic) -> Error:
        """The answer of the coordinator to a partition."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.identity[0],
            v3_and_below_producer_epoch=self.identity[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(topic.name, [0])],
        )

        def errors(answer: AddPartitionsToTxnResponse) -> list[int]:
            [result] = answer.results_by_topic_v3_and_below[0].results_by_partition
            return [result.partition_error_code]

        answer = coordinate(self._cluster, self.name, request, 3, AddPartitionsToTxnResponse, errors)
        return Error.of(errors(answer)[0])

    def offer(self, topic: Topic, value: bytes, version: int | None = None) -> PartitionProduceResponse:
        """The answer of the leader to the next record in a version of Produce."""
        data = batch(value, producer=self.identity, sequence=self.sequences.get(topic.name, 0), transactional=True)
        leader = self._cluster.leader(topic)
        version = PRODUCE_VERSION[self.version] if version is None else version
        return self._cluster.produce(leader, topic, data, version=version, transactional_id=self.name)

    def send(self, topic: Topic, value: bytes) -> int:
        """Produce a record within the transaction; returns its offset."""
        if self.version == TV1:
            self.add(topic)
        answers: list[PartitionProduceResponse] = []

        def is_taken() -> bool:
            try:
                answers.append(self.offer(topic, value))
            except OSError:
                return False
            assert answers[-1].error_code in {Error.NONE, *AGAIN}, Error.of(answers[-1].error_code)
            return answers[-1].error_code == Error.NONE

        eventually(is_taken, f"a record of {self.name} is taken", SECONDS)
        self.sequences[topic.name] = self.sequences.get(topic.name, 0) + 1
        return answers[-1].base_offset

    def commit_offset(self, group: str, topic: Topic, offset: int) -> None:
        """Put the offset of a group into the transaction."""
        if self.version == TV1:
            _until_taken(lambda: self.add_group_once(group), f"{group} is in the transaction of {self.name}")
        _until_taken(lambda: self.commit_offset_once(group, topic, offset), f"an offset of {group} is taken")

    def add_group_once(self, group: str) -> Error:
        """The answer of the coordinator of transactions to a group, as producers of version 1 name it."""
        request = AddOffsetsToTxnRequest(self.name, self.identity[0], self.identity[1], group)
        answer = coordinate(
            self._cluster, self.name, request, 4, AddOffsetsToTxnResponse, lambda answer: [answer.error_code]
        )
        return Error.of(answer.error_code)

    def commit_offset_once(self, group: str, topic: Topic, offset: int) -> Error:
        """The answer of the coordinator of the group to an offset."""
        named = TxnOffsetCommitRequestTopic(topic.name, partitions=[TxnOffsetCommitRequestPartition(0, offset)])
        request = TxnOffsetCommitRequest(self.name, group, *self.identity, topics=[named])

        def errors(answer: TxnOffsetCommitResponse) -> list[int]:
            return [answer.topics[0].partitions[0].error_code]

        answer = coordinate(
            self._cluster, group, request, COMMIT_VERSION[self.version], TxnOffsetCommitResponse, errors
        )
        return Error.of(errors(answer)[0])

    def end(self, *, commits: bool) -> None:
        """Commit or abort; version 2 raises the epoch of the producer."""
        answers: list[EndTxnResponse] = []

        def is_ended() -> bool:
            answers.append(self.end_once(commits=commits))
            assert answers[-1].error_code in {Error.NONE, *AGAIN}, Error.of(answers[-1].error_code)
            return answers[-1].error_code == Error.NONE

        eventually(is_ended, f"a transaction of {self.name} ends", SECONDS)
        if self.version == TV2:
            self.identity = answers[-1].producer_id, answers[-1].producer_epoch
            self.sequences.clear()

    def end_once(self, *, commits: bool, identity: tuple[int, int] | None = None) -> EndTxnResponse:
        """The answer of the coordinator to EndTxn."""
        request = EndTxnRequest(self.name, *(identity or self.identity), committed=commits)
        return coordinate(
            self._cluster,
            self.name,
            request,
            END_VERSION[self.version],
            EndTxnResponse,
            lambda answer: [answer.error_code],
        )


def _until_taken(ask: Callable[[], Error], what: str) -> None:
    """Ask until the answer is no error; fails at one that a producer does not repeat."""

    def is_taken() -> bool:
        error = ask()
        assert error in {Error.NONE, *AGAIN}, error
        return error == Error.NONE

    eventually(is_taken, what, SECONDS)


def read(cluster: Cluster, topic: Topic, offset: int = 0) -> PartitionData:
    """The leader's answer to a reader of committed records."""
    return cluster.fetch(cluster.leader(topic), topic, offset, isolation_level=COMMITTED)


def wait_until_stable(cluster: Cluster, topic: Topic, offset: int) -> None:
    """Wait until the last stable offset is here: markers follow the end of a transaction."""
    eventually(
        lambda: read(cluster, topic).last_stable_offset == offset, f"{topic.name} is stable to {offset}", SECONDS
    )


def committed(cluster: Cluster, topic: Topic) -> list[bytes | None]:
    """The values for a reader of committed records: no marker, and nothing of an aborted transaction."""
    found = read(cluster, topic)
    aborted = sorted((one.first_offset, one.producer_id) for one in found.aborted_transactions or [])
    values: list[bytes | None] = []
    open_now: set[int] = set()
    for one in cluster.batches(topic.replicas[0], topic):
        if one.base_offset >= found.last_stable_offset:
            break
        while aborted and aborted[0][0] <= one.last_offset:
            open_now.add(aborted.pop(0)[1])
        if one.is_control:
            open_now.discard(one.producer_id)
        elif not (one.is_transactional and one.producer_id in open_now):
            values += [each.value for each in records(one)]
    return values
