"""Descriptions of a cluster and of its quorum, by controllers (Kafka: `DescribeClusterResult`, `QuorumInfo`)."""

from __future__ import annotations

from msgspec import Struct

from metadata_log.types import Uuid
from transport.interface import Endpoint
from transport.protocol.errors import Error
from transport.protocol.messages.describe_quorum import (
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    ReplicaState,
)


class ClusterDescription(Struct, frozen=True, kw_only=True):
    """The controllers of a cluster (Kafka: `DescribeClusterResult`)."""

    cluster_id: str
    controller_id: int
    """The active controller; -1 if none is known."""
    controllers: tuple[tuple[int, Endpoint], ...]
    """The id and the address of each controller, by id."""


class ReplicaDescription(Struct, frozen=True, kw_only=True):
    """One voter or observer, as the leader reports it (Kafka: `QuorumInfo.ReplicaState`).

    Times are milliseconds since 1970. Offsets and times of -1 are unknown to the leader.
    """

    id: int
    directory_id: Uuid
    """The directory of the replica; zero in a static quorum."""
    log_end_offset: int
    last_fetch_ms: int
    """The time of the replica's last Fetch."""
    last_caught_up_ms: int
    """The time when the replica last had all records."""
    listeners: tuple[tuple[str, Endpoint], ...] = ()
    """The names and addresses of a voter's listeners for controllers."""


class QuorumDescription(Struct, frozen=True, kw_only=True):
    """The quorum as its leader reports it, replicas in the leader's order (Kafka: `QuorumInfo`)."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[ReplicaDescription, ...]
    observers: tuple[ReplicaDescription, ...]


def quorum_error(answer: DescribeQuorumResponse) -> tuple[Error, str | None]:
    """The error of a response about the quorum, and Kafka's message."""
    if answer.error_code:
        return Error.of(answer.error_code), answer.error_message
    partition = _partition(answer)
    return Error.of(partition.error_code), partition.error_message


def _partition(answer: DescribeQuorumResponse) -> DescribeQuorumResponsePartitionData:
    return answer.topics[0].partitions[0]


def quorum_description(answer: DescribeQuorumResponse) -> QuorumDescription:
    """The quorum that a response describes."""
    partition = _partition(answer)
    listeners = {
        node.node_id: tuple((one.name, Endpoint(one.host, one.port)) for one in node.listeners) for node in answer.nodes
    }

    def describe(replica: ReplicaState) -> ReplicaDescription:
        return ReplicaDescription(
            id=replica.replica_id,
            directory_id=replica.replica_directory_id,
            log_end_offset=replica.log_end_offset,
            last_fetch_ms=replica.last_fetch_timestamp,
            last_caught_up_ms=replica.last_caught_up_timestamp,
            listeners=listeners.get(replica.replica_id, ()),
        )

    return QuorumDescription(
        leader_id=partition.leader_id,
        leader_epoch=partition.leader_epoch,
        high_watermark=partition.high_watermark,
        voters=tuple(describe(replica) for replica in partition.current_voters),
        observers=tuple(describe(replica) for replica in partition.observers),
    )
