"""The client for administration, which connects only to controllers (Kafka: `KafkaAdminClient`, KIP-919).

async with open_admin([Endpoint("127.0.0.1", 9093)]) as admin:
    await create_topic(admin, "orders", partitions=6, replication_factor=3)
    image = await read_image(admin)  # of kraft.observer
    print(image.topics["orders"].partitions[0].leader)
"""

from kraft.admin.acls import AclFilter, acl_text, create_acls, delete_acls, describe_acls
from kraft.admin.brokers import unregister_broker, unregister_controller
from kraft.admin.client import AdminClient, ConfigChange, Operation, ResourceType, open_admin
from kraft.admin.configs import ConfigSource, Setting, alter_quotas, describe_configs, entity_name
from kraft.admin.descriptions import ClusterDescription, QuorumDescription, ReplicaDescription
from kraft.admin.errors import AdminError, CannotConnect, NoController, RequestRefused, SomeRefused
from kraft.admin.features import Feature, Features, UpgradeType, describe_features, update_features
from kraft.admin.loggers import alter_loggers, describe_loggers
from kraft.admin.partitions import (
    ElectionOutcome,
    ElectionType,
    Reassignment,
    TopicPartition,
    alter_reassignments,
    elect_leaders,
    list_reassignments,
)
from kraft.admin.topics import CreatedTopic, create_topic, delete_topics, grow_topic
from kraft.admin.users import delete_credential, set_password

__all__ = [
    "AclFilter",
    "AdminClient",
    "AdminError",
    "CannotConnect",
    "ClusterDescription",
    "ConfigChange",
    "ConfigSource",
    "CreatedTopic",
    "ElectionOutcome",
    "ElectionType",
    "Feature",
    "Features",
    "NoController",
    "Operation",
    "QuorumDescription",
    "Reassignment",
    "ReplicaDescription",
    "RequestRefused",
    "ResourceType",
    "Setting",
    "SomeRefused",
    "TopicPartition",
    "UpgradeType",
    "acl_text",
    "alter_loggers",
    "alter_quotas",
    "alter_reassignments",
    "create_acls",
    "create_topic",
    "delete_acls",
    "delete_credential",
    "delete_topics",
    "describe_acls",
    "describe_configs",
    "describe_features",
    "describe_loggers",
    "elect_leaders",
    "entity_name",
    "grow_topic",
    "list_reassignments",
    "open_admin",
    "set_password",
    "unregister_broker",
    "unregister_controller",
    "update_features",
]
