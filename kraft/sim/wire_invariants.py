"""What must be true of a message before it leaves a node: the leader that it names can be found (KIP-853).

A receiver that knows no address of the leader could do nothing with its id, and a JVM stops over that.
"""

from __future__ import annotations

from typing import Final

from kraft.sim.invariants import InvariantViolated
from metadata_log.serde import Message
from metadata_log.types import NO_NODE, Uuid
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
"""The versions since which a message says where the leader listens; before that, everybody has that configured."""


def check_leader_can_be_found(node_id: int, message: Message, version: int) -> None:
    """Raises `InvariantViolated` if a node is about to name a leader without its address."""
    first = FIRST_WITH_ENDPOINTS.get(type(message))
    if first is None or version < first:
        return
    leader_id = _leader_named(message)
    if leader_id == NO_NODE:
        return
    if isinstance(message, BeginQuorumEpochRequest):
        is_found = bool(message.leader_endpoints)
    else:
        endpoints = message.node_endpoints  # type: ignore[attr-defined]
        is_found = any(endpoint.node_id == leader_id and endpoint.host for endpoint in endpoints)
    if not is_found:
        raise InvariantViolated(f"node {node_id} names the leader {leader_id} and no address of it: {message}")


def _leader_named(message: Message) -> int:
    """The id of the leader that a message names, or -1."""
    match message:
        case FetchResponse(responses=[topic, *_]) if topic.topic_id == Uuid.METADATA_TOPIC:
            return topic.partitions[0].current_leader.leader_id
        case FetchSnapshotResponse(topics=[topic, *_]):
            return topic.partitions[0].current_leader.leader_id
        case (
            VoteResponse(topics=[topic, *_])
            | BeginQuorumEpochResponse(topics=[topic, *_])
            | EndQuorumEpochResponse(topics=[topic, *_])
            | BeginQuorumEpochRequest(topics=[topic, *_])
        ):
            return topic.partitions[0].leader_id
        case _:
            return NO_NODE
