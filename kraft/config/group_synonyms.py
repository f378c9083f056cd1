"""The names of group settings in a node's configuration (Kafka: `GroupConfig.brokerSynonym`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kraft.config.definitions import GROUP, NODE

_OTHERWISE: Final = {"streams.assignor.name": "streams.assignors"}
_NAMES: Final = {key: f"group.{_OTHERWISE.get(key, key)}" for key in GROUP}


def group_synonym(key: str) -> str:
    """What a setting of groups is called on nodes; its own name, if no setting of nodes stands behind it."""
    name = _NAMES[key]
    return name if name in NODE else key


def value_of_node(key: str, settings: Mapping[str, str]) -> str:
    """What a node sets, or the default."""
    return settings.get(key, NODE[key].default or "")
