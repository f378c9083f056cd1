"""The answers to data requests that fail as a whole (Kafka: `AbstractRequest.getErrorResponse`)."""

from __future__ import annotations

from kraft.access.errors import ApiError
from kraft.wire import Answer, WireRequest
from transport.protocol.messages import describe_log_dirs, describe_producers, list_offsets, offset_for_leader_epoch


def refuse_list_offsets(request: WireRequest, refused: ApiError) -> Answer:
    """ListOffsets with an error for each partition."""
    message = request.message
    assert isinstance(message, list_offsets.ListOffsetsRequest), message
    topics = [
        list_offsets.ListOffsetsTopicResponse(
            name=topic.name,
            partitions=[
                list_offsets.ListOffsetsPartitionResponse(partition_index=one.partition_index, error_code=refused.error)
                for one in topic.partitions
            ],
        )
        for topic in message.topics
    ]
    return Answer(request.request_id, list_offsets.ListOffsetsResponse(topics=topics))


def refuse_epoch_ends(request: WireRequest, refused: ApiError) -> Answer:
    """OffsetForLeaderEpoch with an error for each partition."""
    message = request.message
    assert isinstance(message, offset_for_leader_epoch.OffsetForLeaderEpochRequest), message
    topics = [
        offset_for_leader_epoch.OffsetForLeaderTopicResult(
            topic=topic.topic,
            partitions=[
                offset_for_leader_epoch.EpochEndOffset(refused.error, one.partition) for one in topic.partitions
            ],
        )
        for topic in message.topics
    ]
    return Answer(request.request_id, offset_for_leader_epoch.OffsetForLeaderEpochResponse(topics=topics))


def refuse_producers(request: WireRequest, refused: ApiError) -> Answer:
    """DescribeProducers with an error for each partition."""
    message = request.message
    assert isinstance(message, describe_producers.DescribeProducersRequest), message
    topics = [
        describe_producers.TopicResponse(
            name=topic.name,
            partitions=[
                describe_producers.PartitionResponse(partition_index=number, error_code=refused.error)
                for number in topic.partition_indexes
            ],
        )
        for topic in message.topics
    ]
    return Answer(request.request_id, describe_producers.DescribeProducersResponse(topics=topics))


def refuse_log_dirs(request: WireRequest, refused: ApiError) -> Answer:
    """DescribeLogDirs with an error."""
    return Answer(request.request_id, describe_log_dirs.DescribeLogDirsResponse(error_code=refused.error))
