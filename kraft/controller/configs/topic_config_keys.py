"""Judges the configurations of topics and of groups (Kafka: `LogConfig`, `ControllerConfigurationValidator`,
`GroupConfig`; KIP-848).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kraft.access.errors import ApiError
from kraft.config.definitions import GROUP, NODE, TOPIC, BadValue, Definition, checked, elements
from transport.protocol.errors import Error


def validate_topic(values: Mapping[str, str]) -> None:
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


_BOUNDED: Final = (
    *(
        f"{kind}.{what}"
        for kind in ("consumer", "share", "streams")
        for what in ("assignment.interval.ms", "heartbeat.interval.ms", "session.timeout.ms")
    ),
    "share.delivery.count.limit",
    "share.partition.max.record.locks",
    "share.record.lock.duration.ms",
    "streams.num.standby.replicas",
    "streams.task.offset.interval.ms",
    "streams.num.warmup.replicas",
)
"""The settings that brokers bound, by default as in Kafka."""


def _bounds(name: str) -> tuple[tuple[str, int | None], tuple[str, int | None]]:
    """The settings of brokers that bound a setting of groups from below and above, with their defaults."""
    kind, _, what = name.partition(".")
    what = what.removeprefix("num.")
    keys = (f"group.{kind}.min.{what}", f"group.{kind}.max.{what}")
    least, most = ((key, None if key not in NODE else int(NODE[key].default or "0")) for key in keys)
    return least, most


_RACK_TAGS: Final = "streams.rack.aware.assignment.tags"
_DEAD_LETTERS: Final = "errors.deadletterqueue.topic.name"
_ASSIGNORS_OF_STREAMS: Final = ("sticky",)
"""Those that brokers have by default, which Kafka looks up as a controller does here."""
_LIMITS: Final = {name: _bounds(name) for name in _BOUNDED}


def validate_group(values: Mapping[str, str]) -> None:
    """Refuse an invalid resulting configuration of a group; raises `ApiError` with Kafka's messages."""
    for name in values:
        if name not in GROUP:
            raise ApiError(Error.INVALID_CONFIG, f"Unknown group config name: {name}")
    tags = elements(values.get(_RACK_TAGS, ""))
    if len(set(tags)) < len(tags):
        raise ApiError(Error.INVALID_CONFIG, f"{_RACK_TAGS} must not contain duplicate tag keys.")
    for name, value in sorted(values.items()):
        check(GROUP[name], value)
    for name, ((least, lowest), (most, highest)) in _LIMITS.items():
        if name in values:
            number = whole(GROUP, values, name)
            if lowest is not None and number < lowest:
                raise ApiError(Error.INVALID_CONFIG, f"{name} must be greater than or equal to {least}")
            if highest is not None and number > highest:
                raise ApiError(Error.INVALID_CONFIG, f"{name} must be less than or equal to {most}")
    assignor = values.get("streams.assignor.name")
    if assignor is not None and assignor.strip() not in _ASSIGNORS_OF_STREAMS:
        text = (
            f"streams.assignor.name '{assignor.strip()}' is not a registered task assignor. Registered assignors are: "
        )
        raise ApiError(Error.INVALID_CONFIG, f"{text}[{', '.join(_ASSIGNORS_OF_STREAMS)}].")
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        session_ms, heartbeat_ms = (whole(GROUP, values, name) for name in (session, heartbeat))
        if session_ms <= heartbeat_ms:
            raise ApiError(Error.INVALID_CONFIG, f"{session} must be greater than {heartbeat}")
    if values.get(_DEAD_LETTERS, "").strip().startswith("__"):
        raise ApiError(Error.INVALID_CONFIG, f"{_DEAD_LETTERS}: DLQ topic name must not start with '__'")
