"""Judges the configurations of topics and of groups (Kafka: `LogConfig`, `ControllerConfigurationValidator`,
`GroupConfig`; KIP-848).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kraft.access.errors import ApiError
from kraft.config.definitions import GROUP, TOPIC, BadValue, Definition, checked, elements
from kraft.config.group_synonyms import group_bounds, group_synonym, value_of_node
from transport.protocol.errors import Error


def validate_topic(values: Mapping[str, str]) -> None:
    """Refuse an invalid resulting configuration of a topic; raises `ApiError` with Kafka's messages."""
    for name in values:
        if name not in TOPIC:
            raise ApiError(Error.INVALID_CONFIG, f"Unknown topic config name: {name}")
    for name, value in sorted(values.items()):
        check(TOPIC[name], value)
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


_RACK_TAGS: Final = "streams.rack.aware.assignment.tags"
_DEAD_LETTERS: Final = "errors.deadletterqueue.topic.name"
_ASSIGNOR: Final = "streams.assignor.name"
_KINDS: Final = ("consumer", "share", "streams")
_SESSIONS: Final = tuple((f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms") for kind in _KINDS)
_BOUNDED: Final = (
    "consumer.heartbeat.interval.ms",
    "consumer.session.timeout.ms",
    "consumer.assignment.interval.ms",
    "share.heartbeat.interval.ms",
    "share.session.timeout.ms",
    "share.record.lock.duration.ms",
    "share.delivery.count.limit",
    "share.partition.max.record.locks",
    "share.assignment.interval.ms",
    "streams.heartbeat.interval.ms",
    "streams.session.timeout.ms",
    "streams.num.standby.replicas",
    "streams.assignment.interval.ms",
    "streams.task.offset.interval.ms",
    "streams.num.warmup.replicas",
)
"""The settings that those of nodes bound, in Kafka's order."""


_BOUNDS: Final = {name: group_bounds(name) for name in _BOUNDED}


def validate_group(values: Mapping[str, str], node: Mapping[str, str]) -> None:
    """Refuse an invalid resulting configuration of a group; raises `ApiError` with Kafka's messages. `node` holds what
    the configuration file of this controller sets.
    """
    for name in values:
        if name not in GROUP:
            raise ApiError(Error.INVALID_CONFIG, f"Unknown group config name: {name}")
    tags = elements(values.get(_RACK_TAGS, ""))
    if len(set(tags)) < len(tags):
        raise ApiError(Error.INVALID_CONFIG, f"{_RACK_TAGS} must not contain duplicate tag keys.")
    for name, value in sorted(values.items()):
        check(GROUP[name], value)
    for name in _BOUNDED:
        if name in values:
            _check_bounds(name, whole(GROUP, values, name), node)
    assignor, assignors = values.get(_ASSIGNOR), elements(value_of_node(group_synonym(_ASSIGNOR), node))
    if assignor is not None and assignor.strip() not in assignors:
        text = f"{_ASSIGNOR} '{assignor.strip()}' is not a registered task assignor. Registered assignors are: "
        raise ApiError(Error.INVALID_CONFIG, f"{text}[{', '.join(assignors)}].")
    for session, heartbeat in _SESSIONS:
        if session in values or heartbeat in values:
            session_ms, heartbeat_ms = (
                whole(GROUP, {name: value_of_node(group_synonym(name), node), **values}, name)
                for name in (session, heartbeat)
            )
            if session_ms <= heartbeat_ms:
                raise ApiError(Error.INVALID_CONFIG, f"{session} must be greater than {heartbeat}")
    if values.get(_DEAD_LETTERS, "").strip().startswith("__"):
        raise ApiError(Error.INVALID_CONFIG, f"{_DEAD_LETTERS}: DLQ topic name must not start with '__'")


def _check_bounds(name: str, number: int, node: Mapping[str, str]) -> None:
    """Refuse a number outside of what the node allows for this setting of groups."""
    least, most = (None if key is None else int(value_of_node(key, node)) for key in _BOUNDS[name])
    if (least is None or number >= least) and (most is None or number <= most):
        return
    if most is None:
        allowed = f"greater than or equal to {least}"
    elif least is None:
        allowed = f"less than or equal to {most}"
    else:
        allowed = f"in the range {least} to {most} inclusive."
    raise ApiError(Error.INVALID_CONFIG, f"{name} must be {allowed}")
