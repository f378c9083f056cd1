"""The answers to requests that a broker of Kafka knows and ours does not serve: share groups, streams groups, telemetry
(Kafka: `KafkaApis`, where the protocol or the feature is off).

No listener advertises these APIs. A client that asks all the same learns that they are not there, as from a broker of
Kafka that has them turned off, and keeps its connection.
"""

from __future__ import annotations

from typing import Any, Final

from kraft.limits import UNSERVED_ENTRIES
from metadata_log.serde import Message
from transport.protocol.errors import Error
from transport.protocol.messages import (
    alter_share_group_offsets,
    delete_share_group_offsets,
    delete_share_group_state,
    describe_share_group_offsets,
    get_telemetry_subscriptions,
    initialize_share_group_state,
    push_telemetry,
    read_share_group_state,
    read_share_group_state_summary,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
    streams_group_describe,
    streams_group_heartbeat,
    write_share_group_state,
)

CODE: Final = Error.UNSUPPORTED_VERSION
_WHOLE: Final[dict[type[Message], type[Any]]] = {
    get_telemetry_subscriptions.GetTelemetrySubscriptionsRequest: (
        get_telemetry_subscriptions.GetTelemetrySubscriptionsResponse
    ),
    push_telemetry.PushTelemetryRequest: push_telemetry.PushTelemetryResponse,
    share_group_heartbeat.ShareGroupHeartbeatRequest: share_group_heartbeat.ShareGroupHeartbeatResponse,
    share_fetch.ShareFetchRequest: share_fetch.ShareFetchResponse,
    share_acknowledge.ShareAcknowledgeRequest: share_acknowledge.ShareAcknowledgeResponse,
    streams_group_heartbeat.StreamsGroupHeartbeatRequest: streams_group_heartbeat.StreamsGroupHeartbeatResponse,
    alter_share_group_offsets.AlterShareGroupOffsetsRequest: (alter_share_group_offsets.AlterShareGroupOffsetsResponse),
    delete_share_group_offsets.DeleteShareGroupOffsetsRequest: (
        delete_share_group_offsets.DeleteShareGroupOffsetsResponse
    ),
}
"""The responses with an error of their own."""
_STATES: Final[dict[type[Message], tuple[type[Any], type[Any], type[Any]]]] = {
    initialize_share_group_state.InitializeShareGroupStateRequest: (
        initialize_share_group_state.InitializeShareGroupStateResponse,
        initialize_share_group_state.InitializeStateResult,
        initialize_share_group_state.PartitionResult,
    ),
    read_share_group_state.ReadShareGroupStateRequest: (
        read_share_group_state.ReadShareGroupStateResponse,
        read_share_group_state.ReadStateResult,
        read_share_group_state.PartitionResult,
    ),
    write_share_group_state.WriteShareGroupStateRequest: (
        write_share_group_state.WriteShareGroupStateResponse,
        write_share_group_state.WriteStateResult,
        write_share_group_state.PartitionResult,
    ),
    delete_share_group_state.DeleteShareGroupStateRequest: (
        delete_share_group_state.DeleteShareGroupStateResponse,
        delete_share_group_state.DeleteStateResult,
        delete_share_group_state.PartitionResult,
    ),
    read_share_group_state_summary.ReadShareGroupStateSummaryRequest: (
        read_share_group_state_summary.ReadShareGroupStateSummaryResponse,
        read_share_group_state_summary.ReadStateSummaryResult,
        read_share_group_state_summary.PartitionResult,
    ),
}
"""The responses with an error for each partition, and of what they are made."""


def refuse_unserved(message: Message) -> Message | None:
    """The answer to a request that brokers of Kafka alone serve; None for any other, and for one that is too large."""
    whole = _WHOLE.get(type(message))
    if whole is not None:
        answer: Message = whole(error_code=CODE)
        return answer
    groups: Any
    match message:
        case share_group_describe.ShareGroupDescribeRequest() if len(message.group_ids) <= UNSERVED_ENTRIES:
            groups = [share_group_describe.DescribedGroup(CODE, None, one) for one in message.group_ids]
            return share_group_describe.ShareGroupDescribeResponse(groups=groups)
        case streams_group_describe.StreamsGroupDescribeRequest() if len(message.group_ids) <= UNSERVED_ENTRIES:
            groups = [streams_group_describe.DescribedGroup(CODE, None, one) for one in message.group_ids]
            return streams_group_describe.StreamsGroupDescribeResponse(groups=groups)
        case describe_share_group_offsets.DescribeShareGroupOffsetsRequest() if len(message.groups) <= UNSERVED_ENTRIES:
            groups = [
                describe_share_group_offsets.DescribeShareGroupOffsetsResponseGroup(one.group_id, error_code=CODE)
                for one in message.groups
            ]
            return describe_share_group_offsets.DescribeShareGroupOffsetsResponse(groups=groups)
    return _refuse_state(message)


def _refuse_state(message: Any) -> Message | None:
    made = _STATES.get(type(message))
    if made is None or sum([1 + len(topic.partitions) for topic in message.topics]) > UNSERVED_ENTRIES:
        return None
    response, result, partition = made
    results = [
        result(topic.topic_id, [partition(one.partition, CODE, CODE.message) for one in topic.partitions])
        for topic in message.topics
    ]
    answer: Message = response(results)
    return answer
