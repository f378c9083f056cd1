"""Checks whether the topic and the broker of a `kraft history` filter ever existed."""

from __future__ import annotations

from typing import Final

from kraft.cli.files.history_lines import Filter, Row
from kraft.cli.near import unknown_broker, unknown_topic
from kraft.config.errors import CommandFailed
from metadata_log.history.views import VIEWS

_TOPICS: Final = "topic_history"
_BROKERS: Final = "broker_history"
_PARTITIONS: Final = "partition_history"
_CONFIGS: Final = "config_history"


class Names:
    """Collects the topics and brokers of a history that a filter may name, including deleted topics."""

    def __init__(self, wanted: Filter) -> None:
        self._wanted = wanted
        self._topics: dict[str, int] = {}
        self._brokers: set[int] = set()
        self.views: frozenset[str] = frozenset()
        """The views with the names."""
        if wanted.topic is not None:
            self.views |= {_TOPICS}
        if wanted.broker is not None:
            self.views |= {_BROKERS, _PARTITIONS}

    def note(self, view: str, row: Row) -> None:
        """Account for the names in a row."""
        if self._wanted.topic is not None and view == _TOPICS:
            name, partitions = row[_AT[_TOPICS, "topic"]], row[_AT[_TOPICS, "partitions"]]
            self._topics[name] = max(self._topics.get(name, 0), partitions)
        elif self._wanted.topic is not None and view == _CONFIGS and row[_AT[_CONFIGS, "resource_type"]] == "TOPIC":
            self._topics.setdefault(row[_AT[_CONFIGS, "resource_name"]], 0)
        elif self._wanted.broker is not None and view == _BROKERS:
            self._brokers.add(row[_AT[_BROKERS, "broker"]])
        elif self._wanted.broker is not None and view == _PARTITIONS:
            self._brokers.update(row[_AT[_PARTITIONS, "replicas"]])
        elif self._wanted.broker is not None and view == _CONFIGS and row[_AT[_CONFIGS, "resource_type"]] == "BROKER":
            name = row[_AT[_CONFIGS, "resource_name"]]
            self._brokers |= {int(name)} if name.isdecimal() else set()

    def unknown(self) -> CommandFailed | None:
        """The failure for a name without any row; None if all requested names are known."""
        topic, broker = self._wanted.topic, self._wanted.broker
        if topic is not None and topic not in self._topics:
            name, dash, number = topic.rpartition("-")
            if not (dash and number.isdecimal() and name in self._topics):
                return unknown_topic(topic, self._topics)
            if int(number) >= self._topics[name]:
                partitions = self._topics[name]
                return CommandFailed(f"there is no partition {topic}", hint=f"{name} never had more than {partitions}.")
        if broker is not None and broker not in self._brokers:
            return unknown_broker(broker, self._brokers, verb="never was")
        return None


_AT: Final = {
    (view, column): VIEWS[view].names.index(column)
    for view, column in (
        (_TOPICS, "topic"),
        (_TOPICS, "partitions"),
        (_BROKERS, "broker"),
        (_PARTITIONS, "replicas"),
        (_CONFIGS, "resource_type"),
        (_CONFIGS, "resource_name"),
    )
}
"""The index of a column in the rows of a view."""
