"""Validates subscriptions to client metrics (Kafka: `ClientMetricsConfigs`; KIP-714)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kraft.access.errors import ApiError
from kraft.config.definitions import whole_number
from kraft.controller.configs.match_patterns import is_legal
from kraft.limits import MATCH_CHARACTERS
from metadata_log.image import ResourceType
from transport.protocol.errors import Error
from transport.protocol.messages.alter_configs import AlterConfigsResource as LegacyConfigsResource
from transport.protocol.messages.incremental_alter_configs import AlterConfigsResource

_OWN_TYPE: Final = int(ResourceType.CLIENT_METRICS)
METRICS: Final = "metrics"
INTERVAL_MS: Final = "interval.ms"
MATCH: Final = "match"
NAMES: Final = (METRICS, INTERVAL_MS, MATCH)
LOWEST_INTERVAL_MS: Final = 100
HIGHEST_INTERVAL_MS: Final = 3_600_000
_MATCHED: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)


def check_size(resources: Sequence[AlterConfigsResource | LegacyConfigsResource]) -> None:
    """Refuse a request with patterns that are too long in total; raises `ApiError`. Kafka has no such limit."""
    size = 0
    for resource in resources:
        if resource.resource_type == _OWN_TYPE:
            for config in resource.configs:
                if config.name == MATCH:
                    size += len(config.value or "")
    if size > MATCH_CHARACTERS:
        text = f"The client matching patterns of a request are longer than {MATCH_CHARACTERS} characters."
        raise ApiError(Error.POLICY_VIOLATION, text)


def validate(name: str, values: Mapping[str, str], before: Mapping[str, str]) -> None:
    """Refuse a subscription with invalid resulting values; raises `ApiError` with Kafka's codes and messages.

    `before` holds the current values. Patterns in `before` are not checked again, because another controller may have
    accepted them by other rules.
    """
    if not name:
        raise ApiError(Error.INVALID_REQUEST, "Subscription name can't be empty")
    for key in values:
        if key not in NAMES:
            raise ApiError(Error.INVALID_REQUEST, f"Unknown client metrics configuration: {key}")
    if METRICS in values:
        _elements(METRICS, values)
    interval = values.get(INTERVAL_MS)
    interval_ms = None if interval is None else _int32(interval)
    patterns = _elements(MATCH, values) if MATCH in values and values[MATCH] != before.get(MATCH) else ()
    if interval_ms is not None and not LOWEST_INTERVAL_MS <= interval_ms <= HIGHEST_INTERVAL_MS:
        raise ApiError(
            Error.INVALID_REQUEST,
            f"Invalid value {interval_ms} for {INTERVAL_MS}, interval must be between 100 and 3600000 (1 hour)",
        )
    for pattern in patterns:
        _check_pattern(pattern)


def _elements(key: str, values: Mapping[str, str]) -> list[str]:
    """The elements of a list value, stripped of blanks; an empty element is an error (KIP-1161)."""
    value = values.get(key, "").strip()
    if not value:
        return []
    if "," not in value:
        return [value]
    elements = [element.strip() for element in value.split(",")]
    if "" in elements:
        raise ApiError(Error.INVALID_CONFIG, f"Configuration '{key}' values must not be empty.")
    return elements


def _int32(text: str) -> int:
    number = whole_number(text.strip(), 32)
    if number is None:
        raise ApiError(
            Error.INVALID_CONFIG, f"Invalid value {text} for configuration {INTERVAL_MS}: Not a number of type INT"
        )
    return number


def _check_pattern(pattern: str) -> None:
    # Java's split drops empty trailing elements.
    pieces = pattern.rstrip("=").split("=")
    if len(pieces) == 2 and pieces[0].strip() in _MATCHED and is_legal(pieces[1].strip()):
        return
    raise ApiError(Error.INVALID_CONFIG, f"Illegal client matching pattern: {pattern}")
