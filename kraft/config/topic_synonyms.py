"""The names of topic settings in a node's configuration (Kafka: `ServerTopicConfigSynonyms`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from kraft.config.kafka_keys import LISTENER_PREFIX, definition_of
from metadata_log.records.topic_synonyms import TOPIC_SYNONYMS as NAMES


class Synonym(Struct, frozen=True):
    """A node's name of a topic setting, and the factor `unit` that converts its unit to the topic's unit."""

    name: str
    unit: int = 1

    def of_topics(self, value: str) -> str:
        """A node's value in the form of a topic setting; a text that is no number is unchanged."""
        if self.unit == 1:
            return value
        try:
            return str(int(value) * self.unit)
        except ValueError:
            return value


TOPIC_SYNONYMS: Final = {key: tuple(Synonym(*one) for one in names) for key, names in NAMES.items()}
"""The node's names of each topic setting, by precedence."""


def inherited(key: str, settings: Mapping[str, str]) -> str | None:
    """The topic value of `key` that follows from the settings of a node; None if they do not set it."""
    for synonym in TOPIC_SYNONYMS.get(key, ()):
        if (value := settings.get(synonym.name)) is not None:
            return synonym.of_topics(value)
    return None


_FAMILIES: Final = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
"""The keys of a node that say the same in other units, by precedence."""
_FROM: Final = {name: family[at:] for family in _FAMILIES for at, name in enumerate(family)}


def broker_synonyms(key: str) -> tuple[str, ...]:
    """A key of a node, and those that count where it is not set (Kafka: `DynamicBrokerConfig.brokerConfigSynonyms`)."""
    if key.startswith(LISTENER_PREFIX) and (definition := definition_of(key)) is not None:
        return key, definition.name
    return _FROM.get(key, (key,))
