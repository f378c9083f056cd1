"""DescribeQuorum between wire and flat form (Kafka: `DescribeQuorumRequest`; KIP-595, KIP-853), and DescribeCluster
where no controller answers it.
"""

from __future__ import annotations

from typing import Final

from kraft.access.endpoint_types import CONTROLLERS, refuse_others
from kraft.quorum.messages import DescribeQuorum, DescribeQuorumReply, ReplicaProgress
from kraft.quorum.voters import VoterSet
from kraft.replica.rpc.rpc_parts import only_partition
from kraft.wire import WireRequest
from metadata_log.serde import Message
from metadata_log.types import METADATA_PARTITION, METADATA_TOPIC, Uuid
from transport.protocol.errors import Error
from transport.protocol.messages import describe_quorum as describe_wire
from transport.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

_TEXTS: Final = {
    Error.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
    Error.NOT_LEADER_OR_FOLLOWER: (
        "For requests intended only for the leader, this error indicates that the broker is not the current leader. "
        "For requests intended for any replica, this error indicates that the broker is not a replica of the topic "
        "partition."
    ),
}
"""The text that Kafka's tools print if the quorum is not described."""


def request_from_wire(message: describe_wire.DescribeQuorumRequest) -> DescribeQuorum | Message:
    """The flat form, or the answer to a request about something else."""
    if only_partition(message.topics) is not None:
        return DescribeQuorum()
    error = Error.UNKNOWN_TOPIC_OR_PARTITION
    topics = [
        describe_wire.DescribeQuorumResponseTopicData(
            topic_name=topic.topic_name,
            partitions=[
                describe_wire.DescribeQuorumResponsePartitionData(
                    partition_index=part.partition_index, error_code=error, error_message=_TEXTS[error]
                )
                for part in topic.partitions
            ],
        )
        for topic in message.topics
    ]
    return describe_wire.DescribeQuorumResponse(topics=topics)


def reply_to_wire(request: WireRequest, reply: DescribeQuorumReply) -> Message:
    """The answer; directory ids and nodes since version 2."""
    with_directories = request.version >= 2
    if reply.error != Error.NONE:
        part = describe_wire.DescribeQuorumResponsePartitionData(
            partition_index=METADATA_PARTITION,
            error_code=reply.error,
            error_message=_TEXTS.get(reply.error, reply.error.message),
        )
    else:
        part = describe_wire.DescribeQuorumResponsePartitionData(
            partition_index=METADATA_PARTITION,
            leader_id=reply.leader_id,
            leader_epoch=reply.epoch,
            high_watermark=reply.high_watermark,
            current_voters=[_progress_to_wire(one, with_directories) for one in reply.voters],
            observers=[_progress_to_wire(one, with_directories) for one in reply.observers],
        )
    nodes = [
        describe_wire.Node(
            node_id=node_id,
            listeners=[
                describe_wire.Listener(name=one.name, host=one.host, port=one.port) for one in endpoints.listeners
            ],
        )
        for node_id, endpoints in reply.nodes
    ]
    return describe_wire.DescribeQuorumResponse(
        topics=[describe_wire.DescribeQuorumResponseTopicData(topic_name=METADATA_TOPIC, partitions=[part])],
        nodes=nodes if with_directories else [],
    )


def describe_cluster(
    request: DescribeClusterRequest, *, version: int, listener: str, cluster_id: str, leader_id: int, voters: VoterSet
) -> DescribeClusterResponse:
    """The voters at the listener of a request, from a node without metadata: one with a raw log or a state machine.

    So tools find the leader of an embedded quorum, and nodes that join it learn its cluster id (KIP-919).
    """
    if (refusal := refuse_others(request, version, CONTROLLERS)) is not None:
        return refusal
    return DescribeClusterResponse(
        endpoint_type=request.endpoint_type,
        cluster_id=cluster_id,
        controller_id=leader_id,
        brokers=[
            DescribeClusterBroker(broker_id=voter.id, host=address.host, port=address.port)
            for voter in voters.voters
            if (address := voter.endpoints.at(listener)) is not None
        ],
    )


def _progress_to_wire(one: ReplicaProgress, with_directory: bool) -> describe_wire.ReplicaState:
    return describe_wire.ReplicaState(
        replica_id=one.key.id,
        replica_directory_id=one.key.directory_id if with_directory else Uuid.ZERO,
        log_end_offset=one.log_end_offset,
        last_fetch_timestamp=one.last_fetch_ms,
        last_caught_up_timestamp=one.last_caught_up_ms,
    )
