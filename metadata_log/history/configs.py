"""Dynamic configurations: their values over time, and differences from the cluster's default (Kafka: `ConfigsImage`).

Other histories use this module for a topic's configuration at the time of an event.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from metadata_log.history.causes import CauseRow
from metadata_log.history.open_rows import OpenRow, OpenRows, Sink, When
from metadata_log.history.values import config_values, resource_type
from metadata_log.image.configs import ConfigsImage, Resource, ResourceType, replay_config, without
from metadata_log.java_text import whole_number
from metadata_log.records.metadata import ConfigRecord
from metadata_log.records.redact import shown_config
from metadata_log.records.topic_synonyms import default_of_topics, topic_key

SET: Final = "config-set"
SET_AGAIN: Final = "config-set-again"
REMOVED: Final = "config-removed"
TOPIC_DELETED: Final = "topic-deleted"
BECAME_DEFAULT: Final = "no-longer-different"

UNCLEAN: Final = "unclean.leader.election.enable"
MIN_ISR: Final = "min.insync.replicas"
DEFAULTS: Final = {UNCLEAN: "false", MIN_ISR: "1"}
"""Kafka's own defaults; the metadata log does not hold the values of a node's properties file."""

CLUSTER_DEFAULT: Final[Resource] = (ResourceType.BROKER, "")

TopicListener = Callable[[str, str, When, CauseRow], None]
"""Called with a topic's name ("" = all topics), the key, the time and the cause when one of the keys above changes."""


class Configs:
    """The configured values, and the open rows of `config_history` and `config_drift`."""

    def __init__(self, sink: Sink, *, show_secrets: bool) -> None:
        self.image = ConfigsImage()
        self.listeners: list[TopicListener] = []
        self._rows = OpenRows("config_history", sink)
        self._drift = Drift(sink, show_secrets=show_secrets)
        self._show_secrets = show_secrets
        self._wanted = "config_history" in sink.wanted or "config_drift" in sink.wanted

    def of_topic(self, topic: str, key: str) -> str:
        """The effective value for a topic: its own, else the cluster's default, else Kafka's."""
        own = self.image.of((ResourceType.TOPIC, topic)).get(key)
        if own is None:
            own = self.image.of(CLUSTER_DEFAULT).get(key)
        return DEFAULTS[key] if own is None else own

    def unclean_allowed(self, topic: str) -> bool:
        """Whether unclean leader election is enabled for a topic."""
        return self.of_topic(topic, UNCLEAN).lower() == "true"

    def min_isr(self, topic: str) -> int:
        """min.insync.replicas of a topic; 1 if the value is no number."""
        number = whole_number(self.of_topic(topic, MIN_ISR))
        return 1 if number is None or number < 0 else number

    def on_config(self, record: ConfigRecord, when: When, snapshot: CauseRow | None, offset: int) -> None:
        """Set one key or, for a null value, remove the key."""
        resource = (record.resource_type, record.resource_name)
        key, old = record.name, self.image.of(resource).get(record.name)
        self.image = replay_config(self.image, record)
        watched = key in DEFAULTS and old != record.value and (resource[0] == ResourceType.TOPIC or not resource[1])
        if not (self._wanted or watched):
            return
        cause = snapshot or _how(resource, key, old, record.value, offset)
        identity = (*resource, key)
        if record.value is None:
            self._rows.end(identity, when, REMOVED)
        else:
            values = config_values(resource, key, record.value, show_secrets=self._show_secrets)
            shown = shown_config(resource[0], key, old, show_secrets=self._show_secrets)
            self._rows.begin(identity, (*values, shown), when, cause)
        self._drift.on_config(self.image, resource, key, when, cause)
        if watched:
            for listener in self.listeners:
                listener(resource[1], key, when, cause)

    def on_remove_topic(self, topic: str, when: When) -> None:
        """Remove the configuration of a deleted topic."""
        resource = (ResourceType.TOPIC, topic)
        for key in sorted(self.image.of(resource)):
            self._rows.end((*resource, key), when, TOPIC_DELETED)
            self._drift.end(resource, key, when, TOPIC_DELETED)
        self.image = without(self.image, resource)

    def lose_sight(self, when: When) -> None:
        """End every row: the following history is unknown."""
        self.image = ConfigsImage()
        self._rows.lose_sight(when)
        self._drift.rows.lose_sight(when)

    def finish(self, now: When) -> None:
        """Write the open rows."""
        self._rows.finish(now)
        self._drift.rows.finish(now)


def _how(resource: Resource, key: str, old: str | None, new: str | None, offset: int) -> CauseRow:
    """The cause of a value: the record at `offset`, which sets or removes the key."""
    owner = _owner_text(resource)
    if new is None:
        code, text = REMOVED, f"{key} {owner} was removed"
    elif old is None:
        code, text = SET, f"{key} {owner} was set"
    elif old == new:
        code, text = SET_AGAIN, f"{key} {owner} was set again to the same value"
    else:
        code, text = SET, f"{key} {owner} was changed"
    return (code, "ConfigRecord", offset, None, text)


@lru_cache(maxsize=1 << 12)
def _owner_text(resource: Resource) -> str:
    if resource == CLUSTER_DEFAULT:
        return "of all brokers"
    return f"of {resource_type(resource[0]).lower().replace('_', ' ')} {resource[1]}"


def _default_of(image: ConfigsImage, resource: Resource, key: str) -> str | None:
    """The value in the default of all brokers. Topics take it under the brokers' name and in the topic's unit."""
    settings = image.of(CLUSTER_DEFAULT)
    return default_of_topics(key, settings) if resource[0] == ResourceType.TOPIC else settings.get(key)


class Drift:
    """The intervals in which a broker or topic differed from the cluster's default: the rows of `config_drift`."""

    def __init__(self, sink: Sink, *, show_secrets: bool) -> None:
        self.rows = OpenRows("config_drift", sink)
        self._wanted = "config_drift" in sink.wanted
        self._show_secrets = show_secrets

    def on_config(self, image: ConfigsImage, resource: Resource, key: str, when: When, cause: CauseRow) -> None:
        """A key changed on one resource, or in the default of all brokers."""
        if not self._wanted:
            return
        if resource != CLUSTER_DEFAULT:
            self._compare(image, resource, key, when, cause)
            return
        of_topics = topic_key(key)
        for other in sorted(image.by_resource):
            same = of_topics if other[0] == ResourceType.TOPIC else key
            if other != CLUSTER_DEFAULT and same is not None and same in image.by_resource[other]:
                self._compare(image, other, same, when, cause)

    def end(self, resource: Resource, key: str, when: When, end_cause: str) -> None:
        """End the interval of a resource."""
        self.rows.end((*resource, key), when, end_cause)

    def _compare(self, image: ConfigsImage, resource: Resource, key: str, when: When, cause: CauseRow) -> None:
        if resource[0] not in (ResourceType.TOPIC, ResourceType.BROKER):
            return
        identity = (*resource, key)
        value, default = image.of(resource).get(key), _default_of(image, resource, key)
        if value is None or (default is not None and value.strip() == default.strip()):
            self.rows.end(identity, when, REMOVED if value is None else BECAME_DEFAULT)
            return
        shown = shown_config(resource[0], key, default, show_secrets=self._show_secrets)
        values = (*config_values(resource, key, value, show_secrets=self._show_secrets), shown)
        former: OpenRow | None = self.rows.get(identity)
        if former is None or former.values != values:
            self.rows.begin(identity, values, when, cause)
