"""Judges the configuration of a group (Kafka: `GroupConfig`; KIP-848)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kraft.access.errors import ApiError
from kraft.config.definitions import GROUP, NODE
from kraft.controller.configs.topic_config_keys import check, whole
from transport.protocol.errors import Error

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
)
"""The settings that brokers bound, by default as in Kafka."""


def _bounds(name: str) -> tuple[tuple[str, int | None], tuple[str, int | None]]:
    """The settings of brokers that bound a setting of groups from below and above, with their defaults."""
    kind, _, what = name.partition(".")
    what = what.replace("num.standby", "standby")
    keys = (f"group.{kind}.min.{what}", f"group.{kind}.max.{what}")
    least, most = ((key, None if key not in NODE else int(NODE[key].default or "0")) for key in keys)
    return least, most


_LIMITS: Final = {name: _bounds(name) for name in _BOUNDED}


def validate(values: Mapping[str, str]) -> None:
    """Refuse an invalid resulting configuration of a group; raises `ApiError` with Kafka's messages."""
    for name in values:
        if name not in GROUP:
            raise ApiError(Error.INVALID_CONFIG, f"Unknown group config name: {name}")
    for name, value in sorted(values.items()):
        check(GROUP[name], value)
    for name, ((least, lowest), (most, highest)) in _LIMITS.items():
        if name in values:
            number = whole(GROUP, values, name)
            if lowest is not None and number < lowest:
                raise ApiError(Error.INVALID_CONFIG, f"{name} must be greater than or equal to {least}")
            if highest is not None and number > highest:
                raise ApiError(Error.INVALID_CONFIG, f"{name} must be less than or equal to {most}")
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        session_ms, heartbeat_ms = (whole(GROUP, values, name) for name in (session, heartbeat))
        if session_ms <= heartbeat_ms:
            raise ApiError(Error.INVALID_CONFIG, f"{session} must be greater than {heartbeat}")
