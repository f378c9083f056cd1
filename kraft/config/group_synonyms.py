"""The names of group settings in a node's configuration (Kafka: `GroupConfig.brokerSynonym`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kraft.config.definitions import GROUP, NODE

_OTHERWISE: Final = {"streams.assignor.name": "streams.assignors"}
_NAMES: Final = {key: f"group.{_OTHERWISE.get(key, key)}" for key in GROUP}


def group_synonym(key: str) -> str:
    """The name on nodes of a setting of groups; its own name, if nodes have no such setting."""
    name = _NAMES[key]
    return name if name in NODE else key


def group_bounds(key: str) -> tuple[str | None, str | None]:
    """The settings of nodes that bound a setting of groups from below and above."""
    kind, _, what = key.partition(".")
    what = what.removeprefix("num.")
    least, most = f"group.{kind}.min.{what}", f"group.{kind}.max.{what}"
    return least if least in NODE else None, most if most in NODE else None


def value_of_node(key: str, settings: Mapping[str, str]) -> str:
    """The value that a node sets, or the default."""
    return settings.get(key, NODE[key].default or "")
