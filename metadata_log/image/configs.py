"""Configuration overrides by resource (Kafka: `ConfigurationsImage`, `ConfigurationsDelta`)."""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Final

from msgspec import Struct

from metadata_log.errors import ReplayError
from metadata_log.image.persistent_map import Map, with_changes, with_entry, without_key
from metadata_log.java_text import whole_number
from metadata_log.records.metadata import ConfigRecord


class ResourceType(IntEnum):
    """The type of a configuration's resource (`ConfigResource.Type`)."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


Resource = tuple[int, str]
"""A resource's type and name; the name "" is the default of all brokers. A tuple, as the key of a hot map."""

_INT: Final = r"[+-]?(?=[0-9])0*+[0-9]{0,10}"
NO_CONFIGS: Map[str, str] = Map()


class ConfigsImage(Struct, frozen=True):
    """The configured keys of each resource; a resource without keys is not in the map."""

    by_resource: Map[Resource, Map[str, str]] = Map()

    def of(self, resource: Resource) -> Map[str, str]:
        """The configured keys of one resource."""
        return self.by_resource.get(resource, NO_CONFIGS)

    def number_for_topic(self, topic: str, key: str) -> int | None:
        """The whole number that a key has for a topic: of the topic, or else of all brokers; None if neither has one.

        The log does not have the values of the files.
        """
        for resource in ((ResourceType.TOPIC, topic), (ResourceType.BROKER, "")):
            text = self.of(resource).get(key)
            if text is not None and (number := whole_number(text.strip())) is not None:
                return number
        return None


def replay_config(image: ConfigsImage, record: ConfigRecord) -> ConfigsImage:
    """Set a key, or remove the key for a null value; a resource without keys disappears.

    Raises `ReplayError` for a broker with a name that is no number; the name "" stands for all brokers.
    """
    resource = (record.resource_type, record.resource_name)
    values = image.by_resource.get(resource)
    if values is None:
        if record.resource_type == ResourceType.BROKER and record.resource_name and not re.fullmatch(_INT, resource[1]):
            raise ReplayError(f"{record.resource_name!r} is no id of a broker")
        values = NO_CONFIGS
    if record.value is not None:
        values = with_entry(values, record.name, record.value)
        return ConfigsImage(with_entry(image.by_resource, resource, values))
    if record.name not in values:
        return image
    values = without_key(values, record.name)
    return ConfigsImage(with_changes(image.by_resource, {resource: values or None}))


def without(image: ConfigsImage, resource: Resource) -> ConfigsImage:
    """The image without the configuration of one resource."""
    return ConfigsImage(without_key(image.by_resource, resource)) if resource in image.by_resource else image
