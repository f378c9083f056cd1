"""The answer to a request of a client that fails as a whole (Kafka: `AbstractRequest.getErrorResponse`).

The table of a broker's APIs has the refusals of requests that change nothing. For those that may have changed something
a broker itself never needs one, and a test does: it refuses them before anything happens.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, Final

from kraft.access.errors import ApiError
from kraft.handling.api import Api
from kraft.wire import Answer, WireRequest
from metadata_log.serde import Message
from transport.interface import Request
from transport.protocol.apis import ApiKey
from transport.protocol.errors import Error
from transport.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    delete_records,
    end_txn,
    init_producer_id,
    produce,
    txn_offset_commit,
)


def refusal_of(table: Mapping[int, Api[Any]], request: Request, error: Error) -> Message:
    """The answer with this error.

    Raises:
        ValueError: This API has no answer with an error for a whole request.
    """
    if request.api_key in _CHANGING:
        return _CHANGING[ApiKey(request.api_key)](request.message, error)
    refuse = table[request.api_key].refuse
    if refuse is None:
        raise ValueError(f"requests of {ApiKey(request.api_key).name} cannot be refused")
    wire = WireRequest(
        request_id=0,
        api_key=request.api_key,
        version=request.version,
        message=request.message,
        listener=request.listener,
        client_id=request.client_id,
        peer=request.peer,
        principal=request.principal,
    )
    answer = refuse(wire, ApiError(error))
    while isinstance(answer, Generator):
        try:
            next(answer)
        except StopIteration as done:
            answer = done.value
    assert isinstance(answer, Answer), answer
    return answer.message


def can_be_refused(table: Mapping[int, Api[Any]], api: int) -> bool:
    """Whether requests of an API have an answer with an error."""
    return api in _CHANGING or (api in table and table[api].refuse is not None)


def _produce(message: Any, error: Error) -> Message:
    return produce.ProduceResponse(
        responses=[
            produce.TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    produce.PartitionProduceResponse(index=one.index, error_code=error, base_offset=-1)
                    for one in topic.partition_data
                ],
            )
            for topic in message.topic_data
        ]
    )


def _delete_records(message: Any, error: Error) -> Message:
    return delete_records.DeleteRecordsResponse(
        topics=[
            delete_records.DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    delete_records.DeleteRecordsPartitionResult(one.partition_index, -1, error)
                    for one in topic.partitions
                ],
            )
            for topic in message.topics
        ]
    )


def _add_partitions(message: Any, error: Error) -> Message:
    def results(topics: Any) -> list[add_partitions_to_txn.AddPartitionsToTxnTopicResult]:
        return [
            add_partitions_to_txn.AddPartitionsToTxnTopicResult(
                topic.name,
                [add_partitions_to_txn.AddPartitionsToTxnPartitionResult(one, error) for one in topic.partitions],
            )
            for topic in topics
        ]

    return add_partitions_to_txn.AddPartitionsToTxnResponse(
        results_by_transaction=[
            add_partitions_to_txn.AddPartitionsToTxnResult(one.transactional_id, results(one.topics))
            for one in message.transactions
        ],
        results_by_topic_v3_and_below=results(message.v3_and_below_topics),
    )


def _txn_offset_commit(message: Any, error: Error) -> Message:
    return txn_offset_commit.TxnOffsetCommitResponse(
        topics=[
            txn_offset_commit.TxnOffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    txn_offset_commit.TxnOffsetCommitResponsePartition(one.partition_index, error)
                    for one in topic.partitions
                ],
            )
            for topic in message.topics
        ]
    )


_CHANGING: Final[Mapping[ApiKey, Callable[[Any, Error], Message]]] = {
    ApiKey.PRODUCE: _produce,
    ApiKey.DELETE_RECORDS: _delete_records,
    ApiKey.INIT_PRODUCER_ID: lambda _, error: init_producer_id.InitProducerIdResponse(error_code=error),
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions,
    ApiKey.ADD_OFFSETS_TO_TXN: lambda _, error: add_offsets_to_txn.AddOffsetsToTxnResponse(error_code=error),
    ApiKey.TXN_OFFSET_COMMIT: _txn_offset_commit,
    ApiKey.END_TXN: lambda _, error: end_txn.EndTxnResponse(error_code=error),
}
