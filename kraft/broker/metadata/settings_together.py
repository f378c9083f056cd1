"""Judges a broker's settings together, as a change would leave them (Kafka: `KafkaConfig.validateValues`,
`DynamicThreadPool`, `LogCleaner.validateReconfiguration`, `DynamicLogConfig`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from kraft.access.errors import ApiError
from kraft.config.definitions import NODE, checked
from kraft.config.kafka_keys import why_unusable
from kraft.config.topic_synonyms import broker_synonyms
from transport.protocol.errors import Error

_POOLS: Final = (
    "num.io.threads",
    "num.network.threads",
    "num.replica.fetchers",
    "num.recovery.threads.per.data.dir",
    "background.threads",
)
_OF_CONNECTIONS: Final = ("max.connections", "max.connection.creation.rate")
"""The settings that a file may set to 0, and no change (`ListenerConnectionQuota.validateReconfiguration`)."""
_CLEANERS: Final = "log.cleaner.threads"
_CLEANER_BYTES: Final = "log.cleaner.dedupe.buffer.size"
_MEBIBYTE: Final = 1 << 20
_MINUTE_MS: Final = 60_000
_AS_MUCH: Final = -2
"""A local retention that is the whole retention."""


class Effective(Struct, frozen=True):
    """The settings of a broker that some layer sets, after the precedence of the layers."""

    values: Mapping[str, str]

    def number(self, key: str) -> int | None:
        """A whole number, or the default; None if there is neither."""
        text = self.values.get(key, NODE[key].default)
        found = None if text is None else checked(NODE[key], text)
        return found if isinstance(found, int) else None

    def required(self, key: str) -> int:
        """A whole number that has a default."""
        found = self.number(key)
        assert found is not None, key
        return found

    @property
    def retention_ms(self) -> int:
        """How long records are kept, whichever unit the setting has; -1 for always."""
        found = self.number("log.retention.ms")
        if found is None and (minutes := self.number("log.retention.minutes")) is not None:
            found = minutes * _MINUTE_MS
        if found is None:
            found = self.required("log.retention.hours") * 60 * _MINUTE_MS
        return max(found, -1)


def effective(layers: Iterable[Mapping[str, str]]) -> Effective:
    """The settings after layers from the weakest to the strongest, without values that a broker ignores."""
    merged: dict[str, str] = {}
    for layer in layers:
        for key, text in layer.items():
            if key not in NODE or why_unusable(NODE[key], text):
                continue
            for synonym in broker_synonyms(key):
                merged.pop(synonym, None)
            merged[key] = text
    return Effective(merged)


def check_together(before: Effective, after: Effective) -> None:
    """Refuse settings that do not go together, and pools that grow or shrink too much at once; raises `ApiError`."""
    if before.values == after.values:
        return
    threads = after.required(_CLEANERS)
    if threads == 0:
        # Kafka divides by it.
        raise ApiError(Error.INVALID_REQUEST, "/ by zero")
    if after.required(_CLEANER_BYTES) // threads <= _MEBIBYTE:
        raise _unmet(f"{_CLEANER_BYTES} must be at least 1MB per cleaner thread.")
    per_address = "max.connections.per.ip"
    if after.number(per_address) == 0 and not after.values.get(f"{per_address}.overrides"):
        raise _unmet(f"{per_address} can be set to zero only if {per_address}.overrides property is set.")
    for key in _OF_CONNECTIONS:
        if after.required(key) == 0:
            raise _invalid(f"Invalid {key} 0")
    for key in (*_POOLS, _CLEANERS):
        _check_pool(key, before.required(key), after.required(key))
    _check_local_retention(after, "log.local.retention.ms", "log.retention.ms", after.retention_ms)
    of_bytes = "log.retention.bytes"
    _check_local_retention(after, "log.local.retention.bytes", of_bytes, after.required(of_bytes))


def _check_pool(key: str, old: int, new: int) -> None:
    if key == _CLEANERS:
        text = "Log cleaner threads cannot be"
        less, more = "reduced to less than half", "increased to more than double"
    else:
        text = f"Dynamic thread count update validation failed for {key}={new}, value should"
        less, more = "be at least half", "not be greater than double"
    if not old // 2 <= new <= old * 2:
        raise _invalid(f"{text} {less if new < old // 2 else more} the current value {old}")


def _check_local_retention(after: Effective, key: str, whole: str, most: int) -> None:
    found = after.required(key)
    if most < 0 or found == _AS_MUCH:
        return
    if found == -1:
        raise _invalid_value(key, found, f"Value must not be -1 as {whole} value is set as {most}.")
    if found > most:
        raise _invalid_value(key, found, f"Value must not be more than {whole} property value: {most}")


def _unmet(text: str) -> ApiError:
    return ApiError(Error.INVALID_REQUEST, f"requirement failed: {text}")


def _invalid(text: str) -> ApiError:
    text = f"Invalid value org.apache.kafka.common.config.ConfigException: {text} for configuration"
    return ApiError(Error.INVALID_REQUEST, f"{text} Invalid dynamic configuration")


def _invalid_value(key: str, value: int, text: str) -> ApiError:
    return _invalid(f"Invalid value {value} for configuration {key}: {text}")
