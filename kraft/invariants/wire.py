"""The invariant of outgoing messages: a message that names a leader contains an endpoint of that leader (KIP-853).

A receiver without an address of the leader cannot use the leader id, and a Kafka node in a JVM stops with an error.
"""

from __future__ import annotations

from typing import Final

from kraft.invariants.violation import InvariantViolated
from metadata_log.serde import Message
from metadata_log.types import METADATA_TOPIC, NO_NODE, Uuid
from transport.protocol.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochResponse,
    FetchResponse,
    FetchSnapshotResponse,
    VoteResponse,
)

FIRST_WITH_ENDPOINTS: Final[dict[type[Message], int]] = {
    VoteResponse: 1,
    BeginQuorumEpochRequest: 1,
    BeginQuorumEpochResponse: 1,
    EndQuorumEpochResponse: 1,
    FetchResponse: 17,
    FetchSnapshotResponse: 1,
}
"""The first version of each message that contains the endpoints of the leader. Before that version, every node has the
addresses of all voters in its configuration.
"""


def check_leader_can_be_found(node_id: int, message: Message, version: int) -> None:
    """Check that an outgoing message with a leader id contains an address of the leader."""
    first = FIRST_WITH_ENDPOINTS.get(type(message))
    if first is None or version < first:
        return
    leader_id, addressed = _named(message)
    if leader_id not in (NO_NODE, *addressed):
        raise InvariantViolated(f"node {node_id} names the leader {leader_id} without its address: {message}")


def _named(message: Message) -> tuple[int, list[int]]:
    """The id of the leader that a message names, or -1, and the ids of the nodes with addresses in the message."""
    match message:
        case FetchResponse(responses=[topic, *_]) if topic.topic_id == Uuid.METADATA_TOPIC and topic.partitions:
            endpoints = [one.node_id for one in message.node_endpoints if one.host]
            return topic.partitions[0].current_leader.leader_id, endpoints
        case FetchSnapshotResponse(topics=[topic, *_]) if (
            topic.name == METADATA_TOPIC and topic.partitions and not topic.partitions[0].index
        ):
            endpoints = [one.node_id for one in message.node_endpoints if one.host]
            return topic.partitions[0].current_leader.leader_id, endpoints
        case (
            VoteResponse(topics=[topic, *_])
            | BeginQuorumEpochResponse(topics=[topic, *_])
            | EndQuorumEpochResponse(topics=[topic, *_])
        ):
            return topic.partitions[0].leader_id, [one.node_id for one in message.node_endpoints if one.host]
        case BeginQuorumEpochRequest(topics=[topic, *_]):
            leader_id = topic.partitions[0].leader_id
            return leader_id, [leader_id] if message.leader_endpoints else []
        case _:
            return NO_NODE, []
