"""The cluster's metadata as immutable images (Kafka: `org.apache.kafka.image`)."""

from metadata_log.errors import ReplayError
from metadata_log.image.acls import Acl, AclsImage
from metadata_log.image.brokers import Broker, BrokersImage
from metadata_log.image.configs import ConfigsImage, Resource, ResourceType
from metadata_log.image.controllers import ControllerRegistration, ControllersImage
from metadata_log.image.features import KRAFT_VERSION, METADATA_VERSION, FeaturesImage
from metadata_log.image.image import MetadataDelta, MetadataImage, OpenTransaction
from metadata_log.image.image_history import ImageHistory
from metadata_log.image.producer_ids import ProducerIdsImage
from metadata_log.image.quotas import Entity, QuotasImage
from metadata_log.image.scram import ScramCredential, ScramImage
from metadata_log.image.tokens import DelegationToken, TokensImage
from metadata_log.image.topics import Partition, TopicImage, TopicsImage, memberships, merge, partition_of, reassigning

__all__ = [
    "KRAFT_VERSION",
    "METADATA_VERSION",
    "Acl",
    "AclsImage",
    "Broker",
    "BrokersImage",
    "ConfigsImage",
    "ControllerRegistration",
    "ControllersImage",
    "DelegationToken",
    "Entity",
    "FeaturesImage",
    "ImageHistory",
    "MetadataDelta",
    "MetadataImage",
    "OpenTransaction",
    "Partition",
    "ProducerIdsImage",
    "QuotasImage",
    "ReplayError",
    "Resource",
    "ResourceType",
    "ScramCredential",
    "ScramImage",
    "TokensImage",
    "TopicImage",
    "TopicsImage",
    "memberships",
    "merge",
    "partition_of",
    "reassigning",
]
