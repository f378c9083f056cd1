"""Judges a change of the dynamic configuration of brokers that came through a broker.

Kafka: `ConfigAdminManager.validateBrokerConfigChange`, `DynamicBrokerConfig.validateConfigs`. There the broker that has
the request judges it; a controller that is asked directly takes any value, and brokers ignore what they cannot use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kraft.config.definitions import NODE, OF_QUOTAS
from kraft.config.kafka_keys import DYNAMIC_FOR_ALL, KAFKA_DYNAMIC, LISTENER_PREFIX, definition_of, why_unusable
from kraft.config.tls_settings import RELOADABLE
from kraft.controller.decision.result import ApiError
from transport.protocol.errors import Error

_FIXED: Final = "Cannot update these configs dynamically"
_ONLY_OF_LISTENERS: Final = (
    "These security configs can be dynamically updated only per-listener using the listener prefix"
)
_ONLY_OF_ONE: Final = "Cannot update these configs at default cluster level, broker id must be specified"
_FOR_ALL_LISTENERS: Final = ("max.connections", "max.connection.creation.rate", "num.network.threads")
"""The settings of listeners that a default of all brokers may have (`CLUSTER_LEVEL_LISTENER_CONFIGS`)."""


def validate(name: str, changed: Mapping[str, str | None]) -> None:
    """Refuse changes that a broker refuses; raises `ApiError` with Kafka's code and words.

    Args:
        name: The id of the broker; empty for the default of all brokers.
        changed: The new values by key; None for a value that goes.
    """
    given = {key: value for key, value in changed.items() if value is not None}
    _refuse(_FIXED, (key for key in given if key in NODE and key not in KAFKA_DYNAMIC))
    _refuse(_ONLY_OF_LISTENERS, (key for key in given if key in RELOADABLE))
    for key, value in given.items():
        definition = definition_of(key) or OF_QUOTAS.get(key)
        if definition is not None and (why := why_unusable(definition, value)):
            raise ApiError(Error.INVALID_REQUEST, why)
    if not name:
        _refuse(_ONLY_OF_ONE, filter(_is_of_one, given))


def _is_of_one(key: str) -> bool:
    """Whether a setting has a value for single brokers only."""
    if key.startswith(LISTENER_PREFIX):
        definition = definition_of(key)
        return definition is None or definition.name not in _FOR_ALL_LISTENERS
    return key in KAFKA_DYNAMIC and key not in DYNAMIC_FOR_ALL


def _refuse(why: str, keys: Iterable[str]) -> None:
    if found := sorted(keys):
        raise ApiError(Error.INVALID_REQUEST, f"{why}: [{', '.join(found)}]")
