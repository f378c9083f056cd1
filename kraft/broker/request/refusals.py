"""The answer to a data request that fails as a whole (Kafka: `AbstractRequest.getErrorResponse`)."""

from __future__ import annotations

from kraft.wire import Answer, Drop, WireRequest
from metadata_log.serde import Message
from transport.protocol.errors import Error
from transport.protocol.messages import (
    describe_log_dirs,
    describe_producers,
    fetch,
    list_offsets,
    offset_for_leader_epoch,
)

FETCH_ERROR_SINCE = 7
"""The first version of Fetch with an error for the whole answer."""


def refused(asked: WireRequest, error: Error) -> Answer | Drop:
    """The answer with an error for all that the request names; without a form for that, the connection is closed."""
    found = _response(asked, error)
    if found is None:
        return Drop(asked.request_id, f"{type(asked.message).__name__} has failed: {error.name}")
    return Answer(asked.request_id, found)


def _response(asked: WireRequest, error: Error) -> Message | None:
    match asked.message:
        case list_offsets.ListOffsetsRequest(topics=topics):
            return list_offsets.ListOffsetsResponse(
                topics=[
                    list_offsets.ListOffsetsTopicResponse(
                        name=topic.name,
                        partitions=[
                            list_offsets.ListOffsetsPartitionResponse(
                                partition_index=one.partition_index, error_code=error
                            )
                            for one in topic.partitions
                        ],
                    )
                    for topic in topics
                ]
            )
        case offset_for_leader_epoch.OffsetForLeaderEpochRequest(topics=asked_topics):
            return offset_for_leader_epoch.OffsetForLeaderEpochResponse(
                topics=[
                    offset_for_leader_epoch.OffsetForLeaderTopicResult(
                        topic=topic.topic,
                        partitions=[
                            offset_for_leader_epoch.EpochEndOffset(error, one.partition) for one in topic.partitions
                        ],
                    )
                    for topic in asked_topics
                ]
            )
        case describe_producers.DescribeProducersRequest(topics=described):
            return describe_producers.DescribeProducersResponse(
                topics=[
                    describe_producers.TopicResponse(
                        name=topic.name,
                        partitions=[
                            describe_producers.PartitionResponse(partition_index=number, error_code=error)
                            for number in topic.partition_indexes
                        ],
                    )
                    for topic in described
                ]
            )
        case describe_log_dirs.DescribeLogDirsRequest():
            return describe_log_dirs.DescribeLogDirsResponse(error_code=error)
        case fetch.FetchRequest() if asked.version >= FETCH_ERROR_SINCE:
            return fetch.FetchResponse(error_code=error)
    return None
