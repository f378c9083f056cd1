"""Judges the configuration of a topic (Kafka: `LogConfig`, `ControllerConfigurationValidator`)."""

from __future__ import annotations

from collections.abc import Mapping

from kraft.access.errors import ApiError
from kraft.config.definitions import TOPIC, BadValue, Definition, checked
from transport.protocol.errors import Error


def validate(values: Mapping[str, str]) -> None:
    """Refuse an invalid resulting configuration of a topic; raises `ApiError` with Kafka's messages."""
    for name in values:
        if name not in TOPIC:
            raise ApiError(Error.INVALID_CONFIG, f"Unknown topic config name: {name}")
    for name, value in sorted(values.items()):
        check(TOPIC[name], value)
    if values.get("remote.storage.enable", "").strip().lower() == "true":
        text = "Tiered Storage functionality is disabled in the broker. "
        raise ApiError(Error.INVALID_CONFIG, text + "Topic cannot be configured with remote log storage.")
    shortest, longest = (whole(TOPIC, values, name) for name in ("min.compaction.lag.ms", "max.compaction.lag.ms"))
    if shortest > longest:
        text = f"conflict topic config setting min.compaction.lag.ms ({shortest}) > max.compaction.lag.ms ({longest})"
        raise ApiError(Error.INVALID_CONFIG, text)


def check(key: Definition, value: str) -> None:
    """Refuse a value that the key does not permit; raises `ApiError`."""
    try:
        checked(key, value)
    except BadValue as bad:
        raise ApiError(Error.INVALID_CONFIG, str(bad)) from None


def whole(keys: Mapping[str, Definition], values: Mapping[str, str], name: str) -> int:
    """The whole number of a key, or its default; the value has been validated."""
    number = checked(keys[name], values.get(name, keys[name].default or "0"))
    assert isinstance(number, int), name
    return number
