"""What may be configured for the metrics of clients (Kafka: `ClientMetricsConfigs`; KIP-714)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from kraft.controller.result import ApiError
from transport.protocol.errors import Error

METRICS: Final = "metrics"
INTERVAL_MS: Final = "interval.ms"
MATCH: Final = "match"
NAMES: Final = (METRICS, INTERVAL_MS, MATCH)
LISTS: Final = (METRICS, MATCH)
"""The keys whose value is a list, which APPEND and SUBTRACT work on."""

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
_INT32: Final = range(-(2**31), 2**31)


def validate(name: str, values: Mapping[str, str]) -> None:
    """Refuse a subscription whose resulting values are wrong; raises `ApiError` with Kafka's codes and words."""
    if not name:
        raise ApiError(Error.INVALID_REQUEST, "Subscription name can't be empty")
    for key in values:
        if key not in NAMES:
            raise ApiError(Error.INVALID_REQUEST, f"Unknown client metrics configuration: {key}")
    interval = values.get(INTERVAL_MS)
    if interval is not None:
        _check_interval(interval)
    match = values.get(MATCH)
    if match is not None:
        for pattern in split(match):
            _check_pattern(pattern)


def split(value: str) -> list[str]:
    """The elements of a list value, without the blanks around them (`ConfigDef.parseType`)."""
    trimmed = value.strip()
    return [element.strip() for element in trimmed.split(",")] if trimmed else []


def _check_interval(text: str) -> None:
    try:
        interval_ms = int(text.strip()) if text.isascii() and "_" not in text else None
    except ValueError:
        interval_ms = None
    if interval_ms is None or interval_ms not in _INT32:
        raise ApiError(
            Error.INVALID_CONFIG,
            f"Invalid value {text} for configuration {INTERVAL_MS}: Not a number of type INT",
        )
    if not LOWEST_INTERVAL_MS <= interval_ms <= HIGHEST_INTERVAL_MS:
        raise ApiError(
            Error.INVALID_REQUEST,
            f"Invalid value {interval_ms} for {INTERVAL_MS}, interval must be between 100 and 3600000 (1 hour)",
        )


def _check_pattern(pattern: str) -> None:
    key, equals, expression = pattern.partition("=")
    if equals and expression and "=" not in expression and key.strip() in _MATCHED:
        try:
            re.compile(expression.strip())
        except (re.error, RecursionError, OverflowError):
            pass
        else:
            return
    raise ApiError(Error.INVALID_CONFIG, f"Illegal client matching pattern: {pattern}")
