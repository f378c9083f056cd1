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
    if METRICS in values:
        _elements(METRICS, values)
    interval = values.get(INTERVAL_MS)
    interval_ms = None if interval is None else _int32(interval)
    patterns = _elements(MATCH, values) if MATCH in values else ()
    if interval_ms is not None and not LOWEST_INTERVAL_MS <= interval_ms <= HIGHEST_INTERVAL_MS:
        raise ApiError(
            Error.INVALID_REQUEST,
            f"Invalid value {interval_ms} for {INTERVAL_MS}, interval must be between 100 and 3600000 (1 hour)",
        )
    for pattern in patterns:
        _check_pattern(pattern)


def _elements(key: str, values: Mapping[str, str]) -> list[str]:
    """The elements of a list value, without the blanks around them; none may be empty (KIP-1161)."""
    value = values.get(key, "").strip()
    elements = [element.strip() for element in value.split(",")] if value else []
    if not all(elements):
        raise ApiError(Error.INVALID_CONFIG, f"Configuration '{key}' values must not be empty.")
    return elements


def _int32(text: str) -> int:
    try:
        number = int(text.strip()) if text.isascii() and "_" not in text else None
    except ValueError:
        number = None
    if number is None or number not in _INT32:
        raise ApiError(
            Error.INVALID_CONFIG, f"Invalid value {text} for configuration {INTERVAL_MS}: Not a number of type INT"
        )
    return number


def _check_pattern(pattern: str) -> None:
    # As Java splits, empty pieces at the end do not count.
    pieces = pattern.rstrip("=").split("=")
    if len(pieces) == 2 and pieces[0].strip() in _MATCHED:
        try:
            re.compile(pieces[1].strip())
        except (re.error, RecursionError, OverflowError):
            pass
        else:
            return
    raise ApiError(Error.INVALID_CONFIG, f"Illegal client matching pattern: {pattern}")
