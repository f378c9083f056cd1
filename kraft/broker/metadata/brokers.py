"""The brokers that clients are told of (Kafka: `KRaftMetadataCache`, `DescribeClusterRequest`)."""

from __future__ import annotations

from random import Random

from kraft.access.endpoint_types import BROKERS, NOT_ASKED, refuse_others
from kraft.handling.rights import Permissions
from metadata_log.image import Broker, MetadataImage
from metadata_log.image.persistent_map import in_key_order
from metadata_log.records.metadata import BrokerEndpoint
from metadata_log.types import NO_NODE
from transport.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)


def endpoint_of(broker: Broker, listener: str) -> BrokerEndpoint | None:
    """The address of a broker at its listener of this name; None if the broker has no such listener."""
    return next((one for one in broker.endpoints if one.name == listener), None)


def reachable(image: MetadataImage, listener: str, *, with_fenced: bool = False) -> list[tuple[Broker, BrokerEndpoint]]:
    """The brokers with a listener of this name, by id; without those that are fenced, unless asked for."""
    brokers = []
    for _, broker in in_key_order(image.brokers.by_id):
        at = endpoint_of(broker, listener)
        if at is not None and (with_fenced or not broker.fenced):
            brokers.append((broker, at))
    return brokers


def any_of(alive: list[tuple[Broker, BrokerEndpoint]], rng: Random) -> int:
    """The id that clients take for the controller's: that of a random broker, because brokers forward requests.

    -1 if there is no broker (`KRaftMetadataCache.getRandomAliveBroker`).
    """
    ids = [broker.id for broker, _ in alive if not broker.fenced]
    return ids[rng.randrange(len(ids))] if ids else NO_NODE


def describe_cluster(
    image: MetadataImage,
    request: DescribeClusterRequest,
    *,
    version: int,
    listener: str,
    cluster_id: str,
    rng: Random,
    permissions: Permissions,
) -> DescribeClusterResponse:
    """The brokers at the listener of the request (Kafka: `KafkaApis.handleDescribeCluster`, KIP-700).

    Every client may ask; what the client may do on the cluster is in the answer on request.
    """
    if (refusal := refuse_others(request, version, BROKERS)) is not None:
        return refusal
    reached = reachable(image, listener, with_fenced=request.include_fenced_brokers)
    return DescribeClusterResponse(
        endpoint_type=request.endpoint_type,
        cluster_id=cluster_id,
        controller_id=any_of(reached, rng),
        brokers=[
            DescribeClusterBroker(
                broker_id=broker.id, host=at.host, port=at.port, rack=broker.rack, is_fenced=broker.fenced
            )
            for broker, at in reached
        ],
        cluster_authorized_operations=(
            permissions.on_cluster() if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )
