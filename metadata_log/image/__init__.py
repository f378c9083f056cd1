"""The cluster's metadata as immutable images (Kafka: `org.apache.kafka.image`)."""

from metadata_log.image.configs import ConfigsImage, Resource, ResourceType
from metadata_log.image.controllers import ControllerRegistration, ControllersImage
from metadata_log.image.features import KRAFT_VERSION, METADATA_VERSION, FeaturesImage
from metadata_log.image.image import MetadataDelta, MetadataImage, OpenTransaction, ReplayError
from metadata_log.image.image_history import ImageHistory

__all__ = [
    "KRAFT_VERSION",
    "METADATA_VERSION",
    "ConfigsImage",
    "ControllerRegistration",
    "ControllersImage",
    "FeaturesImage",
    "ImageHistory",
    "MetadataDelta",
    "MetadataImage",
    "OpenTransaction",
    "ReplayError",
    "Resource",
    "ResourceType",
]
