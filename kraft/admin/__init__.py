"""The client side of administration, over the controllers alone (Kafka: `KafkaAdminClient`, KIP-919)."""

from kraft.admin.client import (
    AdminClient,
    AdminError,
    ClusterDescription,
    ConfigChange,
    NoController,
    Operation,
    QuorumDescription,
    ReplicaDescription,
    RequestRefused,
    ResourceType,
    open_admin,
)

__all__ = [
    "AdminClient",
    "AdminError",
    "ClusterDescription",
    "ConfigChange",
    "NoController",
    "Operation",
    "QuorumDescription",
    "ReplicaDescription",
    "RequestRefused",
    "ResourceType",
    "open_admin",
]
