"""Settings that every cluster of a test has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kraft.config import ConfigError
from kraft.config.data_settings import replicas_of_internal_topics

_OF_THE_CLUSTER: Final = frozenset(
    (
        *("process.roles", "node.id", "broker.id", "controller.quorum.voters", "controller.quorum.bootstrap.servers"),
        *("controller.listener.names", "listeners", "advertised.listeners", "listener.security.protocol.map"),
        *("log.dir", "log.dirs", "metadata.log.dir"),
    )
)
"""The settings that a cluster of a test gives to each of its nodes itself."""
_UNKNOWN: Final = "unknown setting "


def settings_of(given: Mapping[str, object]) -> dict[str, str]:
    """The settings of a test as texts; raises `TypeError` or `ConfigError` for ones that it cannot have."""
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        raise TypeError(f"settings are a dictionary, such as {{'num.partitions': 3}}, and not {given!r}")
    for key in given:
        if key in _OF_THE_CLUSTER:
            hint = "Leave it out; brokers, controllers, security and directory say what the nodes are"
            raise ConfigError(f"{key} is set by the cluster for each of its nodes", hint=f"{hint}.")
    return {key: str(value) for key, value in given.items()}


def unknown_settings(warnings: Iterable[str]) -> list[str]:
    """Those of the warnings about a configuration that tell of a setting that nobody knows, without its place."""
    return [one.rpartition(" (")[0] for one in warnings if one.startswith(_UNKNOWN)]


def coordinator_topics(brokers: int) -> dict[str, str]:
    """The topics of the coordinators, as large as so many brokers allow."""
    return {
        **replicas_of_internal_topics(brokers),
        "offsets.topic.num.partitions": str(brokers),
        "transaction.state.log.num.partitions": str(brokers),
        "share.coordinator.state.topic.num.partitions": str(brokers),
    }


def wrong_setting(failed: Exception) -> str | None:
    """The fault of a setting and its remedy, for whoever wrote it; None for a failure of another kind."""
    if not isinstance(failed, ConfigError):
        return None
    return f"{failed.what}. {failed.hint}" if failed.hint else f"{failed.what}."
