"""Transactions as an administrator sees and ends them (Kafka: `TransactionsCommand`)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from msgspec import Struct

from kraft.client.groups import by_topic
from kraft.client.questions import NOT_LEADING, ClusterView, Questions, TopicPartition
from kraft.client.state.coordinators import KeyType
from kraft.client.state.errors import refused
from metadata_log.types import NO_NODE
from transport.protocol.errors import Error
from transport.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
    TopicRequest,
)
from transport.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from transport.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from transport.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

NO_TRANSACTION: Final = -1
"""The first offset of a producer without an open transaction."""
STATES: Final = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)
"""The states of transactional ids (Kafka: `TransactionState`)."""
_ANY: Final = -1


class ListedTransaction(Struct, frozen=True):
    """A transactional id at its coordinator."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


class OpenTransaction(Struct, frozen=True):
    """A transaction that a partition has open."""

    topic: str
    partition: int
    producer: ProducerState


class Search(Struct, frozen=True):
    """The findings of a search for hanging transactions, and where it has looked."""

    hanging: tuple[OpenTransaction, ...]
    checked: int
    """How many partitions were looked at."""
    unchecked: tuple[TopicPartition, ...]
    """The partitions of which no leader has answered in time."""


async def list_transactions(
    ask: Questions,
    *,
    states: Sequence[str] = (),
    producer_ids: Sequence[int] = (),
    older_than_ms: int = _ANY,
) -> tuple[ListedTransaction, ...]:
    """The transactional ids of all coordinators, by name.

    Raises:
        ClientError: A broker did not answer in time, or refused.
    """
    request = ListTransactionsRequest(
        state_filters=list(states), producer_id_filters=list(producer_ids), duration_filter=older_than_ms
    )
    answers = await ask.ask_brokers(request, ListTransactionsResponse, lambda answer: Error.of(answer.error_code))
    listed: list[ListedTransaction] = []
    for broker, answer in answers.items():
        if answer.error_code:
            raise refused(f"the transactions of broker {broker}", Error.of(answer.error_code))
        listed += [
            ListedTransaction(one.transactional_id, broker, one.producer_id, one.transaction_state)
            for one in answer.transaction_states
        ]
    return tuple(sorted(listed, key=lambda one: one.transactional_id))


async def describe_transaction(ask: Questions, transactional_id: str) -> TransactionState | None:
    """A transactional id as its coordinator has it; None if the coordinator does not know it.

    Raises:
        ClientError: The coordinator did not answer in time, or refused.
    """
    answer = await ask.ask_coordinator(
        KeyType.TRANSACTION,
        transactional_id,
        DescribeTransactionsRequest(transactional_ids=[transactional_id]),
        DescribeTransactionsResponse,
        lambda answer: [one.error_code for one in answer.transaction_states],
    )
    [one] = answer.transaction_states
    error = Error.of(one.error_code)
    if error is Error.TRANSACTIONAL_ID_NOT_FOUND:
        return None
    if error is not Error.NONE:
        raise refused(f"transactional id {transactional_id}", error)
    return one


async def describe_producers(
    ask: Questions, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, tuple[Error, list[ProducerState]]]:
    """The producers that the leader of each partition remembers."""

    def message(own: Sequence[TopicPartition]) -> DescribeProducersRequest:
        return DescribeProducersRequest(
            topics=[TopicRequest(topic, sorted(numbers)) for topic, numbers in by_topic(own).items()]
        )

    results = await ask.ask_leaders(partitions, message, DescribeProducersResponse, _producers)
    return {one: (error, producers or []) for one, (error, producers) in results.items()}


def _producers(answer: DescribeProducersResponse) -> Iterable[tuple[TopicPartition, int, list[ProducerState]]]:
    for topic in answer.topics:
        for one in topic.partitions:
            yield (topic.name, one.partition_index), one.error_code, one.active_producers


def partitions_led_by(view: ClusterView, broker: int | None) -> list[TopicPartition]:
    """The partitions that have a leader, or those of one leader."""
    return [one for one, leader in _leaders(view) if leader != NO_NODE and broker in {None, leader}]


def partitions_without_leader(view: ClusterView) -> list[TopicPartition]:
    """The partitions that nobody leads, so that nobody can say which transactions they have open."""
    return [one for one, leader in _leaders(view) if leader == NO_NODE]


def _leaders(view: ClusterView) -> Iterator[tuple[TopicPartition, int]]:
    for topic in view.topics.values():
        for number, one in topic.partitions.items():
            yield (topic.name, number), one.leader


async def find_hanging(ask: Questions, partitions: Collection[TopicPartition], older_than_ms: int) -> Search:
    """The transactions that are open in a partition for longer than any can be, and not at a coordinator.

    Raises:
        ClientError: A broker did not answer in time, or refused.
    """
    described = sorted((await describe_producers(ask, partitions)).items())
    for (topic, number), (error, _) in described:
        # What was deleted has no transaction.
        if error not in NOT_LEADING and error not in (Error.NONE, Error.UNKNOWN_TOPIC_OR_PARTITION):
            raise refused(f"the producers of {topic}-{number}", error)
    old = [
        OpenTransaction(*one, producer)
        for one, (_, producers) in described
        for producer in producers
        if producer.current_txn_start_offset != NO_TRANSACTION and ask.now_ms - producer.last_timestamp > older_than_ms
    ]
    silent = tuple(one for one, (error, _) in described if error in NOT_LEADING)
    checked = len(described) - len(silent)
    if not old:
        return Search((), checked, silent)
    listed = await list_transactions(ask, producer_ids=sorted({one.producer.producer_id for one in old}))
    known: dict[int, TransactionState] = {}
    for each in listed:
        if (transaction := await describe_transaction(ask, each.transactional_id)) is not None:
            known[transaction.producer_id] = transaction
    hanging = tuple(one for one in old if not _is_at_its_coordinator(one, known.get(one.producer.producer_id)))
    return Search(hanging, checked, silent)


def _is_at_its_coordinator(one: OpenTransaction, state: TransactionState | None) -> bool:
    """Whether the coordinator will end this transaction: it knows the partition and the epoch is not an older one."""
    if state is None or state.producer_epoch > one.producer.producer_epoch:
        return False
    return any(topic.topic == one.topic and one.partition in topic.partitions for topic in state.topics)


async def abort_transaction(
    ask: Questions, partition: TopicPartition, producer_id: int, epoch: int, coordinator_epoch: int
) -> Error:
    """Write the abort marker of a hanging transaction into a partition; returns the error of the leader.

    Raises:
        ClientError: No leader answered in time.
    """
    topic, number = partition
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(topic, [number])],
        coordinator_epoch=coordinator_epoch,
    )

    def results(answer: WriteTxnMarkersResponse) -> Iterable[tuple[TopicPartition, int, None]]:
        for each in answer.markers:
            for of_topic in each.topics:
                for one in of_topic.partitions:
                    yield (of_topic.name, one.partition_index), one.error_code, None

    request = WriteTxnMarkersRequest(markers=[marker])
    outcomes = await ask.ask_leaders([partition], lambda own: request, WriteTxnMarkersResponse, results)
    return outcomes[partition][0]
