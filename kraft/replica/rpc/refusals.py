"""The quorum's error responses to unauthorized clients (Kafka: `FetchRequest.getErrorResponse` and the like)."""

from __future__ import annotations

from typing import Final

from kraft.access.errors import ApiError
from kraft.replica.rpc import voter_rpc
from kraft.wire import WireRequest
from metadata_log.serde import Message
from metadata_log.types import NO_OFFSET
from transport.protocol.errors import Error
from transport.protocol.messages import (
    AddRaftVoterRequest,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RemoveRaftVoterRequest,
    UpdateRaftVoterRequest,
    VoteRequest,
    VoteResponse,
    fetch,
)

_TOP_LEVEL_SINCE: Final = 13
"""From this Fetch version on, clients read the top-level error of the response, and need no partitions in it."""


def refuse_quorum_request(request: WireRequest, refused: ApiError) -> Message:
    """The answer to a request of the quorum that fails as a whole."""
    error = refused.error
    match request.message:
        case fetch.FetchRequest() as message:
            asked = message.topics if request.version < _TOP_LEVEL_SINCE else []
            topics = [_refused_topic(topic, error) for topic in asked]
            return fetch.FetchResponse(error_code=error, session_id=message.session_id, responses=topics)
        case VoteRequest():
            return VoteResponse(error_code=error)
        case BeginQuorumEpochRequest():
            return BeginQuorumEpochResponse(error_code=error)
        case EndQuorumEpochRequest():
            return EndQuorumEpochResponse(error_code=error)
        case FetchSnapshotRequest():
            return FetchSnapshotResponse(error_code=error)
        case DescribeQuorumRequest():
            return DescribeQuorumResponse(error_code=error, error_message=error.message)
        case AddRaftVoterRequest() | RemoveRaftVoterRequest() | UpdateRaftVoterRequest() as message:
            return voter_rpc.refused(message, error)
        case other:
            raise AssertionError(f"{type(other).__name__} is no request of the quorum")


def _refused_topic(topic: fetch.FetchTopic, error: Error) -> fetch.FetchableTopicResponse:
    partitions = [
        fetch.PartitionData(partition_index=one.partition, error_code=error, high_watermark=NO_OFFSET, records=b"")
        for one in topic.partitions
    ]
    return fetch.FetchableTopicResponse(topic=topic.topic, partitions=partitions)
