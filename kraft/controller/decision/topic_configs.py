"""The effective configuration of a topic, from all sources (Kafka: `KafkaConfigSchema`)."""

from __future__ import annotations

from typing import Final

from kraft.config.data_settings import TopicDefaults
from kraft.config.definitions import whole_number
from kraft.config.properties import trim
from metadata_log.image import MetadataImage, ResourceType, TopicImage

MIN_ISR: Final = "min.insync.replicas"
UNCLEAN_ELECTION: Final = "unclean.leader.election.enable"
_CLUSTER: Final = ""


def effective(image: MetadataImage, topic: str, key: str, defaults: TopicDefaults) -> str | None:
    """The value of the topic, else of this controller, else of the cluster; None if only the default applies."""
    for resource in (
        (ResourceType.TOPIC, topic),
        (ResourceType.BROKER, str(defaults.node_id)),
        (ResourceType.BROKER, _CLUSTER),
    ):
        value = image.configs.of(resource).get(key)
        if value is not None:
            return value
    return None


def min_isr(image: MetadataImage, topic: TopicImage, defaults: TopicDefaults) -> int:
    """min.insync.replicas of a topic, at most the replication factor of its first partition."""
    value = effective(image, topic.name, MIN_ISR, defaults)
    number = None if value is None else whole_number(trim(value), 32)
    # A controller does not validate cluster-wide values. Kafka's active controller fails on one that is no number.
    wanted = defaults.min_isr if number is None else number
    return min(wanted, len(topic.partitions[0].replicas)) if topic.partitions else wanted


def unclean_election(image: MetadataImage, topic: str, defaults: TopicDefaults) -> bool:
    """Whether a topic allows unclean elections (unclean.leader.election.enable).

    A value with blanks around it is false, as in Kafka (`Boolean.parseBoolean`).
    """
    value = effective(image, topic, UNCLEAN_ELECTION, defaults)
    return defaults.unclean_election if value is None else value.lower() == "true"
